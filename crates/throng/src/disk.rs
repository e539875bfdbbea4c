//! The disk budget: the bytes that the journal may take of the disk, if the option is set.

use crate::{Metrics, error::StartError, host::Signal};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The interval between two measurements of the journal's size, also while the level is high.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY_HIGH: Duration = Duration::from_millis(250);
/// The percentage of the budget from which on it is reported.
const HIGH: u64 = 80;
/// The percentage below which that report ends.
const HIGH_ENDS: u64 = 75;
/// The percentage of the budget from which on work from outside is refused.
const FULL: u64 = 100;
/// The percentage below which work from outside is accepted again.
const FULL_ENDS: u64 = 95;
/// The part of the budget after which a measurement comes early, as a divisor.
const LOOK_PART: u64 = 64;

/// The part of its budget that the journal takes, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Low,
    High,
    Full,
}

impl Level {
    /// Returns the next level. A level ends at a lower share than it begins at, so that a size near a limit is reported only
    /// once.
    fn after(self, percent: u64) -> Self {
        match self {
            _ if percent >= FULL => Self::Full,
            Self::Full if percent >= FULL_ENDS => Self::Full,
            _ if percent >= HIGH => Self::High,
            Self::High | Self::Full if percent >= HIGH_ENDS => Self::High,
            _ => Self::Low,
        }
    }
}

/// The bytes that the journal may take of the disk, and the bytes that it takes.
pub(crate) struct DiskBudget {
    bytes_max: Option<u64>,
    used: AtomicU64,
    level: AtomicU8,
    /// Bytes appended since the last look.
    appended: AtomicU64,
    /// Requests a measurement before its time.
    pub(crate) look_early: Arc<Signal>,
    /// True if the budget was used up and the current segment has not been finished since. Set by each measurement, reset by a retention
    /// pass.
    is_to_finish: AtomicBool,
}

impl DiskBudget {
    pub(crate) fn new(bytes_max: Option<u64>) -> Self {
        Self {
            bytes_max,
            used: AtomicU64::new(0),
            level: AtomicU8::new(Level::Low as u8),
            appended: AtomicU64::new(0),
            look_early: Arc::default(),
            is_to_finish: AtomicBool::new(false),
        }
    }

    /// True if a retention pass should finish the current segment.
    pub(crate) fn is_to_finish(&self) -> bool {
        self.is_to_finish.load(Ordering::Acquire)
    }

    /// Notes that a pass has finished it.
    pub(crate) fn has_finished(&self) {
        self.is_to_finish.store(false, Ordering::Release);
    }

    /// Refuses a budget so small that even an emptied journal would leave no room for new work.
    pub(crate) fn refuse_too_small(&self, needed: u64) -> Result<(), StartError> {
        match self.bytes_max {
            Some(bytes_max) if percent(needed, bytes_max) >= FULL_ENDS => {
                Err(StartError::DiskBudget { bytes_max, needed })
            }
            _ => Ok(()),
        }
    }

    fn level(&self) -> Level {
        match self.level.load(Ordering::Acquire) {
            level if level == Level::Full as u8 => Level::Full,
            level if level == Level::High as u8 => Level::High,
            _ => Level::Low,
        }
    }

    /// True if the budget leaves room for new work.
    pub(crate) fn has_room(&self) -> bool {
        self.level() < Level::Full
    }

    /// Counts appended bytes, so that a quick writer does not overrun the budget between two measurements.
    pub(crate) fn has_appended(&self, bytes: u64) {
        let Some(bytes_max) = self.bytes_max else { return };
        let before = self.appended.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= bytes_max / LOOK_PART {
            self.look_early.wake();
        }
    }

    /// Describes what is wrong with the budget, for health and operators.
    pub(crate) fn trouble(&self) -> Option<String> {
        let bytes_max = self.bytes_max?;
        let used = self.used.load(Ordering::Relaxed);
        let what = match self.level() {
            Level::Low => return None,
            Level::High => "",
            Level::Full => "; commands are refused until history is removed or the budget is raised",
        };
        let percent = percent(used, bytes_max);
        Some(format!(
            "the journal takes {percent} % of its disk budget, {used} of {bytes_max} bytes{what}"
        ))
    }

    /// Measures the journal and returns the time until the next measurement; `None` without a bound.
    pub(crate) fn look(&self, journal_bytes: Option<u64>, metrics: &Metrics) -> Option<Duration> {
        let bytes_max = self.bytes_max?;
        self.appended.store(0, Ordering::Relaxed);
        if let Some(used) = journal_bytes {
            self.set(bytes_max, used);
            let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            metrics.disk_bytes.set(gauge(used));
            metrics.disk_budget_bytes.set(gauge(bytes_max));
        }
        Some(match self.level() {
            Level::Low => LOOK_EVERY,
            Level::High | Level::Full => LOOK_EVERY_HIGH,
        })
    }

    /// Stores the present size of the journal, and logs a change of the level.
    fn set(&self, bytes_max: u64, used: u64) {
        self.used.store(used, Ordering::Relaxed);
        let before = self.level();
        let level = before.after(percent(used, bytes_max));
        if before < level && level == Level::Full {
            // Set before any refusal, because the pass that a refusal calls for is to finish the segment.
            self.is_to_finish.store(true, Ordering::Release);
        }
        self.level.store(level as u8, Ordering::Release);
        match (self.trouble(), before < level) {
            (Some(trouble), true) => tracing::warn!("{trouble}"),
            (None, _) if before > level => tracing::info!("the journal is well within its disk budget again"),
            _ => {}
        }
    }
}

fn percent(used: u64, bytes_max: u64) -> u64 {
    used.saturating_mul(100) / bytes_max.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_of_size_change_nothing() {
        let mut level = Level::Low;
        let mut levels = Vec::new();
        for percent in [
            10, 79, 80, 79, 76, 81, 74, 79, 80, 99, 100, 99, 95, 100, 94, 99, 120, 50,
        ] {
            level = level.after(percent);
            levels.push(level);
        }
        let (low, high, full) = (Level::Low, Level::High, Level::Full);
        let expected = [
            low, low, high, high, high, high, low, low, high, high, full, full, full, full, high, high, full, low,
        ];
        assert_eq!(levels, expected);
    }
}
