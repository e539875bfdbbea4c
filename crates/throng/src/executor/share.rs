//! A hot entity's share of a batch. Beyond it, its commands wait behind those of other entities, so that one popular entity does not make
//! the batch long for everybody.
//!
//! Each loop has batches: from one commit to the next. Each command is charged to a bucket of its entity's hash, in thread-local memory;
//! that is the whole cost while no entity is hot. Once a bucket has used half a share, its entities are counted one by one for the other
//! half, so that an entity that shares a bucket with a hot one is not delayed.
//!
//! At the end of a batch in which other entities had work too, the commit goes first, then the waiting commands, as many as their share
//! allows, in the order they came. If there was no other work, they go at once, into the same commit.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The time that a request costs its loop besides the entity's own work: reading, waking, writing.
const REQUEST_MICROS: u32 = 10;
const BUCKETS: usize = 256;
/// The most commands of one entity that wait for its share. Admission and their deadlines bound the waiting time, not this constant: the
/// time that a command takes says little while other processes use the processor.
const WAITING_MAX: usize = 65_536;
/// The number of shares in one batch, all of which a hot entity gets if it is alone.
const SHARES: u32 = 4;

/// The time used in this thread's batch, by bucket of entities.
struct Spent {
    /// True if the last batch had work of more than one bucket.
    crowd: Cell<bool>,
    /// Half a share; `u32::MAX` on a thread without a loop.
    half: Cell<u32>,
    total: Cell<u32>,
    buckets: [Cell<u32>; BUCKETS],
}

thread_local! {
    static SPENT: Spent = const {
        Spent {
            crowd: Cell::new(false),
            half: Cell::new(u32::MAX),
            total: Cell::new(0),
            buckets: [const { Cell::new(0) }; BUCKETS],
        }
    };
}

/// The low bits of the hash chose the shard.
fn bucket(hash: u64) -> usize {
    (hash >> 8) as usize % BUCKETS
}

impl Spent {
    fn charge(&self, hash: u64, micros: u32) {
        let at = &self.buckets[bucket(hash)];
        at.set(at.get().saturating_add(micros));
        self.total.set(self.total.get().saturating_add(micros));
    }

    fn clear(&self) {
        let total = self.total.replace(0);
        if total > 0 {
            let most = self.buckets.iter().map(|bucket| bucket.replace(0)).max();
            self.crowd.set(most.is_some_and(|most| most < total));
        }
    }
}

/// True if this entity's bucket has used half a share of this thread's batch, and others had work in this batch or the last. An entity
/// without competitors delays nobody.
pub(super) fn may_be_hot(hash: u64) -> bool {
    SPENT.with(|spent| {
        let own = spent.buckets[bucket(hash)].get();
        own >= spent.half.get() && (own < spent.total.get() || spent.crowd.get())
    })
}

/// Charges an executed command. Returns true if it also counts for its entity alone, see [`Share::charge`].
pub(super) fn charge(hash: u64, micros: u64) -> bool {
    SPENT.with(|spent| {
        let was_hot = spent.buckets[bucket(hash)].get() >= spent.half.get();
        spent.charge(hash, cost(micros));
        was_hot
    })
}

fn cost(micros: u64) -> u32 {
    u32::try_from(micros).unwrap_or(u32::MAX).saturating_add(REQUEST_MICROS)
}

/// The shares of one loop.
pub(super) struct Share {
    half_micros: u32,
    /// True if an attempt was deferred in this batch, and is to be woken in the next.
    waits: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Entities that are counted one by one, by their hash.
    hot: BTreeMap<u64, Hot>,
    /// Shares given in this batch.
    given: u32,
    /// True once the loop is gone: nothing waits any more.
    over: bool,
}

/// An entity that has used half a share or more.
struct Hot {
    /// Beyond the first half.
    spent: u32,
    /// The moving average of a command's cost.
    average: u32,
    /// The commands that wait, by number, in order.
    waiting: VecDeque<(u64, Option<Waker>)>,
    next: u64,
    /// The number of waiting commands that may go.
    released: usize,
}

impl Default for Hot {
    fn default() -> Self {
        Self {
            spent: 0,
            average: REQUEST_MICROS,
            waiting: VecDeque::new(),
            next: 0,
            released: 0,
        }
    }
}

/// The decision on a command of an entity that may be hot.
pub(crate) enum Entry {
    Go,
    Wait(Ticket),
    /// Refused, because it would wait this long.
    Refuse(Duration),
}

