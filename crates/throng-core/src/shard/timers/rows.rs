//! Rows of timers in the store: one with each timer, one that finds it by its due time, and for each shard a mark that the latter are
//! complete.

use super::{QUARANTINE, Set, TimersCount};
use crate::{
    limits,
    model::{LOOK, worker_of},
    shard::SystemRow,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use throng_journal::{Address, Position, ShardId, WriterId};

/// The prefix of rows that hold timers: the key of the timer follows.
pub const TIMER_ROWS: &[u8] = b"t";
/// The prefix of rows that find timers. The shard, the due time, and the timer's key follow. The value is empty.
pub const DUE_ROWS: &[u8] = b"T\x01";
/// The prefix of marks; the shard follows. The value is the writer for which all rows of the shard's timers were complete, and the number
/// of timers.
pub(super) const MARK_ROWS: &[u8] = b"T\x00";
/// The prefix of both, the marks first.
pub const MARKED_ROWS: &[u8] = b"T";

/// The unique key of a timer: its entity's kind, 0, the length of the id, the id, and its own name.
pub(super) type TimerKey = Arc<[u8]>;

/// Returns a timer's key or, with an empty name, the prefix of an entity's keys.
pub(super) fn key_of(address: &Address, name: &str) -> Vec<u8> {
    let (kind, id) = (address.kind.as_bytes(), address.id.as_bytes());
    let mut key = Vec::with_capacity(kind.len() + 3 + id.len() + name.len());
    key.extend_from_slice(kind);
    key.push(0);
    key.extend_from_slice(&(id.len() as u16).to_be_bytes());
    key.extend_from_slice(id);
    key.extend_from_slice(name.as_bytes());
    key
}

/// A key taken apart: kind, id, name.
pub(super) struct KeyParts<'a> {
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
}

impl<'a> KeyParts<'a> {
    pub(super) fn of(key: &'a [u8]) -> Option<Self> {
        let end = key.iter().position(|byte| *byte == 0)?;
        let (length, rest) = key[end + 1..].split_first_chunk::<2>()?;
        let (id, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self {
            kind: std::str::from_utf8(&key[..end]).ok()?,
            id: std::str::from_utf8(id).ok()?,
            name: std::str::from_utf8(name).ok()?,
        })
    }

    pub(super) fn address(&self) -> Address {
        Address::new(self.kind, self.id)
    }

    fn hash(&self) -> u64 {
        limits::hash(self.kind, self.id)
    }
}

/// The hash of a key's entity.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    KeyParts::of(key).map_or(0, |parts| parts.hash())
}

/// The kind of the call without an outcome that a timer stands for.
pub(super) fn call_of(key: &[u8]) -> Option<&str> {
    let parts = KeyParts::of(key).filter(|parts| parts.name == LOOK)?;
    worker_of(parts.kind).map(|_| parts.kind)
}

/// The prefix of all keys of a key's entity.
pub(super) fn entity_of(key: &[u8]) -> &[u8] {
    let name = KeyParts::of(key).map_or(0, |parts| parts.name.len());
    &key[..key.len() - name]
}

/// Returns the place of a timer in the order of a shard's [`DUE_ROWS`]: its due time. The timers that keep quarantines come first.
pub(super) fn place_of(key: &[u8], at: i64) -> i64 {
    match KeyParts::of(key) {
        Some(parts) if parts.name == QUARANTINE => i64::MIN,
        _ => at,
    }
}

/// The row that holds a timer.
pub(super) fn timer_row(key: &[u8]) -> Vec<u8> {
    [TIMER_ROWS, key].concat()
}

/// The entity and the name of the timer of a row.
pub(crate) fn read_row(row: &[u8]) -> Option<(Address, String)> {
    let parts = KeyParts::of(row.strip_prefix(TIMER_ROWS)?)?;
    Some((parts.address(), parts.name.to_owned()))
}

/// The prefix of a shard's [`DUE_ROWS`].
#[must_use]
pub fn due_rows(shard: ShardId) -> Vec<u8> {
    [DUE_ROWS, &shard.0.to_be_bytes()].concat()
}

/// Flips the sign, so that bytes are in the order of numbers.
const SIGN: u64 = 1 << 63;

/// The row that finds a timer by when it is due.
pub(super) fn due_row(shard: ShardId, place: i64, key: &[u8]) -> Vec<u8> {
    let place = (place.cast_unsigned() ^ SIGN).to_be_bytes();
    [DUE_ROWS, &shard.0.to_be_bytes(), &place, key].concat()
}

