//! How far a read model in Redis has come.

use std::str::FromStr;
use throng::{
    journal::{CommitNo, Position, WriterId},
    projection::EventOffset,
};

/// The place of an event in history, and when it was recorded: `writer.commit.record@microseconds`.
///
/// Another history (the journal was removed or restored from an older copy, Redis was not) has the same places. It is told by the time: an event at a
/// place that is passed cannot be newer than the one that was taken last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SinkPosition {
    pub(crate) offset: EventOffset,
    pub(crate) at_micros: i64,
}

impl SinkPosition {
    /// Before the first event.
    pub(crate) const BEGINNING: Self = Self {
        offset: EventOffset {
            position: Position {
                writer: WriterId(0),
                commit: CommitNo(0),
            },
            record: 0,
        },
        at_micros: 0,
    };

    pub(crate) fn is_beginning(self) -> bool {
        self == Self::BEGINNING
    }

    /// Whether an event was taken already. An error: it is of another history.
    pub(crate) fn has(self, event: Self) -> Result<bool, ()> {
        if event.offset > self.offset {
            return Ok(false);
        }
        let is_of_another = event.at_micros > self.at_micros || (event.offset == self.offset && event != self);
        if is_of_another { Err(()) } else { Ok(true) }
    }
}

impl std::fmt::Display for SinkPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.offset, self.at_micros)
    }
}

impl FromStr for SinkPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let read = || {
            let (offset, at_micros) = text.split_once('@')?;
            let mut numbers = offset.splitn(3, '.');
            let offset = EventOffset {
                position: Position {
                    writer: WriterId(numbers.next()?.parse().ok()?),
                    commit: CommitNo(numbers.next()?.parse().ok()?),
                },
                record: numbers.next()?.parse().ok()?,
            };
            let at_micros = at_micros.parse().ok()?;
            Some(Self { offset, at_micros })
        };
        read().ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> SinkPosition {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_read_as_it_is_written_and_nothing_else_is_one() {
        assert_eq!(place("3.1071.2@5").to_string(), "3.1071.2@5");
        for text in ["", "3.1071@5", "3.1071.2", "a.1.2@5", "3.1.2.4@5"] {
            assert!(text.parse::<SinkPosition>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_taken_is_known_and_another_history_is_noticed() {
        let last = place("2.10.1@100");
        assert_eq!(last.has(place("2.10.2@100")), Ok(false));
        assert_eq!(last.has(place("3.1.0@90")), Ok(false), "a clock that was set back");
        assert_eq!(last.has(place("2.10.1@100")), Ok(true));
        assert_eq!(last.has(place("1.99.0@40")), Ok(true));
        assert_eq!(last.has(place("1.1.0@101")), Err(()), "begun after it");
        assert_eq!(last.has(place("2.10.1@99")), Err(()));
        assert_eq!(SinkPosition::BEGINNING.has(place("0.1.0@-5")), Ok(false));
    }
}
