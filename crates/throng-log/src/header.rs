//! A segment's header: its writer, its first commit, and where the writer before was sealed.

use throng_journal::{CommitNo, Position, WriterId};

/// The unit that the disk is assumed to write completely or not at all, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The place of the first commit: behind the header and its copy.
pub(crate) const DATA_AT: u64 = 2 * SECTOR_BYTES;
/// The version of the file format this program writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Longest name of a node, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 256;

const MAGIC: [u8; 8] = *b"THRNGLOG";
const LENGTH: usize = SECTOR_BYTES as usize;
const NODE_AT: usize = 76;

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The segment's number, also in the file's name.
    pub segment: u64,
    /// The writer of its commits.
    pub writer: WriterId,
    /// The number of the first of them.
    pub first: CommitNo,
    /// The newest commit of this writer known to be synced when the segment was begun.
    pub synced: CommitNo,
    /// The writer before, and the last commit of its stream.
    pub previous: Option<Position>,
    /// True if the writer's id was reserved when the writer before was sealed, and is not opened yet.
    pub reserved: bool,
    /// The node the writer is an epoch of.
    pub node: String,
    /// The time of the segment's beginning, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
}

/// Why bytes are not a segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Zeros: the segment was never begun.
    Empty,
    /// The header is of another version of the format.
    OtherVersion(u32),
    /// Neither the header nor its copy can be read.
    Unreadable(String),
}

fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The state of a header and its copy, of which at least one is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    Both,
    /// The other was never written, because the power failed meanwhile.
    Torn,
    /// The other was written, and has changed since.
    Damaged,
}

impl Header {
    /// The header and its copy, [`DATA_AT`] bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.writer.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.synced.0.to_le_bytes());
        let previous = self.previous.unwrap_or_default();
        bytes[48..56].copy_from_slice(&previous.writer.0.to_le_bytes());
        bytes[56..64].copy_from_slice(&previous.commit.0.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.at_micros.to_le_bytes());
        bytes[72] = u8::from(self.reserved);
        let node = self.node.as_bytes();
        bytes[74..76].copy_from_slice(&(node.len() as u16).to_le_bytes());
        bytes[NODE_AT..NODE_AT + node.len()].copy_from_slice(node);
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes.extend_from_within(..);
        bytes
    }

    /// Reads the header of segment `segment` from the first [`DATA_AT`] bytes of its file, and returns the state of both copies.
    pub(crate) fn decode(bytes: &[u8], segment: u64) -> Result<(Self, Copies), Fault> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Fault::Empty);
        }
        let copies = [bytes.get(..LENGTH), bytes.get(LENGTH..2 * LENGTH)].map(|copy| match copy {
            Some(copy) => Self::decode_copy(copy, segment),
            None => Err(Fault::Unreadable(format!(
                "{} bytes where a header stands",
                bytes.len()
            ))),
        });
        match copies {
            [Ok(mut header), Ok(copy)] => {
                // Opening a reserved writer rewrites both; a crash may happen in between.
                header.reserved &= copy.reserved;
                let reserved = header.reserved;
                let same = header == Self { reserved, ..copy };
                let copies = if same { Copies::Both } else { Copies::Damaged };
                Ok((header, copies))
            }
            [Ok(header), Err(_)] => Ok((header, Copies::with_lost(bytes.get(LENGTH..2 * LENGTH)))),
            [Err(_), Ok(header)] => Ok((header, Copies::with_lost(bytes.get(..LENGTH)))),
            [Err(fault), Err(_)] => Err(fault),
        }
    }

    fn decode_copy(bytes: &[u8], segment: u64) -> Result<Self, Fault> {
        if bytes[..8] != MAGIC {
            return Err(Fault::Unreadable(format!(
                "no header (found bytes {:02x?})",
                &bytes[..8]
            )));
        }
        let version = u32_at(bytes, 8);
        let (expected, found) = (checksum(bytes), u32_at(bytes, 12));
        if expected != found {
            return Err(match version {
                FORMAT_VERSION => {
                    Fault::Unreadable(format!("header checksum {found:08x} where {expected:08x} was expected"))
                }
                other => Fault::OtherVersion(other),
            });
        }
        if version != FORMAT_VERSION {
            return Err(Fault::OtherVersion(version));
        }
        let number = u64_at(bytes, 16);
        if number != segment {
            return Err(Fault::Unreadable(format!("the header of segment {number}")));
        }
        let node_bytes = usize::from(u16::from_le_bytes([bytes[74], bytes[75]])).min(NODE_BYTES_MAX);
        let node = std::str::from_utf8(&bytes[NODE_AT..NODE_AT + node_bytes])
            .map_err(|_| Fault::Unreadable("a header whose node's name is not text".into()))?
            .to_owned();
        let previous = Position::new(WriterId(u64_at(bytes, 48)), CommitNo(u64_at(bytes, 56)));
        Ok(Self {
            segment: number,
            writer: WriterId(u64_at(bytes, 24)),
            first: CommitNo(u64_at(bytes, 32)),
            synced: CommitNo(u64_at(bytes, 40)),
            previous: (previous.writer.0 != 0).then_some(previous),
            reserved: bytes[72] & 1 == 1,
            node,
            at_micros: u64_at(bytes, 64).cast_signed(),
        })
    }

    /// Returns a fingerprint that distinguishes this segment's beginning from any other.
    pub(crate) fn fingerprint(&self) -> u32 {
        let opened = Self {
            reserved: false,
            ..self.clone()
        };
        u32_at(&opened.encode(), 12)
    }
}

