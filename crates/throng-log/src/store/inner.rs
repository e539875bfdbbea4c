//! The store, as those share it who read, advance and compact it.

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

/// The time between two attempts: a disk that is gone costs readers little.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Inner {
    pub(super) path: PathBuf,
    /// Taken by whoever advances or opens it again; `None` after it failed and could not be opened again yet.
    pub(super) database: Mutex<Option<Database>>,
    /// The last completed advance, for readers. Only [`show`](Self::show) writes it.
    pub(super) snapshot: RwLock<Arc<Snapshot>>,
    pub(super) reopening: Reopening,
    pub(super) compactions: Compactions,
    /// The last to go: a database that is closed writes, and the log's lock keeps others away until then.
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
    /// The readers' snapshot belongs to a database that failed. An advance, a removal or a compaction that fails sets it; an advance that
    /// succeeds, also after opening again, clears it.
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

    /// True if it was not tried just now; the attempt is noted.
    pub(super) fn may_try(&self) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let may = tried.is_none_or(|at| at.elapsed() >= RETRY);
        if may {
            *tried = Some(Instant::now());
        }
        may
    }
}
