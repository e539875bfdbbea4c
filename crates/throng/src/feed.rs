//! What happens to all entities of a kind, in the order of the log.

use crate::{
    engine::Engine,
    tail::{Ends, EntityEvent},
};
use std::{fmt, str::FromStr, sync::Arc};
use throng_core::{model::Error, shard::JsonRejection};
use throng_journal::{CommitNo, Position, WriterId};

/// A place in the log between two records: what comes next is told, all before it was.
///
/// Written `writer.commit`, or `writer.commit+records` within a commit; it names the writer, so that history lost by a restore
/// is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The commit that comes next; its number is not 0 in any history.
    pub(crate) commit: Position,
    /// Its records that were told.
    pub(crate) records: u32,
}

/// A page of what happened to a kind's entities.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Durable events in the order of the log.
    pub events: Vec<FeedEvent>,
    /// Where the next page begins.
    pub next: Cursor,
    /// There is more of the log to look at, with or without an event of this kind.
    pub more: bool,
}

/// An event of a kind.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    /// What has happened, and to whom.
    pub event: Arc<EntityEvent>,
    /// The place after it.
    pub next: Cursor,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The log has no such place.
    #[error("this service's history has no place {0}: it was restored from an earlier one, or this is another service")]
    Lost(String),
    /// The engine cannot say now.
    #[error(transparent)]
    Engine(Error<JsonRejection>),
}

impl Cursor {
    /// What comes after a commit.
    pub(crate) fn after(position: Position) -> Self {
        Self {
            commit: Position {
                commit: position.commit.next(),
                ..position
            },
            records: 0,
        }
    }

    /// The commit before the one that comes next.
    pub(crate) fn before(&self) -> Position {
        Position {
            commit: CommitNo(self.commit.commit.0.saturating_sub(1)),
            ..self.commit
        }
    }

    /// This history has such a place: in one of its streams, or at a stream's end.
    pub(crate) fn is_in(&self, ends: &Ends<'_>) -> bool {
        let end = ends.end_of(self.commit.writer);
        end.is_some_and(|end| self.commit.commit.0 > 0 && self.commit.commit <= end.next())
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            0 => self.commit.fmt(f),
            records => write!(f, "{}+{records}", self.commit),
        }
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (position, records) = text.split_once('+').unwrap_or((text, "0"));
        let (writer, commit) = position.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self {
            commit: Position {
                writer: WriterId(number(writer)?),
                commit: CommitNo(number(commit)?),
            },
            records: records.parse().map_err(|_| ())?,
        })
    }
}

/// What a node of a cluster answers who asks for the events of a kind: it sees the order of its own stream only.
const OF_ALL_NODES: &str = "the events of a whole kind are not told in a cluster; follow single entities, or read what a projection keeps of them";

impl Engine {
    /// Says so if it is a node of a cluster.
    pub(crate) fn check_is_alone(&self) -> Result<(), Error<JsonRejection>> {
        match &self.core.context.peers {
            None => Ok(()),
            Some(_) => Err(Error::Unavailable {
                reason: OF_ALL_NODES.into(),
            }),
        }
    }

    /// The place after all that is durable now, or before all that has ever happened.
    ///
    /// # Errors
    /// The engine is not ready, or is a node of a cluster.
    pub fn place(&self, at_start: bool) -> Result<Cursor, Error<JsonRejection>> {
        self.check_is_alone()?;
        let life = self.core.lives.current()?;
        let ends = Ends::of(&life);
        Ok(Cursor::after(if at_start { ends.start() } else { ends.durable }))
    }

    /// What has happened to the entities of a kind from a place on: at most `limit` events and a megabyte of payloads, out of
    /// about a megabyte of the log. To be told what happens from then on, [follow](Self::follow).
    ///
    /// # Errors
    /// The log has no such place, or the engine's; a node of a cluster has none.
    pub async fn feed(&self, kind: usize, from: Cursor, limit: usize) -> Result<Feed, FeedError> {
        self.check_is_alone().map_err(FeedError::Engine)?;
        let life = self.core.lives.current().map_err(FeedError::Engine)?;
        self.core.tail.page(kind, from, limit, &Ends::of(&life)).await
    }
}
