//! The numbers and names that identify everything else.

use std::{fmt, str::FromStr};

/// The number of a writer: one epoch of one node, new at every start. Later writers have greater numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u64);

/// The number of a commit within its writer's stream: 1, 2, 3, … without a gap. 0 means before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNo(pub u64);

impl CommitNo {
    /// The number that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A shard of the key space; an engine has 256 of them unless it was first started with another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A place in a node's history: everything up to and including this commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The writer of the commit's stream.
    pub writer: WriterId,
    /// The commit in that stream.
    pub commit: CommitNo,
}

impl Position {
    /// A commit of a writer's stream.
    #[must_use]
    pub const fn new(writer: WriterId, commit: CommitNo) -> Self {
        Self { writer, commit }
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for CommitNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Written `writer.commit`, for example `3.1071`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.writer, self.commit)
    }
}

/// Read as it is shown.
impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text
            .split_once('.')
            .and_then(|(writer, commit)| Some((writer.parse().ok()?, commit.parse().ok()?)));
        let (writer, commit) = parts.ok_or("write a commit as `3.1071`: writer, point, number")?;
        Ok(Self {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        })
    }
}

/// An entity's address: its kind (at most 64 of `[a-z0-9-]`) and its id (at most 256 bytes of UTF-8).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The kind, for example `section`.
    pub kind: Box<str>,
    /// The id within the kind, for example `C S 142-1`.
    pub id: Box<str>,
}

impl Address {
    /// Longest kind, in bytes.
    pub const KIND_BYTES_MAX: usize = 64;
    /// Longest id, in bytes.
    pub const ID_BYTES_MAX: usize = 256;

    /// An address of these two parts; their limits are the caller's to check.
    pub fn new(kind: impl Into<Box<str>>, id: impl Into<Box<str>>) -> Self {
        Self {
            kind: kind.into(),
            id: id.into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}
