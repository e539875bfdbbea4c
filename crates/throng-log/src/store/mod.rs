//! The embedded store: states, the index of an entity's events, system rows, in one `redb` file beside the log.
//!
//! Events are not copied. The index has the place of each body in the log (segment, offset, length, checksum), one row for an entity and a
//! checkpoint's interval, so that an entity's places are adjacent.

mod advance;
mod backend;
mod care;
mod chunk;
mod compact;
mod copy;
mod cut;
pub(crate) mod database;
mod inner;
mod read;
mod remove;
mod reopen;
mod rows;

pub(crate) use care::{check, compact};

use crate::{Log, Options, directory::STORE_NAME, worker::Worker};
use compact::Compactions;
use database::{Covers, Database, Snapshot};
use inner::{Inner, Reopening};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, RwLock},
};
use throng_journal::{
    Address, Checkpoint, Compacted, Covered, EntityHead, Error, Later, Loaded, Loss, Maybe, ShardSet, Store,
    StoredEvent,
};

/// The embedded store beside an embedded [`Log`].
///
/// Loads and single rows are answered at once. The store's own thread executes checkpoints.
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    worker: Worker,
    /// The thread that compacts, started at its first use.
    compactor: OnceLock<Worker>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}

/// Opens the embedded journal and store of a directory.
///
/// # Errors
/// The errors of [`Log::open`] and [`EmbeddedStore::open`].
pub fn open_embedded(dir: impl Into<PathBuf>, options: Options) -> Result<(Arc<Log>, Arc<EmbeddedStore>), Error> {
    let log = Arc::new(Log::open(dir, options)?);
    let store = Arc::new(EmbeddedStore::open(Arc::clone(&log))?);
    Ok((log, store))
}

impl EmbeddedStore {
    /// Opens the store of a log. A damaged store is moved away and begun anew. It then covers nothing, and the next checkpoint rebuilds it
    /// from the journal.
    ///
    /// # Errors
    /// [`Error::Lost`] if the store covers what this log does not hold, unless that loss is [accepted](Options::accept_loss). It is then
    /// recorded in the log before the store is begun anew. Otherwise [`Error::Io`].
    pub fn open(log: Arc<Log>) -> Result<Self, Error> {
        let path = log.dir().join(STORE_NAME);
        compact::tidy(&log, &path);
        let (database, snapshot) = open_or_begin_anew(&log, &path)?;
        let inner = Arc::new(Inner {
            log,
            path,
            database: Mutex::new(Some(database)),
            snapshot: RwLock::new(Arc::new(snapshot)),
            reopening: Reopening::default(),
            compactions: Compactions::default(),
        });
        let worker = Worker::start("throng-store").map_err(Error::io("starting a thread"))?;
        let compactor = OnceLock::new();
        Ok(Self {
            inner,
            worker,
            compactor,
        })
    }

    /// Drops everything the store holds. It then covers nothing, and the next checkpoint rebuilds it from the journal.
    ///
    /// # Errors
    /// [`Error::Io`] of the file system, or [`Error::Backend`] of the database library.
    pub fn reset(&self) -> Result<(), Error> {
        let mut database = self.inner.database();
        self.inner.break_off_compaction();
        drop(database.take());
        let (begun, snapshot) = begin_anew(&self.inner.log, &self.inner.path)?;
        *database = Some(begun);
        self.inner.show(snapshot);
        Ok(())
    }

    /// Returns the size of the store's file.
    ///
    /// # Errors
    /// [`Error::Io`] of the file system.
    pub fn bytes(&self) -> Result<u64, Error> {
        let files = &self.inner.log.options().files;
        files
            .open(&self.inner.path, false)
            .and_then(|file| file.length())
            .map_err(Error::io(format!("reading {}", self.inner.path.display())))
    }

    /// Applies a checkpoint on this thread, like [`Store::advance`] does on the store's own, without checking whether a compaction is due.
    ///
    /// # Errors
    /// The errors of [`Store::advance`].
    pub fn advance_here(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.inner.advance(checkpoint)
    }

