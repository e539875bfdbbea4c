//! The queue of a loop: connections and tasks, in the order in which they became ready.
//!
//! Time comes in batches. A batch begins when the loop has looked at its sockets, and ends with a commit.
//! The loop takes from the head of the queue as much as fits into [`batch`](Queue::batch) of the loop's own CPU time.
//! The rest stays in the queue: a batch that ends early costs nothing.
//!
//! A newcomer is to be refused while as many wait as [may](Policy::room). Refusals come at the end of a batch, in a small part of it.

use super::{clock::Clock, policy::Policy};
use crate::limits::Limits;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The most wall time of a batch, in batches: CPU time that others have taken stretches it no further.
const WALL_BATCHES: u32 = 4;
/// The part of the time that refusing may take in a surge. If refusals took more, they would cost more answers than that.
const REFUSING_SHARE: u32 = 16;
/// The same while the queue is less than half full: the surge is over, or was none.
const REFUSING_SHARE_AFTER: u32 = 2;
/// The assumed cost of a task before anything was measured, and the least cost of a refused task.
const COST: Duration = Duration::from_micros(20);
/// The most that a refused task costs: its request is read and its answer written as any other's, but not executed.
const REFUSED_TASK_MAX: Duration = Duration::from_micros(100);
/// Entries that have gone away are thrown out once they are more than those that wait, and these.
const GONE_MAX: usize = 1_024;

/// An entry of the queue: a connection or a task.
pub(super) trait Entry {
    /// The entry has gone away, and waits no more.
    fn is_gone(&self) -> bool;
    /// A task runs later in the batch, unlike a connection, which is looked after at once.
    fn is_task(&self) -> bool;
    /// The entry is to be refused for want of room only, so that it may wait again.
    fn may_wait(&self) -> bool;
}

/// An entry that is to be refused.
struct Refused<T> {
    entry: T,
    since: Instant,
}

/// The entries that wait or are to be refused, and the rest of the current batch.
pub(super) struct Queue<T> {
    batch: Duration,
    bytes_max: usize,
    policy: Policy,
    waiting: VecDeque<T>,
    /// The entries of `waiting` that have not gone away.
    here: usize,
    refused: VecDeque<Refused<T>>,
    /// Counts batches, from 1.
    number: u64,
    /// A batch has begun and not ended.
    is_open: bool,
    /// The batch has used up its time or its bytes.
    is_full: bool,
    began: Instant,
    /// The time of the batch before, if this one followed it at once.
    took: Duration,
    /// The thread's CPU time when the batch began; known only if something waited.
    cpu_began: Option<Duration>,
    /// The last look at the clock.
    now: Instant,
    /// Until then there is room without another look at the CPU clock.
    look_at: Instant,
    /// The expected time of the tasks that were let go.
    promised: Duration,
    admitted: u32,
    bytes: usize,
    refusing: Refusing,
    /// Time and admissions since the last observation.
    span: Span,
}

/// Time and admissions while requests waited.
#[derive(Default)]
struct Span {
    time: Duration,
    admitted: u32,
}

/// The time that refusing takes of a batch.
#[derive(Default)]
struct Refusing {
    began: Option<Instant>,
    is_over: bool,
    /// The expected time of refused tasks: they tell their clients later, which ask again.
    promised: Duration,
    took: Duration,
}

