//! The commit: a micro-batch of records in one buffer, the same bytes in every backend.
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  header (56 bytes)
//!      0     4  magic "THC1"
//!      4     4  length of the whole commit in bytes
//!      8     8  writer
//!     16     8  number of the commit in its writer's stream, from 1
//!     24     8  number of the newest commit known to be synced when this one was written
//!     32     8  when, microseconds since 1970-01-01 UTC
//!     40     4  offset of the directory
//!     44     4  number of records
//!     48     4  for how many commits right before it this one stands, because retention left nothing of them
//!     52     4  CRC32C over the seed, then bytes 0..52, then bytes 56..length
//!
//!     56     …  bodies, one after another, in the order of the directory
//!
//!      …     …  directory, one entry a record, and zeros behind the last where a backend wants the commit longer:
//!      0     1  record kind (see RecordKind)
//!      1     1  length of the entity's kind in bytes
//!      2     2  length of the entity's id in bytes
//!      4     2  shard
//!      6     2  version of the event's shape, or 0
//!      8     1  length of the name in bytes
//!      9     3  reserved, 0
//!     12     4  length of the body in bytes
//!     16     8  sequence number
//!     24     …  kind, id, name
//! ```
//!
//! The **seed** is chosen by the backend. The embedded log seeds with segment number and file offset, so that old bytes of a recycled
//! segment cannot pass for a commit; other backends seed with nothing.
//!
//! The directory comes after the bodies, so that a commit is built in one pass. It can be read by itself: recovery needs nothing else of a
//! commit.

mod buffer;
mod builder;
mod reader;
mod removal;

pub use buffer::Buffer;
pub use builder::{CommitBuilder, Mark, Stamp};
pub use reader::{Commit, Damage, Record, Records};
pub use removal::{Removal, Rest, stands_for};

/// Bytes of a commit's header.
pub const HEADER_BYTES: usize = 56;
/// The most bytes of a commit that is built here. A backend may pad it a little, see [`Commit::pad`].
pub const COMMIT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a record's name.
pub const NAME_BYTES_MAX: usize = u8::MAX as usize;
/// Bytes of a directory entry before its strings.
pub const ENTRY_BYTES: usize = 24;
pub(crate) const MAGIC: [u8; 4] = *b"THC1";
pub(crate) const CRC_AT: usize = 52;

/// The kind of a record. The engine gives meaning to the bodies; a store reads only [`Event`](RecordKind::Event) bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// An event of an entity. `seq` counts the entity's events, 1, 2, 3, … without a gap.
    Event = 1,
    /// A message was sent to another entity. `seq` counts the messages of the sending shard.
    Sent = 2,
    /// A message was taken; `seq` is its number at the sending shard.
    Taken = 3,
    /// A command under an idempotency key was accepted; the body holds its answer. With `version` 1 it was refused.
    Key = 4,
    /// A timer was set.
    TimerSet = 5,
    /// A timer fired for the last time or was cancelled. With `version` 1, retention has left no record that set it.
    TimerCleared = 6,
    /// The entity has a parent or a child.
    Family = 7,
    /// The entity is to be erased, or was; the name says which. Earlier programs never wrote such a record, but know the number and skip
    /// it.
    Erasure = 8,
    /// Commits were lost before this one, and an operator accepted that: see [`Loss`](crate::Loss).
    Loss = 9,
    /// The entity has ended: its timers are cancelled, and an entity created anew under its id starts from nothing. `seq` is the number of
    /// its last event.
    Ended = 10,
    /// A client's command that was accepted, of a kind that records them. It follows the command's other records.
    Command = 11,
    /// The entity's state after its event `seq`. Loading it needs no earlier record. `version` is the state's version.
    State = 12,
    /// A record removed by retention or an erasure. Its body is zeros; it names the commit that [replaces](Record::replaced_by) what was
    /// removed.
    Removed = 13,
    /// The numbers of messages that a shard has sent and taken. No earlier record is needed to know them.
    Numbers = 14,
}

impl RecordKind {
    /// All kinds, in the order of their numbers, from 1.
    pub const ALL: [Self; 14] = [
        Self::Event,
        Self::Sent,
        Self::Taken,
        Self::Key,
        Self::TimerSet,
        Self::TimerCleared,
        Self::Family,
        Self::Erasure,
        Self::Loss,
        Self::Ended,
        Self::Command,
        Self::State,
        Self::Removed,
        Self::Numbers,
    ];

    /// The word people read, in an export and in tools.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Sent => "sent",
            Self::Taken => "taken",
            Self::Key => "key",
            Self::TimerSet => "timer-set",
            Self::TimerCleared => "timer-cleared",
            Self::Family => "family",
            Self::Erasure => "erasure",
            Self::Loss => "loss",
            Self::Ended => "ended",
            Self::Command => "command",
            Self::State => "state",
            Self::Removed => "removed",
            Self::Numbers => "numbers",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        let kind = Self::ALL.get(usize::from(byte).checked_sub(1)?).copied();
        debug_assert!(kind.is_none_or(|kind| kind as u8 == byte));
        kind
    }
}

#[cfg(test)]
mod tests;
