//! The streams and parts of a journal's history, for inspection by people.

use crate::{CommitNo, Position, WriterId};

/// Writers, and the files or tables that hold their commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The newest writers, at most the requested number.
    pub writers: Vec<WriterEntry>,
    /// The number of known writers, listed or not.
    pub writers_total: u64,
    /// Segments, the newest first; tables, the largest first.
    pub parts: Vec<PartEntry>,
    /// Segments or tables, listed or not.
    pub parts_total: u64,
}

/// A writer: one epoch of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterEntry {
    /// Numbers are given once, in the order of epochs.
    pub writer: WriterId,
    /// The name of its node.
    pub node: String,
    /// Its last durable commit; 0 before the first.
    pub last: CommitNo,
    /// True if it is not sealed: its node may commit more.
    pub is_open: bool,
    /// The time of its beginning, microseconds since 1970-01-01 UTC, if known.
    pub begun_micros: Option<i64>,
    /// The time of its end, if known.
    pub ended_micros: Option<i64>,
    /// The number of segments with its commits, if the journal has segments.
    pub segments: Option<u64>,
}

/// A segment or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Its name where it is kept.
    pub name: String,
    /// The first commit in it, of a segment.
    pub first: Option<Position>,
    /// The time of a segment's beginning, microseconds since 1970-01-01 UTC.
    pub begun_micros: Option<i64>,
    /// About how many rows it has, of a table.
    pub rows: Option<u64>,
    /// Its length, or its size with its indexes.
    pub bytes: u64,
}
