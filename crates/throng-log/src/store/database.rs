//! The tables, and opening them.

use super::backend::Backend;
use crate::{Log, Options, files::File, reserve::Reserve};
use redb::{ReadOnlyTable, ReadableDatabase as _, TableDefinition};
use std::{
    cell::Cell,
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Once},
};
use throng_journal::{CommitNo, Error, Position, WriterId};

/// The version of the tables below. A store with another version is rebuilt.
const TABLES_VERSION: u64 = 1;

/// Kind's length, kind, id → the entity's number and its last sequence number. Sorted by kinds' lengths, kinds, ids.
pub(super) const HEADS: TableDefinition<'_, &[u8], (u64, u64)> = TableDefinition::new("heads");
/// Entity's number, sequence number of the row's last event → packed places (see [`super::chunk`]).
pub(super) const CHUNKS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("chunks");
/// Entity's number → sequence number, version, shard, checksum, state.
pub(super) const STATES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("states");
/// The engine's own rows.
pub(super) const SYSTEM: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("system");
/// Single numbers: `version`, `entities`, `advances`, `bytes` (of all other tables' keys and values), and the covered position: `writer`,
/// `commit`, `fingerprint`.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The row of [`META`] with the bytes of all other tables' keys and values.
pub(super) const BYTES: &str = "bytes";

/// A table that holds more than single numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    Heads,
    Chunks,
    States,
    System,
}

/// The commit up to which the store covers the journal, and the fingerprint that distinguishes it from others of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covers {
    pub position: Position,
    pub fingerprint: u32,
}

/// Returns a function for `map_err` on the database's errors. It separates disk errors from damage.
pub(crate) fn failed<E: Into<redb::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| match error.into() {
        redb::Error::Io(source) if !is_damage(source.kind()) => Error::io(doing)(source),
        closed @ (redb::Error::PreviousIo | redb::Error::DatabaseClosed) => {
            Error::io(doing)(io::Error::other(closed.to_string()))
        }
        other => Error::backend(doing, other),
    }
}

/// True if bytes are missing or meaningless.
fn is_damage(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput
    )
}

/// Runs work on the database. It may panic over damaged bytes, which then is an error of this call and not the engine's end.
pub(crate) fn guarded<T>(doing: &'static str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guarded_in("the store's file", doing, work)
}

/// The same for another file than the store's.
pub(crate) fn guarded_in<T>(
    file: &'static str,
    doing: &'static str,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    quietly(work).unwrap_or_else(|()| {
        let why = format!("{file} is damaged; stop, remove it, and start: it is rebuilt from the journal");
        Err(Error::backend(doing, why))
    })
}

thread_local! {
    /// A panic of this thread is an answer, and not for people.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs work without the message that a panic usually prints: the caller gets an error instead.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, ()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match IS_QUIET.get() {
            true => tracing::debug!("{panic}"),
            false => others(panic),
        }));
    });
    let before = IS_QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(before);
    done.map_err(drop)
}

/// Opens a database in a file.
pub(crate) fn open(
    file: Arc<dyn File>,
    reserve: Option<Arc<Reserve>>,
    cache_bytes: usize,
    doing: &'static str,
) -> Result<redb::Database, Error> {
    redb::Builder::new()
        .set_cache_size(cache_bytes)
        .create_with_backend(Backend { file, reserve })
        .map_err(failed(doing))
}

/// The open database. Dropping it ends all reads of it.
pub(super) struct Database {
    pub redb: redb::Database,
    /// Held by every snapshot, too.
    readers: Arc<()>,
}

impl Database {
    /// The store beside a log.
    pub(super) fn open(log: &Log, path: &Path) -> Result<Self, Error> {
        Self::open_with(log.options(), Some(Arc::clone(log.reserve())), path)
    }

    pub(super) fn open_with(options: &Options, reserve: Option<Arc<Reserve>>, path: &Path) -> Result<Self, Error> {
        let doing = "opening the store";
        let file: Arc<dyn File> = options
            .files
            .open(path, true)
            .map_err(Error::io(format!("opening {}", path.display())))?;
        guarded(doing, move || {
            let database = Self {
                redb: open(file, reserve, options.store_cache_bytes, doing)?,
                readers: Arc::default(),
            };
            database.prepare()?;
            Ok(database)
        })
    }

