//! Turns, without clock, sockets or tasks: who goes in this turn, who waits for a later one, who is refused.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Requests of one connection that go with its first in a turn, and their bytes.
const TOGETHER: (usize, usize) = (31, 64 << 10);

/// A connection's place in a turn: what it sent together goes together. If each of its requests had to wait for a turn of its
/// own, a loop that is just saturated would make a turn and a commit of every few.
#[derive(Default)]
pub(crate) struct Place {
    turn: Cell<u64>,
    /// Requests and bytes that may still go.
    left: Cell<(usize, usize)>,
}

impl Place {
    fn take(&self, turn: u64) {
        self.turn.set(turn);
        self.left.set(TOGETHER);
    }

    /// One more of its requests goes in this turn.
    fn goes(&self, turn: u64, bytes: usize) -> bool {
        let (requests, room) = self.left.get();
        let goes = self.turn.get() == turn && requests > 0 && bytes <= room;
        if goes {
            self.left.set((requests - 1, room - bytes));
        }
        goes
    }
}

/// What becomes of a request that is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It goes in this turn.
    Go,
    /// It waits, under this number.
    Wait(u64),
    /// It would wait too long: this long.
    Refuse(Duration),
}

/// The turns of one loop.
///
/// A turn is full after [`turn`](Self::turn) of work or [`bytes_max`](Self::bytes_max) bytes. Who comes then waits, in order;
/// so does who comes while others wait.
pub(super) struct Turns {
    turn: Duration,
    bytes_max: usize,
    wait_max: Duration,
    /// The number of the open turn, from 1.
    turn_number: u64,
    /// When the first request of the open turn went.
    began: Option<Instant>,
    /// When the last turn ended.
    ended: Instant,
    /// Some waited when the last turn ended, so that this one has been at work ever since.
    busy: bool,
    /// Places taken in the open turn, and bytes.
    places: u32,
    bytes: usize,
    /// The moving average of what a place costs the loop: a request, or those of a connection that go together.
    place_nanos: u64,
    /// The number of the next to wait; all below `released` may go.
    next: u64,
    released: u64,
    /// Those that wait and have not gone away.
    waiting: usize,
}

/// What a place costs before one was measured.
const PLACE_NANOS: u64 = 20_000;

impl Turns {
    pub(super) fn new(turn: Duration, bytes_max: usize, wait_max: Duration, now: Instant) -> Self {
        Self {
            turn,
            bytes_max,
            wait_max,
            turn_number: 1,
            began: None,
            ended: now,
            busy: false,
            places: 0,
            bytes: 0,
            place_nanos: PLACE_NANOS,
            next: 0,
            released: 0,
            waiting: 0,
        }
    }

    /// A request of a connection is read: it goes in this turn, or (`false`) it has to [`enter`](Self::enter).
    pub(super) fn enter_now(&mut self, now: Instant, bytes: usize, place: &Place) -> bool {
        if place.goes(self.turn_number, bytes) {
            self.bytes += bytes;
            return true;
        }
        if self.waiting == 0 {
            let began = *self.began.get_or_insert(now);
            if now.saturating_duration_since(began) < self.turn && self.bytes < self.bytes_max {
                self.goes(bytes, place);
                return true;
            }
        }
        false
    }

    /// A request of a connection is read.
    pub(super) fn enter(&mut self, now: Instant, bytes: usize, place: &Place) -> Entry {
        if self.enter_now(now, bytes, place) {
            return Entry::Go;
        }
        let wait = self.wait();
        if wait > self.wait_max {
            return Entry::Refuse(wait);
        }
        self.waiting += 1;
        self.next += 1;
        Entry::Wait(self.next - 1)
    }

    fn goes(&mut self, bytes: usize, place: &Place) {
        place.take(self.turn_number);
        self.places += 1;
        self.bytes += bytes;
    }

    /// How long one more would wait.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_nanos(self.place_nanos.saturating_mul(self.waiting as u64))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A turn is open: something has to end it.
    pub(super) fn is_open(&self) -> bool {
        self.began.is_some() || self.waiting > 0
    }

    /// When the last turn ended: its read pass was over.
    pub(super) fn ended(&self) -> Instant {
        self.ended
    }

    /// All that was ready has gone or waits. Who has a number below the one returned goes next, in order.
    pub(super) fn end(&mut self, now: Instant) -> u64 {
        if let Some(began) = self.began.take()
            && self.places > 0
        {
            let since = if self.busy { self.ended } else { began };
            let nanos = now.saturating_duration_since(since).as_nanos() / u128::from(self.places);
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            self.place_nanos = (self.place_nanos.saturating_mul(7).saturating_add(nanos) / 8).max(1);
        }
        self.turn_number += 1;
        self.ended = now;
        self.busy = self.waiting > 0;
        self.places = 0;
        self.bytes = 0;
        if self.busy {
            let fit = u64::try_from(self.turn.as_nanos()).unwrap_or(u64::MAX) / self.place_nanos;
            self.released = (self.released + fit.max(1)).min(self.next);
        }
        self.released
    }

    /// One that waited goes: its bytes count for this turn.
    pub(super) fn resume(&mut self, now: Instant, bytes: usize, place: &Place) {
        self.waiting -= 1;
        self.began.get_or_insert(now);
        self.goes(bytes, place);
    }