/// The place and the key of a row of [`DUE_ROWS`].
pub(super) fn read_due_row(row: &[u8]) -> Option<(i64, &[u8])> {
    let (_, rest) = row.strip_prefix(DUE_ROWS)?.split_first_chunk::<2>()?;
    let (place, key) = rest.split_first_chunk::<8>()?;
    Some(((u64::from_be_bytes(*place) ^ SIGN).cast_signed(), key))
}

/// The name of a shard's mark in the store.
fn mark_name(shard: ShardId) -> Vec<u8> {
    [MARK_ROWS, &shard.0.to_be_bytes()].concat()
}

/// A shard's mark in the store, with the value it is to have.
fn mark_row(shard: ShardId, writer: WriterId, count: &TimersCount) -> SystemRow {
    let mut value = [writer.0, count.timers].map(u64::to_be_bytes).concat();
    count.write_calls(&mut value);
    (mark_name(shard), Some(value))
}

/// The mark of a shard: each of its timers has a row among [`DUE_ROWS`] as long as the shard is covered by commits of this writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimersMark {
    /// The shard it is about.
    pub shard: ShardId,
    /// The writer that made the last checkpoint of a program that knows these rows. An older program does not change it, but covers the
    /// shard by another writer.
    pub writer: WriterId,
    /// The shard's timers in the store.
    pub count: TimersCount,
    /// The calls among these were counted; an older program did not.
    pub counts_calls: bool,
}

impl TimersCount {
    /// Counts the timer that a row of [`TIMER_ROWS`] holds.
    pub fn add_row(&mut self, row: &[u8]) {
        self.add(row.strip_prefix(TIMER_ROWS).and_then(call_of));
    }
}

impl TimersMark {
    /// Reads a row of the marks.
    #[must_use]
    pub fn read(row: &[u8], value: &[u8]) -> Option<Self> {
        let shard: [u8; 2] = row.strip_prefix(MARK_ROWS)?.try_into().ok()?;
        let (writer, value) = value.split_first_chunk::<8>()?;
        let (timers, value) = value.split_first_chunk::<8>()?;
        let calls = TimersCount::read_calls(value);
        Some(Self {
            shard: ShardId(u16::from_be_bytes(shard)),
            writer: WriterId(u64::from_be_bytes(*writer)),
            counts_calls: calls.is_some(),
            count: TimersCount {
                timers: u64::from_be_bytes(*timers),
                calls: calls.unwrap_or_default(),
            },
        })
    }
}

/// The row of a timer in the store, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredTimer {
    /// There may be one. It has to be read before it is written.
    Unknown,
    /// There is none.
    None,
    /// There is one, without a row that finds it by its due time: an older program wrote it.
    Unfound,
    /// There is one, at this [place](place_of).
    At(i64),
}

/// A timer that changed.
#[derive(Debug)]
pub(super) struct ChangedTimer {
    pub(super) key: TimerKey,
    pub(super) stored: StoredTimer,
    /// Its place and the value of its row; `None`: it is no longer set.
    pub(super) now: Option<(i64, Vec<u8>)>,
}

/// A shard's timers for a checkpoint. Which rows the store has of them is still to be read.
#[derive(Debug)]
pub struct TimerRows {
    pub(super) shard: ShardId,
    pub(super) writer: WriterId,
    pub(super) changed: Vec<ChangedTimer>,
    /// The keys of entities that ended begin with these.
    pub(super) ended: Vec<Vec<u8>>,
    /// Rows that find no timer.
    pub(super) stale: Vec<Vec<u8>>,
    /// The timers in the store before.
    pub(super) count: TimersCount,
    /// `count` counts the rows of the store.
    pub(super) is_counted: bool,
    /// The store may have a checkpoint of this writer that failed.
    pub(super) is_unsure: bool,
}

/// A shard's timers after a checkpoint.
#[derive(Debug, Default)]
pub struct TimersStored {
    pub(super) count: TimersCount,
    /// The entities of timers that turned out to be in the store, by their hash, once for each.
    pub(super) found: Vec<u64>,
}

impl TimerRows {
    /// Returns the shard of these timers.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Returns the rows that have to be read before [`resolve`](Self::resolve).
    #[must_use]
    pub fn unknown(&self) -> Vec<Vec<u8>> {
        let unknown = self.changed.iter().filter(|timer| timer.stored == StoredTimer::Unknown);
        let mark = self.is_unsure.then(|| mark_name(self.shard));
        unknown.map(|timer| timer_row(&timer.key)).chain(mark).collect()
    }

