//! The place of a record's body.

use crate::Position;

/// The place of a record's body: enough to read it alone, with [`Journal::read_at`](crate::Journal::read_at).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The commit that holds the bytes.
    pub position: Position,
    /// Bytes from the commit's first byte to the body's first.
    pub offset: u32,
    /// The body's length in bytes.
    pub len: u32,
}
