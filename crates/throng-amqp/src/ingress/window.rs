//! How many messages the broker may have out unsettled, from how long they take: without a clock.

use std::time::Duration;

/// The window of a consumer.
///
/// A message waits here for as long as those before it take. So that the rest waits with the broker and not in memory, the window halves when messages take
/// longer than wanted; so that there is enough for a batch while a commit is under way, it doubles when they take less than half of that and the
/// window was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    size: u16,
    min: u16,
    max: u16,
    latency: Duration,
}

impl Window {
    /// Between two sizes, for messages that take about this long.
    pub(super) fn new(min: u16, max: u16, latency: Duration) -> Self {
        let min = min.max(1);
        let max = max.max(min);
        Self {
            size: 256.clamp(min, max),
            min,
            max,
            latency,
        }
    }

    /// Begins with one message, whatever the least is.
    pub(super) fn of_one(self) -> Self {
        Self { size: 1, ..self }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Messages took so long lately, and the window was full meanwhile or was not. `true`: it has another size now.
    pub(super) fn observe(&mut self, took: Duration, was_full: bool) -> bool {
        let size = if took > self.latency {
            (self.size / 2).max(self.min)
        } else if was_full && took < self.latency / 2 {
            self.size.saturating_mul(2).min(self.max)
        } else {
            self.size
        };
        std::mem::replace(&mut self.size, size) != size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_settles_where_messages_take_about_as_long_as_wanted(
            a_second in 10_u64..1_000_000,
            commit_micros in 50_u64..50_000,
            wanted_millis in 10_u64..1_000,
        ) {
            let wanted = Duration::from_millis(wanted_millis);
            let mut window = Window::new(8, 8_192, wanted);
            // Who works off so many a second, and takes a commit's time at least.
            let takes = |size: u16| {
                let work = Duration::from_secs_f64(f64::from(size) / a_second as f64);
                work.max(Duration::from_micros(commit_micros))
            };
            for _ in 0..20 {
                window.observe(takes(window.size()), true);
            }
            let size = window.size();
            prop_assert!((8..=8_192).contains(&size));
            let took = takes(size);
            prop_assert!(took <= wanted || size == 8, "{size} take {took:?}");
            prop_assert!(took >= wanted / 4 || size == 8_192 || takes(size) == takes(size * 2), "{size} take {took:?}");
            window.observe(took, true);
            let next = window.size();
            window.observe(took, false);
            prop_assert!(next >= size / 2 && next <= size.saturating_mul(2), "a step at a time");
        }
    }

    #[test]
    fn a_window_that_was_not_full_does_not_grow() {
        let mut window = Window::new(1, 8_192, Duration::from_millis(100));
        assert!(!window.observe(Duration::ZERO, false));
        assert!(window.observe(Duration::ZERO, true));
        assert_eq!(window.size(), 512);
    }
}
