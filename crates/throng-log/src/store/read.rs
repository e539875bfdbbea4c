//! Reading: states, events, heads, system rows.

use super::{
    chunk::{Entry, Unpacker},
    database::{Snapshot, failed, head_key, head_of},
    inner::Inner,
};
use std::{io::ErrorKind, ops::Bound};
use throng_journal::{
    Address, CommitNo, EntityHead, Error, Loaded, Position, ShardId, StoredEvent, StoredState, begin_of_rows,
};

const DOING: &str = "reading the store";
/// The distance up to which two bodies are read together.
const GAP_BYTES: u64 = 16 << 10;
/// The most bytes read at once, unless one body is larger.
const READ_BYTES_MAX: u64 = 1 << 20;
/// The bytes of a state's row before the state.
const STATE_AT: usize = 16;

pub(super) fn encode_state(state: &StoredState) -> Vec<u8> {
    let mut row = Vec::with_capacity(STATE_AT + state.bytes.len());
    row.extend_from_slice(&state.seq.to_le_bytes());
    row.extend_from_slice(&state.version.to_le_bytes());
    row.extend_from_slice(&state.shard.0.to_le_bytes());
    row.extend_from_slice(&[0; 4]);
    row.extend_from_slice(&state.bytes);
    let crc = state_checksum(&row);
    row[12..STATE_AT].copy_from_slice(&crc.to_le_bytes());
    row
}

fn state_checksum(row: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&row[..12]), &row[STATE_AT..])
}

/// True if a state's row is intact.
pub(super) fn check_state(row: &[u8]) -> bool {
    row.len() >= STATE_AT && row[12..STATE_AT] == state_checksum(row).to_le_bytes()
}

/// Returns the number of the last event in a state from its row; 0 for a malformed row.
pub(super) fn seq_of_state(row: &[u8]) -> u64 {
    row.first_chunk::<8>().map_or(0, |seq| u64::from_le_bytes(*seq))
}

/// Reads a state, or returns the reason why its row is not intact.
fn decode_state(row: &[u8], address: &Address) -> Result<StoredState, &'static str> {
    if row.len() < STATE_AT {
        return Err("it is cut short");
    }
    if !check_state(row) {
        return Err("its checksum does not fit");
    }
    let number = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"));
    let words = number(8);
    Ok(StoredState {
        address: address.clone(),
        shard: ShardId((words >> 16) as u16),
        seq: number(0),
        version: words as u16,
        bytes: row[STATE_AT..].to_vec(),
    })
}

impl Inner {
    pub(super) fn load(&self, address: &Address, state_version: u16) -> Result<Loaded, Error> {
        self.read_again(|snapshot| {
            let Some(head) = head(snapshot, address)? else {
                return Ok(Loaded::default());
            };
            let row = snapshot.states.get(head.0).map_err(failed(DOING))?;
            let state = row.and_then(|row| {
                let decoded = decode_state(row.value(), address).inspect_err(|why| {
                    tracing::warn!(
                        "the stored state of {address} cannot be read ({why}); it is rebuilt from its events"
                    );
                });
                decoded.ok()
            });
            let state = match state {
                Some(state) if state.version == state_version => Some(state),
                // A state of another version is used only if there is no other way to load the entity.
                Some(state) => {
                    let first = entries(snapshot, address, head, 0, 1, usize::MAX)?;
                    let is_whole = first.entries.is_empty() || first.first == 1;
                    (!is_whole || first.entries.is_empty() && head.1 > 0).then_some(state)
                }
                None => None,
            };
            let after = state.as_ref().map_or(0, |state| state.seq);
            let found = entries(snapshot, address, head, after, usize::MAX, usize::MAX)?;
            let last = match found.entries.len() as u64 {
                0 => after,
                count => found.first + count - 1,
            };
            // If the events begin later than after the state, an end may explain that; loading checks it.
            if last < head.1 {
                return Err(index_damaged(address));
            }
            let events = self.events(address, found)?;
            Ok(Loaded { state, events })
        })
    }

