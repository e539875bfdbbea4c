//! The embedded journal.

mod append;
mod begin;
mod keeper;
mod prune;
mod read;
mod readers;
mod state;
mod syncers;

pub(crate) use read::Located;

use crate::{
    Options,
    directory::{self, Lock},
    files::File,
    recovery::{self, Cut, Recovered},
    reserve::Reserve,
    unfinished,
    worker::Worker,
};
use keeper::Keeper;
use readers::Readers;
use state::Shared;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU64},
    time::{SystemTime, UNIX_EPOCH},
};
use syncers::Syncers;
use throng_journal::{
    Append, Commit, CommitNo, Durability, Error, Inventory, Journal, Later, Maybe, Opened, Place, Position, Prune,
    Pruned, ShardId, Taken, WriterId,
};

/// The first segment of a writer, so that a start is quick.
const FIRST_BYTES: u64 = 4 << 20;
/// The size of the store's file with few rows, and of the read models' file.
const DATABASE_BYTES: u64 = 4 << 20;

/// The embedded journal: a directory of segments, one writer at a time.
///
/// `open`, `seal`, `take` and `read` do their work before they return, so their futures are ready. An append is done at once while the disk
/// syncs fast; otherwise another thread syncs, and wakes its future.
pub struct Log {
    dir: PathBuf,
    options: Options,
    shared: Arc<Shared>,
    /// Held over each write, sync and change of the writer: by appends, openings, seals and prunes.
    writing: Mutex<Writing>,
    readers: Readers,
    reserve: Arc<Reserve>,
    /// The thread that rewrites segments, started at its first use.
    worker: OnceLock<Worker>,
    /// The number of segments rewritten so far. A prune raises it after each rewrite. A read that fails, and finds another number than
    /// before, reads again, because the place it used may be outdated.
    rewritten: AtomicU64,
    archive: Mutex<Option<PathBuf>>,
    /// Held for as long as the log.
    _lock: Lock,
}

/// The state of the writing side; its lock keeps writes in order.
struct Writing {
    /// The current segment, once a writer has begun.
    segment: Option<Active>,
    next_segment: u64,
    next_writer: u64,
    /// Bytes the next segment gets.
    room_bytes: u64,
    /// The parts at the end of the last stream that recovery found unsynced. They are synced before it is sealed.
    unsynced: Vec<(u64, u64, u64)>,
    /// The end of the last stream as recovery found it. The room of its file after it is given back once it is sealed.
    recovered_end: Option<(u64, u64)>,
    /// Segments of the live stream that are finished but not synced, at a durability without syncs.
    behind: Vec<Arc<dyn File>>,
    /// The numbers of files without history.
    dead: Vec<u64>,
    /// Moving average of a commit's bytes.
    commit_bytes_mean: u64,
    keeper: Keeper,
    syncers: Syncers,
}

struct Active {
    number: u64,
    file: Arc<dyn File>,
    bytes: u64,
    offset: u64,
    /// True once the next segment has been requested.
    next_wanted: bool,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log in a directory, creating it if necessary, and determines where its history ends. No other process can use the
    /// directory until this is dropped. Dropping it seals its writer and gives back unused room.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::OtherVersion`], [`Error::Damaged`] below a position that was synced, [`Error::Io`].
    pub fn open(dir: impl Into<PathBuf>, options: Options) -> Result<Self, Error> {
        let dir = dir.into();
        let creating = Error::io(format!("creating the directory {}", dir.display()));
        options.files.create_dir(&dir).map_err(creating)?;
        let lock = directory::lock(&options, &dir)?;
        unfinished::refuse_unfinished(&*options.files, &dir)?;
        unfinished::settle(&*options.files, &dir)?;
        if options.durability != Durability::Fsync {
            tracing::warn!(durability = ?options.durability, dir = %dir.display(), "acknowledged commits do not survive power loss");
        }
        Self::open_unfinished(dir, lock, options)
    }

    /// Opens like [`open`](Self::open), even if an import into it has not ended: for the import itself.
    pub(crate) fn open_unfinished(dir: PathBuf, lock: Lock, options: Options) -> Result<Self, Error> {
        let files = Arc::clone(&options.files);
        let recovered = recovery::recover(&*files, &dir)?;
        for note in &recovered.notes {
            tracing::warn!(dir = %dir.display(), "{note}; run `throng journal verify`");
        }
        if let Some(cut) = &recovered.cut {
            warn_of_cut(&dir, cut);
        }
        let reserve = Arc::new(Reserve::new(Arc::clone(&files), &dir, options.reserve_bytes));
        let keeper = Keeper::start(Arc::clone(&files), dir.clone(), Arc::clone(&reserve))
            .map_err(Error::io("starting a thread"))?;
        let Recovered {
            history,
            next_segment,
            next_writer,
            dead,
            unsynced,
            end,
            ..
        } = recovered;
        let shared = Arc::new(Shared::default());
        shared.state().history = history;
        Ok(Self {
            readers: Readers::new(Arc::clone(&files), dir.clone()),
            writing: Mutex::new(Writing {
                segment: None,
                next_segment,
                next_writer,
                room_bytes: options.segment_bytes.min(FIRST_BYTES),
                unsynced,
                recovered_end: end,
                behind: Vec::new(),
                dead,
                commit_bytes_mean: 0,
                keeper,
                syncers: Syncers::default(),
            }),
            reserve,
            worker: OnceLock::new(),
            rewritten: AtomicU64::new(0),
            archive: Mutex::default(),
            dir,
            options,
            shared,
            _lock: lock,
        })
    }

