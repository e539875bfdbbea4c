//! Rows, sorted by their keys, and layers of them.
//!
//! ```text
//! key                               value
//! c shard                           writer, commit: the shard is covered up to here
//! s kind 0 id                       seq, version, shard, state
//! e kind 0 id                       seq of the last event
//! p kind 0 length of id, id, seq    writer, commit, offset, length, time, version, name: where an event stands
//! y key                             a row of the engine's
//! ```
//!
//! Numbers in keys are big-endian, in values little-endian. A layer is a list of `key length, value length or u32::MAX, key, value`.

use crate::root::Layer;
use bytes::Bytes;
use std::{collections::BTreeMap, ops::Bound};
use throng_journal::{
    Address, CommitNo, EntityHead, Error, Place, Position, ShardId, StoredEvent, StoredState, WriterId, begin_of_rows,
};

/// Changed rows: a value, or `None` for a removed row.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const REMOVED: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: u64,
}

/// The place of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Indexed {
    pub(super) seq: u64,
    pub(super) place: Place,
    pub(super) at_micros: i64,
    pub(super) version: u16,
    pub(super) name: Box<str>,
}

pub(super) fn cover_key(shard: ShardId) -> Vec<u8> {
    [&b"c"[..], &shard.0.to_be_bytes()].concat()
}

fn entity_key_of(first: u8, kind: &str, id: &str) -> Vec<u8> {
    [&[first][..], kind.as_bytes(), &[0], id.as_bytes()].concat()
}

pub(super) fn state_key(address: &Address) -> Vec<u8> {
    entity_key_of(b's', &address.kind, &address.id)
}

pub(super) fn entity_key(address: &Address) -> Vec<u8> {
    entity_key_of(b'e', &address.kind, &address.id)
}

pub(super) fn place_key(address: &Address, seq: u64) -> Vec<u8> {
    let (kind, id) = (address.kind.as_bytes(), address.id.as_bytes());
    let length = (id.len() as u16).to_be_bytes();
    [&b"p"[..], kind, &[0], &length, id, &seq.to_be_bytes()].concat()
}

pub(super) fn system_key(key: &[u8]) -> Vec<u8> {
    [&b"y"[..], key].concat()
}

pub(super) fn position(value: &[u8]) -> Position {
    let mut value = Reader(value);
    Position::new(WriterId(value.u64()), CommitNo(value.u64()))
}

pub(super) fn of_position(at: Position) -> Vec<u8> {
    [at.writer.0.to_le_bytes(), at.commit.0.to_le_bytes()].concat()
}

pub(super) fn of_state(state: &StoredState) -> Vec<u8> {
    let (version, shard) = (state.version.to_le_bytes(), state.shard.0.to_le_bytes());
    [&state.seq.to_le_bytes()[..], &version, &shard, &state.bytes].concat()
}

pub(super) fn state_of(address: &Address, value: &[u8]) -> StoredState {
    let mut value = Reader(value);
    StoredState {
        address: address.clone(),
        seq: value.u64(),
        version: value.u16(),
        shard: ShardId(value.u16()),
        bytes: value.0.to_vec(),
    }
}

pub(super) fn seq_of(value: &[u8]) -> u64 {
    Reader(value).u64()
}

impl Indexed {
    pub(super) fn value(&self) -> Vec<u8> {
        let Place { position, offset, len } = self.place;
        [
            &position.writer.0.to_le_bytes()[..],
            &position.commit.0.to_le_bytes(),
            &offset.to_le_bytes(),
            &len.to_le_bytes(),
            &self.at_micros.to_le_bytes(),
            &self.version.to_le_bytes(),
            self.name.as_bytes(),
        ]
        .concat()
    }

    fn read(key: &[u8], value: &[u8]) -> Self {
        let seq = key.last_chunk().map_or(0, |seq| u64::from_be_bytes(*seq));
        let mut value = Reader(value);
        Self {
            seq,
            place: Place {
                position: Position::new(WriterId(value.u64()), CommitNo(value.u64())),
                offset: value.u32(),
                len: value.u32(),
            },
            at_micros: value.u64().cast_signed(),
            version: value.u16(),
            name: String::from_utf8_lossy(value.0).into(),
        }
    }

    pub(super) fn stored(self, payload: Vec<u8>) -> StoredEvent {
        StoredEvent {
            seq: self.seq,
            position: self.place.position,
            at_micros: self.at_micros,
            name: self.name,
            version: self.version,
            payload,
        }
    }
}

/// Reads numbers from bytes with a correct checksum. Returns zeros if there are too few bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn chunk<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((chunk, rest)) => {
                self.0 = rest;
                *chunk
            }
            None => [0; N],
        }
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.chunk())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.chunk())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.chunk())
    }
}

