//! Commits from which retention or an erasure has removed records. What is left stays at its place.
//!
//! A removed record leaves a [filler](RecordKind::Removed) with a body of zeros, so that no other body moves and no index has to change. A
//! commit without any record left may also stand for empty ones before it: they are read as one.
//!
//! Both name the commit that [replaces](Removal::replaced_by) what was removed. A history that ends before that commit is incomplete.
//!
//! - A filler has the commit's number in the lowest 44 bits of `seq`, and the writer in the other 20 and in `version`.
//! - An empty commit has 16 bytes in place of bodies, writer and number; none if they are unknown.

use super::{CRC_AT, Commit, CommitBuilder, ENTRY_BYTES, HEADER_BYTES, Record, RecordKind};
use crate::{CommitNo, Position, ShardId, WriterId};

/// The offset in a header of the number of earlier commits that a commit stands for.
const STANDS_FOR_AT: usize = 48;
/// The places in a header of the commit's length, and of its directory.
const LENGTH_AT: usize = 4;
const DIRECTORY_AT: usize = 40;
/// Bits of a filler's `seq` that hold the number of a commit.
const NUMBER_BITS: u32 = 44;
/// The bits of the writer in a filler's `seq`, above the number.
const WRITER_BITS: u32 = u64::BITS - NUMBER_BITS;

/// Records that were taken from history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The history up to this commit has all that entities, messages and timers need in place of the removed records.
    pub replaced_by: Option<Position>,
    /// True if a program that did not note replacing commits removed some of them.
    pub is_unknown: bool,
}

impl Removal {
    fn by(replaced_by: Option<Position>) -> Self {
        let replaced_by = replaced_by.filter(|by| by.writer > WriterId(0));
        Self {
            replaced_by,
            is_unknown: replaced_by.is_none(),
        }
    }

    /// Adds another removal.
    pub fn join(&mut self, other: Self) {
        self.replaced_by = self.replaced_by.max(other.replaced_by);
        self.is_unknown |= other.is_unknown;
    }
}

impl Record<'_> {
    /// Returns the record that stands in place of removed ones.
    #[must_use]
    pub fn filler(replaced_by: Option<Position>) -> Record<'static> {
        let Position { writer, commit } = replaced_by.unwrap_or_default();
        let writer = writer.0.min((1 << (WRITER_BITS + u16::BITS)) - 1);
        let low = writer & ((1 << WRITER_BITS) - 1);
        Record {
            record: RecordKind::Removed,
            shard: ShardId(0),
            kind: "",
            id: "",
            seq: low << NUMBER_BITS | commit.0.min((1 << NUMBER_BITS) - 1),
            name: "",
            version: u16::try_from(writer >> WRITER_BITS).unwrap_or(u16::MAX),
            body: &[],
            place: crate::Place::default(),
        }
    }

    /// Reads the replacing commit from a [filler](Self::filler); `None` if this is none.
    #[must_use]
    pub fn replaced_by(&self) -> Option<Position> {
        let writer = u64::from(self.version) << WRITER_BITS | self.seq >> NUMBER_BITS;
        let is_known = self.record == RecordKind::Removed && writer > 0;
        is_known.then_some(Position::new(
            WriterId(writer),
            CommitNo(self.seq & ((1 << NUMBER_BITS) - 1)),
        ))
    }
}

/// The result of removing records from a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All of it.
    Whole,
    /// The commit with the remaining records, as long as before. It has to be sealed again.
    Part(Commit),
    /// No record is left.
    Nothing,
}