    pub(super) fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<StoredEvent>, Error> {
        self.read_again(|snapshot| {
            let Some(head) = head(snapshot, address)? else {
                return Ok(Vec::new());
            };
            let found = entries(snapshot, address, head, after, limit, bytes_max)?;
            self.events(address, found)
        })
    }

    /// Reads, and reads again if that failed and a checkpoint was made meanwhile: what the index named may have been removed from the log
    /// since.
    fn read_again<T>(&self, look: impl Fn(&Snapshot) -> Result<T, Error>) -> Result<T, Error> {
        let before = self.snapshot();
        match self.read(DOING, &look) {
            Err(_) if !std::sync::Arc::ptr_eq(&before, &self.snapshot()) => self.read(DOING, &look),
            read => read,
        }
    }

    pub(super) fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Result<Vec<EntityHead>, Error> {
        self.read(DOING, |snapshot| {
            let mut key = Vec::new();
            head_key(&mut key, kind, after.unwrap_or_default());
            let from = match after {
                Some(_) => Bound::Excluded(&*key),
                None => Bound::Included(&*key),
            };
            let rows = snapshot
                .heads
                .range::<&[u8]>((from, Bound::Unbounded))
                .map_err(failed(DOING))?;
            let mut found = Vec::new();
            for row in rows {
                let (key, head) = row.map_err(failed(DOING))?;
                let Some((_, id)) = head_of(key.value()).filter(|(found, _)| *found == kind) else {
                    break;
                };
                let (_, seq) = head.value();
                if found.len() == limit {
                    break;
                }
                if seq > 0 {
                    found.push(EntityHead { id: id.into(), seq });
                }
            }
            Ok(found)
        })
    }

    pub(super) fn system(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.read(DOING, |snapshot| {
            let row = snapshot.system.get(key).map_err(failed(DOING))?;
            Ok(row.map(|row| row.value().to_vec()))
        })
    }

    pub(super) fn system_scan(
        &self,
        (prefix, after): (&[u8], &[u8]),
        rows_max: usize,
        visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Result<(), Error> {
        let rows = (begin_of_rows(prefix, after), Bound::Unbounded);
        self.read(DOING, |snapshot| {
            let rows = snapshot.system.range::<&[u8]>(rows).map_err(failed(DOING))?;
            for row in rows.take(rows_max) {
                let (key, value) = row.map_err(failed(DOING))?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                visit(key.value(), value.value());
            }
            Ok(())
        })
    }

    /// Decides what is at fault if an event cannot be read at its place in the index. It is the index if the commit it names is intact or
    /// does not exist.
    fn blame(&self, address: &Address, entry: &Entry, error: Error) -> Error {
        let is_missing = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::UnexpectedEof);
        if matches!(&error, Error::Io { source, .. } if !is_missing(source.kind())) {
            return error;
        }
        let before = entry
            .position
            .commit
            .0
            .checked_sub(1)
            .map(|before| Position::new(entry.position.writer, CommitNo(before)));
        let read = before.map_or(Ok(Vec::new()), |before| self.log.read_located(before, 0));
        match read {
            Ok(_) => index_damaged(address),
            Err(_) => error,
        }
    }

    /// Reads the events at these places. Bodies close to each other are read together.
    fn events(&self, address: &Address, of: Entries) -> Result<Vec<StoredEvent>, Error> {
        let mut events = Vec::with_capacity(of.entries.len());
        let mut left = of.entries.as_slice();
        while let Some(first) = left.first() {
            let together = near(left);
            let (group, rest) = left.split_at(together);
            left = rest;
            let end = group.last().map_or(0, |last| last.offset + u64::from(last.length));
            let length = usize::try_from(end - first.offset).unwrap_or(usize::MAX);
            let read = self.log.read_bytes(first.segment, first.offset, length);
            let bytes = read.map_err(|error| self.blame(address, first, error))?;
            for entry in group {
                let from = usize::try_from(entry.offset - first.offset).unwrap_or(usize::MAX);
                let payload = bytes[from..from + entry.length as usize].to_vec();
                let found = crc32c::crc32c(&payload);
                if found != entry.crc {
                    let damaged = Error::Damaged {
                        position: entry.position,
                        place: format!("segment {} at offset {}", entry.segment, entry.offset),
                        why: format!(
                            "an event's checksum is {found:08x} where {:08x} was expected",
                            entry.crc
                        ),
                    };
                    return Err(self.blame(address, entry, damaged));
                }
                events.push(StoredEvent {
                    seq: of.first + events.len() as u64,
                    position: entry.position,
                    at_micros: entry.at_micros,
                    name: entry.name.clone(),
                    version: entry.version,
                    payload,
                });
            }
        }
        Ok(events)
    }
}

