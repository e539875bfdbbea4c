//! The streams of a history and where they end.

use crate::life::Life;
#[cfg(feature = "projections")]
use throng_journal::Stream;
use throng_journal::{CommitNo, Position, Stretch, WriterId};

/// The streams of this history in their order: the sealed ones, then the present writer's up to what is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The last commits of the sealed streams.
    pub(crate) sealed: &'a [Position],
    /// The newest durable commit of the present writer.
    pub(crate) durable: Position,
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

    /// The same as streams of the whole history, one after the other.
    #[cfg(feature = "projections")]
    pub(crate) fn streams(&self) -> Vec<Stream> {
        let stream = |end: Position| Stream {
            writer: end.writer,
            shards: None,
            last: end.commit,
            is_sealed: end.writer != self.durable.writer,
        };
        self.all().map(stream).collect()
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
        assert_eq!(
            (ends.end_of(WriterId(4)), ends.end_of(WriterId(3))),
            (Some(CommitNo(2)), None)
        );
    }
}
