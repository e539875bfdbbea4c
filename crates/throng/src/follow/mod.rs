//! Events of all entities of a kind, in the order of the log.

mod follower;

pub use follower::{Follow, Follower};

use crate::{
    commit::unreadable,
    engine::{Core, Engine},
    epoch,
    feed::{Cursor, Feed, FeedError, PageLimit},
};
use throng_journal::{CommitNo, Position, Positions, Stream, WriterId};

impl Core {
    /// Returns the present streams of the history from a writer's on.
    pub(crate) async fn streams(&self, from: WriterId) -> Result<Vec<Stream>, FeedError> {
        let epoch = match self.context.peers {
            Some(_) => None,
            None => Some(self.epochs.current().map_err(FeedError::Engine)?),
        };
        let streams = epoch::streams(&self.context, epoch.as_deref(), from).await;
        streams.map_err(|error| FeedError::Engine(unreadable("the streams of the log are not known".into(), &error)))
    }
}

impl Engine {
    /// Returns the position after all that is durable now (in a cluster, on all nodes), or before the first event.
    ///
    /// # Errors
    /// [`FeedError::Engine`]: the engine is not ready, or the journal cannot be read.
    pub async fn place(&self, at_start: bool) -> Result<Cursor, FeedError> {
        let streams = self.core.streams(WriterId(0)).await?;
        let (first, last) = (streams.first(), streams.last().map(|stream| stream.writer));
        let told: Positions = match at_start {
            true => {
                Positions::from(first.map_or_else(Position::default, |first| Position::new(first.writer, CommitNo(0))))
            }
            false => {
                let named = streams
                    .iter()
                    .filter(|stream| !stream.is_sealed || Some(stream.writer) == last);
                named.map(|stream| Position::new(stream.writer, stream.last)).collect()
            }
        };
        Ok(told.into())
    }

    /// Returns the events of a kind from a position on: at most `limit` events and a megabyte of payloads, from about a megabyte of the
    /// log. [`follow`](Self::follow) returns later events as well.
    ///
    /// # Errors
    /// [`FeedError::Lost`]: the log has no such position. [`FeedError::Engine`]: the engine's error.
    pub async fn feed(&self, kind: usize, from: Cursor, limit: usize) -> Result<Feed, FeedError> {
        self.feed_within(kind, from, PageLimit::of(limit)).await
    }

    pub(crate) async fn feed_within(&self, kind: usize, from: Cursor, limit: PageLimit) -> Result<Feed, FeedError> {
        let streams = self.core.streams(from.told.first()).await?;
        let mut feed = self.core.feed.page(kind, from, limit, &streams).await?;
        // Drops ended streams that were delivered completely. A position that names one is neither before nor after one that does not.
        feed.next.told.drop_ended(&streams);
        Ok(feed)
    }
}
