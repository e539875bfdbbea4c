//! The journal, as its tasks share it.

use super::{append::Appender, lease::Lease};
use crate::database::{Database, Threads};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// The parts that a journal and its tasks use together.
pub(super) struct Shared {
    pub(super) database: Arc<Database>,
    /// Where appends and the lease live.
    pub(super) threads: Threads,
    pub(super) appender: Appender,
    pub(super) lease: Lease,
    /// The newest writer this journal has opened; 0: none.
    pub(super) own: AtomicU64,
    pub(super) depth: AtomicUsize,
    /// What the commits of all streams take, by the last look, and what this engine has committed since.
    pub(super) bytes: AtomicU64,
    /// The server is [looked at](super::keeper) again and again.
    pub(super) is_kept: AtomicBool,
    /// When it last answered a write of that, on the clock of a lease.
    pub(super) heard: Arc<AtomicU64>,
    /// Whether it is looked now and then.
    pub(super) is_looking: AtomicBool,
    pub(super) looking: tokio::sync::Mutex<()>,
}
