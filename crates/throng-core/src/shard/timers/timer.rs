//! A timer, as it is recorded and as it is shown.

use crate::model::Timestamp;
use serde::{Deserialize, Serialize};
use throng_journal::Address;

/// The name of the timer that keeps a quarantine, and of its command.
pub(crate) const QUARANTINE: &str = "~quarantine";

/// A timer that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The entity that has set it.
    pub address: Address,
    /// The timer's name within the entity.
    pub name: String,
    /// The time it was due.
    pub at: Timestamp,
    /// The microseconds after which it is due again, each time; `None`: it is due once.
    pub every_micros: Option<u64>,
    /// The command's name.
    pub command: String,
    /// The command's content.
    pub body: Vec<u8>,
}

/// A timer as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerView {
    /// The time it is due, its period and its command.
    pub due: Due,
    /// The number of times that it could not be fired.
    pub tries: u32,
    /// The time of the next attempt.
    pub next_at: Timestamp,
}

impl Due {
    /// Returns the number of further ticks that should have happened by now.
    #[must_use]
    pub fn missed_ticks(&self, now: Timestamp) -> u64 {
        let late = now.micros.saturating_sub(self.at.micros).max(0).cast_unsigned();
        self.every_micros.map_or(0, |every| late / every.max(1))
    }
}

/// A timer's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Set {
    pub(crate) at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) every_micros: Option<u64>,
    pub(crate) command: String,
    pub(crate) body: String,
}