impl Rows {
    pub(super) fn apply(&mut self, changes: Changes) {
        for (key, value) in changes {
            let added = value.as_ref().map_or(0, |value| key.len() + value.len());
            let before = match value {
                Some(value) => self.rows.insert(key.clone(), value),
                None => self.rows.remove(&key),
            };
            let gone = before.map_or(0, |before| key.len() + before.len());
            self.bytes = self.bytes + added as u64 - gone as u64;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|(key, value)| (&**key, Some(&**value)))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(|value| &**value)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let rows = self.rows.range::<[u8], _>((from, Bound::Unbounded));
        rows.map(|(key, value)| (&**key, &**value))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn covered(&self, shard: ShardId) -> Option<Position> {
        self.get(&cover_key(shard)).map(position)
    }

    /// Returns the keys of an entity's events up to and including this one.
    pub(super) fn place_keys(&self, address: &Address, upto: u64) -> Vec<Vec<u8>> {
        let range = place_key(address, 0)..=place_key(address, upto);
        self.rows.range(range).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn events(&self, address: &Address, after: u64, limit: usize) -> Vec<Indexed> {
        let Some(first) = after.checked_add(1) else {
            return Vec::new();
        };
        let range = place_key(address, first)..=place_key(address, u64::MAX);
        let rows = self.rows.range(range).take(limit);
        rows.map(|(key, value)| Indexed::read(key, value)).collect()
    }

    /// Returns the state of this version. If the events before it are gone, the state of any version.
    pub(super) fn state(&self, address: &Address, version: u16) -> Option<StoredState> {
        let state = state_of(address, self.get(&state_key(address))?);
        let is_cut = || {
            let seq = self.get(&entity_key(address)).map_or(0, seq_of);
            seq > 0 && self.events(address, 0, 1).first().is_none_or(|event| event.seq > 1)
        };
        (state.version == version || is_cut()).then_some(state)
    }

    pub(super) fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Vec<EntityHead> {
        let prefix = entity_key_of(b'e', kind, "");
        let from = after.map(|id| entity_key_of(b'e', kind, id));
        let from = from.as_deref().map_or(Bound::Included(&*prefix), Bound::Excluded);
        let rows = self.range(from, &prefix).take(limit);
        rows.map(|(key, value)| EntityHead {
            id: String::from_utf8_lossy(&key[prefix.len()..]).into(),
            seq: seq_of(value),
        })
        .collect()
    }

    pub(super) fn system(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(&system_key(key)).map(<[u8]>::to_vec)
    }

    pub(super) fn system_rows(&self, prefix: &[u8], after: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        let prefix = system_key(prefix);
        let from = match begin_of_rows(&prefix[1..], after) {
            Bound::Included(key) => Bound::Included(system_key(key)),
            Bound::Excluded(key) => Bound::Excluded(system_key(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let rows = self.rows.range::<Vec<u8>, _>((from, Bound::Unbounded));
        rows.take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (&key[1..], &**value))
    }
}

/// Encodes rows as at least one layer of about this many bytes each, with their checksums.
pub(super) fn encode<'a>(
    rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    bytes_max: usize,
) -> Vec<(Bytes, u32)> {
    let (mut layers, mut layer) = (Vec::new(), Vec::new());
    let mut end = |layer: &mut Vec<u8>| {
        let sum = crc32c::crc32c(layer);
        layers.push((std::mem::take(layer).into(), sum));
    };
    for (key, value) in rows {
        if layer.len() >= bytes_max {
            end(&mut layer);
        }
        layer.extend_from_slice(&(key.len() as u32).to_le_bytes());
        layer.extend_from_slice(&value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        layer.extend_from_slice(key);
        layer.extend_from_slice(value.unwrap_or_default());
    }
    end(&mut layer);
    layers
}

pub(super) fn decode(body: &[u8], layer: &Layer) -> Result<Changes, Error> {
    let damaged = |why: &str| Error::backend(format!("reading {}", layer.key), why);
    if crc32c::crc32c(body) != layer.sum {
        return Err(damaged("its checksum is not that of what was written"));
    }
    let mut rows = Reader(body);
    let mut changes = Changes::new();
    while !rows.0.is_empty() {
        let (key, value) = (rows.u32() as usize, rows.u32());
        let length = if value == REMOVED { 0 } else { value as usize };
        let cut_short = || damaged("it is cut short");
        let (key, rest) = rows.0.split_at_checked(key).ok_or_else(cut_short)?;
        let (content, rest) = rest.split_at_checked(length).ok_or_else(cut_short)?;
        rows.0 = rest;
        changes.insert(key.to_vec(), (value != REMOVED).then(|| content.to_vec()));
    }
    Ok(changes)
}
