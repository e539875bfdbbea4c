//! The state of both sides: the waiting batches, the waiting threads, and flags that senders read without a lock.

use crate::{
    Options,
    barrier::Barrier,
    lane::{Filling, Holding, Lane},
    options::HandOver,
    sync::{AtomicBool, AtomicU8, Mutex, Ordering, Padded, lock},
    waiters::{Waiters, wake},
};
use std::{collections::VecDeque, mem, sync::Arc, task::Waker};

/// Every receiver is gone.
pub(crate) const CLOSED: u8 = 1;
/// No further batch may be begun.
pub(crate) const FULL: u8 = 2;

/// The number of batches after which a receiver also collects the senders' open ones, so that a slow sender's items do not wait for ever
/// behind a fast sender's.
const VISITS_PER_COLLECTION: u32 = 16;

/// Up to this many items are copied into the last batch of the queue, instead of being handed over with their buffer.
const COPIED_ITEMS_MIN: usize = 16;

/// The number of empty buffers that go back together.
const RETURNED_MAX: usize = 8;

/// Places for batches that are allocated at the start.
pub(crate) const RESERVED_BATCHES_MAX: usize = 1_024;

pub(crate) struct Shared<T> {
    /// True if an item of an adaptive sender is to be handed over at once: a receiver waits, or none is left. Only `tell` writes it, under
    /// the lock of `state`; senders read it without the lock.
    demand: Padded<AtomicBool>,
    /// The bits [`CLOSED`] and [`FULL`], which senders read before they begin. Only `tell` writes them, under the lock of `state`.
    signal: Padded<AtomicU8>,
    /// True if there are batches in the ring, or there will never be any again: a hint for receivers, in a cache line that senders do not
    /// read. Only `tell` writes it, under the lock of `state`.
    filled: Padded<AtomicBool>,
    barrier: Barrier,
    state: Padded<Mutex<State<T>>>,
    /// Empty buffers on their way back, so that not each of them needs the lock of `state`.
    returned: Padded<Mutex<Vec<Vec<T>>>>,
    options: Options,
}

struct State<T> {
    /// Batches that wait, at most the bound besides those that dropped senders leave.
    ring: VecDeque<Vec<T>>,
    spare: Spare<T>,
    /// The open batches of adaptive senders.
    lanes: Vec<(u64, Arc<Lane<T>>)>,
    /// The lane at which the next collection begins.
    lane_next: usize,
    visits: u32,
    receiving: Waiters,
    sending: Waiters,
    senders: usize,
    receivers: usize,
    handle_next: u64,
}

/// The outcome of a sender's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    Over,
    Full,
    Closed,
}

/// The outcome of a receiver's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There are batches in the stash.
    Some,
    Nothing,
    Closed,
}

