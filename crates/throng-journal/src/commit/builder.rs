//! Building a commit in one pass.

use super::{Buffer, COMMIT_BYTES_MAX, CRC_AT, Commit, ENTRY_BYTES, HEADER_BYTES, MAGIC, NAME_BYTES_MAX, RecordKind};
use crate::{
    Address, CommitNo, Position, ShardId, WriterId,
    scratch::{self, SCRATCH_BYTES_MAX},
};

/// The part of a commit's header that the engine writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The writer whose stream the commit belongs to.
    pub writer: WriterId,
    /// The commit's number in it.
    pub number: CommitNo,
    /// The newest commit of this writer known to be synced. Unreadable bytes at or below it are damage, those above an unfinished end.
    pub synced: CommitNo,
    /// The time in microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
}

impl Stamp {
    /// Returns the stamp for a commit of a writer without any commit known to be synced.
    #[must_use]
    pub const fn new(writer: WriterId, number: CommitNo, at_micros: i64) -> Self {
        let synced = CommitNo(0);
        Self {
            writer,
            number,
            synced,
            at_micros,
        }
    }

    /// Returns the stamp for a commit whose predecessors are all synced.
    #[must_use]
    pub const fn after_synced(writer: WriterId, number: CommitNo, at_micros: i64) -> Self {
        let synced = CommitNo(number.0 - 1);
        Self {
            synced,
            ..Self::new(writer, number, at_micros)
        }
    }

    /// Writer and number together.
    #[must_use]
    pub fn position(&self) -> Position {
        Position::new(self.writer, self.number)
    }
}

/// A state of a builder; see [`CommitBuilder::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bodies: usize,
    directory: usize,
    records: u32,
}

/// The open commit: records are pushed, then it is finished into a [`Commit`]. Buffers are reused for the next one.
#[derive(Debug, Default)]
pub struct CommitBuilder {
    /// Header space, then bodies. Empty until the first push.
    bytes: Buffer,
    directory: Vec<u8>,
    records: u32,
}

impl CommitBuilder {
    /// Takes the buffer of a finished commit for reuse, if the builder has none.
    pub fn recycle(&mut self, buffer: impl Into<Buffer>) {
        let mut buffer = buffer.into();
        if self.bytes.capacity() == 0 {
            buffer.clear();
            self.bytes = buffer;
        }
    }

    /// Takes the other buffers of a finished builder for reuse, if this one has none.
    pub fn take_over(&mut self, finished: Self) {
        debug_assert!(finished.is_empty(), "what is in it would be lost");
        if self.directory.capacity() == 0 {
            self.directory = finished.directory;
        }
    }

