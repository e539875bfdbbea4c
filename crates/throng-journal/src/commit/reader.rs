//! Reading a commit, whole or its directory alone, and finding damage.

use super::{Buffer, CRC_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, RecordKind, Stamp};
use crate::{CommitNo, Place, Position, ShardId, WriterId};

/// Why bytes are not a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// There are fewer bytes than a header has, or than the header says.
    #[error("{found} bytes where {expected} were expected")]
    Short {
        /// The length that a header needs, or that the header states.
        expected: usize,
        /// The number of bytes present.
        found: usize,
    },
    /// The bytes are not the beginning of a commit.
    #[error("no commit begins here (found bytes {0:02x?})")]
    Magic([u8; 4]),
    /// The checksum does not fit the bytes.
    #[error("checksum {found:08x} where {expected:08x} was expected")]
    Checksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored in them.
        found: u32,
    },
    /// A length or number that cannot be.
    #[error("{0}")]
    Layout(&'static str),
}

/// A finished commit. One that comes from a disk or a network has to be checked with [`Commit::parse`].
#[derive(Clone, PartialEq, Eq)]
pub struct Commit {
    pub(super) bytes: Buffer,
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Commit({}, {} records, {} bytes)",
            self.position(),
            self.record_count(),
            self.bytes.len()
        )
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Commit {
    pub(super) fn of_finished(bytes: Buffer) -> Self {
        Self { bytes }
    }

    /// Returns the length of the commit that begins with this header, from the first [`HEADER_BYTES`] alone. Checks only the magic and
    /// whether the length is possible.
    ///
    /// # Errors
    /// [`Damage`]: no commit begins here.
    pub fn length(header: &[u8]) -> Result<usize, Damage> {
        if header.len() < HEADER_BYTES {
            return Err(Damage::Short {
                expected: HEADER_BYTES,
                found: header.len(),
            });
        }
        if header[..4] != MAGIC {
            return Err(Damage::Magic([header[0], header[1], header[2], header[3]]));
        }
        let length = u32_at(header, 4) as usize;
        if length < HEADER_BYTES {
            return Err(Damage::Layout("a commit shorter than its header"));
        }
        Ok(length)
    }

    /// Checks the bytes against their checksum and layout, and returns them as a commit.
    ///
    /// # Errors
    /// [`Damage`]: the fault that was found.
    pub fn parse(bytes: impl Into<Buffer>, seed: &[u8]) -> Result<Self, Damage> {
        let bytes = bytes.into();
        let length = Self::length(&bytes)?;
        if bytes.len() != length {
            return Err(Damage::Short {
                expected: length,
                found: bytes.len(),
            });
        }
        let (expected, found) = (Self::checksum(&bytes, seed), u32_at(&bytes, CRC_AT));
        if expected != found {
            return Err(Damage::Checksum { expected, found });
        }
        let commit = Self { bytes };
        let directory_at = commit.directory_at();
        if directory_at < HEADER_BYTES || directory_at > length {
            return Err(Damage::Layout("the directory stands outside the commit"));
        }
        for record in commit.records() {
            record?;
        }
        Ok(commit)
    }

    fn checksum(bytes: &[u8], seed: &[u8]) -> u32 {
        let crc = crc32c::crc32c_append(crc32c::crc32c(seed), &bytes[..CRC_AT]);
        crc32c::crc32c_append(crc, &bytes[HEADER_BYTES..])
    }

    /// Sets the newest synced commit, for a backend that knows more than its engine. Call it before [`seal`](Self::seal).
    pub fn set_synced(&mut self, synced: CommitNo) {
        self.bytes[24..32].copy_from_slice(&synced.0.to_le_bytes());
    }

    /// Pads the commit with zeros after its directory, for a backend that writes whole blocks. Call it before [`seal`](Self::seal).
    pub fn pad(&mut self, bytes: usize) {
        let length = self.bytes.len() + bytes;
        let written = u32::try_from(length).expect("a commit has at most 64 MiB, and blocks are small");
        self.bytes.resize(length);
        self.bytes[4..8].copy_from_slice(&written.to_le_bytes());
    }

    /// Sets the checksum for a backend's seed.
    pub fn seal(&mut self, seed: &[u8]) {
        let crc = Self::checksum(&self.bytes, seed);
        self.bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the commit's bytes as they are written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, to be stored.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }

    /// The buffer, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.bytes
    }

    /// Returns the stamp in the header.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            writer: WriterId(u64_at(&self.bytes, 8)),
            number: CommitNo(u64_at(&self.bytes, 16)),
            synced: CommitNo(u64_at(&self.bytes, 24)),
            at_micros: u64_at(&self.bytes, 32).cast_signed(),
        }
    }

    /// Writer and number.
    #[must_use]
    pub fn position(&self) -> Position {
        self.stamp().position()
    }

    /// Returns the checksum with which it was sealed. It distinguishes commits of the same number.
    #[must_use]
    pub fn checksum_sealed(&self) -> u32 {
        u32_at(&self.bytes, CRC_AT)
    }

    /// Returns the number of records.
    #[must_use]
    pub fn record_count(&self) -> usize {
        u32_at(&self.bytes, 44) as usize
    }

    pub(super) fn directory_at(&self) -> usize {
        u32_at(&self.bytes, 40) as usize
    }

    /// Iterates over the records, in order. After [`parse`](Self::parse) or `finish` none of them is an error.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records {
            position: self.position(),
            bodies: &self.bytes[..self.directory_at().min(self.bytes.len())],
            directory: &self.bytes[self.directory_at().min(self.bytes.len())..],
            body_at: HEADER_BYTES,
            left: self.record_count(),
        }
    }
}