    /// Creates missing tables; refuses those of another version.
    fn prepare(&self) -> Result<(), Error> {
        let doing = "creating the store's tables";
        let found = {
            let transaction = self.redb.begin_read().map_err(failed(doing))?;
            match transaction.open_table(META) {
                Ok(meta) => meta
                    .get("version")
                    .map_err(failed(doing))?
                    .map(|version| version.value()),
                Err(redb::TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(failed(doing)(error)),
            }
        };
        match found {
            Some(TABLES_VERSION) => return Ok(()),
            Some(other) => {
                return Err(Error::backend(
                    doing,
                    format!("they have version {other}, this program reads {TABLES_VERSION}"),
                ));
            }
            None => {}
        }
        let transaction = self.begin()?;
        transaction.open_table(HEADS).map_err(failed(doing))?;
        transaction.open_table(CHUNKS).map_err(failed(doing))?;
        transaction.open_table(STATES).map_err(failed(doing))?;
        transaction.open_table(SYSTEM).map_err(failed(doing))?;
        {
            let mut meta = transaction.open_table(META).map_err(failed(doing))?;
            meta.insert("version", TABLES_VERSION).map_err(failed(doing))?;
        }
        transaction.commit().map_err(failed(doing))
    }

    /// Begins a write transaction whose commit is durable and needs no repair after a crash.
    pub(super) fn begin(&self) -> Result<redb::WriteTransaction, Error> {
        let mut transaction = self.redb.begin_write().map_err(failed("beginning a checkpoint"))?;
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    /// Begins a write transaction that a crash may undo until the next one of [`begin`](Self::begin) is committed. It costs no sync.
    pub(super) fn begin_volatile(&self) -> Result<redb::WriteTransaction, Error> {
        let doing = "removing system rows";
        let mut transaction = self.redb.begin_write().map_err(failed(doing))?;
        transaction
            .set_durability(redb::Durability::None)
            .map_err(failed(doing))?;
        Ok(transaction)
    }

    /// True if there are snapshots of it.
    pub(super) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, Error> {
        let doing = "reading the store";
        guarded(doing, || {
            let transaction = self.redb.begin_read().map_err(failed(doing))?;
            let meta = transaction.open_table(META).map_err(failed(doing))?;
            let number = |key: &str| {
                let value = meta.get(key).map_err(failed(doing))?;
                Ok::<_, Error>(value.map(|value| value.value()))
            };
            let covers = match (number("writer")?, number("commit")?, number("fingerprint")?) {
                (Some(writer), Some(commit), Some(fingerprint)) => Some(Covers {
                    position: Position::new(WriterId(writer), CommitNo(commit)),
                    fingerprint: u32::try_from(fingerprint).unwrap_or_default(),
                }),
                _ => None,
            };
            Ok(Snapshot {
                covers,
                entities: number("entities")?.unwrap_or(0),
                advances: number("advances")?.unwrap_or(0),
                bytes: number(BYTES)?,
                heads: transaction.open_table(HEADS).map_err(failed(doing))?,
                chunks: transaction.open_table(CHUNKS).map_err(failed(doing))?,
                states: transaction.open_table(STATES).map_err(failed(doing))?,
                system: transaction.open_table(SYSTEM).map_err(failed(doing))?,
                _reader: Arc::clone(&self.readers),
            })
        })
    }
}

/// The tables as the last completed advance left them.
pub(super) struct Snapshot {
    pub covers: Option<Covers>,
    /// Entities numbered so far.
    pub entities: u64,
    /// Advances completed so far.
    pub advances: u64,
    /// The bytes of all rows, keys and values; `None` if an older program has not counted them.
    pub bytes: Option<u64>,
    pub heads: ReadOnlyTable<&'static [u8], (u64, u64)>,
    pub chunks: ReadOnlyTable<(u64, u64), &'static [u8]>,
    pub states: ReadOnlyTable<u64, &'static [u8]>,
    pub system: ReadOnlyTable<&'static [u8], &'static [u8]>,
    _reader: Arc<()>,
}

/// The key of an entity in [`HEADS`].
pub(super) fn head_key(into: &mut Vec<u8>, kind: &str, id: &str) {
    into.clear();
    into.push(u8::try_from(kind.len()).unwrap_or(u8::MAX));
    into.extend_from_slice(kind.as_bytes());
    into.extend_from_slice(id.as_bytes());
}

/// Returns kind and id of a key in [`HEADS`]; `None` if it is not one.
pub(super) fn head_of(key: &[u8]) -> Option<(&str, &str)> {
    let (length, rest) = key.split_first()?;
    let (kind, id) = rest.split_at_checked(usize::from(*length))?;
    Some((std::str::from_utf8(kind).ok()?, std::str::from_utf8(id).ok()?))
}
