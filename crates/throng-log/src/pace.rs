//! The number of syncs that may be in flight, decided by the time they take.

use std::time::Duration;

/// The time above which another thread syncs, with two in flight. Syncs are inline again below three quarters of it. With half, a disk
/// whose sync settles in between would stay at two for good after one slow phase.
const BESIDE_ABOVE: Duration = Duration::from_micros(250);
/// Above this [`MANY`] may be in flight; two again below half of it.
const MANY_ABOVE: Duration = Duration::from_millis(1);
/// The most syncs in flight. With fewer, a closed loop of clients on a slow disk waits about half as long for a free sync as for its own.
pub(crate) const MANY: usize = 8;
/// The number of syncs above that time before it takes effect, so that the average has settled and can be compared.
const SETTLED_SYNCS: u32 = 24;
/// The number of syncs with [`MANY`] in flight before it is judged whether that helps.
const TRIAL_SYNCS: u32 = 64;
/// The number of syncs with two in flight before many are tried again, after they did not help.
const PAUSE_SYNCS: u32 = 4096;

/// The moving average of a sync, and the depth that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    average: Duration,
    depth: usize,
    /// The average just before many were allowed.
    before_many: Duration,
    /// The number of syncs since many were allowed, or the number left until they may be tried again.
    trial: u32,
    pause: u32,
    /// Syncs in a row above the threshold for many.
    settled: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            average: Duration::from_micros(100),
            depth: 1,
            before_many: Duration::ZERO,
            trial: 0,
            pause: 0,
            settled: 0,
        }
    }
}

impl Pace {
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn average(&self) -> Duration {
        self.average
    }

    /// Takes the time of a sync. A single slow one (a scheduling hiccup) moves the average little, because it counts as at most four times
    /// the average.
    pub(crate) fn observe(&mut self, took: Duration) {
        let took = took.min(self.average * 4 + Duration::from_micros(50));
        self.average = (self.average * 7 + took) / 8;
        self.pause = self.pause.saturating_sub(1);
        self.settled = if self.average > MANY_ABOVE {
            self.settled.saturating_add(1)
        } else {
            0
        };
        self.depth = match self.depth {
            1 if self.average > BESIDE_ABOVE => 2,
            2 if self.average < BESIDE_ABOVE * 3 / 4 => 1,
            2 if self.settled > SETTLED_SYNCS && self.pause == 0 => {
                self.before_many = self.average;
                self.trial = 0;
                MANY
            }
            MANY if self.average < MANY_ABOVE / 2 => 2,
            MANY => self.judge_many(),
            depth => depth,
        };
    }

    /// Decides whether many syncs in flight help. On a device that executes flushes one by one, twice as many take twice as long: then two
    /// suffice.
    fn judge_many(&mut self) -> usize {
        self.trial = self.trial.saturating_add(1);
        if self.trial == TRIAL_SYNCS && self.average > self.before_many * 3 / 2 {
            self.pause = PAUSE_SYNCS;
            return 2;
        }
        MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pace: &mut Pace, syncs: usize, micros: u64) -> usize {
        for _ in 0..syncs {
            pace.observe(Duration::from_micros(micros));
        }
        pace.depth()
    }

    #[test]
    fn a_fast_disk_is_synced_inline_and_one_hiccup_changes_nothing() {
        let mut pace = Pace::default();
        assert_eq!(after(&mut pace, 100, 80), 1);
        assert_eq!(after(&mut pace, 1, 20_000), 1);
        assert_eq!(after(&mut pace, 100, 80), 1);
    }

    #[test]
    fn the_depth_follows_the_average_with_hysteresis() {
        let mut pace = Pace::default();
        assert_eq!(after(&mut pace, 100, 300), 2);
        assert_eq!(after(&mut pace, 100, 200), 2);
        assert_eq!(after(&mut pace, 100, 2_000), MANY);
        assert_eq!(after(&mut pace, 30, 600), MANY);
        assert_eq!(after(&mut pace, 100, 400), 2);
        assert_eq!(after(&mut pace, 100, 150), 1);
    }

    #[test]
    fn many_are_given_up_where_the_device_takes_longer_with_them() {
        let mut pace = Pace::default();
        while pace.depth() < MANY {
            pace.observe(Duration::from_micros(1_500));
        }
        assert_eq!(after(&mut pace, 64, 3_000), 2);
        assert_eq!(after(&mut pace, 1_000, 1_500), 2);
        assert_eq!(after(&mut pace, 4_096, 1_500), MANY);
    }
}
