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
    /// The threads on which appends and the lease run.
    pub(super) threads: Threads,
    pub(super) appender: Appender,
    pub(super) lease: Lease,
    /// The newest writer this journal has opened; 0: none. Each opening stores its writer.
    pub(super) own: AtomicU64,
    /// The most appends in flight. Unless an option fixes it, the first writer that opens raises it for a distant server.
    pub(super) depth: AtomicUsize,
    /// The bytes of the commits of all streams at the last look, and of those this engine has committed since. The first writer stores the
    /// table's size; an append adds its commit; a look adds the difference between its count and the value before.
    pub(super) bytes: AtomicU64,
    /// True once the server is [checked](super::keeper) regularly. Set once, by the first writer that opens.
    pub(super) is_kept: AtomicBool,
    /// The time of the last answer to a write of the keeper or the lease, by the clock of a lease. The tasks that renew it store it.
    pub(super) heard: Arc<AtomicU64>,
    /// True once the size is measured regularly. Set once, by the first writer that opens, which then stores `bytes`.
    pub(super) is_looking: AtomicBool,
    pub(super) looking: tokio::sync::Mutex<()>,
}