    /// One that waited went away.
    pub(super) fn leave(&mut self) {
        self.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(5);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn turns(start: Instant) -> Turns {
        Turns::new(TURN, 1_000, Duration::from_millis(500), start)
    }

    #[test]
    fn a_turn_takes_all_that_comes_within_its_time_and_lets_the_rest_wait_in_order() {
        let start = Instant::now();
        let mut turns = turns(start);
        for step in 0..5 {
            assert_eq!(turns.enter(start + MILLISECOND * step, 1, &Place::default()), Entry::Go);
        }
        assert_eq!(turns.enter(start + TURN, 1, &Place::default()), Entry::Wait(0));
        assert_eq!(turns.enter(start + TURN, 1, &Place::default()), Entry::Wait(1));
        assert_eq!(turns.waiting, 2);
        assert_eq!(turns.end(start + TURN), 2, "both go in the next turn");
        // Who comes now comes after those that wait.
        assert_eq!(turns.enter(start + TURN, 1, &Place::default()), Entry::Wait(2));
        turns.resume(start + TURN, 1, &Place::default());
        turns.resume(start + TURN, 1, &Place::default());
        assert_eq!(turns.end(start + TURN * 2), 3);
    }

    #[test]
    fn what_a_connection_sent_together_goes_together_and_what_is_beyond_it_waits_its_turn() {
        let start = Instant::now();
        let (mut turns, many) = (turns(start), Place::default());
        assert_eq!(turns.enter(start, 1, &many), Entry::Go);
        for _ in 0..TOGETHER.0 {
            // Although the turn is full for all others.
            assert_eq!(turns.enter(start + TURN, 1, &many), Entry::Go);
        }
        assert_eq!(turns.enter(start + TURN, 1, &many), Entry::Wait(0));
        assert_eq!(turns.end(start + TURN), 1);
        turns.resume(start + TURN, 1, &many);
        let other = turns.enter(start + TURN * 2, 1, &Place::default());
        assert_eq!(other, Entry::Wait(1));
        assert_eq!(turns.enter(start + TURN * 2, TOGETHER.1, &many), Entry::Go);
        assert_eq!(
            turns.enter(start + TURN * 2, 1, &many),
            Entry::Wait(2),
            "its bytes are all"
        );
        turns.end(start + TURN * 2);
        assert_eq!(
            turns.enter(start + TURN * 2, 0, &many),
            Entry::Wait(3),
            "that turn is over"
        );
    }

    #[test]
    fn a_turn_is_full_after_its_bytes() {
        let start = Instant::now();
        let mut turns = turns(start);
        assert_eq!(turns.enter(start, 999, &Place::default()), Entry::Go);
        assert_eq!(
            turns.enter(start, 999, &Place::default()),
            Entry::Go,
            "the one that passes the bound still goes"
        );
        assert_eq!(turns.enter(start, 1, &Place::default()), Entry::Wait(0));
    }

    #[test]
    fn what_waits_is_released_as_it_fits_and_never_nothing() {
        let start = Instant::now();
        let mut turns = turns(start);
        let mut now = start;
        // Requests of 20 ms each: one a turn.
        for _ in 0..64 {
            assert_eq!(turns.enter(now, 1, &Place::default()), Entry::Go);
            now += MILLISECOND * 20;
            turns.end(now);
        }
        assert_eq!(turns.enter(now, 1, &Place::default()), Entry::Go);
        for number in 0..10 {
            assert_eq!(turns.enter(now + TURN, 1, &Place::default()), Entry::Wait(number));
        }
        assert_eq!(turns.end(now + MILLISECOND * 20), 1);
        turns.resume(now + MILLISECOND * 20, 1, &Place::default());
        assert_eq!(turns.end(now + MILLISECOND * 40), 2);
    }

    #[test]
    fn who_would_wait_longer_than_the_limit_is_refused() {
        let start = Instant::now();
        let mut turns = turns(start);
        let mut now = start;
        for _ in 0..64 {
            assert_eq!(turns.enter(now, 1, &Place::default()), Entry::Go);
            now += MILLISECOND * 10;
            turns.end(now);
        }
        assert_eq!(turns.enter(now, 1, &Place::default()), Entry::Go);
        let mut waiting = 0;
        let refused = loop {
            match turns.enter(now + TURN, 1, &Place::default()) {
                Entry::Wait(_) => waiting += 1,
                Entry::Refuse(wait) => break wait,
                Entry::Go => panic!("the turn is full"),
            }
        };
        assert!(refused > Duration::from_millis(500), "{refused:?}");
        assert!((50..=52).contains(&waiting), "500 ms of 10 ms each, {waiting} wait");
        for _ in 0..waiting {
            turns.leave();
        }
        assert_eq!(turns.waiting, 0);
        turns.end(now + TURN);
        assert_eq!(
            turns.enter(now + TURN, 1, &Place::default()),
            Entry::Go,
            "nobody waits any more"
        );
    }

    #[test]
    fn a_loop_that_idles_does_not_count_idling_as_work() {
        let start = Instant::now();
        let mut turns = turns(start);
        let hour = Duration::from_secs(3_600);
        for hours in 1..100 {
            let now = start + hour * hours;
            assert_eq!(turns.enter(now, 1, &Place::default()), Entry::Go);
            turns.end(now + Duration::from_micros(10));
        }
        assert!(turns.place_nanos < PLACE_NANOS, "{}", turns.place_nanos);
    }
}
