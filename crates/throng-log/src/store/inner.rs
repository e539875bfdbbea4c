//! The store as its readers, checkpoints and compactions share it.

use super::{
    compact::Compactions,
    database::{Database, Snapshot},
};
use crate::Log;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The time between two attempts to reopen it, so that a missing disk costs readers little.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Inner {
    pub(super) path: PathBuf,
    /// Held by advances and by attempts to reopen it; `None` after a failure until it could be opened again.
    pub(super) database: Mutex<Option<Database>>,
    /// The last completed advance, for readers. Only [`show`](Self::show) writes it.
    pub(super) snapshot: RwLock<Arc<Snapshot>>,
    pub(super) reopening: Reopening,
    pub(super) compactions: Compactions,
    /// Dropped last: closing a database writes to it, and the log's lock must keep other processes away until then.
    pub(super) log: Arc<Log>,
}

impl Inner {
    pub(super) fn database(&self) -> MutexGuard<'_, Option<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn show(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// The state of opening a failed database again.
#[derive(Default)]
pub(super) struct Reopening {
    /// True if the readers' snapshot belongs to a database that failed. A failed advance, removal or compaction sets it; an advance that
    /// succeeds, even after opening again, clears it.
    is_due: AtomicBool,
    tried: Mutex<Option<Instant>>,
}

impl Reopening {
    pub(super) fn set_due(&self, is_due: bool) {
        self.is_due.store(is_due, Ordering::Release);
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// True if the last attempt is long enough ago; notes a new attempt.
    pub(super) fn may_try(&self) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let may = tried.is_none_or(|at| at.elapsed() >= RETRY);
        if may {
            *tried = Some(Instant::now());
        }
        may
    }
}
