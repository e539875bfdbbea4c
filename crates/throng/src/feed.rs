//! What happens to all entities of a kind, in the order of the log.

use crate::engine::Engine;
use std::{fmt, str::FromStr};
use throng_core::{model::Error, shard::JsonRejection};
use throng_journal::{CommitNo, Position, RecordKind, StoredEvent, WriterId};

/// Bytes of commits looked through for one page.
const LOOK_BYTES_MAX: usize = 1 << 20;

/// A place in the log between two records: what comes next is told, all before it was.
///
/// Written `writer.commit`, or `writer.commit+records` within a commit; it names the writer, so that history lost by a restore
/// is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The commit that comes next.
    commit: Position,
    /// Its records that were told.
    records: u32,
}

/// A page of what happened to a kind's entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Durable events in the order of the log, each with its entity's id and the place after it.
    pub events: Vec<(Box<str>, StoredEvent, Cursor)>,
    /// Where the next page begins.
    pub next: Cursor,
    /// There is more of the log to look at, with or without an event of this kind.
    pub more: bool,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The log has no such place.
    #[error("this service's history has no place {0}: it was restored from an earlier one, or this is another service")]
    Lost(Cursor),
    /// The engine cannot say now.
    #[error(transparent)]
    Engine(Error<JsonRejection>),
}

impl Cursor {
    fn before(writer: WriterId, commit: CommitNo) -> Self {
        Self {
            commit: Position { writer, commit },
            records: 0,
        }
    }

    fn after(position: Position) -> Self {
        Self::before(position.writer, position.commit.next())
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

impl Engine {
    /// The place after all that is durable now, or before all that has ever happened.
    ///
    /// # Errors
    /// The engine's.
    pub fn place(&self, at_start: bool) -> Result<Cursor, Error<JsonRejection>> {
        let life = self.core.lives.current()?;
        let ledger = &life.ledger;
        let first = ledger.sealed.first().map_or(ledger.writer, |first| first.writer);
        Ok(match at_start {
            true => Cursor::before(first, CommitNo(1)),
            false => Cursor::after(ledger.durable()),
        })
    }

    /// What has happened to the entities of a kind from a place on: at most `limit` events, out of at most about a megabyte
    /// of the log.
    ///
    /// # Errors
    /// The log has no such place, or the engine's.
    pub async fn feed(&self, kind: usize, from: Cursor, limit: usize) -> Result<Feed, FeedError> {
        let life = self.core.lives.current().map_err(FeedError::Engine)?;
        let context = &self.core.context;
        let name = context.registry.kinds()[kind].name;
        let durable = life.ledger.durable();
        // All streams with their ends, in the order of history.
        let ends: Vec<Position> = life.ledger.sealed.iter().copied().chain([durable]).collect();
        let mut at = ends
            .iter()
            .position(|end| end.writer == from.commit.writer)
            .ok_or(FeedError::Lost(from))?;
        let mut feed = Feed {
            events: Vec::new(),
            next: from,
            more: false,
        };
        if from.commit.commit.0 == 0 || from.commit.commit > ends[at].commit.next() {
            return Err(FeedError::Lost(from));
        }
        while feed.next.commit.commit > ends[at].commit {
            at += 1;
            let Some(end) = ends.get(at) else { return Ok(feed) };
            feed.next = Cursor::before(end.writer, CommitNo(1));
        }
        let before = Position {
            commit: CommitNo(feed.next.commit.commit.0 - 1),
            ..feed.next.commit
        };
        let read = context.journal.read(before, LOOK_BYTES_MAX).await;
        let commits = read.map_err(|error| {
            FeedError::Engine(Error::Unavailable {
                reason: format!("the log cannot be read: {error}"),
            })
        })?;
        for commit in commits.iter().filter(|commit| commit.stamp().number <= ends[at].commit) {
            let skipped = std::mem::take(&mut feed.next.records);
            for (number, record) in (1..).zip(commit.records().flatten()) {
                if number <= skipped || record.record != RecordKind::Event || record.kind != name {
                    continue;
                }
                if feed.events.len() == limit {
                    feed.more = true;
                    // Behind the last event that was told, which may stand in an earlier commit.
                    feed.next = feed.events.last().map_or(from, |(.., next)| *next);
                    return Ok(feed);
                }
                let next = Cursor {
                    commit: commit.position(),
                    records: number,
                };
                let event = StoredEvent {
                    seq: record.seq,
                    position: commit.position(),
                    at_micros: commit.stamp().at_micros,
                    name: record.name.into(),
                    version: record.version,
                    payload: record.body.to_vec(),
                };
                feed.events.push((record.id.into(), event, next));
            }
            feed.next = Cursor::after(commit.position());
        }
        if commits.is_empty() {
            return Err(FeedError::Lost(feed.next));
        }
        feed.more = feed.next.commit.commit <= ends[at].commit || at + 1 < ends.len();
        Ok(feed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        for text in ["1.7", "1.7+3", "18.1"] {
            assert_eq!(text.parse::<Cursor>().map(|cursor| cursor.to_string()), Ok(text.into()));
        }
        for wrong in ["", "7", "1.", ".7", "1.7+", "1.7+x", "1.7.3", "-1.7"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