impl<T> Shared<T> {
    pub(crate) fn new(options: Options) -> Self {
        let reserved = options.batches.min(RESERVED_BATCHES_MAX);
        Self {
            demand: Padded(AtomicBool::new(false)),
            signal: Padded(AtomicU8::new(0)),
            filled: Padded(AtomicBool::new(false)),
            barrier: Barrier::here(),
            state: Padded(Mutex::new(State {
                ring: VecDeque::with_capacity(reserved + 1),
                spare: Spare(Vec::with_capacity(2 * reserved)),
                lanes: Vec::new(),
                lane_next: 0,
                visits: 0,
                receiving: Waiters::default(),
                sending: Waiters::default(),
                senders: 0,
                receivers: 0,
                handle_next: 0,
            })),
            returned: Padded(Mutex::new(Vec::with_capacity(RETURNED_MAX))),
            options,
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    #[inline]
    pub(crate) fn signal(&self) -> u8 {
        self.signal.load(Ordering::Relaxed)
    }

    /// True if an adaptive sender has to hand over at once, as far as it can be seen without a fence.
    #[inline(always)]
    pub(crate) fn demands(&self) -> bool {
        self.barrier.compiler();
        self.demand.load(Ordering::Relaxed)
    }

    /// The same, after earlier writes of this thread have become visible to others.
    pub(crate) fn demands_after_write(&self) -> bool {
        self.barrier.sender();
        self.demand.load(Ordering::Relaxed)
    }

    /// True if a receiver should take the lock: there may be batches. A hint only.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Writes the flags according to the state.
    fn tell(&self, state: &State<T>) {
        let (closed, full) = (state.receivers == 0, !state.has_room(self));
        let signal = u8::from(closed) * CLOSED + u8::from(full) * FULL;
        if self.signal.load(Ordering::Relaxed) != signal {
            self.signal.store(signal, Ordering::Relaxed);
        }
        let is_adaptive = self.options.hand_over == HandOver::Adaptive;
        let demand = is_adaptive && (closed || !state.receiving.is_empty());
        if self.demand.load(Ordering::Relaxed) != demand {
            self.demand.store(demand, Ordering::SeqCst);
        }
        let filled = !state.ring.is_empty() || state.senders == 0;
        if self.filled.load(Ordering::Relaxed) != filled {
            self.filled.store(filled, Ordering::Relaxed);
        }
    }

    // --- buffers ---------------------------------------------------------------------------------------------------

    pub(crate) fn recycle(&self, mut buffer: Vec<T>) {
        buffer.clear();
        if buffer.capacity() < self.options.batch_items {
            return;
        }
        let mut returned = lock(&self.returned);
        if returned.len() < RETURNED_MAX {
            returned.push(buffer);
            return;
        }
        drop(returned);
        let mut state = lock(&self.state);
        state.spare.regain(self);
        state.spare.keep(self, buffer);
    }

    // --- senders ---------------------------------------------------------------------------------------------------

    /// A new sender's handle and open batch.
    pub(crate) fn join_senders(&self) -> (u64, Filling<T>) {
        let mut state = lock(&self.state);
        state.senders += 1;
        let handle = state.handle();
        let is_adaptive = self.options.hand_over == HandOver::Adaptive;
        // If senders need a fence to see whether a receiver waits, they stop for it at each item.
        let stop_items = match is_adaptive && !self.barrier.receivers_pay() {
            true => 1,
            false => self.options.gather_items(),
        };
        let open = Filling::new(
            state.spare.buffer(self),
            self.options.batch_items,
            stop_items,
            is_adaptive,
        );
        if is_adaptive {
            state.lanes.push((handle, Arc::clone(open.lane())));
        }
        (handle, open)
    }

    /// Ends a sender. Its remaining items go into the queue, even if it is full.
    pub(crate) fn leave_senders(&self, handle: u64, open: &mut Filling<T>) {
        let mut state = lock(&self.state);
        let items = open.hold();
        if state.receivers > 0 {
            state.put(self, items);
        } else {
            drop(items);
        }
        let waker = state.sending.leave(handle);
        let lane = state.lanes.iter().position(|(of, _)| *of == handle);
        let lane = lane.map(|place| state.lanes.swap_remove(place));
        state.senders -= 1;
        let mut woken = Vec::new();
        if state.senders == 0 {
            state.receiving.all(&mut woken);
        } else if !state.ring.is_empty() {
            woken.extend(state.receiving.first());
        }
        self.tell(&state);
        drop(state);
        drop((waker, lane));
        wake(&mut woken);
    }

    /// Puts a sender's items where receivers look, and wakes one that waits. `wait` is woken when there is room again.
    pub(crate) fn hand_over(&self, handle: u64, open: &mut Filling<T>, wait: Option<&Waker>) -> Handed {
        let mut state = lock(&self.state);
        if state.receivers == 0 {
            return Handed::Closed;
        }
        let items = open.hold();
        if state.ring.len() >= self.options.batches && !state.fits_last(self, items.len()) {
            drop(items);
            if let Some(waker) = wait {
                state.sending.enter(handle, waker);
            }
            return Handed::Full;
        }
        state.put(self, items);
        let woken = match state.ring.is_empty() {
            true => None,
            false => state.receiving.first(),
        };
        self.tell(&state);
        drop(state);
        if let Some(woken) = woken {
            woken.wake();
        }
        Handed::Over
    }

    /// Returns `Over` if another batch may be begun; otherwise `wait` is woken when there may be room.
    pub(crate) fn room(&self, handle: u64, wait: &Waker) -> Handed {
        let mut state = lock(&self.state);
        if state.receivers == 0 {
            Handed::Closed
        } else if state.has_room(self) {
            Handed::Over
        } else {
            state.sending.enter(handle, wait);
            Handed::Full
        }
    }

    /// Gives up a wait for room.
    pub(crate) fn stop_waiting_for_room(&self, handle: u64) {
        let waker = lock(&self.state).sending.leave(handle);
        drop(waker);
    }

    // --- receivers -------------------------------------------------------------------------------------------------

    pub(crate) fn join_receivers(&self) -> u64 {
        let mut state = lock(&self.state);
        state.receivers += 1;
        state.handle()
    }

    /// Ends a receiver. The batches it has not returned go to the others, and are dropped with the last one.
    pub(crate) fn leave_receivers(&self, handle: u64, stash: &mut VecDeque<Vec<T>>) {
        let mut state = lock(&self.state);
        state.receivers -= 1;
        let waker = state.receiving.leave(handle);
        let (mut woken, mut lost) = (Vec::new(), VecDeque::new());
        if state.receivers == 0 {
            mem::swap(&mut state.ring, &mut lost);
            state.sending.all(&mut woken);
        } else {
            while let Some(batch) = stash.pop_back() {
                state.ring.push_front(batch);
            }
            if !state.ring.is_empty() {
                woken.extend(state.receiving.first());
            }
        }
        self.tell(&state);
        drop(state);
        wake(&mut woken);
        drop((waker, lost));
    }

    /// Moves the items into an empty stash, all or this receiver's share; `wait` is woken when there are some. `woken` is a buffer, empty
    /// before and after.
    pub(crate) fn take(
        &self,
        handle: u64,
        stash: &mut VecDeque<Vec<T>>,
        wait: Option<&Waker>,
        woken: &mut Vec<Waker>,
    ) -> Taken {
        let mut state = lock(&self.state);
        let left = state.receiving.leave(handle);
        state.visits = state.visits.wrapping_add(1);
        if state.ring.is_empty() || state.visits.is_multiple_of(VISITS_PER_COLLECTION) {
            state.collect(self);
        }
        let mut taken = match state.ring.is_empty() {
            false => Taken::Some,
            true if state.senders == 0 => Taken::Closed,
            true => Taken::Nothing,
        };
        if let (Taken::Nothing, Some(waker)) = (taken, wait) {
            state.receiving.enter(handle, waker);
            self.tell(&state);
            if !state.lanes.is_empty() {
                // Either a sender sees the announced wait from now on, or its item is seen here.
                self.barrier.receiver();
                state.collect(self);
            }
            if !state.ring.is_empty() {
                woken.extend(state.receiving.leave(handle));
                taken = Taken::Some;
            }
        }
        let own = woken.len();
        if taken == Taken::Some {
            state.share(stash);
            state.sending.all(woken);
            if !state.ring.is_empty() {
                woken.extend(state.receiving.first());
            }
        }
        self.tell(&state);
        drop(state);
        drop(left);
        woken.drain(..own).for_each(drop);
        wake(woken);
        taken
    }

    /// Gives up a wait for items. If this receiver was already woken for some, another is.
    pub(crate) fn stop_waiting_for_items(&self, handle: u64) {
        let mut state = lock(&self.state);
        let waker = state.receiving.leave(handle);
        let woken = match waker {
            None if !state.ring.is_empty() => state.receiving.first(),
            _ => None,
        };
        self.tell(&state);
        drop(state);
        drop(waker);
        if let Some(woken) = woken {
            woken.wake();
        }
    }

    /// Batches that wait, and the items in them.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.ring.len(), state.ring.iter().map(Vec::len).sum())
    }
}

impl<T> State<T> {
    fn handle(&mut self) -> u64 {
        self.handle_next += 1;
        self.handle_next
    }

