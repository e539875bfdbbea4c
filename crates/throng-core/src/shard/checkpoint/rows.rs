//! The rows of one checkpoint.

use super::system_row::SystemRow;
use crate::shard::timers::TimerRows;
use throng_journal::StoredState;

/// The changes that a checkpoint writes to the store.
#[derive(Default)]
pub struct Rows {
    /// States to store.
    pub states: Vec<StoredState>,
    /// System rows: key and value, or key and `None` to remove it.
    pub system: Vec<SystemRow>,
    /// The changed timers of shards. Their rows depend on what the store has of them.
    pub timers: Vec<TimerRows>,
}