    /// Compacts the file on this thread, like [`Store::compact`] does on the store's own.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub fn compact_here(&self) -> Result<Compacted, Error> {
        self.inner.compact()
    }

    fn compactor(&self) -> Result<&Worker, Error> {
        if let Some(worker) = self.compactor.get() {
            return Ok(worker);
        }
        let worker = Worker::start("throng-compact").map_err(Error::io("starting a thread"))?;
        Ok(self.compactor.get_or_init(|| worker))
    }

    /// Compacts the file in the background.
    fn compact_behind(&self) {
        let inner = Arc::clone(&self.inner);
        let compact = move || {
            if let Err(error) = inner.compact() {
                tracing::warn!(%error, "the store was not compacted; it is tried again later");
            }
        };
        match self.compactor() {
            Ok(compactor) => drop(compactor.run(compact)),
            Err(error) => tracing::warn!(%error, "the store is not compacted"),
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.inner.close_compactions();
    }
}

fn open_or_begin_anew(log: &Log, path: &std::path::Path) -> Result<(Database, Snapshot), Error> {
    let opened = Database::open(log, path).and_then(|database| {
        let snapshot = database.snapshot()?;
        Ok((database, snapshot))
    });
    match opened {
        Ok((database, snapshot)) => match loss(log, snapshot.covers)? {
            None => return Ok((database, snapshot)),
            Some(loss) => accept(log, loss)?,
        },
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(why) => {
            tracing::warn!(file = %path.display(), %why, "the store cannot be read; it is rebuilt from the journal");
        }
    }
    begin_anew(log, path)
}

/// Returns a loss if the log lacks what a checkpoint covers, which was durable.
fn loss(log: &Log, covers: Option<Covers>) -> Result<Option<Loss>, Error> {
    covers.map_or(Ok(None), |covers| log.loss(covers.position, covers.fingerprint))
}

fn lost(log: &Log, loss: Loss) -> Error {
    let place = log.dir().display().to_string();
    Error::Lost { place, loss }
}

fn accept(log: &Log, loss: Loss) -> Result<(), Error> {
    if log.options().accept_loss != Some(loss.covered) {
        return Err(lost(log, loss));
    }
    log.accept_loss(loss)?;
    tracing::warn!(dir = %log.dir().display(), "durable commits are lost, which was accepted and is recorded in the journal: {loss}");
    Ok(())
}

fn begin_anew(log: &Log, path: &std::path::Path) -> Result<(Database, Snapshot), Error> {
    let removing = format!("removing {}", path.display());
    log.options().files.remove(path).map_err(Error::io(removing))?;
    let database = Database::open(log, path)?;
    let snapshot = database.snapshot()?;
    Ok((database, snapshot))
}

fn ready<'a, T: Send + 'a>(result: T) -> Later<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Store for EmbeddedStore {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        // One engine wrote the store, so all shards are covered alike.
        let covered = |upto| {
            let shards = shards.clone();
            vec![Covered { shards, upto }]
        };
        let newest = self.inner.newest();
        ready(newest.map(|newest| covered(newest.covers.map(|covers| covers.position))))
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        let inner = Arc::clone(&self.inner);
        let advanced = self.worker.run(move || {
            inner.advance(&checkpoint)?;
            Ok(inner.is_compaction_due())
        });
        Box::pin(async move {
            let advanced = advanced.await;
            if advanced.unwrap_or_else(|why| Err(Error::backend("making a checkpoint", why)))? {
                self.compact_behind();
            }
            Ok(())
        })
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        Maybe::Ready(self.inner.load(address, state_version))
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        ready(self.inner.history(address, after, limit, bytes_max))
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        ready(self.inner.entities(kind, after, limit))
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        Maybe::Ready(self.inner.system(key))
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        ready(self.inner.system_scan((prefix, after), rows_max, visit))
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        let (inner, prefix, after) = (Arc::clone(&self.inner), prefix.to_vec(), after.to_vec());
        let removed = self.worker.run(move || inner.remove_prefix(&prefix, &after, rows_max));
        Box::pin(async move {
            removed
                .await
                .unwrap_or_else(|why| Err(Error::backend("removing system rows", why)))
        })
    }

    fn compact(&self) -> Later<'_, Result<Option<Compacted>, Error>> {
        let inner = Arc::clone(&self.inner);
        let compacting = self.compactor().map(|compactor| compactor.run(move || inner.compact()));
        Box::pin(async move {
            let compacted = compacting?.await;
            let compacted = compacted.unwrap_or_else(|why| Err(Error::backend("compacting the store", why)));
            compacted.map(Some)
        })
    }
}
