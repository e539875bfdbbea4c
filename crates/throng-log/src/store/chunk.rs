//! The places of an entity's events, packed: one row for an entity and a checkpoint's interval, at most [`CHUNK_EVENTS_MAX`] events.
//!
//! ```text
//! varint  number of events
//! varint  writer
//! then for each event, differences to the one before (0 before the first):
//! varint  commit
//! zigzag  when, microseconds
//! varint  segment
//! zigzag  offset of the body in the segment's file
//! varint  length of the body
//!      4  CRC32C of the body
//! varint  version of the event's shape
//! varint  0: the name of the event before; else the length of the name + 1, and the name
//! and behind the last one, unless an older program wrote the row:
//!      4  CRC32C of the entity's key among the heads, the number of the last event (8 bytes), and all before this
//!      2  ff ff
//! ```
//!
//! No entry ends with the byte `ff`: a varint continues after it, and no text contains it. So a damaged row with a checksum cannot pass for
//! one without. An older program does not read beyond the last entry of a row.

use throng_journal::{CommitNo, Position, WriterId};

/// The most events in one row: this many are unpacked to find one.
pub(super) const CHUNK_EVENTS_MAX: u64 = 256;
/// Ends a row that has a checksum.
const SEAL_END: [u8; 2] = [0xff; 2];

fn checksum(packed: &[u8], (head, last): (&[u8], u64)) -> [u8; 4] {
    let crc = crc32c::crc32c_append(crc32c::crc32c(head), &last.to_le_bytes());
    crc32c::crc32c_append(crc, packed).to_le_bytes()
}

/// Appends the checksum of a row to it, for this entity (by its key among the heads) up to this event.
pub(super) fn seal(row: &mut Vec<u8>, of: (&[u8], u64)) {
    let sum = checksum(row, of);
    row.extend_from_slice(&sum);
    row.extend_from_slice(&SEAL_END);
}

/// The place of an event, with its time, name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub position: Position,
    pub at_micros: i64,
    pub segment: u64,
    pub offset: u64,
    pub length: u32,
    pub crc: u32,
    pub version: u16,
    pub name: Box<str>,
}

/// The values to which the next entry is a difference.
#[derive(Debug, Default)]
struct Before {
    commit: u64,
    at_micros: i64,
    segment: u64,
    offset: u64,
    name: Box<str>,
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Packs entries of one writer.
#[derive(Debug, Default)]
pub(super) struct Packer {
    writer: WriterId,
    events: u64,
    before: Before,
    entries: Vec<u8>,
}

/// An event as it is packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedEvent<'a> {
    pub position: Position,
    pub at_micros: i64,
    pub segment: u64,
    pub offset: u64,
    pub length: u32,
    /// The checksum of the body.
    pub crc: u32,
    pub version: u16,
    pub name: &'a str,
}

impl Entry {
    /// Returns the event, to be packed again.
    pub(super) fn told(&self) -> PackedEvent<'_> {
        PackedEvent {
            position: self.position,
            at_micros: self.at_micros,
            segment: self.segment,
            offset: self.offset,
            length: self.length,
            crc: self.crc,
            version: self.version,
            name: &self.name,
        }
    }
}

impl Packer {
    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// True if an event of this writer must go to the next row.
    pub(super) fn is_full_for(&self, writer: WriterId) -> bool {
        self.events >= CHUNK_EVENTS_MAX || (self.events > 0 && self.writer != writer)
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, told: PackedEvent<'_>) {
        let (bytes, before) = (&mut self.entries, &mut self.before);
        self.writer = told.position.writer;
        put(bytes, told.position.commit.0.wrapping_sub(before.commit));
        put_signed(bytes, told.at_micros.wrapping_sub(before.at_micros));
        put(bytes, told.segment.wrapping_sub(before.segment));
        put_signed(bytes, told.offset.wrapping_sub(before.offset).cast_signed());
        put(bytes, u64::from(told.length));
        bytes.extend_from_slice(&told.crc.to_le_bytes());
        put(bytes, u64::from(told.version));
        if self.events > 0 && *before.name == *told.name {
            put(bytes, 0);
        } else {
            put(bytes, told.name.len() as u64 + 1);
            bytes.extend_from_slice(told.name.as_bytes());
            before.name = told.name.into();
        }
        before.commit = told.position.commit.0;
        before.at_micros = told.at_micros;
        before.segment = told.segment;
        before.offset = told.offset;
        self.events += 1;
    }

    /// The row; the packer is empty afterwards.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let packed = std::mem::take(self);
        let mut bytes = Vec::with_capacity(packed.entries.len() + 12);
        put(&mut bytes, packed.events);
        put(&mut bytes, packed.writer.0);
        bytes.extend_from_slice(&packed.entries);
        bytes
    }
}