    /// True if a sender may begin a batch. The batches of dropped senders can exceed the bound; then they must be taken first.
    fn has_room(&self, shared: &Shared<T>) -> bool {
        let last_has_room = || {
            let items = self.ring.back().map_or(0, Vec::len);
            items < shared.options.batch_items
        };
        match self.ring.len().cmp(&shared.options.batches) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => last_has_room(),
            std::cmp::Ordering::Greater => false,
        }
    }

    /// True if this many items fit into the last batch.
    fn fits_last(&self, shared: &Shared<T>, items: usize) -> bool {
        let items_max = shared.options.batch_items;
        let copied_max = (items_max / 4).max(COPIED_ITEMS_MIN);
        items <= copied_max && self.ring.back().is_some_and(|last| last.len() + items <= items_max)
    }

    /// Puts a sender's items into the ring: a few are copied into the last batch, many go with their buffer.
    fn put(&mut self, shared: &Shared<T>, items: Holding<'_, T>) {
        if self.fits_last(shared, items.len())
            && let Some(last) = self.ring.back_mut()
        {
            items.move_into(last);
        } else {
            let items = items.take(|| self.spare.buffer(shared));
            self.ring.extend(items);
        }
    }

    /// Moves the items in the senders' open batches into the ring, as far as there is room.
    fn collect(&mut self, shared: &Shared<T>) {
        let (items_max, batches) = (shared.options.batch_items, shared.options.batches);
        for _ in 0..self.lanes.len() {
            self.lane_next = (self.lane_next + 1) % self.lanes.len();
            let Some((_, lane)) = self.lanes.get(self.lane_next) else {
                return;
            };
            while lane.len() > 0 {
                if let Some(last) = self.ring.back_mut().filter(|last| last.len() < items_max) {
                    lane.move_into(last, items_max);
                } else if self.ring.len() < batches {
                    let buffer = self.spare.buffer(shared);
                    self.ring.push_back(buffer);
                } else {
                    return;
                }
            }
        }
    }

