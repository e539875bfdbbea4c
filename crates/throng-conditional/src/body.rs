//! The objects of a stream: a commit or a seal under each number.
//!
//! ```text
//! offset  size  header (64 bytes, little-endian)
//!      0     4  magic "THO1"
//!      4     4  1: a commit, 2: a seal
//!      8    16  random name of the stream
//!     24    16  nonce of this body, which no other body has
//!     40     8  number
//!     48     4  checksum of the preceding body, 0 if there is none
//!     52     4  length of the commit
//!     56     4  CRC32C over bytes 0..56, then the commit
//!     60     4  reserved, 0
//!     64     …  the commit, as `throng_journal::commit` draws it
//! ```

use bytes::Bytes;
use throng_journal::Commit;

pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"THO1";
const COMMIT: u32 = 1;
const SEAL: u32 = 2;
const CRC_AT: usize = 56;

/// The header of an object of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) name: u128,
    pub(crate) nonce: u128,
    pub(crate) number: u64,
    /// The checksum of the preceding body, or 0.
    pub(crate) before: u32,
}

/// An object of a stream, parsed.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Commit {
        head: Head,
        /// The checksum that the next body holds as `before`.
        sum: u32,
        commit: Commit,
    },
    Seal {
        nonce: u128,
    },
}

/// Returns the body of a commit and its checksum.
pub(crate) fn of_commit(head: Head, commit: &[u8]) -> (Bytes, u32) {
    build(COMMIT, head, commit)
}

pub(crate) fn of_seal(head: Head) -> Bytes {
    build(SEAL, head, &[]).0
}

fn build(kind: u32, head: Head, commit: &[u8]) -> (Bytes, u32) {
    let mut body = Vec::with_capacity(HEADER_BYTES + commit.len());
    body.extend_from_slice(&MAGIC);
    body.extend_from_slice(&kind.to_le_bytes());
    body.extend_from_slice(&head.name.to_le_bytes());
    body.extend_from_slice(&head.nonce.to_le_bytes());
    body.extend_from_slice(&head.number.to_le_bytes());
    body.extend_from_slice(&head.before.to_le_bytes());
    body.extend_from_slice(&(commit.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&body), commit);
    body.extend_from_slice(&sum.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(commit);
    (body.into(), sum)
}

/// Parses the object under this number of this stream.
///
/// # Errors
/// A sentence: why the body is neither a commit nor a seal of this stream and number.
pub(crate) fn parse(body: &[u8], name: u128, number: u64) -> Result<Entry, String> {
    let Some((header, commit)) = body.split_at_checked(HEADER_BYTES) else {
        return Err(format!("{} bytes are no object of a stream", body.len()));
    };
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let u128_at = |at: usize| u128::from_le_bytes(header[at..at + 16].try_into().expect("16 bytes"));
    if header[..4] != MAGIC {
        return Err("it is no object of a stream".into());
    }
    let (found, expected) = (
        u32_at(CRC_AT),
        crc32c::crc32c_append(crc32c::crc32c(&header[..CRC_AT]), commit),
    );
    if found != expected || u32_at(52) as usize != commit.len() {
        return Err(format!("checksum {found:08x} where {expected:08x} was expected"));
    }
    let head = Head {
        name: u128_at(8),
        nonce: u128_at(24),
        number: u64::from_le_bytes(header[40..48].try_into().expect("eight bytes")),
        before: u32_at(48),
    };
    if (head.name, head.number) != (name, number) {
        return Err(format!("it is number {} of stream {:032x}", head.number, head.name));
    }
    match u32_at(4) {
        SEAL => Ok(Entry::Seal { nonce: head.nonce }),
        COMMIT => {
            let commit = Commit::parse(commit.to_vec(), &[]).map_err(|damage| damage.to_string())?;
            if commit.stamp().number.0 != number {
                return Err(format!("its commit is number {}", commit.stamp().number));
            }
            Ok(Entry::Commit {
                head,
                sum: found,
                commit,
            })
        }
        kind => Err(format!("objects of kind {kind} are of a newer program")),
    }
}

impl Entry {
    pub(crate) fn nonce(&self) -> u128 {
        match self {
            Self::Commit { head, .. } => head.nonce,
            Self::Seal { nonce } => *nonce,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{Address, CommitBuilder, CommitNo, RecordKind, ShardId, Stamp, WriterId};

    const HEAD: Head = Head {
        name: 7 << 90,
        nonce: 9 << 80,
        number: 3,
        before: 0xdead_beef,
    };

    fn commit() -> Commit {
        let mut open = CommitBuilder::default();
        open.push(
            RecordKind::Event,
            ShardId(1),
            &Address::new("kind", "a"),
            1,
            "Added",
            1,
            b"body",
        );
        let mut commit = open.finish(Stamp::new(WriterId(1), CommitNo(HEAD.number), 0));
        commit.seal(&[]);
        commit
    }

    #[test]
    fn bodies_are_read_as_they_were_made() {
        let (body, made) = of_commit(HEAD, commit().bytes());
        let Ok(Entry::Commit {
            head,
            sum,
            commit: read,
        }) = parse(&body, HEAD.name, HEAD.number)
        else {
            panic!("it is a commit");
        };
        assert_eq!((head, sum, read), (HEAD, made, commit()));
        let seal = parse(&of_seal(HEAD), HEAD.name, HEAD.number).unwrap();
        assert!(matches!(seal, Entry::Seal { nonce } if nonce == HEAD.nonce));
    }

    #[test]
    fn no_changed_byte_passes_for_a_body() {
        let (body, _) = of_commit(HEAD, commit().bytes());
        assert!(parse(&body, HEAD.name + 1, HEAD.number).is_err());
        assert!(parse(&body, HEAD.name, HEAD.number + 1).is_err());
        // The reserved bytes are not checked.
        for at in (0..60).chain(HEADER_BYTES..body.len()) {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            assert!(parse(&changed, HEAD.name, HEAD.number).is_err(), "byte {at}");
        }
        for length in 0..body.len() {
            assert!(
                parse(&body[..length], HEAD.name, HEAD.number).is_err(),
                "{length} bytes"
            );
        }
    }
}
