//! The store: states, the index of an entity's events, and system rows. Checkpoints write it, and it can be rebuilt from the journal.

use crate::{Address, Error, Later, Maybe, Pace, Position, Record, ShardId, ShardSet, history_base};
use std::{fmt, ops::Bound};

/// An entity's state as the engine encoded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    /// The entity of this state.
    pub address: Address,
    /// The shard of that entity, fixed by its address and the number of shards.
    pub shard: ShardId,
    /// The sequence number of the last event in it.
    pub seq: u64,
    /// The kind's `STATE_VERSION` when it was encoded.
    pub version: u16,
    /// The state, opaque to the store.
    pub bytes: Vec<u8>,
}

impl StoredState {
    /// Reads the record of a [state](crate::RecordKind::State).
    #[must_use]
    pub fn of_record(record: &Record<'_>) -> Self {
        Self {
            address: Address::new(record.kind, record.id),
            shard: record.shard,
            seq: record.seq,
            version: record.version,
            bytes: record.body.to_vec(),
        }
    }
}

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its sequence number within the entity: 1, 2, 3, … without a gap.
    pub seq: u64,
    /// The commit that made it true.
    pub position: Position,
    /// The time in microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// The event's name.
    pub name: Box<str>,
    /// The version of its shape.
    pub version: u16,
    /// The payload, opaque to the store.
    pub payload: Vec<u8>,
}

/// Facts about an entity that need no load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityHead {
    /// The entity's id within the kind that was asked for.
    pub id: Box<str>,
    /// The sequence number of its last event at the last checkpoint.
    pub seq: u64,
}

/// The rows that an entity is loaded from: its last stored state and the indexed events after it. The engine adds the events since the last
/// checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The last stored state of the requested version; of any version, if the earlier events were removed.
    pub state: Option<StoredState>,
    /// The events after that state (from the first there is, without one), up to the last checkpoint, in order.
    pub events: Vec<StoredEvent>,
}

impl Loaded {
    /// Returns the number of an event that is missing before the first one here. `ended` is the entity's last event when it last ended; 0:
    /// it never did.
    #[must_use]
    pub fn missing_event(&self, ended: u64) -> Option<u64> {
        let state = self.state.as_ref().map_or(0, |state| state.seq);
        let first = self.events.first().map(|event| event.seq);
        history_base(state, first, ended).err()
    }
}

/// The changes of a checkpoint, which become true all at once.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The position up to which the shards of the writer's stream are covered. The store itself reads the journal's commits from what it
    /// [covers](Store::covers) of these up to here, and indexes their events.
    pub upto: Position,
    /// The covered shards: those of the writer's stream.
    pub shards: ShardSet,
    /// The sealed streams with records of these between what is covered and `upto`, in order: the last commit of each.
    pub sealed: Vec<Position>,
    /// States that replace earlier ones. They may be newer than `upto`, but never newer than what is durable.
    pub states: Vec<StoredState>,
    /// The engine's own rows (timers, outbox, keys): key and value, or key and `None` to remove it.
    pub system: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Entities whose oldest events are to be removed from the index.
    pub cuts: Vec<Cut>,
    /// The pace at which it is made.
    pub pace: Pace,
}

/// The position up to which some shards are covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The shards that are covered alike, …
    pub shards: ShardSet,
    /// The position up to which they are covered; `None`: there was no checkpoint of them.
    pub upto: Option<Position>,
}

/// The part of an entity's history to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The entity whose history is cut.
    pub address: Address,
    /// The last event to be removed.
    pub upto: u64,
    /// True if its state is removed too, and its entry in the list. Later events, and states after these, stay: it was created anew.
    pub is_gone: bool,
}

/// The size of a store's file on the disk before and after it was compacted, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// The bytes before it was compacted.
    pub store_bytes_before: u64,
    /// The bytes afterwards.
    pub store_bytes_after: u64,
}

impl fmt::Display for Compacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.store_bytes_before, self.store_bytes_after);
        write!(f, "the store went from {before} to {after} bytes")
    }
}

/// Rows that can be rebuilt from the journal. Every method sees the last completed [`advance`](Store::advance), as a whole, and every later
/// [removal](Store::remove_prefix).
pub trait Store: Send + Sync {
    /// Returns the positions up to which checkpoints cover these shards. Each shard is in one entry; shards with the same position share an
    /// entry.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached, or is damaged. A damaged store can be deleted; it is then rebuilt
    /// from the journal.
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>>;

    /// Applies a checkpoint, atomically and durably. One task of a node calls it at a time; several nodes may do so concurrently.
    ///
    /// # Errors
    /// Any [`Error`]: nothing of the checkpoint is visible, and the caller may try again.
    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>>;

    /// Returns an entity's state of this version, and the events after it. Empty for an entity that the store does not know.
    ///
    /// Events that are missing before the first one are not noticed here, but by [`Loaded::missing_event`].
    ///
    /// # Errors
    /// [`Error::Row`], [`Error::Damaged`] or [`Error::NoCommit`]: a row, or the commit of an event, cannot be read. [`Error::Io`] or
    /// [`Error::Backend`]: the store cannot be reached.
    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>>;

    /// Returns an entity's events after a sequence number, as far as they were not removed, in order: at most `limit` and, after the first,
    /// `bytes_max`.
    ///
    /// # Errors
    /// [`Error::Row`], [`Error::Damaged`] or [`Error::NoCommit`]: a row, or the commit of an event, cannot be read. [`Error::Io`] or
    /// [`Error::Backend`]: the store cannot be reached.
    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>>;

    /// Returns the entities of a kind after an id, in the order of their ids.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached.
    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>>;

    /// Reads a system row.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached.
    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>>;

    /// Reads system rows by their keys, in order; `None` for a missing row. By default they are read one by one.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached.
    fn system_rows<'a>(&'a self, keys: &'a [Vec<u8>]) -> Later<'a, Result<Vec<Option<Vec<u8>>>, Error>> {
        Box::pin(async move {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(match self.system(key) {
                    Maybe::Ready(value) => value?,
                    Maybe::Later(value) => value.await?,
                });
            }
            Ok(values)
        })
    }

    /// Reads the system rows whose key begins with a prefix and comes after another (`&[]`: from the first one on), in the order of their
    /// keys, at most `rows_max`. No others are read.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached.
    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>>;

    /// Removes system rows whose key begins with a prefix and comes after another (`&[]`: from the first one on), in the order
    /// of their keys, at most `rows_max`. Returns the key of the last one removed; `None` once there is none.
    ///
    /// After a crash, removed rows may be there again until the next [`advance`](Self::advance). Millions of rows are removed in many
    /// calls, so that readers, and checkpoints of other nodes, wait for one call at most.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the store cannot be reached.
    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>>;

    /// Gives back unused room, without interrupting other work. `None`, the default: the store never needs it from an operator.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: there is no room to do it, a compaction is under way, or the store failed. The store is
    /// unchanged.
    fn compact(&self) -> Later<'_, Result<Option<Compacted>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Returns the first key that [`Store::system_scan`] and [`Store::remove_prefix`] look at.
#[must_use]
pub fn begin_of_rows<'a>(prefix: &'a [u8], after: &'a [u8]) -> Bound<&'a [u8]> {
    if after < prefix {
        Bound::Included(prefix)
    } else {
        Bound::Excluded(after)
    }
}
