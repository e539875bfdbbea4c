//! The streams of a history and where they end.

use crate::life::Life;
use throng_journal::{Commit, CommitNo, Error, Journal, Position, WriterId};

/// The streams of this history in their order: the sealed ones, then the present writer's up to what is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The last commits of the sealed streams.
    pub(crate) sealed: &'a [Position],
    /// The newest durable commit of the present writer.
    pub(crate) durable: Position,
}

/// Durable commits of one stream that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The commit before the first of them.
    pub(crate) after: Position,
    /// The last of them.
    pub(crate) upto: CommitNo,
}

impl<'a> Ends<'a> {
    pub(crate) fn of(life: &'a Life) -> Self {
        Self {
            sealed: &life.ledger.sealed,
            durable: life.ledger.durable(),
        }
    }

    fn all(&self) -> impl Iterator<Item = Position> {
        self.sealed.iter().copied().chain([self.durable])
    }

    /// Before the first commit of all.
    pub(crate) fn start(&self) -> Position {
        beginning(self.sealed.first().map_or(self.durable.writer, |first| first.writer))
    }

    /// The last durable commit of a writer; `None` if there is no such writer in this history.
    pub(crate) fn end_of(&self, writer: WriterId) -> Option<CommitNo> {
        self.all().find(|end| end.writer == writer).map(|end| end.commit)
    }

    /// How many durable commits follow a position.
    #[cfg(any(feature = "projections", test))]
    pub(crate) fn commits_after(&self, at: Position) -> u64 {
        self.all()
            .filter(|end| end.writer >= at.writer)
            .map(|end| {
                let from = if end.writer == at.writer { at.commit.0 } else { 0 };
                end.commit.0.saturating_sub(from)
            })
            .sum()
    }

    /// What follows a position: in its own stream, else in the next one that has commits; `None` at the end of what is durable.
    pub(crate) fn after(&self, at: Position) -> Option<Stretch> {
        let end = self.all().find(|end| match end.writer == at.writer {
            true => end.commit > at.commit,
            false => end.writer > at.writer && end.commit.0 > 0,
        })?;
        Some(Stretch {
            after: if end.writer == at.writer {
                at
            } else {
                beginning(end.writer)
            },
            upto: end.commit,
        })
    }
}

impl Stretch {
    /// Its first commits: at least one, then as many as fit in `bytes_max`.
    ///
    /// # Errors
    /// The journal cannot be read, or does not hold what it said was durable.
    pub(crate) async fn read(self, journal: &dyn Journal, bytes_max: usize) -> Result<Vec<Commit>, Error> {
        let mut commits = journal.read(self.after, bytes_max).await?;
        commits.retain(|commit| commit.stamp().number <= self.upto);
        if commits.is_empty() {
            return Err(Error::NoCommit(Position {
                commit: self.after.commit.next(),
                ..self.after
            }));
        }
        Ok(commits)
    }
}

fn beginning(writer: WriterId) -> Position {
    Position {
        writer,
        commit: CommitNo(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(writer: u64, commit: u64) -> Position {
        Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        }
    }

    #[test]
    fn what_follows_a_position_goes_over_streams_without_commits() {
        let sealed = [at(1, 3), at(2, 0), at(4, 2)];
        let ends = Ends {
            sealed: &sealed,
            durable: at(5, 0),
        };
        let stretch = |after, upto| {
            Some(Stretch {
                after,
                upto: CommitNo(upto),
            })
        };
        assert_eq!(ends.after(ends.start()), stretch(at(1, 0), 3));
        assert_eq!(ends.after(at(1, 2)), stretch(at(1, 2), 3));
        assert_eq!(ends.after(at(1, 3)), stretch(at(4, 0), 2));
        assert_eq!(ends.after(at(2, 0)), stretch(at(4, 0), 2));
        assert_eq!(ends.after(at(4, 2)), None);
        assert_eq!(ends.commits_after(at(1, 1)), 4);
        assert_eq!(
            (ends.end_of(WriterId(4)), ends.end_of(WriterId(3))),
            (Some(CommitNo(2)), None)
        );
    }
}
