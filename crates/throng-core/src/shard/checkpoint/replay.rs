//! Recovery: takes over the records and rows from before this engine's start, and loads entities.

use super::{erasures::ERASED, notes};
use crate::{
    limits,
    model::{Entity, Family, Timestamp, opened_by},
    shard::{
        Common, LoadOutcome, Recalled, Shard, TailEvent,
        dedup::{self, FoundKey, KeyRows, key::KeptOutcome},
        messages::{MessageCounts, Watermark},
        resident::{Entities, known, slot::Body, table::LoadRequest, unloadable},
        timers::{self, Set},
    },
};
use serde::{Deserialize, Serialize, de::Error as _};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};
use throng_journal::{Address, CommitNo, Position, Record, RecordKind, ShardId};

/// The body of a record is damaged, or was written by a newer program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a record ({record:?}) of {address} cannot be read: {why}; use the program it was written by, or see with `journal verify` whether the journal is \
     damaged"
)]
pub struct UnreadableRecord {
    /// The entity the record belongs to.
    pub address: Address,
    /// The kind of record.
    pub record: RecordKind,
    /// The reason why.
    pub why: String,
}

impl Shard {
    /// Takes over a record of a commit after the last checkpoint, in order, with the hash of its entity
    /// ([`Layout::check_record`](crate::layout::Layout::check_record)).
    ///
    /// # Errors
    /// [`UnreadableRecord`]: without it a command could take effect twice, or a message or timer be lost.
    pub fn replay(&mut self, hash: u64, record: &Record<'_>) -> Result<(), UnreadableRecord> {
        self.replay_readable(hash, record).map_err(|error| UnreadableRecord {
            address: Address::new(record.kind, record.id),
            record: record.record,
            why: error.to_string(),
        })
    }

    fn replay_readable(&mut self, hash: u64, record: &Record<'_>) -> serde_json::Result<()> {
        let common = &mut self.common;
        match record.record {
            RecordKind::Event | RecordKind::State | RecordKind::Family | RecordKind::Ended => {
                if record.record == RecordKind::Ended {
                    common.timers.clear_all(&Address::new(record.kind, record.id));
                    common.erasures.ended(record);
                }
                match self.registry.find(record.kind) {
                    Some(kind) => {
                        let is_event = record.record == RecordKind::Event;
                        if is_event && self.registry.kinds()[kind].is_internal && opened_by(record.name) != 0 {
                            common.timers.calls.add(record.kind, opened_by(record.name));
                        }
                        self.tables[kind].replay(common, hash, record, intern(record.name))?;
                    }
                    None => self.others.replay(hash, record)?,
                }
            }
            RecordKind::Sent => {
                let envelope = serde_json::from_slice::<crate::shard::Envelope<'_>>(record.body)?;
                let to = self.registry.shard_of(&envelope.to.0, &envelope.to.1);
                common.messages.sent(to, record.seq);
            }
            RecordKind::Taken => {
                common.messages.taken(ShardId(record.version), record.seq);
                common.dead.replay(record);
            }
            RecordKind::Key => {
                let (number, body) = record.body.split_first_chunk::<16>().ok_or_else(no_key)?;
                let kept: KeptOutcome = serde_json::from_slice(body)?;
                if kept.until > common.now.micros {
                    common.keys.insert(u128::from_le_bytes(*number), kept);
                }
            }
            RecordKind::TimerSet => {
                let set: Set = serde_json::from_slice(record.body)?;
                common
                    .timers
                    .replay(&Address::new(record.kind, record.id), record.name, set);
            }
            RecordKind::TimerCleared => common.timers.clear(&Address::new(record.kind, record.id), record.name),
            RecordKind::Numbers => {
                let numbers: NumbersRow = serde_json::from_slice(record.body)?;
                common.messages.recorded(&numbers.into_counts());
            }
            RecordKind::Erasure => common.erasures.noted(record),
            RecordKind::Loss | RecordKind::Removed | RecordKind::Command => {}
        }
        Ok(())
    }