impl Share {
    pub(crate) fn new(share: Duration) -> Self {
        let half = share.as_micros() / 2;
        Self {
            half_micros: u32::try_from(half).unwrap_or(u32::MAX - 1).max(1),
            waits: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the batches of this thread to its loop from now on.
    pub(crate) fn begin(&self) {
        SPENT.with(|spent| {
            spent.clear();
            spent.half.set(self.half_micros);
        });
    }

    /// Ends the shares of a loop that is gone.
    pub(crate) fn close(&self) {
        let hot = {
            let mut state = self.state();
            state.over = true;
            std::mem::take(&mut state.hot)
        };
        let wakers = hot.into_values().flat_map(|hot| hot.waiting);
        wakers.filter_map(|(_, waker)| waker).for_each(Waker::wake);
    }

    /// A command of an entity that [may be hot](may_be_hot).
    pub(crate) fn enter(self: &Arc<Self>, hash: u64) -> Entry {
        let mut state = self.state();
        if state.over {
            return Entry::Go;
        }
        let hot = state.hot.entry(hash).or_default();
        if hot.waiting.is_empty() && hot.spent < self.half_micros {
            return Entry::Go;
        }
        if hot.waiting.len() >= WAITING_MAX {
            let wait = u64::from(hot.average).saturating_mul(u64::from(SHARES) * hot.waiting.len() as u64);
            return Entry::Refuse(Duration::from_micros(wait));
        }
        let number = hot.next;
        hot.next += 1;
        hot.waiting.push_back((number, None));
        self.waits.store(true, Ordering::Relaxed);
        Entry::Wait(Ticket {
            share: self.clone(),
            hash,
            number,
            done: false,
        })
    }

    /// Charges an executed command to an entity whose bucket has used half a share.
    pub(crate) fn charge(&self, hash: u64, micros: u64) {
        let (mut state, cost) = (self.state(), cost(micros));
        let hot = state.hot.entry(hash).or_default();
        hot.spent = hot.spent.saturating_add(cost);
        hot.average = (hot.average.saturating_mul(7).saturating_add(cost) / 8).max(1);
    }

    /// Ends a batch, after all that was ready had its turn. Waiting commands get their next share; with `more`, the loop has to be polled
    /// again.
    pub(crate) fn batch_ends(&self) -> BatchEnd {
        SPENT.with(|spent| {
            if spent.total.get() < self.half_micros && !self.waits.load(Ordering::Relaxed) {
                // No entity can be hot.
                spent.clear();
                return BatchEnd::default();
            }
            let mut state = self.state();
            state.hot.retain(|_, hot| !hot.waiting.is_empty());
            let mut theirs = 0u32;
            let mut seen = [false; BUCKETS];
            for at in state.hot.keys().map(|hash| bucket(*hash)) {
                if !std::mem::replace(&mut seen[at], true) {
                    theirs = theirs.saturating_add(spent.buckets[at].get());
                }
            }
            let alone = !state.hot.is_empty() && theirs >= spent.total.get();
            let early = alone && state.given + 1 < SHARES;
            state.given = if early { state.given + 1 } else { 0 };
            spent.clear();
            let mut wakers = Vec::new();
            for (hash, hot) in &mut state.hot {
                // A newcomer is counted by itself at once, and comes after the waiting ones.
                spent.charge(*hash, self.half_micros);
                hot.pass_over();
                let share = self.half_micros.saturating_mul(2);
                hot.spent = 0;
                hot.released = ((share / hot.average).max(1) as usize).min(hot.waiting.len());
                let go = hot.waiting.iter_mut().take(hot.released);
                wakers.extend(go.filter_map(|(_, waker)| waker.take()));
            }
            let more = !state.hot.is_empty();
            if more {
                // Newcomers come after them.
                spent.crowd.set(true);
            }
            self.waits.store(more, Ordering::Relaxed);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            BatchEnd { early, more }
        })
    }
}

/// The result of the end of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchEnd {
    /// True if a hot entity is alone: its next commands belong into this commit.
    pub(crate) early: bool,
    /// Some wait: this batch, too, has to be ended.
    pub(crate) more: bool,
}

/// Takes this thread's batches off its loop.
pub(super) fn leave() {
    // Also while the thread ends.
    let _ = SPENT.try_with(|spent| {
        spent.clear();
        spent.half.set(u32::MAX);
    });
}

/// Waits for its entity's next share.
pub(crate) struct Ticket {
    share: Arc<Share>,
    hash: u64,
    number: u64,
    done: bool,
}

impl Future for Ticket {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let share = self.share.clone();
        let mut state = share.state();
        let Some(hot) = state.hot.get_mut(&self.hash).filter(|_| !self.done) else {
            self.done = true;
            return Poll::Ready(());
        };
        match hot.waiting.binary_search_by_key(&self.number, |(number, _)| *number) {
            Ok(0) if hot.released > 0 => {
                hot.waiting.pop_front();
                hot.released -= 1;
            }
            Ok(at) => {
                hot.waiting[at].1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            // This command was released in an earlier batch, and arrives only now.
            Err(_) => {}
        }
        self.done = true;
        let next = hot.next_to_go();
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
        Poll::Ready(())
    }
}

impl Hot {
    /// Skips commands that were released a batch ago and have not arrived, so that they delay no others. Each may go when it arrives.
    fn pass_over(&mut self) {
        while self.released > 0 && matches!(self.waiting.front(), Some((_, None))) {
            self.waiting.pop_front();
            self.released -= 1;
        }
    }

    /// Returns the first waiting command's waker, if it may go and asked before its turn had come.
    fn next_to_go(&mut self) -> Option<Waker> {
        if self.released == 0 {
            return None;
        }
        self.waiting.front_mut()?.1.take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.share.state();
        let Some(hot) = state.hot.get_mut(&self.hash) else {
            return;
        };
        let at = hot.waiting.binary_search_by_key(&self.number, |(number, _)| *number);
        if let Ok(at) = at {
            hot.waiting.remove(at);
        }
        let next = hot.next_to_go();
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests;
