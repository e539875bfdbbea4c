//! Reopening: a database that failed does not answer until it is opened again, which its next user does.

use super::{
    database::{self, Database, Snapshot},
    inner::Inner,
};
use std::sync::{Arc, TryLockError};
use throng_journal::Error;

impl Inner {
    /// Reads the rows of the last completed advance. If the database failed before, it is opened again first; if this fails, next time.
    pub(super) fn read<T>(
        &self,
        doing: &'static str,
        look: impl FnOnce(&Snapshot) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.reopening.is_due() && self.reopening.may_try() {
            self.reopen(false)?;
        }
        let snapshot = self.snapshot();
        let found = database::guarded(doing, || look(&snapshot));
        if matches!(found, Err(Error::Io { .. })) && Arc::ptr_eq(&snapshot, &self.snapshot()) {
            self.reopening.set_due(true);
        }
        found
    }

    /// Returns a snapshot of the present database, for an engine that starts with it.
    pub(super) fn newest(&self) -> Result<Arc<Snapshot>, Error> {
        if self.reopening.is_due() {
            self.reopen(true)?;
        }
        Ok(self.snapshot())
    }

    /// Opens the database again, unless an advance is under way, which does it itself. A step that was reported as failed but was committed
    /// is shown only to an engine that starts. A running one would count events twice, until the next step corrects that.
    fn reopen(&self, begins: bool) -> Result<(), Error> {
        let mut slot = match self.database.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if begins => self.database(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if !self.reopening.is_due() {
            return Ok(());
        }
        drop(slot.take());
        let database = Database::open(&self.log, &self.path)?;
        let snapshot = database.snapshot()?;
        let is_ahead = snapshot.advances > self.snapshot().advances;
        *slot = Some(database);
        if is_ahead && !begins {
            return Err(Error::backend(
                "reading the store",
                "it is opened again with the next checkpoint",
            ));
        }
        self.reopening.set_due(false);
        self.show(snapshot);
        tracing::info!(file = %self.path.display(), "the store failed, and is open again");
        Ok(())
    }
}
