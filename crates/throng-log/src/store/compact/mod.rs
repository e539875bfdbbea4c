//! Compacting the store's file while it is used.
//!
//! The rows of the last completed advance are written into a new file, while checkpoints go on and note which keys they change. These are
//! copied again, until few are left; the last of them while the store is locked. Then the new file, durable by then, takes the name of the
//! old one. Readers of the old file can go on. A crash at any moment leaves one complete file.

mod again;
mod noted;
mod state;

pub(super) use noted::Compaction;
pub(super) use state::Compactions;

use super::{
    copy::{copy_rows, write_numbers},
    database::{self, Database, Snapshot, failed},
    inner::Inner,
    rows::{Changes, Tables},
};
use crate::{
    Log, Options,
    files::{File, Files},
};
use again::{check_complete, copy_again};
use noted::{DOING, NOTED_BYTES_MAX, given_up};
use state::{Before, ROOM};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};
use throng_journal::{Compacted, Error};

/// Added to the store's name until the new file is the store.
const NEW_SUFFIX: &str = ".new";
/// The most keys that may be left for the last step, which checkpoints wait for.
const LAST_KEYS: usize = 10_000;
/// The most rounds of copying changed keys before the last step.
const ROUNDS_MAX: usize = 8;
/// The bytes copied and synced at once. A pause of the same duration follows, so that commits have at least half of the disk.
const SLICE_BYTES: usize = 1 << 20;
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The memory for the new file's pages while it is written.
const CACHE_BYTES: usize = 8 << 20;
/// The number of advances between two checks whether a compaction is due, and after one that failed.
const LOOK_EVERY: u64 = 8;
const RETRY_AFTER: u64 = 64;
/// The time for which the old file is kept for its readers. A longer read fails.
const LET_GO: Duration = Duration::from_mins(10);

pub(super) fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(NEW_SUFFIX);
    name.into()
}

/// Deletes the leftover of an interrupted compaction.
pub(super) fn remove_leftover(files: &dyn Files, path: &Path) -> Result<(), Error> {
    let new = new_path(path);
    match files.remove(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", new.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Ends a compaction, however it went.
struct UnderWay<'a> {
    inner: &'a Inner,
    is_done: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_done
            && let Err(error) = remove_leftover(&*self.inner.log.options().files, &self.inner.path)
        {
            tracing::warn!(%error, "what a compaction has written is left behind until the next start");
        }
        *self.inner.under_way() = None;
    }
}

/// Limits a copy, so that it leaves commits the disk's time and room that they need.
struct Slices<'a> {
    inner: &'a Inner,
    compaction: &'a Compaction,
    /// The new file, opened once more.
    file: Arc<dyn File>,
    bytes: usize,
    begun: Instant,
}

impl Slices<'_> {
    fn copied(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes < SLICE_BYTES {
            return Ok(());
        }
        self.compaction.check()?;
        self.inner.check_room(0)?;
        self.file.sync_data().map_err(Error::io(DOING))?;
        thread::sleep(self.begun.elapsed().min(PAUSE_MAX));
        self.bytes = 0;
        self.begun = Instant::now();
        Ok(())
    }
}

impl Inner {
    fn under_way(&self) -> MutexGuard<'_, Option<Arc<Compaction>>> {
        let under_way = &self.compactions.under_way;
        under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        self.compactions.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the compaction under way, which needs to know every change.
    pub(super) fn compaction(&self) -> Option<Arc<Compaction>> {
        self.under_way().clone()
    }

    /// Ends the compaction under way, because the file it copies is no longer the store.
    pub(super) fn break_off_compaction(&self) {
        if let Some(compaction) = &*self.under_way() {
            compaction.give_up();
        }
    }

    /// Forbids further compactions; the one under way ends soon.
    pub(super) fn close_compactions(&self) {
        self.compactions.is_closing.store(true, Ordering::Release);
        self.break_off_compaction();
    }