    /// Moves everything to a single receiver, but only its share to one of several, so that the others have work too.
    fn share(&mut self, stash: &mut VecDeque<Vec<T>>) {
        if self.receivers == 1 {
            mem::swap(&mut self.ring, stash);
        } else {
            let share = self.ring.len().div_ceil(self.receivers);
            stash.extend(self.ring.drain(..share));
        }
    }
}

/// Empty buffers, the warmest last.
struct Spare<T>(Vec<Vec<T>>);

impl<T> Spare<T> {
    /// Takes a spare buffer, or allocates one.
    fn buffer(&mut self, shared: &Shared<T>) -> Vec<T> {
        if self.0.is_empty() {
            self.regain(shared);
        }
        let buffer = self.0.pop();
        buffer.unwrap_or_else(|| Vec::with_capacity(shared.options.batch_items))
    }

    /// Collects the buffers that came back.
    fn regain(&mut self, shared: &Shared<T>) {
        let mut returned = lock(&shared.returned);
        let count = self.room(shared).min(returned.len());
        self.0.extend(returned.drain(..count));
    }

    fn keep(&mut self, shared: &Shared<T>, buffer: Vec<T>) {
        if self.room(shared) > 0 {
            self.0.push(buffer);
        }
    }

    fn room(&self, shared: &Shared<T>) -> usize {
        (2 * shared.options.batches).saturating_sub(self.0.len())
    }
}