    /// True if nothing was pushed since the last finish.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Records pushed since the last finish.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records as usize
    }

    /// Returns the bytes that the commit would have if it were finished now: at most [`COMMIT_BYTES_MAX`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len().max(HEADER_BYTES) + self.directory.len()
    }

    /// Adds a record.
    ///
    /// # Panics
    /// A limit is exceeded, which the caller must keep: a kind has at most 64 bytes, an id 256, a name 255, and a commit
    /// [`COMMIT_BYTES_MAX`].
    #[allow(
        clippy::too_many_arguments,
        reason = "one argument a field of the directory entry; the hot path"
    )]
    pub fn push(
        &mut self,
        kind: RecordKind,
        shard: ShardId,
        address: &Address,
        seq: u64,
        name: &str,
        version: u16,
        body: &[u8],
    ) {
        self.push_parts(kind, shard, (&address.kind, &address.id), seq, (name, version), body);
    }

    /// Pushes a record like [`push`](Self::push), from borrowed parts: address as (kind, id), shape as (name, version).
    ///
    /// # Panics
    /// A limit is exceeded, as for [`push`](Self::push).
    pub fn push_parts(
        &mut self,
        kind: RecordKind,
        shard: ShardId,
        (entity, id): (&str, &str),
        seq: u64,
        (name, version): (&str, u16),
        body: &[u8],
    ) {
        assert!(
            entity.len() <= Address::KIND_BYTES_MAX
                && id.len() <= Address::ID_BYTES_MAX
                && name.len() <= NAME_BYTES_MAX,
            "a record's kind, id and name have {}, {} and {} bytes, of 64, 256 and 255",
            entity.len(),
            id.len(),
            name.len()
        );
        self.assert_room(ENTRY_BYTES + entity.len() + id.len() + name.len() + body.len());
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        }
        self.bytes.extend_from_slice(body);
        let mut entry = [0u8; ENTRY_BYTES];
        entry[0] = kind as u8;
        entry[1] = entity.len() as u8;
        entry[2..4].copy_from_slice(&(id.len() as u16).to_le_bytes());
        entry[4..6].copy_from_slice(&shard.0.to_le_bytes());
        entry[6..8].copy_from_slice(&version.to_le_bytes());
        entry[8] = name.len() as u8;
        entry[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        entry[16..24].copy_from_slice(&seq.to_le_bytes());
        self.directory
            .reserve(ENTRY_BYTES + entity.len() + id.len() + name.len());
        self.directory.extend_from_slice(&entry);
        self.directory.extend_from_slice(entity.as_bytes());
        self.directory.extend_from_slice(id.as_bytes());
        self.directory.extend_from_slice(name.as_bytes());
        self.records += 1;
    }

    /// Moves all records of another builder to the end of this one, in order. Returns the difference between a body's offset here and in
    /// the other.
    ///
    /// # Panics
    /// Both together have more than [`COMMIT_BYTES_MAX`] bytes.
    pub fn append(&mut self, other: &mut Self) -> u32 {
        if other.records == 0 {
            return 0;
        }
        self.assert_room(other.bytes() - HEADER_BYTES);
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        }
        let shift = (self.bytes.len() - HEADER_BYTES) as u32;
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.directory.extend_from_slice(&other.directory);
        self.records += other.records;
        other.clear();
        shift
    }

    /// Panics unless offsets and lengths within the commit fit the `u32` in which they are written.
    fn assert_room(&self, more: usize) {
        let bytes = self.bytes() + more;
        assert!(
            bytes <= COMMIT_BYTES_MAX,
            "a commit of {bytes} bytes, of {COMMIT_BYTES_MAX} at most: begin the next one before"
        );
    }

    /// Drops everything pushed since the last finish. Memory beyond [`SCRATCH_BYTES_MAX`] is given back.
    pub fn clear(&mut self) {
        match self.bytes.capacity() <= SCRATCH_BYTES_MAX {
            true => self.bytes.clear(),
            false => self.bytes = Buffer::default(),
        }
        scratch::empty(&mut self.directory);
        self.records = 0;
    }

    /// Returns the present state of the builder, for [`truncate`](Self::truncate).
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            bodies: self.bytes.len(),
            directory: self.directory.len(),
            records: self.records,
        }
    }

    /// Drops everything pushed since the mark.
    pub fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bodies);
        self.directory.truncate(mark.directory);
        self.records = mark.records;
    }

    /// Returns the commit without its checksum, which the backend sets with [`Commit::seal`]. The builder is empty afterwards.
    pub fn finish(&mut self, stamp: Stamp) -> Commit {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            bytes.resize(HEADER_BYTES);
        }
        let directory_at = bytes.len() as u32;
        bytes.extend_from_slice(&self.directory);
        self.directory.clear();
        let length = bytes.len() as u32;
        let header = &mut bytes[..HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[8..16].copy_from_slice(&stamp.writer.0.to_le_bytes());
        header[16..24].copy_from_slice(&stamp.number.0.to_le_bytes());
        header[24..32].copy_from_slice(&stamp.synced.0.to_le_bytes());
        header[32..40].copy_from_slice(&stamp.at_micros.to_le_bytes());
        header[40..44].copy_from_slice(&directory_at.to_le_bytes());
        header[44..48].copy_from_slice(&self.records.to_le_bytes());
        header[48..CRC_AT].fill(0);
        self.records = 0;
        Commit::of_finished(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builder_gives_large_buffers_back_once_its_records_are_taken() {
        let address = Address::new("thing", "a");
        let fill = |builder: &mut CommitBuilder, bytes: usize| {
            (0..bytes / 100).for_each(|seq| {
                builder.push(
                    RecordKind::Event,
                    ShardId(0),
                    &address,
                    seq as u64,
                    "added",
                    1,
                    &[7; 100],
                );
            });
        };
        let kept = |builder: &CommitBuilder| (builder.bytes.capacity(), builder.directory.capacity());
        let (mut open, mut command) = (CommitBuilder::default(), CommitBuilder::default());
        fill(&mut command, 1_000);
        let small = kept(&command);
        open.append(&mut command);
        assert_eq!(kept(&command), small);
        fill(&mut command, 1 << 20);
        open.append(&mut command);
        assert_eq!(kept(&command), (0, 0));
        fill(&mut command, 1 << 20);
        command.clear();
        assert_eq!(kept(&command), (0, 0));
    }
}