    /// Makes the name of a compacted file durable, before anything depends on the file.
    pub(super) fn settle_name(&self) -> Result<(), Error> {
        if self.compactions.is_name_unsynced.load(Ordering::Acquire) {
            let dir = self.log.dir();
            let syncing = format!("syncing the directory {}", dir.display());
            self.log.options().files.sync_dir(dir).map_err(Error::io(syncing))?;
            self.compactions.is_name_unsynced.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// True if the file should be compacted automatically now.
    pub(super) fn is_compaction_due(&self) -> bool {
        let snapshot = self.snapshot();
        let before = {
            let mut before = self.before();
            if snapshot.advances < before.look_at {
                return false;
            }
            before.look_at = snapshot.advances + LOOK_EVERY;
            *before
        };
        let Some(row_bytes) = snapshot.bytes else {
            return false;
        };
        let file_bytes = self.file_bytes().unwrap_or_default();
        file_bytes >= self.log.options().store_compact_bytes && before.is_due(file_bytes, row_bytes)
    }

    /// Returns the bytes that the file takes of the disk.
    fn file_bytes(&self) -> Result<u64, Error> {
        let file = self.log.options().files.open(&self.path, false);
        file.and_then(|file| file.allocated())
            .map_err(Error::io(format!("reading {}", self.path.display())))
    }

    /// Checks that there is room for this many bytes and for commits besides.
    fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let Options {
            files,
            segment_bytes,
            reserve_bytes,
            ..
        } = self.log.options();
        // Two segments: the current one and the prepared one.
        let needed = bytes
            .saturating_add(segment_bytes.saturating_mul(2))
            .saturating_add(*reserve_bytes);
        // If the file system does not tell, a write will.
        let free = files.free_bytes(self.log.dir()).unwrap_or(u64::MAX);
        if free >= needed {
            return Ok(());
        }
        let why = format!(
            "it writes a second file beside the first: {needed} bytes must be free, with what commits need, and {free} are. Make room, or \
             stop the service and run `throng journal compact`, which needs none"
        );
        Err(Error::backend(DOING, why))
    }

    /// Compacts the file, at a pace that leaves the disk to others.
    pub(super) fn compact(&self) -> Result<Compacted, Error> {
        self.compact_noting(NOTED_BYTES_MAX)
    }

    fn compact_noting(&self, noted_bytes_max: usize) -> Result<Compacted, Error> {
        let store_bytes_before = self.file_bytes()?;
        let (compaction, snapshot, under_way) = self.begin_compaction(noted_bytes_max)?;
        let swapped = database::guarded(DOING, || {
            let estimate = snapshot
                .bytes
                .map_or(store_bytes_before, |bytes| bytes.saturating_mul(ROOM));
            self.check_room(estimate.min(store_bytes_before))?;
            remove_leftover(&*self.log.options().files, &self.path)?;
            self.copy_and_swap(&compaction, &snapshot, under_way)
        });
        drop(snapshot);
        let now = self.snapshot();
        match swapped {
            Ok(old) => self.close(old),
            Err(error) => {
                self.before().look_at = now.advances + RETRY_AFTER;
                return Err(error);
            }
        }
        let compacted = Compacted {
            store_bytes_before,
            store_bytes_after: self.file_bytes()?,
        };
        *self.before() = Before {
            look_at: now.advances + LOOK_EVERY,
            file_bytes: compacted.store_bytes_after,
            row_bytes: now.bytes.unwrap_or_default(),
        };
        tracing::info!(file = %self.path.display(), "{compacted}");
        Ok(compacted)
    }

    /// Begins to note every change.
    fn begin_compaction(&self, noted_bytes_max: usize) -> Result<(Arc<Compaction>, Snapshot, UnderWay<'_>), Error> {
        let slot = self.database();
        let mut under_way = self.under_way();
        if under_way.is_some() {
            return Err(Error::backend(DOING, "that is under way already"));
        }
        if self.compactions.is_closing.load(Ordering::Acquire) {
            return Err(given_up("the store is being closed"));
        }
        let snapshot = self.newest_of(slot.as_ref())?;
        let compaction = Arc::new(Compaction::new(noted_bytes_max));
        *under_way = Some(Arc::clone(&compaction));
        let guard = UnderWay {
            inner: self,
            is_done: false,
        };
        Ok((compaction, snapshot, guard))
    }

    /// Returns the present rows. The caller holds the database.
    fn newest_of(&self, database: Option<&Database>) -> Result<Snapshot, Error> {
        match database {
            Some(database) if !self.reopening.is_due() => database.snapshot(),
            _ => Err(given_up("the store failed, and is not open again yet")),
        }
    }

    /// Writes the new file, replaces the old one by it, and returns the old one to be closed.
    fn copy_and_swap(
        &self,
        compaction: &Compaction,
        snapshot: &Snapshot,
        mut under_way: UnderWay<'_>,
    ) -> Result<Option<Database>, Error> {
        let path = new_path(&self.path);
        let options = Options {
            store_cache_bytes: CACHE_BYTES,
            ..self.log.options().clone()
        };
        let target = Database::open_with(&options, None, &path)?;
        let mut slices = Slices {
            inner: self,
            compaction,
            file: options.files.open(&path, false).map_err(Error::io(DOING))?,
            bytes: 0,
            begun: Instant::now(),
        };
        let changes = Changes::default();
        let transaction = target.begin()?;
        let mut tables = Tables::open(&transaction, &changes)?;
        copy_rows(snapshot, &mut tables, &mut |bytes| slices.copied(bytes))?;
        let mut rounds = 0;
        let (mut slot, newest) = loop {
            let slot = self.database();
            // The lock is held, so no change is being noted now.
            let keys = compaction.take()?;
            let newest = self.newest_of(slot.as_ref())?;
            if keys.len() <= LAST_KEYS || rounds == ROUNDS_MAX {
                copy_again(&newest, &mut tables, &keys, &mut |_| Ok(()))?;
                break (slot, newest);
            }
            drop(slot);
            copy_again(&newest, &mut tables, &keys, &mut |bytes| slices.copied(bytes))?;
            rounds += 1;
        };
        check_complete(&newest, &tables)?;
        write_numbers(&newest, &mut tables, changes.applied_to(0))?;
        drop(tables);
        transaction.commit().map_err(failed(DOING))?;
        drop(target);
        let database = Database::open(&self.log, &path)?;
        let shown = database.snapshot()?;
        let old = self.rename(&mut slot, database, &path)?;
        under_way.is_done = true;
        self.show(shown);
        if let Err(error) = self.settle_name() {
            tracing::warn!(%error, "the next checkpoint waits until the compacted store's name is durable");
        }
        drop(slot);
        drop(newest);
        Ok(old)
    }

    /// Closes the old file once it has no more readers.
    fn close(&self, old: Option<Database>) {
        let Some(old) = old else { return };
        let waiting = Instant::now();
        while old.is_read() && waiting.elapsed() < LET_GO && !self.compactions.is_closing.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives the new file the name of the old one, and replaces it.
    fn rename(&self, slot: &mut Option<Database>, database: Database, path: &Path) -> Result<Option<Database>, Error> {
        let renaming = || Error::io(format!("renaming {} to {}", path.display(), self.path.display()));
        let renamed = self.log.options().files.rename(path, &self.path);
        self.compactions.is_name_unsynced.store(true, Ordering::Release);
        match renamed {
            Ok(()) => Ok(slot.replace(database)),
            Err(error) => {
                // The next user opens whichever of the two has the name.
                *slot = None;
                self.reopening.set_due(true);
                Err(renaming()(error))
            }
        }
    }
}

/// Deletes the leftover of an interrupted compaction. If it cannot be deleted, the next start tries again.
pub(super) fn tidy(log: &Log, path: &Path) {
    if let Err(error) = remove_leftover(&*log.options().files, path) {
        tracing::warn!(%error, "what a compaction has written is left behind until the next start");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::noted::NOTED_KEY_BYTES;
    use super::*;
    use crate::open_embedded;
    use throng_journal::{
        Checkpoint, CommitBuilder, CommitNo, Journal as _, Position, Stamp, Store as _, conformance::block_on,
    };

    #[test]
    fn a_file_is_compacted_only_when_that_gives_much_back() {
        let before = Before::default();
        assert!(before.is_due(400, 100) && before.is_due(1, 0));
        assert!(!before.is_due(399, 100));
        // The last compaction left a file of this size.
        let before = Before {
            look_at: 0,
            file_bytes: 500,
            row_bytes: 100,
        };
        assert!(!before.is_due(500, 100) && !before.is_due(999, 100));
        assert!(before.is_due(1_000, 100), "it has grown");
        assert!(before.is_due(500, 50), "there is less in it");
    }

    #[test]
    fn a_compaction_with_too_many_changes_leaves_the_store_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (log, store) = open_embedded(dir.path(), Options::default()).unwrap();
        let writer = block_on(log.open("node")).unwrap().writer;
        let stamp = Stamp::new(writer, CommitNo(1), 0);
        assert!(
            matches!(log.append(CommitBuilder::default().finish(stamp)), throng_journal::Append::Done(done) if done.result.is_ok())
        );
        let advance = |rows: u8| {
            let checkpoint = Checkpoint {
                upto: Position::new(writer, CommitNo(1)),
                system: (0..rows).map(|number| (vec![number], Some(vec![rows]))).collect(),
                ..Checkpoint::default()
            };
            store.advance_here(&checkpoint).unwrap();
        };
        advance(10);
        let inner = &store.inner;
        for (rows, is_done) in [(5, true), (6, false), (5, true)] {
            let begun = inner.begin_compaction(5 * (NOTED_KEY_BYTES + 1)).unwrap();
            let other = inner.begin_compaction(1).err().unwrap().to_string();
            assert!(other.contains("under way already"), "{other}");
            advance(rows);
            let (compaction, snapshot, under_way) = begun;
            let done = inner.copy_and_swap(&compaction, &snapshot, under_way);
            assert_eq!(done.is_ok(), is_done, "{rows}: {:?}", done.err());
            assert!(!new_path(&inner.path).exists());
            let mut found = Vec::new();
            let mut visit = |key: &[u8], value: &[u8]| found.push((key[0], value[0]));
            block_on(store.system_scan(b"", b"", usize::MAX, &mut visit)).unwrap();
            assert_eq!(found.len(), 10);
            assert!(
                found.iter().all(|(key, value)| *key >= rows || *value == rows),
                "{found:?}"
            );
        }
    }
}
