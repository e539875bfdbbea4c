//! Computes the prefetch from the latency and size of messages, without a clock.

use std::{ops::RangeInclusive, time::Duration};

/// The window of a consumer.
///
/// A message waits in memory for those before it. The window halves when messages take longer than wanted, so that the rest waits at the
/// broker instead. It doubles when they take less than half of that and the window was full, so that a batch gathers during a commit.
///
/// AMQP bounds the number of messages, not their bytes. So the window never exceeds the number of the largest recent message that fits the
/// allowed bytes. Until the first message has shown its size, the window is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    size: u16,
    min: u16,
    max: u16,
    latency: Duration,
    bytes_max: usize,
    /// The size of the largest recent message, which decays at each observation. 0 before the first message.
    largest: usize,
    /// The size of the largest message since the last observation.
    largest_since: usize,
    /// The size last sent to the broker.
    granted: u16,
}

impl Window {
    /// Returns a window between two sizes, for messages with this intended latency and at most `bytes_max` together.
    pub(super) fn new(sizes: &RangeInclusive<u16>, latency: Duration, bytes_max: usize) -> Self {
        let min = (*sizes.start()).max(1);
        let max = (*sizes.end()).max(min);
        Self {
            size: 256.clamp(min, max),
            min,
            max,
            latency,
            bytes_max,
            largest: 0,
            largest_since: 0,
            granted: 1,
        }
    }

    /// Starts with one message, whatever the least size is.
    pub(super) fn of_one(self) -> Self {
        Self { size: 1, ..self }
    }

    pub(super) fn size(&self) -> u16 {
        let fitting = self.bytes_max.checked_div(self.largest).unwrap_or(1).max(1);
        self.size.min(u16::try_from(fitting).unwrap_or(u16::MAX))
    }

    /// Returns the size to send to the broker now.
    pub(super) fn grant(&mut self) -> u16 {
        self.granted = self.size();
        self.granted
    }

    /// Records the size of a message. Returns `true` if the broker must be told another size before more messages arrive.
    pub(super) fn weigh(&mut self, bytes: usize) -> bool {
        let is_first = self.largest == 0;
        self.largest_since = self.largest_since.max(bytes.max(1));
        self.largest = self.largest.max(self.largest_since);
        let size = self.size();
        if is_first {
            size != self.granted
        } else {
            // Not for each slightly larger message: the consumer is restarted for a change.
            size <= self.granted / 2
        }
    }

    /// Records the recent latency, and whether the window was full. Returns `true` if the size changed.
    pub(super) fn observe(&mut self, took: Duration, was_full: bool) -> bool {
        self.size = if took > self.latency {
            (self.size / 2).max(self.min)
        } else if was_full && took < self.latency / 2 {
            self.size.saturating_mul(2).min(self.max)
        } else {
            self.size
        };
        self.largest = self.largest_since.max(self.largest.div_ceil(2));
        self.largest_since = 0;
        self.size() != self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A window whose messages are too small to matter.
    fn weighed(sizes: RangeInclusive<u16>, latency: Duration) -> Window {
        let mut window = Window::new(&sizes, latency, usize::MAX);
        window.weigh(1);
        window
    }

    proptest! {
        #[test]
        fn it_settles_where_messages_take_about_as_long_as_wanted(
            a_second in 10_u64..1_000_000,
            commit_micros in 50_u64..50_000,
            wanted_millis in 10_u64..1_000,
        ) {
            let wanted = Duration::from_millis(wanted_millis);
            let mut window = weighed(8..=8_192, wanted);
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
        let mut window = weighed(1..=8_192, Duration::from_millis(100));
        window.grant();
        assert!(!window.observe(Duration::ZERO, false));
        assert!(window.observe(Duration::ZERO, true));
        assert_eq!(window.size(), 512);
    }

    #[test]
    fn window_holds_no_more_messages_than_fit_its_bytes() {
        let mut window = Window::new(&(16..=8_192), Duration::from_millis(100), 1_000);
        assert_eq!(window.grant(), 1, "no message has shown its size");
        assert!(window.weigh(10));
        assert_eq!(window.grant(), 100);
        assert!(!window.weigh(11), "a little larger");
        assert!(window.weigh(100));
        assert_eq!(window.grant(), 10, "fewer than the least number of messages");
        assert!(window.weigh(5_000));
        assert_eq!(window.grant(), 1, "larger than all there is");
        let sizes: Vec<u16> = (0..12)
            .map(|_| {
                window.weigh(10);
                window.observe(Duration::from_millis(75), true);
                window.grant()
            })
            .collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
        assert_eq!(sizes[11], 100, "once only small ones have come for a while");
    }
}