impl Commit {
    /// Removes the records that `is_over` accepts, with their content. It is not called for records removed earlier. The history up to the
    /// commit `by` replaces the removed records.
    #[must_use]
    pub fn without(&self, by: Position, mut is_over: impl FnMut(&Record<'_>) -> bool) -> Rest {
        let (mut left, mut taken) = (0, 0);
        let mut bytes = self.bytes.to_vec();
        let mut directory = Vec::with_capacity(bytes.len() - self.directory_at());
        for record in self.records().flatten() {
            let was_taken = record.record == RecordKind::Removed;
            if !was_taken && !is_over(&record) {
                left += 1;
                push_entry(&mut directory, &record);
                continue;
            }
            taken += usize::from(!was_taken);
            let from = record.place.offset as usize;
            bytes[from..from + record.body.len()].fill(0);
            let replaced_by = if was_taken { record.replaced_by() } else { Some(by) };
            let filler = Record::filler(replaced_by);
            push_entry(
                &mut directory,
                &Record {
                    body: record.body,
                    ..filler
                },
            );
        }
        match (left, taken) {
            (0, _) => Rest::Nothing,
            (_, 0) => Rest::Whole,
            _ => {
                let at = self.directory_at();
                bytes[at..at + directory.len()].copy_from_slice(&directory);
                bytes[at + directory.len()..].fill(0);
                Rest::Part(Self { bytes: bytes.into() })
            }
        }
    }

    /// Returns a commit without records in place of this one and of `before` earlier ones. The history up to another commit replaces their
    /// records. It has to be sealed.
    #[must_use]
    pub fn emptied(&self, before: u32, replaced_by: Option<Position>) -> Self {
        let mut bytes = CommitBuilder::default().finish(self.stamp()).into_bytes();
        bytes[STANDS_FOR_AT..CRC_AT].copy_from_slice(&before.to_le_bytes());
        if let Some(Position { writer, commit }) = replaced_by {
            bytes.extend([writer.0, commit.0].into_iter().flat_map(u64::to_le_bytes));
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
            bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length);
            bytes[DIRECTORY_AT..DIRECTORY_AT + 4].copy_from_slice(&length);
        }
        Self { bytes: bytes.into() }
    }

    /// Returns the removal of records from this commit; `None` if it is complete.
    #[must_use]
    pub fn removal(&self) -> Option<Removal> {
        if self.record_count() == 0 {
            let at = self.bytes.get(HEADER_BYTES..self.directory_at()).unwrap_or_default();
            let numbers = at.as_chunks::<8>().0;
            let replaced_by = match numbers {
                [writer, commit] => Some(Position::new(
                    WriterId(u64::from_le_bytes(*writer)),
                    CommitNo(u64::from_le_bytes(*commit)),
                )),
                _ => None,
            };
            return Some(Removal::by(replaced_by));
        }
        let fillers = self.records().flatten();
        let fillers = fillers.filter(|record| record.record == RecordKind::Removed);
        let removals = fillers.map(|filler| Removal::by(filler.replaced_by()));
        removals.reduce(|mut one, other| {
            one.join(other);
            one
        })
    }

    /// Returns the number of earlier commits that this one stands for, because none of their records are left.
    #[must_use]
    pub fn stands_for(&self) -> u32 {
        stands_for(&self.bytes)
    }

    /// Returns the first of the commits that this one stands for; nearly always itself.
    #[must_use]
    pub fn first(&self) -> CommitNo {
        CommitNo(self.stamp().number.0.saturating_sub(u64::from(self.stands_for())))
    }
}

/// Reads [`Commit::stands_for`] from a commit's first [`HEADER_BYTES`] alone.
///
/// # Panics
/// The header is shorter than that.
#[must_use]
pub fn stands_for(header: &[u8]) -> u32 {
    let field = &header[STANDS_FOR_AT..CRC_AT];
    u32::from_le_bytes([field[0], field[1], field[2], field[3]])
}