    /// The data directory it lies in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the reserve, which the store and the read models share.
    pub(crate) fn reserve(&self) -> &Arc<Reserve> {
        &self.reserve
    }

    /// Makes everything acknowledged so far survive power loss, whatever the durability.
    ///
    /// # Errors
    /// [`Error::Io`] of the file system; the writer has then ended.
    pub fn sync(&self) -> Result<(), Error> {
        self.sync_beside()
            .and_then(|()| self.sync_all(&mut self.writing()))
            .map_err(|why| Error::io("syncing the log")(std::io::Error::other(why)))
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> Result<&Worker, Error> {
        if let Some(worker) = self.worker.get() {
            return Ok(worker);
        }
        let worker = Worker::start("throng-prune").map_err(Error::io("starting a thread"))?;
        Ok(self.worker.get_or_init(|| worker))
    }

    fn sync_file(&self, file: &dyn File) -> std::io::Result<()> {
        file.sync_data()?;
        if !self.options.sync_delay.is_zero() {
            std::thread::sleep(self.options.sync_delay);
        }
        Ok(())
    }
}

fn warn_of_cut(dir: &Path, cut: &Cut) {
    tracing::warn!(
        file = %recovery::segment_path(dir, cut.segment).display(),
        offset = cut.offset,
        found = cut.found,
        "the log's unfinished end after commit {} is cut: nothing in it was acknowledged as durable",
        cut.last
    );
}

fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Drop for Log {
    /// Ends cleanly: the writer is sealed, so that later damage is not mistaken for an unfinished end.
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, dir = %self.dir.display(), "the log was left unsealed; the next start finds its end");
        }
        self.shared.state().stop = true;
        self.shared.wanted.notify_all();
        self.shared.changed.notify_all();
    }
}

fn ready<'a, T: Send + 'a>(result: T) -> Later<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Journal for Log {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        ready(self.open_writer(node).map(|writer| Opened { writer }))
    }

    fn take<'a>(&'a self, by: WriterId, _shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        let state = self.shared.state();
        ready(match &state.live {
            Some(live) if live.writer == by && !live.ended => Ok(state.history.sealed_before(by)),
            _ => Err(Error::Sealed(by)),
        })
    }

    fn append(&self, commit: Commit) -> Append {
        self.append_commit(commit)
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        ready(self.seal_writer(writer))
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        let located = self.read_located(after, bytes_max);
        ready(located.map(|found| found.into_iter().map(|found| found.commit).collect()))
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        Maybe::Ready(places.iter().map(|place| self.read_body(*place)).collect())
    }

    fn sync(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Log::sync(self)))
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        Box::pin(self.prune_stream(prune))
    }

    fn end_segment(&self) -> Later<'_, Result<(), Error>> {
        ready(self.finish_segment())
    }

    fn forget(&self, upto: Position) {
        self.shared.state().history.forget(upto);
    }

    fn depth(&self) -> usize {
        self.shared.depth()
    }

    fn durability(&self) -> Durability {
        self.options.durability
    }

    fn has_room(&self) -> bool {
        self.reserve.has_room()
    }

    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        let mut inventory = self.shared.state().history.inventory(limit);
        for part in &mut inventory.parts {
            // A file that is just being replaced by a rewrite is there under the same name a moment later.
            let file = self.options.files.open(&self.dir.join(&part.name), false);
            part.bytes = file.and_then(|file| file.length()).unwrap_or(0);
        }
        ready(Ok(inventory))
    }

    fn disk_bytes(&self) -> Option<u64> {
        let files = &self.options.files;
        let names = files.list(&self.dir).ok()?;
        let allocated = |name: &String| files.open(&self.dir.join(name), false).ok()?.allocated().ok();
        Some(names.iter().filter_map(allocated).sum())
    }

    /// The sum of the current segment, a prepared one, and one being rewritten; the store before its compaction; the read models.
    fn disk_bytes_min(&self) -> u64 {
        let Options {
            segment_bytes,
            reserve_bytes,
            store_compact_bytes,
            ..
        } = self.options;
        let store_bytes = Some(store_compact_bytes).filter(|bytes| *bytes < u64::MAX);
        let database_bytes = store_bytes.unwrap_or(0).max(DATABASE_BYTES) + DATABASE_BYTES;
        segment_bytes
            .saturating_mul(3)
            .saturating_add(reserve_bytes)
            .saturating_add(database_bytes)
    }

    fn bytes(&self) -> Option<u64> {
        let files = &self.options.files;
        let numbers = recovery::list(&**files, &self.dir).ok()?;
        let length = |number: &u64| {
            let file = files.open(&recovery::segment_path(&self.dir, *number), false).ok()?;
            file.length().ok()
        };
        Some(numbers.iter().filter_map(length).sum())
    }
}
