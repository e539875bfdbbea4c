//! The state of a projection or sink, as its runner reports it.

use super::{ProjectionState, Skipped};
use throng_journal::{Position, Positions};

/// The state of a projection or sink.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) state: ProjectionState,
    /// The number of requests it has followed, of all sorts, and of rebuild requests.
    pub(super) followed: u64,
    pub(super) rebuilds: u64,
    pub(super) reached: Option<Position>,
    /// All that it has taken.
    pub(super) told: Option<Positions>,
    /// Its rows are being built from the first event.
    pub(super) is_rebuilding: bool,
    /// The number of commits it had not taken at its last look.
    pub(super) untold: u64,
    /// The commit up to which history of its kind had been removed before it read it.
    pub(super) missed_upto: Option<Position>,
    /// The time at which it had last read everything, by the host's clock.
    pub(super) complete_micros: u64,
    /// The time of the last commit it has taken, or of the first it has read and not taken.
    pub(super) at_micros: i64,
    pub(super) events: u64,
    pub(super) batches: u64,
    pub(super) retries: u64,
    /// The number of events it has skipped since the engine started.
    pub(super) skips: u64,
    /// The newest skipped events since its rows began.
    pub(super) skipped: Vec<Skipped>,
    pub(super) ended: bool,
}

impl Report {
    /// Returns the report of a projection or sink that has not run yet.
    pub(super) fn new() -> Self {
        Self {
            state: ProjectionState::Running,
            followed: 0,
            rebuilds: 0,
            reached: None,
            told: None,
            is_rebuilding: false,
            untold: 0,
            missed_upto: None,
            complete_micros: 0,
            at_micros: 0,
            events: 0,
            batches: 0,
            retries: 0,
            skips: 0,
            skipped: Vec::new(),
            ended: false,
        }
    }
}