    /// Returns what has to be read to load an entity; `None` if it is in memory.
    pub fn load_request(&mut self, kind: usize, hash: u64, id: &str) -> Option<LoadRequest> {
        self.tables[kind].load_request(hash, id)
    }

    /// Loads an entity from what was read.
    pub fn loaded(&mut self, kind: usize, hash: u64, id: &str, read: Recalled) -> LoadOutcome {
        self.tables[kind].loaded(&mut self.common, hash, id, read)
    }

    /// Returns an entity's events that the store may not have indexed, and its recorded state among them.
    #[must_use]
    pub fn tail(&self, kind: usize, hash: u64, id: &str) -> Vec<TailEvent> {
        self.tables[kind].tail(hash, id)
    }

    /// Adds the ids of a kind after another that have durable events which the store may not have indexed, each with the number of its last
    /// event. `found` may hold those of other shards; only the first `limit` of all are kept.
    pub fn fresh(
        &mut self,
        kind: usize,
        after: Option<&str>,
        limit: usize,
        found: &mut BTreeMap<Box<str>, u64>,
        durable: Position,
    ) {
        self.tables[kind].fresh(after, limit, found, durable);
    }

    /// Returns the rows of the store that may hold an idempotency key.
    #[must_use]
    pub fn key_rows(&mut self, hash: u64, id: &str, key: &str, now: Timestamp) -> KeyRows {
        self.common
            .keys
            .rows_of(self.common.id, dedup::id_of(hash, id, key), now)
    }

    /// Takes the store's answer about an idempotency key. It is ignored if the key was accepted or a checkpoint was completed after the
    /// store was asked: the key is then looked up again.
    pub fn key_looked(&mut self, asked: &KeyRows, found: Option<FoundKey>) {
        self.common.keys.looked(asked, found);
    }

    /// Passivates entities until this many bytes are freed or none is left. Commits up to `durable` are durable. Returns the bytes freed.
    pub fn passivate(&mut self, bytes: usize, durable: CommitNo) -> usize {
        self.common.durable = durable.0;
        let before = self.common.resident_bytes;
        let target = before.saturating_sub(bytes);
        while self.common.resident_bytes > target {
            let mut any = false;
            for table in &mut self.tables {
                any |= self.common.resident_bytes > target && table.passivate(&mut self.common);
            }
            if !any {
                break;
            }
        }
        before - self.common.resident_bytes
    }

    /// True if an entity that was used last has at least this many bytes.
    #[must_use]
    pub fn has_large(&self, bytes_min: usize) -> bool {
        self.tables.iter().any(|table| table.has_large(bytes_min))
    }

    /// Also passivates the entities that were used last, if they have at least this many bytes. A command that waits for one has it loaded
    /// again, so this must be called rarely.
    pub fn passivate_large(&mut self, bytes_min: usize) {
        for table in &mut self.tables {
            table.passivate_large(&mut self.common, bytes_min);
        }
    }

    /// Takes over a system row of the store whose name begins with one of [`RESTORED`], in the order of their names, or of a timer that no
    /// other row finds. Called at recovery. Returns false if it cannot be read.
    pub fn row(&mut self, row: &[u8], value: &[u8]) -> bool {
        match row.first() {
            Some(b'n') => {
                let Some((kind, _, name)) = known::read_row(row) else {
                    return false;
                };
                if let Some(kind) = self.registry.find(kind) {
                    return self.tables[kind].restore_known(&mut self.common, name, value);
                }
                return self.others.restore_known(kind, name, value);
            }
            Some(b'u') => return self.restore_noted(row, value),
            Some(b'q') => match unloadable::read_row(row) {
                Some(address) => self.common.unloadables.restore(address, value),
                None => return false,
            },
            Some(b'l') => return self.common.keys.restore(row, value),
            Some(b't') => return self.common.timers.restore(row, value),
            Some(b'm') => {
                let Ok(numbers) = serde_json::from_slice::<NumbersRow>(value) else {
                    return false;
                };
                self.common.messages.restore(numbers.into_counts());
            }
            _ => return false,
        }
        true
    }

