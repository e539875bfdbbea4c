//! Read models in a database file of their own beside the log, `views.redb`.
//!
//! Reads are answered at once, from the last batch applied. The views' own thread applies batches. Everything in the file can be rebuilt
//! from the log, so batches are atomic but not synced one by one: they become durable together, every [`SYNC_EVERY`] or [`SYNC_BYTES`] and
//! when the views are closed. After a crash the file holds an earlier batch completely, and the projection continues from there.

mod tables;

use crate::{
    Log,
    store::database::{self, failed, guarded_in},
    worker::Worker,
};
use redb::{ReadableDatabase as _, ReadableTable as _};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tables::{OFFSETS, decode_offset, encode_offset, rows, rows_name};
use throng_journal::{Applied, Error, Later, ViewBatch, ViewOffset, ViewRange, ViewRow, Views};

/// The file with the read models.
pub(crate) const VIEWS_NAME: &str = "views.redb";
/// The time after which batches are synced.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(2);
/// The number of bytes after which batches are synced.
pub(crate) const SYNC_BYTES: usize = 16 << 20;
/// The time between two attempts to open a file that failed.
const REOPEN_EVERY: Duration = Duration::from_millis(100);
/// Memory for pages; a scan reads from the file.
const CACHE_BYTES: usize = 16 << 20;

/// Read models beside an embedded [`Log`].
pub struct EmbeddedViews {
    inner: Arc<Inner>,
    worker: Worker,
}

struct Inner {
    path: PathBuf,
    /// Written by the thread that opens it again after a failure; `None` only if that failed, too.
    database: RwLock<Option<redb::Database>>,
    /// True if the database failed and does not answer until it is opened again. A call that meets an I/O error sets it;
    /// [`reopen`](Self::reopen) clears it, under the write lock of `database`.
    has_failed: AtomicBool,
    /// The time of the last attempt to open it again.
    tried: Mutex<Option<Instant>>,
    /// The batches that are applied and not synced.
    unsynced: Mutex<Unsynced>,
    /// Keeps the directory locked as long as the views are used. Dropped last, because closing a database writes to it.
    log: Arc<Log>,
}

struct Unsynced {
    bytes: usize,
    since: Option<Instant>,
}

impl std::fmt::Debug for EmbeddedViews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedViews")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}

impl EmbeddedViews {
    /// Opens the read models of a log. A file that is damaged or of another version is begun anew with a warning; the projections then
    /// rebuild it from the journal.
    ///
    /// # Errors
    /// [`Error::Io`] of the file system.
    pub fn open(log: Arc<Log>) -> Result<Self, Error> {
        let path = log.dir().join(VIEWS_NAME);
        let database = open_or_begin_anew(&log, &path)?;
        let inner = Arc::new(Inner {
            log,
            path,
            database: RwLock::new(Some(database)),
            has_failed: AtomicBool::new(false),
            tried: Mutex::default(),
            unsynced: Mutex::new(Unsynced { bytes: 0, since: None }),
        });
        let worker = Worker::start("throng-views").map_err(Error::io("starting a thread"))?;
        Ok(Self { inner, worker })
    }

    /// Makes all applied batches durable now.
    ///
    /// # Errors
    /// [`Error::Io`] of the file system.
    pub fn sync(&self) -> Result<(), Error> {
        self.inner.sync()
    }

    fn on_worker<T: Send + 'static>(
        &self,
        doing: &'static str,
        job: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Later<'static, Result<T, Error>> {
        let inner = Arc::clone(&self.inner);
        let answer = self.worker.run(move || job(&inner));
        Box::pin(async move { answer.await.unwrap_or_else(|why| Err(Error::backend(doing, why))) })
    }
}

impl Drop for EmbeddedViews {
    fn drop(&mut self) {
        if let Err(error) = self.inner.sync() {
            tracing::warn!(file = %self.inner.path.display(), %error, "the newest part of the read models is rebuilt at the next start");
        }
    }
}

/// Runs a call on the database. Bytes that it refuses are an error of this call, not the engine's end.
fn guarded<T>(doing: &'static str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guarded_in("the file of the read models", doing, work)
}