impl Copies {
    /// Returns the state of a header of which one sector cannot be read. A disk writes a sector completely or not at all, and before that a
    /// segment has zeros there.
    fn with_lost(copy: Option<&[u8]>) -> Self {
        match copy.is_none_or(|copy| copy.iter().all(|byte| *byte == 0)) {
            true => Self::Torn,
            false => Self::Damaged,
        }
    }
}

/// The name of a segment's file.
pub(crate) fn file_name(segment: u64) -> String {
    format!("{segment:08}.log")
}

/// The number in the name of a segment's file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// Returns the first bytes of a commit's checksum. They keep bytes of another segment or place from passing for a commit.
pub(crate) fn seed(segment: u64, offset: u64) -> [u8; 16] {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&segment.to_le_bytes());
    seed[8..].copy_from_slice(&offset.to_le_bytes());
    seed
}

/// Returns the first sector boundary at or after an offset, where the next commit begins.
pub(crate) fn align(offset: u64) -> u64 {
    offset.next_multiple_of(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            segment: 7,
            writer: WriterId(3),
            first: CommitNo(100),
            synced: CommitNo(99),
            previous: Some(Position::new(WriterId(2), CommitNo(41))),
            reserved: false,
            node: "node-a".into(),
            at_micros: 1_700_000_000_000_000,
        }
    }

    #[test]
    fn a_header_is_read_back() {
        let bytes = header().encode();
        assert_eq!(bytes.len() as u64, DATA_AT);
        assert_eq!(Header::decode(&bytes, 7), Ok((header(), Copies::Both)));
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_the_copy_is_read() {
        for bit in 0..header().encode().len() * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes, 7), Ok((header(), Copies::Damaged)), "bit {bit}");
        }
    }

    #[test]
    fn a_copy_that_was_never_written_is_told_from_a_damaged_one() {
        for copy in [0..LENGTH, LENGTH..2 * LENGTH] {
            let mut bytes = header().encode();
            bytes[copy].fill(0);
            assert_eq!(Header::decode(&bytes, 7), Ok((header(), Copies::Torn)));
        }
        let cut = &header().encode()[..LENGTH + 100];
        assert_eq!(Header::decode(cut, 7), Ok((header(), Copies::Torn)));
    }

    #[test]
    fn another_segment_another_version_and_zeros_are_told_apart() {
        let bytes = header().encode();
        assert!(matches!(Header::decode(&bytes, 8), Err(Fault::Unreadable(_))));
        assert_eq!(Header::decode(&[0; 1024], 7), Err(Fault::Empty));
        let mut other = bytes;
        for copy in [0, LENGTH] {
            other[copy + 8] = 9;
        }
        assert_eq!(Header::decode(&other, 7), Err(Fault::OtherVersion(9)));
    }

    #[test]
    fn a_header_with_a_non_text_node_name_is_refused() {
        let mut bytes = header().encode();
        bytes.truncate(LENGTH);
        bytes[74..76].copy_from_slice(&(NODE_BYTES_MAX as u16).to_le_bytes());
        bytes[NODE_AT..NODE_AT + NODE_BYTES_MAX].fill(0xff);
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes.extend_from_within(..);
        let fault = Header::decode(&bytes, 7);
        assert!(matches!(fault, Err(Fault::Unreadable(_))), "{fault:?}");
    }

    #[test]
    fn a_segments_number_stands_in_its_name() {
        assert_eq!(number_of(&file_name(42)), Some(42));
        assert_eq!(number_of(&file_name(123_456_789)), Some(123_456_789));
        assert_eq!(number_of("store.redb"), None);
        assert_eq!(number_of("0000000x.log"), None);
    }
}
