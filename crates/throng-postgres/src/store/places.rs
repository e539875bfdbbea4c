//! The places of an entity's events in the commits, packed into one row for an entity, a writer and a checkpoint.
//!
//! ```text
//! for each event, all numbers little-endian:
//!      8  commit
//!      8  when, microseconds since 1970-01-01 UTC
//!      4  offset of the body in the commit's bytes
//!      4  length of the body
//!      4  CRC32C of the body
//!      2  version of the event's shape
//!      1  length of the name
//!      …  name
//! ```

use throng_journal::{CommitNo, Record};

const FIXED_BYTES: usize = 31;

/// The place of an event, with its time, name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub commit: CommitNo,
    pub at_micros: i64,
    pub offset: u32,
    pub length: u32,
    pub crc: u32,
    pub version: u16,
    pub name: Box<str>,
}

/// Adds an event to a row.
pub(super) fn pack(row: &mut Vec<u8>, record: &Record<'_>, at_micros: i64) {
    row.extend_from_slice(&record.place.position.commit.0.to_le_bytes());
    row.extend_from_slice(&at_micros.to_le_bytes());
    row.extend_from_slice(&record.place.offset.to_le_bytes());
    row.extend_from_slice(&record.place.len.to_le_bytes());
    row.extend_from_slice(&crc32c::crc32c(record.body).to_le_bytes());
    row.extend_from_slice(&record.version.to_le_bytes());
    // A commit's directory also has one byte for it.
    row.push(record.name.len() as u8);
    row.extend_from_slice(record.name.as_bytes());
}

/// Returns the events of a row; `None` if it is malformed.
pub(super) fn unpack(mut row: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !row.is_empty() {
        let (fixed, rest) = row.split_at_checked(FIXED_BYTES)?;
        let u64_at = |at: usize| fixed[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let u32_at = |at: usize| fixed[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let (name, rest) = rest.split_at_checked(usize::from(fixed[30]))?;
        entries.push(Entry {
            commit: CommitNo(u64_at(0)?),
            at_micros: u64_at(8)?.cast_signed(),
            offset: u32_at(16)?,
            length: u32_at(20)?,
            crc: u32_at(24)?,
            version: u16::from_le_bytes([fixed[28], fixed[29]]),
            name: std::str::from_utf8(name).ok()?.into(),
        });
        row = rest;
    }
    Some(entries)
}

/// Returns a row without its events up to a number, where `last` is that of its last one; `None` if it is malformed.
pub(super) fn without_first(mut row: &[u8], last: u64, upto: u64) -> Option<&[u8]> {
    let events = unpack(row)?.len() as u64;
    let mut seq = (last + 1).checked_sub(events)?;
    while seq <= upto && !row.is_empty() {
        let name = usize::from(*row.get(FIXED_BYTES - 1)?);
        row = row.get(FIXED_BYTES + name..)?;
        seq += 1;
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{Address, CommitBuilder, RecordKind, ShardId, Stamp, WriterId};

    #[test]
    fn packed_values_are_unpacked() {
        let mut open = CommitBuilder::default();
        let long = "N".repeat(255);
        for (seq, name) in [(1, "Opened"), (2, ""), (3, &long)] {
            let body = vec![b'x'; seq as usize * 10];
            open.push(
                RecordKind::Event,
                ShardId(1),
                &Address::new("k", "i"),
                seq,
                name,
                7,
                &body,
            );
        }
        let stamp = Stamp::new(WriterId(3), CommitNo(1071), -5);
        let commit = open.finish(stamp);
        let mut row = Vec::new();
        for record in commit.records() {
            pack(&mut row, &record.unwrap(), stamp.at_micros);
        }
        let entries = unpack(&row).unwrap();
        for (entry, record) in entries.iter().zip(commit.records()) {
            let record = record.unwrap();
            assert_eq!((entry.commit, entry.at_micros, entry.version), (CommitNo(1071), -5, 7));
            assert_eq!(
                (entry.offset, entry.length, &*entry.name),
                (record.place.offset, record.place.len, record.name)
            );
            assert_eq!(entry.crc, crc32c::crc32c(record.body));
        }
        assert_eq!(entries.len(), 3);
        let rest = |upto| unpack(without_first(&row, 9, upto).unwrap()).unwrap();
        assert_eq!(
            (rest(6), rest(7), rest(8)),
            (entries.clone(), entries[1..].to_vec(), entries[2..].to_vec())
        );
        assert_eq!(unpack(&row[..row.len() - 1]), None, "a row that was cut");
        assert_eq!(unpack(&[0; 7]), None);
    }
}