fn open_or_begin_anew(log: &Log, path: &Path) -> Result<redb::Database, Error> {
    match open(log, path) {
        Err(why @ Error::Backend { .. }) => {
            tracing::warn!(file = %path.display(), %why, "the read models cannot be read; they are rebuilt from the journal");
            let removing = format!("removing {}", path.display());
            log.options().files.remove(path).map_err(Error::io(removing))?;
            open(log, path)
        }
        opened => opened,
    }
}

fn open(log: &Log, path: &Path) -> Result<redb::Database, Error> {
    let doing = "opening the read models";
    let reserve = Arc::clone(log.reserve());
    let files = &log.options().files;
    let file = files
        .open(path, true)
        .map_err(Error::io(format!("opening {}", path.display())))?;
    let database = guarded(doing, move || {
        let database = database::open(file, Some(reserve), CACHE_BYTES, doing)?;
        tables::prepare(&database)?;
        Ok(database)
    })?;
    // A new file has to be found again after a power loss.
    files
        .sync_dir(log.dir())
        .map_err(Error::io(format!("syncing {}", log.dir().display())))?;
    Ok(database)
}

impl Inner {
    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work on the database, after opening it again if it failed before.
    fn with<T>(&self, doing: &'static str, work: impl FnOnce(&redb::Database) -> Result<T, Error>) -> Result<T, Error> {
        if self.has_failed.load(Ordering::Acquire) {
            self.reopen()?;
        }
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else {
            return Err(Error::backend(doing, "the file could not be opened again yet"));
        };
        let done = guarded(doing, || work(database));
        if matches!(done, Err(Error::Io { .. })) {
            self.has_failed.store(true, Ordering::Release);
        }
        done
    }

    /// Opens the failed database again. Batches that were not synced are lost; projections find an earlier offset, and continue from there.
    fn reopen(&self) -> Result<(), Error> {
        let mut slot = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = tried.is_some_and(|at| at.elapsed() < REOPEN_EVERY);
        if !self.has_failed.load(Ordering::Acquire) || is_early {
            return Ok(());
        }
        *tried = Some(Instant::now());
        drop(slot.take());
        *slot = Some(open_or_begin_anew(&self.log, &self.path)?);
        *self.unsynced() = Unsynced { bytes: 0, since: None };
        self.has_failed.store(false, Ordering::Release);
        tracing::info!(file = %self.path.display(), "the read models' file failed, and is open again");
        Ok(())
    }

    fn offset(&self, view: &str) -> Result<Option<ViewOffset>, Error> {
        let doing = "reading a read model's offset";
        self.with(doing, |database| {
            let transaction = database.begin_read().map_err(failed(doing))?;
            let offsets = transaction.open_table(OFFSETS).map_err(failed(doing))?;
            let offset = offsets.get(view).map_err(failed(doing))?;
            offset.map(|row| decode_offset(row.value())).transpose()
        })
    }