fn push_entry(directory: &mut Vec<u8>, record: &Record<'_>) {
    let mut entry = [0u8; ENTRY_BYTES];
    entry[0] = record.record as u8;
    entry[1] = record.kind.len() as u8;
    entry[2..4].copy_from_slice(&(record.id.len() as u16).to_le_bytes());
    entry[4..6].copy_from_slice(&record.shard.0.to_le_bytes());
    entry[6..8].copy_from_slice(&record.version.to_le_bytes());
    entry[8] = record.name.len() as u8;
    entry[12..16].copy_from_slice(&(record.body.len() as u32).to_le_bytes());
    entry[16..24].copy_from_slice(&record.seq.to_le_bytes());
    directory.extend_from_slice(&entry);
    for text in [record.kind, record.id, record.name] {
        directory.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Stamp};
    use proptest::prelude::*;

    const BY: Position = Position::new(WriterId(3), CommitNo(70));
    const LATER: Position = Position::new(WriterId(5 << WRITER_BITS | 9), CommitNo(1 << 40));

    fn commit(bodies: &[Vec<u8>]) -> Commit {
        let mut open = CommitBuilder::default();
        for (seq, body) in (1..).zip(bodies) {
            let address = Address::new("kind", format!("id-{}", seq % 3));
            open.push(RecordKind::Event, ShardId(7), &address, seq, "Happened", 3, body);
        }
        open.finish(Stamp::after_synced(WriterId(2), CommitNo(9), 77))
    }

    proptest! {
        #[test]
        fn kept_records_stay_in_place_and_no_removed_byte_remains(
            bodies in proptest::collection::vec(proptest::collection::vec(1u8.., 0..30), 1..12),
            over in any::<u16>(),
        ) {
            let whole = commit(&bodies);
            let is_over = |seq: u64| over & (1 << seq) != 0;
            let kept: Vec<_> = whole.records().flatten().filter(|record| !is_over(record.seq)).collect();
            match whole.without(BY, |record| is_over(record.seq)) {
                Rest::Nothing => prop_assert!(kept.is_empty()),
                Rest::Whole => prop_assert_eq!(kept.len(), bodies.len()),
                Rest::Part(mut part) => {
                    prop_assert_eq!(part.bytes().len(), whole.bytes().len());
                    part.seal(b"seed");
                    let part = Commit::parse(part.bytes().to_vec(), b"seed").unwrap();
                    let all: Vec<_> = part.records().map(Result::unwrap).collect();
                    prop_assert_eq!(all.len(), bodies.len());
                    let left: Vec<_> = all.iter().filter(|record| record.record != RecordKind::Removed).copied().collect();
                    prop_assert_eq!(left, kept);
                    let taken = all.iter().filter(|record| record.record == RecordKind::Removed);
                    prop_assert!(taken.flat_map(|record| record.body).all(|byte| *byte == 0));
                    prop_assert_eq!(part.stamp(), whole.stamp());
                    prop_assert_eq!(part.removal(), Some(Removal::by(Some(BY))));
                    prop_assert_eq!(part.without(LATER, |_| false), Rest::Whole);
                    prop_assert_eq!(part.without(LATER, |_| true), Rest::Nothing);
                }
            }
        }
    }

    #[test]
    fn one_without_records_stands_for_those_before_it() {
        let whole = commit(&[vec![1], vec![2]]);
        assert_eq!((whole.stands_for(), whole.first()), (0, CommitNo(9)));
        assert_eq!(whole.removal(), None);
        for replaced_by in [None, Some(BY), Some(LATER)] {
            let mut empty = whole.emptied(4, replaced_by);
            empty.seal(&[]);
            let empty = Commit::parse(empty.bytes().to_vec(), &[]).unwrap();
            assert_eq!((empty.stands_for(), empty.first()), (4, CommitNo(5)));
            assert_eq!((empty.record_count(), empty.stamp()), (0, whole.stamp()));
            assert_eq!(empty.removal(), Some(Removal::by(replaced_by)));
        }
    }

    #[test]
    fn filler_names_the_commit_that_replaces_removed_records() {
        for by in [BY, LATER] {
            assert_eq!(Record::filler(Some(by)).replaced_by(), Some(by));
        }
        assert_eq!(Record::filler(None).replaced_by(), None);
        // A removal larger than a filler can hold names a commit that never comes.
        let far = Position::new(WriterId(u64::MAX), CommitNo(u64::MAX));
        assert!(Record::filler(Some(far)).replaced_by() > Some(LATER));
    }
}