/// A record, borrowed from its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The record's kind.
    pub record: RecordKind,
    /// The entity's shard.
    pub shard: ShardId,
    /// The entity's kind.
    pub kind: &'a str,
    /// The entity's id.
    pub id: &'a str,
    /// A number whose meaning depends on the record kind.
    pub seq: u64,
    /// The event's, command's or timer's name.
    pub name: &'a str,
    /// The version of the event's shape.
    pub version: u16,
    /// The body as the writer gave it; only an event's has a meaning for a store.
    pub body: &'a [u8],
    /// The place of the body.
    pub place: Place,
}

/// Iterates over a commit's records.
#[derive(Clone)]
pub struct Records<'a> {
    position: Position,
    bodies: &'a [u8],
    directory: &'a [u8],
    body_at: usize,
    left: usize,
}

impl<'a> Records<'a> {
    fn entry(&mut self) -> Result<Record<'a>, Damage> {
        let directory = self.directory;
        if directory.len() < ENTRY_BYTES {
            return Err(Damage::Layout("the directory is shorter than its records"));
        }
        let (fixed, rest) = directory.split_at(ENTRY_BYTES);
        let record = RecordKind::from_byte(fixed[0]).ok_or(Damage::Layout("a record of an unknown kind"))?;
        let (kind_bytes, name_bytes) = (usize::from(fixed[1]), usize::from(fixed[8]));
        let id_bytes = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        if rest.len() < kind_bytes + id_bytes + name_bytes {
            return Err(Damage::Layout("the directory is shorter than its strings"));
        }
        let (kind, rest) = rest.split_at(kind_bytes);
        let (id, rest) = rest.split_at(id_bytes);
        let (name, rest) = rest.split_at(name_bytes);
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Damage::Layout("a name that is not UTF-8"));
        let body_bytes = u32_at(fixed, 12) as usize;
        let body_end = self.body_at + body_bytes;
        if body_end > self.bodies.len() {
            return Err(Damage::Layout("a body reaches beyond the bodies"));
        }
        let place = Place {
            position: self.position,
            offset: self.body_at as u32,
            len: body_bytes as u32,
        };
        let body = &self.bodies[self.body_at..body_end];
        self.body_at = body_end;
        self.directory = rest;
        Ok(Record {
            record,
            shard: ShardId(u16::from_le_bytes([fixed[4], fixed[5]])),
            kind: text(kind)?,
            id: text(id)?,
            seq: u64_at(fixed, 16),
            name: text(name)?,
            version: u16::from_le_bytes([fixed[6], fixed[7]]),
            body,
            place,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.entry();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}