impl<T: Entry> Queue<T> {
    pub(super) fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            batch: limits.batch,
            bytes_max: limits.batch_bytes_max,
            policy: Policy::new(limits.wait_max, limits.batch),
            waiting: VecDeque::new(),
            here: 0,
            refused: VecDeque::new(),
            number: 0,
            is_open: false,
            is_full: false,
            began: now,
            took: Duration::ZERO,
            cpu_began: None,
            now,
            look_at: now,
            promised: Duration::ZERO,
            admitted: 0,
            bytes: 0,
            refusing: Refusing::default(),
            span: Span::default(),
        }
    }

    /// Begins a batch. The loop has just looked at its sockets.
    pub(super) fn begin(&mut self, clock: &impl Clock) {
        let now = clock.now();
        self.observe(now);
        if self.here == 0 {
            self.policy.forget();
        }
        self.number += 1;
        self.is_open = true;
        self.is_full = false;
        self.began = now;
        self.now = now;
        self.cpu_began = (self.here > 0).then(|| clock.cpu());
        self.look_at = now + self.batch;
        self.promised = Duration::ZERO;
        self.admitted = 0;
        self.bytes = 0;
        self.refusing = Refusing::default();
    }

    /// Gives the last batch to the policy. Batches that admit nobody, or end before their time, count together with the next.
    fn observe(&mut self, now: Instant) {
        if !self.is_open {
            self.span = Span::default();
            self.took = Duration::ZERO;
            return;
        }
        let took = now.saturating_duration_since(self.began);
        self.took = took;
        self.span.time += took.saturating_sub(self.refusing.took);
        self.span.admitted += self.admitted;
        if self.span.time >= self.batch && self.span.admitted > 0 {
            self.policy.observe(self.span.time, self.span.admitted);
            self.span = Span::default();
        }
    }

    /// Takes out the last waiting entry while more wait than [may](Self::room): it is to be [refused](Self::refuse).
    pub(super) fn pop_excess(&mut self) -> Option<T> {
        while self.here > self.policy.room() {
            let last = self.waiting.pop_back()?;
            if !last.is_gone() {
                self.here -= 1;
                return Some(last);
            }
        }
        None
    }

    /// Ends a batch: all that was ready has gone or waits. `true`: another has to begin after the next look at the sockets.
    /// Until then tasks that were let go run, or entries still wait or are to be refused.
    pub(super) fn end(&mut self) -> bool {
        self.is_open = self.here > 0 || !self.refused.is_empty() || !self.promised.is_zero();
        self.is_open
    }

    /// Returns the number of the open batch. Between two batches there is none, and no connection has a place.
    pub(super) fn open(&self) -> Option<u64> {
        self.is_open.then_some(self.number)
    }

    /// Returns the number of the last batch, if it has ended and no other has begun.
    pub(super) fn closed(&self) -> Option<u64> {
        (!self.is_open).then_some(self.number)
    }

    /// Counts a newcomer that goes at once: a batch is open and not full, and nobody waits.
    pub(super) fn goes_at_once(&mut self, clock: &impl Clock) -> bool {
        let goes = self.is_open && self.here == 0 && self.has_room(clock);
        self.admitted += u32::from(goes);
        goes
    }

    //= promise 9: everything is bounded
    fn has_room(&mut self, clock: &impl Clock) -> bool {
        let is_first = self.admitted == 0;
        if !is_first && (self.is_full || self.bytes >= self.bytes_max) {
            self.is_full = true;
            return false;
        }
        let now = clock.now();
        self.now = now;
        if is_first {
            return true;
        }
        if now + self.promised < self.look_at {
            return true;
        }
        self.is_full = true;
        let end = self.began + self.batch * WALL_BATCHES;
        if let Some(began) = self.cpu_began
            && now < end
        {
            let used = clock.cpu().saturating_sub(began) + self.promised;
            if used < self.batch {
                // The rest of the time was somebody else's.
                self.look_at = (now + self.promised + (self.batch - used)).min(end);
                self.is_full = false;
            }
        }
        !self.is_full
    }

    /// Returns the time when the last connection [went](Self::goes_at_once) or was [let go](Self::pop). Tasks do not count.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Counts a task's request that goes with its connection's first: each would wait by itself.
    pub(super) fn goes_along(&mut self) {
        self.admitted += 1;
    }

    /// Counts the bytes of bodies that go in this batch.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns how many entries may wait.
    pub(super) fn room(&self) -> usize {
        self.policy.room()
    }

    /// Returns true if as many wait as may: a newcomer is to be [refused](Self::refuse).
    pub(super) fn is_crowded(&self) -> bool {
        self.here >= self.policy.room()
    }

    /// Returns the expected wait of a newcomer; zero if it is not known.
    pub(super) fn wait(&self) -> Duration {
        self.policy.wait(self.here).unwrap_or_default()
    }

    /// Adds an entry behind all others.
    pub(super) fn push(&mut self, entry: T) {
        if self.waiting.len() > self.here * 2 + GONE_MAX {
            self.waiting.retain(|entry| !entry.is_gone());
        }
        self.here += 1;
        self.waiting.push_back(entry);
    }

    /// Adds an entry that is to be refused.
    pub(super) fn refuse(&mut self, entry: T) {
        let since = self.began;
        self.refused.push_back(Refused { entry, since });
    }

    /// Takes back the next entry to be refused, if it would be answered in time after all: it is to wait again.
    /// Many that come at once make the first batches so long that the queue seems to have less room than it has.
    pub(super) fn pop_recalled(&mut self) -> Option<T> {
        while self.refused.front().is_some_and(|refused| refused.entry.is_gone()) {
            self.refused.pop_front();
        }
        let next = self.refused.front()?;
        let waited = self.began.saturating_duration_since(next.since);
        if self.is_crowded() || !next.entry.may_wait() || !self.policy.is_in_time(waited, self.here) {
            return None;
        }
        self.refused.pop_front().map(|refused| refused.entry)
    }

    /// Counts a waiting entry that has gone away.
    pub(super) fn left(&mut self) {
        self.here -= 1;
    }

    /// Takes out the next entry that goes in this batch.
    pub(super) fn pop(&mut self, clock: &impl Clock) -> Option<T> {
        while self.waiting.front().is_some_and(Entry::is_gone) {
            self.waiting.pop_front();
        }
        let is_task = self.waiting.front()?.is_task();
        let has_room = match is_task {
            true => self.has_room_for_task(),
            false => self.has_room(clock),
        };
        if !has_room {
            return None;
        }
        self.here -= 1;
        self.admitted += 1;
        if is_task {
            self.promised += self.policy.wait(1).unwrap_or(COST);
        }
        self.waiting.pop_front()
    }

    /// Returns true if one more task may go. Tasks share the rest of a batch by their expected time, not by the clock:
    /// the requests of all that wait were read before any of them could go. By the clock, a batch spent on reading would let nobody go.
    fn has_room_for_task(&self) -> bool {
        self.admitted == 0 || (self.promised < self.batch && self.bytes < self.bytes_max)
    }

    /// Takes out the next entry that is refused in this batch.
    pub(super) fn pop_refused(&mut self, clock: &impl Clock) -> Option<T> {
        if self.refusing.is_over || (self.refused.is_empty() && self.refusing.began.is_none()) {
            return None;
        }
        let now = clock.now();
        let began = *self.refusing.began.get_or_insert(now);
        let share = if self.here < self.policy.room() / 2 {
            REFUSING_SHARE_AFTER
        } else {
            REFUSING_SHARE
        };
        let batch = match self.refused.front() {
            Some(refused) if refused.entry.is_task() => self.batch.max(self.took),
            _ => self.batch,
        };
        let most = batch / share;
        let took = now.saturating_duration_since(began) + self.refusing.promised;
        // Each batch refuses at least one, so that all are refused in the end.
        if took.is_zero() || took < most {
            while let Some(Refused { entry, .. }) = self.refused.pop_front() {
                if !entry.is_gone() {
                    if entry.is_task() {
                        let like_others = self.policy.wait(1).unwrap_or(COST);
                        self.refusing.promised += like_others.clamp(COST, REFUSED_TASK_MAX);
                    }
                    return Some(entry);
                }
            }
        }
        self.refusing.is_over = true;
        self.refusing.took = took;
        None
    }
}
