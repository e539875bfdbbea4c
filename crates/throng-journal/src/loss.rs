//! Lost commits, which had been durable.

use crate::{Address, Commit, CommitBuilder, CommitNo, Position, Record, RecordKind, ShardId, Stamp, WriterId};
use std::fmt;

/// Commits that had been durable and are missing. The proof is the store, because a checkpoint covers only durable commits, or an engine
/// that wrote or read them.
///
/// A journal with a proved loss is not opened, unless an operator accepts that very loss. The loss is then recorded in the journal, so that
/// no check calls the journal sound any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The newest commit that is known to have been durable.
    pub covered: Position,
    /// The newest commit at or before it that the journal holds; `0.0` if there is none.
    pub held: Position,
    /// The proof that there was such a commit.
    pub witness: Witness,
}

/// Proof of a [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// The store covers what is lost.
    Store,
    /// A running engine wrote or read what is lost: the database was rolled back under it.
    Engine,
}

/// The node of the writers that record accepted losses.
pub const ACCEPTED_LOSS_NODE: &str = "accepted-loss";

impl Loss {
    /// Returns the commit that records the accepted loss: the only one of a new writer.
    #[must_use]
    pub fn accepted(&self, writer: WriterId, at_micros: i64) -> Commit {
        let body = format!(r#"{{"covered":"{}","held":"{}"}}"#, self.covered, self.held);
        let mut open = CommitBuilder::default();
        let address = Address::new("journal", "loss");
        let name = "LossAccepted";
        open.push(RecordKind::Loss, ShardId(0), &address, 0, name, 1, body.as_bytes());
        open.finish(Stamp::new(writer, CommitNo(1), at_micros))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { covered, held, witness } = self;
        match (witness, held == covered) {
            (Witness::Store, true) => {
                return write!(f, "its commit {covered} is not the one the store was built from");
            }
            (Witness::Engine, true) => return write!(f, "its commit {covered} is not the one that was acknowledged"),
            (Witness::Store, false) => write!(f, "the store covers commit {covered}, the journal ")?,
            (Witness::Engine, false) => write!(f, "commit {covered} was acknowledged, the journal ")?,
        }
        if *held == Position::default() {
            return write!(f, "holds nothing before it");
        }
        write!(f, "ends at commit {held}")?;
        match covered.commit.0 - held.commit.0.min(covered.commit.0) {
            missing if held.writer == covered.writer => write!(f, ": {missing} commits are missing"),
            _ => write!(f, ": everything between is missing"),
        }
    }
}

/// Returns the note of a check about a record of an accepted loss.
pub(crate) fn told(record: &Record<'_>) -> String {
    let body = String::from_utf8_lossy(record.body);
    format!("durable commits were lost before this one, and that was accepted: {body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(writer: u64, commit: u64) -> Position {
        Position::new(WriterId(writer), CommitNo(commit))
    }

    #[test]
    fn a_loss_names_the_missing_commits() {
        let said_by = |witness, covered, held| {
            let loss = Loss { covered, held, witness };
            loss.to_string()
        };
        let said = |covered, held| said_by(Witness::Store, covered, held);
        assert_eq!(
            said(at(1, 21), at(1, 9)),
            "the store covers commit 1.21, the journal ends at commit 1.9: 12 commits are missing"
        );
        assert!(said(at(3, 2), at(1, 9)).ends_with("ends at commit 1.9: everything between is missing"));
        assert!(said(at(3, 2), Position::default()).ends_with("holds nothing before it"));
        assert!(said(at(3, 2), at(3, 2)).contains("is not the one"));
        assert_eq!(
            said_by(Witness::Engine, at(4, 118), at(4, 110)),
            "commit 4.118 was acknowledged, the journal ends at commit 4.110: 8 commits are missing"
        );
    }
}