    /// Takes over the [note](notes) of an entity; returns `false` if its row cannot be read.
    fn restore_noted(&mut self, row: &[u8], value: &[u8]) -> bool {
        let (Some((kind, id)), Some(noted)) = (notes::read_name(row), notes::read_note(value)) else {
            return false;
        };
        let Some(found) = self.registry.find(kind) else {
            self.others.restore((kind, id), noted);
            return true;
        };
        let (table, common) = (&mut self.tables[found], &mut self.common);
        let (hash, shard) = (limits::hash(kind, id), common.id);
        let mut is_readable = true;
        noted.each_record((kind, id), shard, |record| {
            is_readable &= table.replay(common, hash, record, "").is_ok();
        });
        table.has_note(common, hash, id);
        is_readable
    }
}

/// The prefixes of the system rows that a start reads ([`Shard::row`]), in this order.
pub const RESTORED: [&[u8]; 5] = [b"n", b"l", b"m", b"u", b"q"];

/// The message numbers of a shard, in one row.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct NumbersRow {
    pub(crate) sent: Vec<(u16, u64)>,
    pub(crate) taken: Vec<(u16, Watermark)>,
}

impl NumbersRow {
    pub(crate) fn of(counts: &MessageCounts) -> Self {
        let taken = counts.taken.iter();
        Self {
            sent: counts.sent.iter().map(|(to, number)| (to.0, *number)).collect(),
            taken: taken.map(|(from, watermark)| (from.0, watermark.clone())).collect(),
        }
    }

    fn into_counts(self) -> MessageCounts {
        let taken = self.taken.into_iter();
        MessageCounts {
            sent: self
                .sent
                .into_iter()
                .map(|(to, number)| (ShardId(to), number))
                .collect(),
            taken: taken.map(|(from, watermark)| (ShardId(from), watermark)).collect(),
        }
    }
}

/// Returns the shard to which a system row belongs.
#[must_use]
pub fn shard_of_row(row: &[u8], registry: &crate::shard::Registry) -> Option<ShardId> {
    match row.first()? {
        b'n' => known::read_row(row).map(|(_, shard, _)| shard),
        b'l' => dedup::shard_of_list(row),
        b't' => timers::read_row(row).map(|(address, _)| registry.shard_of(&address.kind, &address.id)),
        b'u' => notes::read_name(row).map(|(kind, id)| registry.shard_of(kind, id)),
        b'q' => unloadable::read_row(row).map(|address| registry.shard_of(&address.kind, &address.id)),
        b'm' => Some(ShardId(u16::from_be_bytes([*row.get(1)?, *row.get(2)?]))),
        _ => None,
    }
}

fn no_key() -> serde_json::Error {
    serde_json::Error::custom("it is shorter than a key")
}

/// The names of events: few, and for ever.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashMap<Box<str>, &'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(found) = names.get(name) {
        return found;
    }
    let leaked: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name.into(), leaked);
    leaked
}

impl<E: Entity> Entities<E> {
    pub(crate) fn replay_record(
        &mut self,
        common: &mut Common,
        hash: u64,
        record: &Record<'_>,
        name: &'static str,
    ) -> serde_json::Result<()> {
        if record.seq <= 1 || !self.may_know(hash) {
            self.know(common, hash);
        }
        let at = match self.find(hash, record.id) {
            Some(at) => at,
            None => self.insert(common, hash, record.id, Body::Passivated(None)),
        };
        if record.record == RecordKind::Family {
            let change: Family = serde_json::from_slice(record.body)?;
            self.trace(common, at).family = true;
            self.slot(at).family.get_or_insert_default().add(change);
            return Ok(());
        }
        if record.record == RecordKind::Ended {
            common.unloadables.forget(record.kind, record.id);
            let slot = self.slot(at);
            slot.ended = record.seq;
            if record.name == ERASED {
                slot.family = None;
            }
            self.trace(common, at).family = true;
            return Ok(());
        }
        let event = TailEvent {
            seq: record.seq,
            place: record.place,
            name,
            version: record.version,
            is_state: record.record == RecordKind::State,
        };
        let grown = self.trace(common, at).add(event);
        common.pending_bytes = common.pending_bytes.saturating_add_signed(grown);
        Ok(())
    }
}