/// Returns the error for a damaged index of an entity's events.
fn index_damaged(address: &Address) -> Error {
    Error::Row {
        address: address.clone(),
        why: "the index of its events cannot be read; stop, remove the store's file, and start: it is rebuilt from the journal".into(),
    }
}

/// Returns the number of entries, from the first on, that are close enough to be read together.
fn near(entries: &[Entry]) -> usize {
    let first = &entries[0];
    let mut end = first.offset + u64::from(first.length);
    let mut count = 1;
    for entry in &entries[1..] {
        let next_end = entry.offset + u64::from(entry.length);
        let follows = entry.segment == first.segment && entry.offset >= end;
        if !follows || entry.offset - end > GAP_BYTES || next_end - first.offset > READ_BYTES_MAX {
            break;
        }
        end = next_end;
        count += 1;
    }
    count
}

/// An entity's number and last sequence number.
fn head(snapshot: &Snapshot, address: &Address) -> Result<Option<(u64, u64)>, Error> {
    let mut key = Vec::with_capacity(1 + address.kind.len() + address.id.len());
    head_key(&mut key, &address.kind, &address.id);
    let head = snapshot.heads.get(&*key).map_err(failed(DOING))?;
    Ok(head.map(|head| head.value()))
}

/// The consecutive places of an entity's events.
struct Entries {
    /// The number of the first of them.
    first: u64,
    entries: Vec<Entry>,
}

/// Returns the places of an entity's events after a sequence number, as far as they were not removed.
fn entries(
    snapshot: &Snapshot,
    address: &Address,
    (number, seq): (u64, u64),
    after: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Entries, Error> {
    let mut found = Entries {
        first: after + 1,
        entries: Vec::new(),
    };
    let damaged = || index_damaged(address);
    let mut key = Vec::with_capacity(1 + address.kind.len() + address.id.len());
    head_key(&mut key, &address.kind, &address.id);
    if after >= seq || limit == 0 {
        // The checksum would fail, too, for the head of another entity, or of fewer events.
        let rows = snapshot.chunks.range((number, 0)..=(number, u64::MAX));
        if let Some(row) = rows.map_err(failed(DOING))?.next_back() {
            let (at, packed) = row.map_err(failed(DOING))?;
            let last = at.value().1;
            let is_own = last <= seq && Unpacker::open(packed.value(), (&key, last)).is_some();
            is_own.then_some(()).ok_or_else(damaged)?;
        }
        return Ok(found);
    }
    let mut bytes = 0;
    let mut due = after + 1;
    let rows = snapshot
        .chunks
        .range((number, after + 1)..=(number, u64::MAX))
        .map_err(failed(DOING))?;
    for row in rows {
        let (at, packed) = row.map_err(failed(DOING))?;
        let (_, last) = at.value();
        let mut unpacker = Unpacker::open(packed.value(), (&key, last)).ok_or_else(damaged)?;
        let mut seq = (last + 1).checked_sub(unpacker.left()).ok_or_else(damaged)?;
        while unpacker.left() > 0 {
            let entry = unpacker.next_entry().ok_or_else(damaged)?;
            if seq > after {
                if found.entries.is_empty() {
                    (found.first, due) = (seq, seq);
                }
                if seq != due {
                    return Err(damaged());
                }
                bytes += entry.length as usize;
                if found.entries.len() == limit || (bytes > bytes_max && !found.entries.is_empty()) {
                    return Ok(found);
                }
                found.entries.push(entry);
                due += 1;
            }
            seq += 1;
        }
    }
    if due != seq + 1 && !found.entries.is_empty() {
        return Err(damaged());
    }
    Ok(found)
}
