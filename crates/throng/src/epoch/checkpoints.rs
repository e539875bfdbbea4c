//! The state that the checkpoints of all epochs share.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};
use throng_core::model::Timestamp;
use throng_journal::Position;

/// The state that the checkpoints of all epochs share.
pub(super) struct Checkpoints {
    /// Held by each checkpoint, one at a time, and by an engine that recovers.
    pub(super) lock: tokio::sync::Mutex<()>,
    /// The number of callers that wait for a checkpoint.
    pub(super) awaited: AtomicUsize,
    /// The last one failed.
    pub(super) has_failed: AtomicBool,
    /// The store may have a row that says where the messages begin that were not taken.
    pub(super) has_cursor: AtomicBool,
    pub(super) last: Mutex<Option<LastCheckpoint>>,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self {
            lock: tokio::sync::Mutex::default(),
            awaited: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            has_cursor: AtomicBool::new(true),
            last: Mutex::default(),
        }
    }
}

/// A checkpoint that the store has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Everything up to here is covered.
    pub covers: Position,
    /// When the store had taken it, by the engine's clock.
    pub at: Timestamp,
    /// The time from its beginning until the store had it.
    pub took: Duration,
}
