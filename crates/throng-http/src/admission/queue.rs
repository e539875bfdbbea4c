//! The queue of a loop: connections and tasks, in the order in which they became ready.
//!
//! Time is divided into batches. A batch begins when the loop has looked at its sockets, and ends with a commit. The loop takes from the
//! head of the queue as much as fits into [`batch`](Queue::batch) of the loop's CPU time. The rest stays in the queue, so a batch that ends
//! early costs nothing.
//!
//! A newcomer is refused while as many wait as [allowed](Policy::room). Refusals come at the end of a batch, in a small part of it.

use super::{clock::Clock, policy::Policy};
use crate::limits::Limits;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The most time a batch may take, in batches: CPU time that other processes take extends it no further.
const WALL_BATCHES: u32 = 4;
/// The part of the time that refusals may take in a surge, as a divisor. If they took more, more answers would be lost than refusals gain.
const REFUSING_SHARE: u32 = 16;
/// The same while the queue is less than half full, because the surge is over or was none.
const REFUSING_SHARE_AFTER: u32 = 2;
/// The assumed cost of a task before anything was measured, and the least cost of a refused task.
const COST: Duration = Duration::from_micros(20);
/// The most that a refused task costs: its request is read and its answer written, but it is not executed.
const REFUSED_TASK_MAX: Duration = Duration::from_micros(100);
/// The number of entries that have gone away above which they are removed, if they also outnumber the waiting ones.
const GONE_MAX: usize = 1_024;

/// An entry of the queue: a connection or a task.
pub(super) trait Entry {
    /// True if the entry has gone away, and waits no more.
    fn is_gone(&self) -> bool;
    /// True for a task, which runs later in the batch, while a connection is served at once.
    fn is_task(&self) -> bool;
    /// True if the entry is refused only for lack of room, so that it may wait again.
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
    /// The number of entries of `waiting` that have not gone away.
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
    /// The thread's CPU time at the beginning of the batch; known only if something waited.
    cpu_began: Option<Duration>,
    /// The last look at the clock.
    now: Instant,
    /// The time until which there is room without another look at the CPU clock.
    look_at: Instant,
    /// The expected time of the admitted tasks.
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
    /// The expected time of refused tasks, which answer their clients later.
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

    /// Reports the last batch to the policy. Batches that admit nothing, or end early, are added to the next.
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

    /// Removes and returns the last waiting entry while more wait than [allowed](Self::room). It is to be [refused](Self::refuse).
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

    /// Ends a batch: every ready request was admitted or waits. True if another has to begin after the next look at the sockets, because
    /// admitted tasks have to run, or entries wait or are to be refused.
    pub(super) fn end(&mut self) -> bool {
        self.is_open = self.here > 0 || !self.refused.is_empty() || !self.promised.is_zero();
        self.is_open
    }

    /// Returns the number of the open batch. Between two batches there is none.
    pub(super) fn open(&self) -> Option<u64> {
        self.is_open.then_some(self.number)
    }

    /// Returns the number of the last batch, if it has ended and no other has begun.
    pub(super) fn closed(&self) -> Option<u64> {
        (!self.is_open).then_some(self.number)
    }

    /// Counts a newcomer that is admitted at once: a batch is open and not full, and nothing waits.
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
                // Other processes used the rest of the time.
                self.look_at = (now + self.promised + (self.batch - used)).min(end);
                self.is_full = false;
            }
        }
        !self.is_full
    }

    /// Returns the time when the last connection was [admitted](Self::goes_at_once) or [taken from the queue](Self::pop). Tasks do not
    /// count.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Counts a task's request that is admitted together with its connection's first.
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

    /// True if as many wait as allowed: a newcomer is to be [refused](Self::refuse).
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

    /// Returns the next entry to be refused, if it would be answered in time after all: it has to wait again. Many simultaneous newcomers
    /// make the first batches so long that the queue seems to have less room than it has.
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

    /// Removes and returns the next entry that is admitted in this batch.
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

    /// True if one more task may be admitted. Tasks share the rest of a batch by their expected time and not by the clock, because all
    /// waiting requests were read before any could be admitted: by the clock, a batch spent on reading would admit nothing.
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
