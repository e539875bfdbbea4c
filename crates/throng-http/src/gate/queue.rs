//! The one queue of a loop: connections and tasks, in the order in which they became ready.
//!
//! Time comes in turns. A turn begins when the loop has looked at its sockets, takes from the head of the queue as much as
//! fits into [`turn`](Queue::turn) of the loop's own CPU time, and ends with a commit. What does not fit stays where it is: a
//! turn that ends early costs nothing.
//!
//! Who comes while as many wait as [may](Policy::room) is to be refused, at the end of a turn and in a small part of it.

use super::{clock::Clock, policy::Policy};
use crate::limits::Limits;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Wall time of a turn, in turns, at most: it is not stretched further for CPU time that others have taken.
const WALL_TURNS: u32 = 4;
/// The part of the time that refusing may take in a surge: refusals that took more would cost more answers than that.
const REFUSING_SHARE: u32 = 16;
/// The same while fewer than half of those wait who may: the surge is over, or was none.
const REFUSING_SHARE_AFTER: u32 = 2;
/// What a task is taken to cost before anything was measured, and what one costs at least that is refused.
const COST: Duration = Duration::from_micros(20);
/// What a task costs at most that is refused: its request is read and its answer written as any other's, but not executed.
const REFUSED_TASK_MAX: Duration = Duration::from_micros(100);
/// Entries that have gone away are thrown out once they are more than those that wait, and these.
const GONE_MAX: usize = 1_024;

/// Someone who stands in the queue.
pub(super) trait Entry {
    /// It waits for nothing any more.
    fn is_gone(&self) -> bool;
    /// A task runs later in the turn, unlike a connection, which is looked after at once.
    fn is_task(&self) -> bool;
    /// One that is to be refused is so only for want of room.
    fn may_wait(&self) -> bool;
}

/// Someone who is to be refused.
struct Refused<T> {
    entry: T,
    since: Instant,
}

/// Who waits, who is to be refused, and what is left of the turn.
pub(super) struct Queue<T> {
    turn: Duration,
    bytes_max: usize,
    policy: Policy,
    waiting: VecDeque<T>,
    /// Of `waiting`, those that have not gone away.
    here: usize,
    refused: VecDeque<Refused<T>>,
    /// Counts turns, from 1.
    number: u64,
    /// A turn has begun and not ended.
    is_open: bool,
    /// Its time or its bytes are used up.
    is_full: bool,
    began: Instant,
    /// The turn before took so long, if this one followed it at once.
    took: Duration,
    /// The thread's CPU time then; known only if something waited.
    cpu_began: Option<Duration>,
    /// The last look at the clock.
    now: Instant,
    /// Until then there is room without another look at the CPU clock.
    look_at: Instant,
    /// What tasks that were let go will take.
    promised: Duration,
    admitted: u32,
    bytes: usize,
    refusing: Refusing,
    /// Since the last observation.
    span: Span,
}

/// Time and admissions while requests waited.
#[derive(Default)]
struct Span {
    time: Duration,
    admitted: u32,
}

/// What refusing takes of a turn.
#[derive(Default)]
struct Refusing {
    began: Option<Instant>,
    is_over: bool,
    /// What tasks that were refused will take: they tell their clients later, who ask again.
    promised: Duration,
    took: Duration,
}

impl<T: Entry> Queue<T> {
    pub(super) fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            turn: limits.turn,
            bytes_max: limits.turn_bytes_max,
            policy: Policy::new(limits.wait_max, limits.turn),
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

    /// The loop has looked at its sockets.
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
        self.look_at = now + self.turn;
        self.promised = Duration::ZERO;
        self.admitted = 0;
        self.bytes = 0;
        self.refusing = Refusing::default();
    }

    /// Turns that admit nobody, or end before their time, count together with the next.
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
        if self.span.time >= self.turn && self.span.admitted > 0 {
            self.policy.observe(self.span.time, self.span.admitted);
            self.span = Span::default();
        }
    }

    /// The last of those that wait, while they are more than [may](Self::room): it is to be [refused](Self::refuse).
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

    /// All that was ready has gone or waits. `true`: the turn goes on, with tasks that were let go or until it is time for those
    /// who wait, and another has to begin once the loop has looked at its sockets.
    pub(super) fn end(&mut self) -> bool {
        self.is_open = self.here > 0 || !self.refused.is_empty() || !self.promised.is_zero();
        self.is_open
    }

    /// The number of the turn that is open. Between two turns there is none, and no connection has a place.
    pub(super) fn open(&self) -> Option<u64> {
        self.is_open.then_some(self.number)
    }

    /// The number of the last turn, if it has ended and no other has begun.
    pub(super) fn closed(&self) -> Option<u64> {
        (!self.is_open).then_some(self.number)
    }

    /// Counts a newcomer that goes at once: a turn is open and not full, and nobody waits.
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
        let end = self.began + self.turn * WALL_TURNS;
        if let Some(began) = self.cpu_began
            && now < end
        {
            let used = clock.cpu().saturating_sub(began) + self.promised;
            if used < self.turn {
                // The rest of the time was somebody else's.
                self.look_at = (now + self.promised + (self.turn - used)).min(end);
                self.is_full = false;
            }
        }
        !self.is_full
    }

    /// When somebody [went](Self::goes_at_once) or was [let go](Self::pop), of those that are no tasks.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Counts a task's request that goes with its connection's first: each would wait by itself.
    pub(super) fn goes_along(&mut self) {
        self.admitted += 1;
    }

    /// So many bytes of bodies go in this turn.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// How many may wait.
    pub(super) fn room(&self) -> usize {
        self.policy.room()
    }

    /// So many wait that who comes now is to be [refused](Self::refuse).
    pub(super) fn is_crowded(&self) -> bool {
        self.here >= self.policy.room()
    }

    /// How long one waits who comes now, as far as is known.
    pub(super) fn wait(&self) -> Duration {
        self.policy.wait(self.here).unwrap_or_default()
    }

    /// Waits, behind all others.
    pub(super) fn push(&mut self, entry: T) {
        if self.waiting.len() > self.here * 2 + GONE_MAX {
            self.waiting.retain(|entry| !entry.is_gone());
        }
        self.here += 1;
        self.waiting.push_back(entry);
    }

    /// Is to be refused.
    pub(super) fn refuse(&mut self, entry: T) {
        let since = self.began;
        self.refused.push_back(Refused { entry, since });
    }

    /// The next of those to be refused who would be answered in time after all: it is to wait again. Many who come at once make
    /// the first turns so long that fewer seem to have room than have.
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

    /// One that waited, and was not to be refused, has gone away.
    pub(super) fn left(&mut self) {
        self.here -= 1;
    }

    /// The next that goes in this turn.
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

    /// Tasks share what is left of a turn by what they are expected to take, and not by its clock: the requests of all that wait
    /// were read before any of them could go, and a turn that has used up its time with reading would let nobody go.
    fn has_room_for_task(&self) -> bool {
        self.admitted == 0 || (self.promised < self.turn && self.bytes < self.bytes_max)
    }

    /// The next that is refused in this turn.
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
        let turn = match self.refused.front() {
            Some(refused) if refused.entry.is_task() => self.turn.max(self.took),
            _ => self.turn,
        };
        let most = turn / share;
        let took = now.saturating_duration_since(began) + self.refusing.promised;
        // One at least, so that all are refused in the end.
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