    /// The timers in the store before, and whether its rows are counted among them.
    fn before(&mut self, read: &HashMap<Vec<u8>, Vec<u8>>) -> (TimersCount, bool) {
        let name = mark_name(self.shard);
        let mark = read.get(&name).and_then(|value| TimersMark::read(&name, value));
        match mark.filter(|mark| mark.writer == self.writer) {
            Some(mark) => (mark.count, true),
            None => (std::mem::take(&mut self.count), self.is_counted),
        }
    }

    /// Returns the prefixes whose rows all have to be read before [`resolve`](Self::resolve).
    #[must_use]
    pub fn of_ended(&self) -> Vec<Vec<u8>> {
        self.ended.iter().map(|entity| timer_row(entity)).collect()
    }

    /// The rows to write, added to others, by what was read of the store.
    pub fn resolve(mut self, read: &HashMap<Vec<u8>, Vec<u8>>, rows: &mut Vec<SystemRow>) -> TimersStored {
        let ((mut count, is_counted), mut found) = (self.before(read), Vec::new());
        let changed: BTreeMap<&[u8], &ChangedTimer> = self.changed.iter().map(|timer| (&*timer.key, timer)).collect();
        let ended: HashSet<&[u8]> = self.ended.iter().map(|entity| &entity[..]).collect();
        for (row, value) in read {
            let key = &row[TIMER_ROWS.len()..];
            if ended.contains(entity_of(key)) && !changed.contains_key(key) {
                rows.push((row.clone(), None));
                rows.extend(place_in(key, value).map(|place| (due_row(self.shard, place, key), None)));
                if is_counted {
                    count.remove(call_of(key));
                }
                found.push(hash_of(key));
            }
        }
        for ChangedTimer { key, stored, now } in &self.changed {
            let row = timer_row(key);
            let before = match stored {
                StoredTimer::None | StoredTimer::Unfound => None,
                StoredTimer::At(place) => Some(*place),
                StoredTimer::Unknown => read.get(&row).and_then(|value| place_in(key, value)),
            };
            if before.is_some() && *stored == StoredTimer::Unknown {
                found.push(hash_of(key));
            }
            let after = now.as_ref().map(|(place, _)| *place);
            let may_stand = *stored == StoredTimer::Unfound || read.contains_key(&row);
            if before.is_none() && after.is_none() && !may_stand {
                continue;
            }
            rows.push((row, now.as_ref().map(|(_, value)| value.clone())));
            // A row that was read may be an older program's, without a row that finds it.
            if before != after || *stored == StoredTimer::Unknown {
                let left = before.filter(|place| Some(*place) != after);
                rows.extend(left.map(|place| (due_row(self.shard, place, key), None)));
                rows.extend(after.map(|place| (due_row(self.shard, place, key), Some(Vec::new()))));
            }
            if before.is_some() && is_counted {
                count.remove(call_of(key));
            }
            if after.is_some() {
                count.add(call_of(key));
            }
        }
        for row in &self.stale {
            let is_needed = read_due_row(row).is_some_and(|(place, key)| {
                let now = changed.get(key).and_then(|timer| timer.now.as_ref());
                now.is_some_and(|(now, _)| *now == place)
            });
            if !is_needed {
                rows.push((row.clone(), None));
            }
        }
        rows.push(mark_row(self.shard, self.writer, &count));
        TimersStored { count, found }
    }
}

/// Returns the place of a timer whose row has this value.
pub(super) fn place_in(key: &[u8], value: &[u8]) -> Option<i64> {
    let set: Set = serde_json::from_slice(value).ok()?;
    Some(place_of(key, set.at))
}

/// Returns the print of a timer: a hash of its entity's kind and id, its name, its record's body, and the record's position if known.
#[must_use]
pub fn timer_print((kind, id, name): (&str, &str, &str), body: &[u8], at: Option<Position>) -> u64 {
    let place = at
        .map_or([0; 2], |at| [at.writer.0, at.commit.0])
        .map(u64::to_le_bytes)
        .concat();
    let all = [
        kind.as_bytes(),
        &[0],
        id.as_bytes(),
        &[0],
        name.as_bytes(),
        &[0],
        body,
        &place,
    ]
    .concat();
    xxhash_rust::xxh3::xxh3_64(&all)
}

/// Returns the [print](timer_print) of a timer from its row in the store. The position of its record is unknown.
#[must_use]
pub fn stored_timer_print(row: &[u8], value: &[u8]) -> Option<u64> {
    let (of, name) = read_row(row)?;
    Some(timer_print((&of.kind, &of.id, &name), value, None))
}