/// Unpacks a row.
pub(super) struct Unpacker<'a> {
    bytes: &'a [u8],
    left: u64,
    writer: WriterId,
    before: Before,
}

impl<'a> Unpacker<'a> {
    /// Opens a row; `None` if it is not what was written for this entity up to this event.
    pub(super) fn open(row: &'a [u8], of: (&[u8], u64)) -> Option<Self> {
        let Some(sealed) = row.strip_suffix(&SEAL_END) else {
            return Self::new(row);
        };
        let (packed, sum) = sealed.split_last_chunk::<4>()?;
        (*sum == checksum(packed, of)).then(|| Self::new(packed)).flatten()
    }

    fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut unpacker = Self {
            bytes,
            left: 0,
            writer: WriterId(0),
            before: Before::default(),
        };
        unpacker.left = unpacker.take()?;
        unpacker.writer = WriterId(unpacker.take()?);
        Some(unpacker)
    }

    /// Returns the number of events not yet unpacked.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn take(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn take_signed(&mut self) -> Option<i64> {
        let value = self.take()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Returns the next entry; `None` if the row is not what a packer wrote.
    pub(super) fn next_entry(&mut self) -> Option<Entry> {
        self.left = self.left.checked_sub(1)?;
        let commit = self.before.commit.wrapping_add(self.take()?);
        let at_micros = self.before.at_micros.wrapping_add(self.take_signed()?);
        let segment = self.before.segment.wrapping_add(self.take()?);
        let offset = self.before.offset.wrapping_add_signed(self.take_signed()?);
        let length = u32::try_from(self.take()?).ok()?;
        let crc = u32::from_le_bytes(self.take_bytes(4)?.try_into().ok()?);
        let version = u16::try_from(self.take()?).ok()?;
        match self.take()? {
            0 => {}
            length => {
                let name = self.take_bytes(usize::try_from(length - 1).ok()?)?;
                self.before.name = std::str::from_utf8(name).ok()?.into();
            }
        }
        (self.before.commit, self.before.at_micros) = (commit, at_micros);
        (self.before.segment, self.before.offset) = (segment, offset);
        if self.left == 0 && !self.bytes.is_empty() {
            return None;
        }
        Some(Entry {
            position: Position::new(self.writer, CommitNo(commit)),
            at_micros,
            segment,
            offset,
            length,
            crc,
            version,
            name: self.before.name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = (u64, i64, u64, u64, Vec<u8>, u16, String)> {
        (
            any::<u64>(),
            any::<i64>(),
            any::<u64>(),
            any::<u64>(),
            proptest::collection::vec(any::<u8>(), 0..40),
            any::<u16>(),
            "[A-B]{0,2}",
        )
    }

    proptest! {
        #[test]
        fn packed_values_are_unpacked(entries in proptest::collection::vec(entry(), 1..30), writer in any::<u64>()) {
            let mut packer = Packer::default();
            let mut expected = Vec::new();
            for (commit, at_micros, segment, offset, body, version, name) in &entries {
                let position = Position { writer: WriterId(writer), commit: CommitNo(*commit) };
                packer.push(PackedEvent {
                    position, at_micros: *at_micros, segment: *segment, offset: *offset, length: body.len() as u32,
                    crc: crc32c::crc32c(body), version: *version, name,
                });
                expected.push(Entry {
                    position, at_micros: *at_micros, segment: *segment, offset: *offset, length: body.len() as u32,
                    crc: crc32c::crc32c(body), version: *version, name: name.as_str().into(),
                });
            }
            let row = packer.finish();
            prop_assert!(packer.is_empty());
            let of = (&b"entity"[..], 7);
            let mut sealed = row.clone();
            seal(&mut sealed, of);
            // Once with its checksum, and once without, as an older program wrote it.
            for row in [&sealed, &row] {
                let mut unpacker = Unpacker::open(row, of).unwrap();
                prop_assert_eq!(unpacker.left(), entries.len() as u64);
                let found: Vec<Entry> = std::iter::from_fn(|| unpacker.next_entry()).collect();
                prop_assert_eq!(&found, &expected);
            }
            for other in [(&b"entity"[..], 8), (&b"another"[..], 7)] {
                prop_assert!(Unpacker::open(&sealed, other).is_none());
            }
            for bit in 0..sealed.len() * 8 {
                let mut damaged = sealed.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let unpacked = Unpacker::open(&damaged, of).and_then(|mut unpacker| {
                    (0..unpacker.left()).map(|_| unpacker.next_entry()).collect::<Option<Vec<Entry>>>()
                });
                prop_assert_eq!(unpacked, None, "bit {}", bit);
            }
        }

        #[test]
        fn any_bytes_are_unpacked_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(mut unpacker) = Unpacker::new(&bytes) {
                while unpacker.next_entry().is_some() {}
                prop_assert!(unpacker.left() < u64::MAX || bytes.len() < 200);
            }
        }
    }
}
