//! Places in the log.

use std::{collections::BTreeMap, fmt, str::FromStr};
use throng_core::{model::Error, shard::JsonRejection};
use throng_journal::{CommitNo, Position, Positions, Stream, WriterId};

/// A follower's position in the log: all records before it have been delivered, the next one has not.
///
/// Its text is the next commit of each stream of the log, `writer.commit`, or `writer.commit+records` within a commit, separated by commas:
/// one engine writes one stream, the nodes of a cluster one each. It is valid on every node. Because it names the writers, a restore that
/// lost history is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The commits that were delivered.
    pub(crate) told: Positions,
    /// The number of records of a stream's next commit that were delivered, if any.
    pub(crate) begun: BTreeMap<WriterId, u32>,
}

/// The reason why no page could be returned.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The log has no such position.
    #[error("this service's history has no place {0}: it was restored from an earlier one, or this is another service")]
    Lost(String),
    /// The engine's error.
    #[error(transparent)]
    Engine(Error<JsonRejection>),
}

impl Cursor {
    /// Returns the number of delivered records of a commit; 0 if it is not the next commit of its stream.
    pub(crate) fn records(&self, of: Position) -> u32 {
        let records = self.begun.get(&of.writer).copied().unwrap_or_default();
        let is_next = || of.commit.0.checked_sub(1).map(CommitNo);
        match records > 0 && self.told.upto_of(of.writer) == is_next() {
            true => records,
            false => 0,
        }
    }

    /// Notes that everything up to this commit of its stream was delivered.
    pub(crate) fn tell(&mut self, upto: Position, streams: &[Stream]) {
        self.told.tell(upto, streams);
        self.begun.remove(&upto.writer);
    }

    /// Notes that this many records of the stream's next commit were delivered.
    pub(crate) fn begin(&mut self, commit: Position, records: u32, streams: &[Stream]) {
        let before = CommitNo(commit.commit.0.saturating_sub(1));
        self.told.tell(Position::new(commit.writer, before), streams);
        self.begun.insert(commit.writer, records);
    }

    /// Adds positions that were delivered.
    pub(crate) fn join(&mut self, told: &Positions) {
        let before = match self.begun.is_empty() {
            true => Positions::default(),
            false => self.told.clone(),
        };
        self.told.join(told);
        let now = &self.told;
        self.begun
            .retain(|writer, _| before.upto_of(*writer) == now.upto_of(*writer));
    }

    /// True if this history has such a position, within its streams or at the end of one.
    pub(crate) fn is_in(&self, streams: &[Stream]) -> bool {
        self.told.positions().all(|at| {
            let of_writer = streams.iter().find(|stream| stream.writer == at.writer);
            let records = u64::from(self.begun.contains_key(&at.writer));
            match of_writer {
                Some(stream) => at.commit.0 + records <= stream.last.0,
                None => at == Position::default(),
            }
        })
    }

    /// Refuses a place that the history does not have.
    pub(crate) fn check(&self, streams: &[Stream]) -> Result<(), FeedError> {
        match self.is_in(streams) {
            true => Ok(()),
            false => Err(FeedError::Lost(self.to_string())),
        }
    }
}

impl From<Positions> for Cursor {
    fn from(told: Positions) -> Self {
        let begun = BTreeMap::new();
        Self { told, begun }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for at in self.told.positions() {
            let next = Position::new(at.writer, at.commit.next());
            write!(f, "{comma}{next}")?;
            if let Some(records) = self.begun.get(&at.writer) {
                write!(f, "+{records}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| ());
        let (mut told, mut begun) = (BTreeMap::new(), BTreeMap::new());
        for part in text.split(',') {
            let (position, records) = part.split_once('+').unwrap_or((part, "0"));
            let (writer, commit) = position.split_once('.').ok_or(())?;
            let (writer, commit) = (WriterId(number(writer)?), number(commit)?);
            // The first commit of a stream is 1.
            told.insert(writer, CommitNo(commit.checked_sub(1).ok_or(())?));
            match records.parse().map_err(|_| ())? {
                0 => {}
                records => _ = begun.insert(writer, records),
            }
        }
        let told = told.into_iter().map(|(writer, commit)| Position { writer, commit });
        Ok(Self {
            told: told.collect(),
            begun,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        for text in ["1.1", "1.7+3", "3.1072,7.23+2", "3.1+1,7.1"] {
            assert_eq!(text.parse::<Cursor>().map(|cursor| cursor.to_string()), Ok(text.into()));
        }
        for wrong in ["", "1", "1.0", "x.1", "1.1,", "1.1+x", "1.1,2"] {
            assert_eq!(wrong.parse::<Cursor>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_commit_that_was_begun_is_forgotten_once_it_is_told() {
        let mut cursor: Cursor = "3.5+2,7.23+1".parse().unwrap();
        let at = |text: &str| text.parse::<Position>().unwrap();
        assert_eq!([cursor.records(at("3.5")), cursor.records(at("3.6"))], [2, 0]);
        cursor.join(&"3.4,7.23".parse().unwrap());
        assert_eq!(cursor.to_string(), "3.5+2,7.24");
        cursor.join(&"7.24".parse().unwrap());
        assert_eq!(cursor.to_string(), "7.25");
    }
}
