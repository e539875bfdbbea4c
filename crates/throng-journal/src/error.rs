//! The errors below the engine, in sentences a person understands.

use crate::{Address, Loss, NodeId, Position, WriterId};

/// The failure of a journal or store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another engine holds the directory or database.
    #[error("{what} is in use by another process; stop that one first, or choose another directory")]
    InUse {
        /// The thing that is in use.
        what: String,
    },
    /// Another program has written it, in a format that this one does not know.
    #[error(
        "{what} has format version {found}, this program reads {expected}; use the program it was written by, or export it there and import it here"
    )]
    OtherVersion {
        /// The file or table.
        what: String,
        /// The version found.
        found: u32,
        /// The version this program reads.
        expected: u32,
    },
    /// Bytes that were synced have changed.
    #[error("damage at {position} ({place}): {why}; run `throng journal verify` on it, then restore a backup")]
    Damaged {
        /// The damaged commit, or the first one after which nothing can be read.
        position: Position,
        /// File and offset, or table and row.
        place: String,
        /// The expectation and the finding.
        why: String,
    },
    /// Commits that were durable are missing.
    #[error(
        "durable commits are lost from {place}: {loss}; restore a backup, or start once with `--accept-loss {}` to go on \
         without them, which is recorded in the journal",
        loss.covered
    )]
    Lost {
        /// The place of the journal, as operators name it.
        place: String,
        /// The lost part.
        loss: Loss,
    },
    /// The database lacks what it had acknowledged to this engine, because it was replaced by an older copy of itself. The loss was
    /// recorded.
    #[error("the database was rolled back: {0}")]
    RolledBack(String),
    /// The writer was sealed: another engine has taken over.
    #[error("writer {0} is sealed: another engine has taken over")]
    Sealed(WriterId),
    /// The node was declared dead, or has left: it has to join again.
    #[error("node {0} is no member of the cluster any more: it was silent for too long, or has left")]
    Gone(NodeId),
    /// The request conflicts with the other nodes, or with what is stored.
    #[error("{0}")]
    Refused(String),
    /// The commit is unknown.
    #[error("there is no commit {0} in this journal")]
    NoCommit(Position),
    /// A stored row cannot be read.
    #[error("the stored data of {address} cannot be read: {why}")]
    Row {
        /// The entity whose row cannot be read.
        address: Address,
        /// The finding.
        why: String,
    },
    /// The file system, network or database returned an error.
    #[error("{doing} failed: {source}")]
    Io {
        /// The attempted operation, with its file or address.
        doing: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The database library returned an error.
    #[error("{doing} failed: {why}")]
    Backend {
        /// The attempt.
        doing: String,
        /// The answer of the backend.
        why: String,
    },
}

impl Error {
    /// Returns the error of a database library, with the attempted operation.
    pub fn backend(doing: impl Into<String>, why: impl ToString) -> Self {
        Self::Backend {
            doing: doing.into(),
            why: why.to_string(),
        }
    }

    /// Returns a function for `map_err` that adds the attempted operation to an I/O error.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The failure of an append, or another event that ends its writer. The caller has to seal it, open a new one, and read what landed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The writer was sealed; this commit is not in the journal and never will be.
    #[error("the writer is sealed: another engine has taken over")]
    Sealed,
    /// The append failed, but may have landed. Only a seal decides that.
    #[error("the commit may or may not have landed: {0}")]
    InDoubt(String),
    /// Found without an append: the database lacks what it had acknowledged to this engine.
    #[error("the database was rolled back: {0}")]
    RolledBack(String),
    /// Found without an append: other engines' knowledge of the journal may have changed under this writer.
    #[error("the database has changed: {0}")]
    Changed(String),
}
