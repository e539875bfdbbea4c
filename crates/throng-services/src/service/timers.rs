//! The timers of a service. Without a clock: the caller passes the time.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// The most timers of a service, including one for each ask it waits for.
pub const ASKS_AND_TIMERS_MAX: usize = 65_536;
/// The shortest interval of a periodic timer.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Stands for a time later than the clock can represent.
const NEVER: Duration = Duration::from_hours(24 * 365 * 100);

fn later(now: Instant, after: Duration) -> Instant {
    now.checked_add(after).unwrap_or_else(|| now + NEVER)
}

/// Names a timer of a service, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(u64);

pub(crate) enum Due<M> {
    Once(M),
    Every(Duration, Box<dyn FnMut() -> M + Send>),
    /// The deadline of an ask. Gives a message unless the ask was answered.
    Deadline(Box<dyn FnOnce() -> Option<M> + Send>),
}

pub(crate) struct Timers<M> {
    due: BTreeMap<(Instant, u64), Due<M>>,
    at: HashMap<u64, Instant>,
    next: u64,
}

impl<M> Default for Timers<M> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            at: HashMap::new(),
            next: 0,
        }
    }
}

impl<M> Timers<M> {
    /// Returns `None` if the service has too many timers.
    pub(crate) fn set(&mut self, now: Instant, after: Duration, due: Due<M>) -> Option<TimerId> {
        self.set_at(later(now, after), due)
    }

    fn set_at(&mut self, at: Instant, due: Due<M>) -> Option<TimerId> {
        if self.due.len() >= ASKS_AND_TIMERS_MAX {
            return None;
        }
        self.next += 1;
        self.put(self.next, at, due);
        Some(TimerId(self.next))
    }

    pub(crate) fn every(
        &mut self,
        now: Instant,
        interval: Duration,
        make: Box<dyn FnMut() -> M + Send>,
    ) -> Option<TimerId> {
        let interval = interval.max(INTERVAL_MIN);
        self.set(now, interval, Due::Every(interval, make))
    }

    fn put(&mut self, id: u64, at: Instant, due: Due<M>) {
        self.at.insert(id, at);
        self.due.insert((at, id), due);
    }

    pub(crate) fn cancel(&mut self, TimerId(id): TimerId) -> bool {
        self.at.remove(&id).and_then(|at| self.due.remove(&(at, id))).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.due.clear();
        self.at.clear();
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns the next message that is due. A periodic timer that is late by several intervals fires once, and then at its next regular
    /// time.
    pub(crate) fn fire(&mut self, now: Instant) -> Option<M> {
        while let Some(entry) = self.due.first_entry() {
            let (at, id) = *entry.key();
            if at > now {
                return None;
            }
            let due = entry.remove();
            self.at.remove(&id);
            match due {
                Due::Once(message) => return Some(message),
                Due::Every(interval, mut make) => {
                    let late = (now - at).as_nanos() / interval.as_nanos();
                    let skipped = u32::try_from(late).unwrap_or(u32::MAX);
                    let next = later(at, interval.saturating_mul(skipped.saturating_add(1)));
                    let message = make();
                    self.put(id, next, Due::Every(interval, make));
                    return Some(message);
                }
                Due::Deadline(expire) => {
                    if let Some(message) = expire() {
                        return Some(message);
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_time_that_no_clock_can_tell_never_comes() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        timers.set(begin, Duration::MAX, Due::Once(1)).unwrap();
        timers.every(begin, Duration::MAX, Box::new(|| 2)).unwrap();
        assert_eq!(drain(&mut timers, begin + SECOND * 1_000_000), []);
    }

    fn drain(timers: &mut Timers<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| timers.fire(now)).collect()
    }

    #[test]
    fn timers_fire_in_the_order_of_their_times_and_not_before() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        for (after, message) in [(3, 30), (1, 10), (2, 20), (1, 11)] {
            timers.set(begin, SECOND * after, Due::Once(message)).unwrap();
        }
        assert_eq!(drain(&mut timers, begin + SECOND - Duration::from_nanos(1)), []);
        assert_eq!(timers.next_at(), Some(begin + SECOND));
        assert_eq!(drain(&mut timers, begin + SECOND * 2), [10, 11, 20]);
        assert_eq!(drain(&mut timers, begin + SECOND * 9), [30]);
        assert_eq!(timers.next_at(), None);
    }

    #[test]
    fn a_periodic_timer_keeps_its_beat_and_skips_missed_ticks() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        let mut count = 0;
        let make = Box::new(move || {
            count += 1;
            count
        });
        timers.every(begin, SECOND, make).unwrap();
        assert_eq!(drain(&mut timers, begin + SECOND), [1]);
        assert_eq!(drain(&mut timers, begin + SECOND * 9 / 2), [2], "once for three times");
        assert_eq!(timers.next_at(), Some(begin + SECOND * 5), "on the beat");
    }

    #[test]
    fn an_interval_of_nothing_is_not_for_ever_due() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        timers.every(begin, Duration::ZERO, Box::new(|| 1)).unwrap();
        assert_eq!(drain(&mut timers, begin + SECOND), [1]);
    }

    #[test]
    fn a_cancelled_timer_never_fires_again() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        let once = timers.set(begin, Duration::ZERO, Due::Once(1)).unwrap();
        let every = timers.every(begin, SECOND, Box::new(|| 2)).unwrap();
        assert!(timers.cancel(once));
        assert!(!timers.cancel(once));
        assert_eq!(drain(&mut timers, begin + SECOND), [2]);
        assert!(timers.cancel(every));
        assert_eq!(drain(&mut timers, begin + SECOND * 9), []);
    }

    #[test]
    fn there_are_at_most_so_many() {
        let begin = Instant::now();
        let mut timers = Timers::default();
        let set: Vec<_> = (0..ASKS_AND_TIMERS_MAX)
            .map(|_| timers.set(begin, Duration::ZERO, Due::Once(1)).unwrap())
            .collect();
        assert_eq!(timers.set(begin, Duration::ZERO, Due::Once(1)), None);
        assert!(timers.cancel(set[7]));
        assert!(timers.set(begin, Duration::ZERO, Due::Once(1)).is_some());
    }
}
