//! The streams of a history and where they end.

use super::Epoch;
use crate::context::Context;
use throng_journal::{CommitNo, Error, Position, Stream, Stretch, WriterId};

/// The streams of this history in their order: the sealed ones, then the present writer's up to what is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The last commits of the sealed streams.
    pub(crate) sealed: &'a [Position],
    /// The newest durable commit of the present writer.
    pub(crate) durable: Position,
}

impl<'a> Ends<'a> {
    pub(crate) fn of(epoch: &'a Epoch) -> Self {
        Self {
            sealed: &epoch.group_commit.sealed,
            durable: epoch.group_commit.durable(),
        }
    }

    fn all(&self) -> impl Iterator<Item = Position> {
        self.sealed.iter().copied().chain([self.durable])
    }

    /// Before the first commit of all.
    pub(crate) fn start(&self) -> Position {
        beginning(self.sealed.first().map_or(self.durable.writer, |first| first.writer))
    }

    /// The same from a writer's on, as streams of the whole history, one after the other.
    pub(crate) fn streams(&self, from: WriterId) -> Vec<Stream> {
        let stream = |end: Position| Stream {
            writer: end.writer,
            shards: None,
            last: end.commit,
            is_sealed: end.writer != self.durable.writer,
        };
        self.all().filter(|end| end.writer >= from).map(stream).collect()
    }

    /// Returns the stretch of the log behind a position. It is in its own stream, else in the next one that has commits.
    /// `None` at the end of what is durable.
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

/// The streams of the history from a writer's on: an engine that is alone knows its own, a node of a cluster looks.
pub(crate) async fn streams(context: &Context, epoch: Option<&Epoch>, from: WriterId) -> Result<Vec<Stream>, Error> {
    match epoch.filter(|_| context.peers.is_none()) {
        Some(epoch) => Ok(Ends::of(epoch).streams(from)),
        None => context.journal.streams(from).await,
    }
}

fn beginning(writer: WriterId) -> Position {
    Position::new(writer, CommitNo(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(writer: u64, commit: u64) -> Position {
        Position::new(WriterId(writer), CommitNo(commit))
    }

    #[test]
    fn position_after_passes_streams_without_commits() {
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
        assert_eq!(ends.streams(WriterId(4)).len(), 2);
    }
}