    fn apply(&self, view: &str, batch: &ViewBatch) -> Result<Applied, Error> {
        let doing = "writing a read model";
        self.with(doing, |database| {
            let bytes: usize = batch
                .changes
                .iter()
                .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len))
                .sum();
            let is_durable = {
                let unsynced = self.unsynced();
                unsynced.bytes + bytes >= SYNC_BYTES
                    || unsynced.since.is_some_and(|since| since.elapsed() >= SYNC_EVERY)
            };
            let mut transaction = database.begin_write().map_err(failed(doing))?;
            if is_durable {
                transaction.set_quick_repair(true);
            } else {
                transaction
                    .set_durability(redb::Durability::None)
                    .map_err(failed(doing))?;
            }
            {
                let mut offsets = transaction.open_table(OFFSETS).map_err(failed(doing))?;
                let found = match offsets.get(view).map_err(failed(doing))? {
                    Some(row) => Some(decode_offset(row.value())?),
                    None => None,
                };
                if found != batch.expected {
                    // Dropping the transaction without a commit undoes it.
                    return Ok(Applied::Moved(found));
                }
                offsets
                    .insert(view, &encode_offset(batch.offset)[..])
                    .map_err(failed(doing))?;
                let name = rows_name(view);
                let mut rows = transaction.open_table(rows(&name)).map_err(failed(doing))?;
                for (key, value) in &batch.changes {
                    match value {
                        Some(value) => rows.insert(&**key, &**value).map(drop),
                        None => rows.remove(&**key).map(drop),
                    }
                    .map_err(failed(doing))?;
                }
            }
            transaction.commit().map_err(failed(doing))?;
            let mut unsynced = self.unsynced();
            if is_durable {
                *unsynced = Unsynced { bytes: 0, since: None };
            } else {
                unsynced.bytes += bytes;
                unsynced.since.get_or_insert_with(Instant::now);
            }
            Ok(Applied::Done)
        })
    }

    fn sync(&self) -> Result<(), Error> {
        let doing = "syncing the read models";
        if self.unsynced().since.is_none() {
            return Ok(());
        }
        self.with(doing, |database| {
            let mut transaction = database.begin_write().map_err(failed(doing))?;
            transaction.set_quick_repair(true);
            transaction.commit().map_err(failed(doing))?;
            *self.unsynced() = Unsynced { bytes: 0, since: None };
            Ok(())
        })
    }

    fn get(&self, view: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let doing = "reading a read model";
        self.with(doing, |database| {
            let transaction = database.begin_read().map_err(failed(doing))?;
            let name = rows_name(view);
            let rows = match transaction.open_table(rows(&name)) {
                Ok(rows) => rows,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![None; keys.len()]),
                Err(error) => return Err(failed(doing)(error)),
            };
            keys.iter()
                .map(|key| {
                    let row = rows.get(&**key).map_err(failed(doing))?;
                    Ok(row.map(|row| row.value().to_vec()))
                })
                .collect()
        })
    }

    fn scan(&self, view: &str, range: &ViewRange) -> Result<Vec<ViewRow>, Error> {
        let doing = "reading a read model";
        self.with(doing, |database| {
            let transaction = database.begin_read().map_err(failed(doing))?;
            let name = rows_name(view);
            let rows = match transaction.open_table(rows(&name)) {
                Ok(rows) => rows,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(error) => return Err(failed(doing)(error)),
            };
            let mut found = Vec::new();
            if range.is_empty() {
                return Ok(found);
            }
            let bounds = (
                range.from.as_ref().map(Vec::as_slice),
                range.to.as_ref().map(Vec::as_slice),
            );
            let mut bytes = 0;
            for row in rows.range::<&[u8]>(bounds).map_err(failed(doing))?.take(range.rows_max) {
                let (key, value) = row.map_err(failed(doing))?;
                bytes += key.value().len() + value.value().len();
                if bytes > range.bytes_max && !found.is_empty() {
                    break;
                }
                found.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(found)
        })
    }

    fn clear(&self, view: &str) -> Result<(), Error> {
        let doing = "clearing a read model";
        self.with(doing, |database| {
            let mut transaction = database.begin_write().map_err(failed(doing))?;
            transaction.set_quick_repair(true);
            {
                let mut offsets = transaction.open_table(OFFSETS).map_err(failed(doing))?;
                offsets.remove(view).map_err(failed(doing))?;
            }
            let name = rows_name(view);
            transaction.delete_table(rows(&name)).map_err(failed(doing))?;
            transaction.commit().map_err(failed(doing))
        })
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let doing = "listing the read models";
        self.with(doing, |database| {
            let transaction = database.begin_read().map_err(failed(doing))?;
            let offsets = transaction.open_table(OFFSETS).map_err(failed(doing))?;
            let rows = offsets.iter().map_err(failed(doing))?;
            rows.map(|row| {
                let (name, _) = row.map_err(failed(doing))?;
                Ok(name.value().to_owned())
            })
            .collect()
        })
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, Error>) -> Later<'a, Result<T, Error>> {
    Box::pin(std::future::ready(result))
}

impl Views for EmbeddedViews {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        ready(self.inner.offset(view))
    }

    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        let view = view.to_owned();
        self.on_worker("writing a read model", move |inner| inner.apply(&view, &batch))
    }

    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        ready(self.inner.get(view, &keys))
    }

    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        ready(self.inner.scan(view, &range))
    }

    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        let view = view.to_owned();
        self.on_worker("clearing a read model", move |inner| inner.clear(&view))
    }

    fn sync(&self) -> Later<'_, Result<(), Error>> {
        self.on_worker("syncing the read models", Inner::sync)
    }

    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        ready(self.inner.names())
    }
}
