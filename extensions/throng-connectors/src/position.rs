//! The position of a target in history.

use std::{collections::BTreeMap, fmt, str::FromStr};
use throng::{
    journal::{CommitNo, Position, WriterId},
    projection::{EventOffset, SinkError},
};

/// The most streams named in a position. The stream without an event for the longest time is left out first.
const STREAMS_MAX: usize = 64;
/// Prefix of a position that names streams. A position without it was written by an earlier release, and names only the last event of all.
const MARK: &str = "streams";

/// The last event delivered of each stream of history, and the time it was recorded: `streams WRITER@MICROS writer.commit.record@micros
/// ...`. Each node of a cluster writes its own stream, so one event does not tell what was delivered.
///
/// After the journal was removed or restored from an older copy, the same positions name other events. The time reveals this: an event at a
/// position already passed must not be newer than the last one delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetPosition {
    streams: BTreeMap<WriterId, Taken>,
    /// Streams up to this writer that are not named are taken as far as this time.
    floor: Option<(WriterId, i64)>,
}

/// A text is no position of a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no position in history; have the sink rebuilt, or use another place")]
pub struct MalformedPosition(pub String);

impl From<MalformedPosition> for SinkError {
    fn from(malformed: MalformedPosition) -> Self {
        Self::Unusable(malformed.to_string())
    }
}

/// The last event that was taken of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    offset: EventOffset,
    at_micros: i64,
}

impl TargetPosition {
    /// The last event of the newest stream.
    pub(crate) fn newest(&self) -> Option<EventOffset> {
        self.streams.last_key_value().map(|(_, taken)| taken.offset)
    }

    /// Tells whether an event was taken, as far as places say.
    pub(crate) fn has_come_to(&self, event: EventOffset) -> bool {
        match self.streams.get(&event.position.writer) {
            Some(taken) => event <= taken.offset,
            None => self.floor.is_some_and(|(writer, _)| event.position.writer <= writer),
        }
    }

    /// Tells whether all that another place has taken is taken here.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.streams.values().all(|taken| self.has_come_to(taken.offset))
    }

    /// Returns true if an event was taken already. The `Err` says that it is of another history.
    pub(crate) fn has(&self, event: EventOffset, at_micros: i64) -> Result<bool, ()> {
        let is_of_another = match (self.streams.get(&event.position.writer), self.floor) {
            (Some(taken), _) if event > taken.offset => return Ok(false),
            (Some(taken), _) => at_micros > taken.at_micros || (event == taken.offset && at_micros != taken.at_micros),
            (None, Some((writer, at))) if event.position.writer <= writer => at_micros > at,
            (None, _) => return Ok(false),
        };
        if is_of_another { Err(()) } else { Ok(true) }
    }

    /// Records that an event is taken, the next of its stream.
    pub(crate) fn take(&mut self, offset: EventOffset, at_micros: i64) {
        self.streams.insert(offset.position.writer, Taken { offset, at_micros });
        while self.streams.len() > STREAMS_MAX {
            let oldest = self
                .streams
                .iter()
                .min_by_key(|(writer, taken)| (taken.at_micros, **writer));
            let Some((writer, at)) = oldest.map(|(writer, taken)| (*writer, taken.at_micros)) else {
                break;
            };
            self.streams.remove(&writer);
            let (below, before) = self.floor.unwrap_or((writer, at));
            self.floor = Some((below.max(writer), before.max(at)));
        }
    }
}

impl fmt::Display for TargetPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)?;
        match self.floor {
            Some((WriterId(writer), at)) => write!(f, " {writer}@{at}")?,
            None => f.write_str(" -")?,
        }
        for Taken { offset, at_micros } in self.streams.values() {
            write!(f, " {offset}@{at_micros}")?;
        }
        Ok(())
    }
}

impl FromStr for TargetPosition {
    type Err = MalformedPosition;

    fn from_str(text: &str) -> Result<Self, MalformedPosition> {
        Self::read(text).map_err(|()| MalformedPosition(text.to_owned()))
    }
}

impl TargetPosition {
    fn read(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let first = words.next().ok_or(())?;
        if first != MARK {
            return Self::of_one(taken(text)?);
        }
        let floor = match words.next().ok_or(())? {
            "-" => None,
            floor => {
                let (writer, at) = floor.split_once('@').ok_or(())?;
                let writer = writer.parse().map_err(|_| ())?;
                Some((WriterId(writer), at.parse().map_err(|_| ())?))
            }
        };
        let streams = words.map(|word| taken(word).map(|taken| (taken.offset.position.writer, taken)));
        Ok(Self {
            streams: streams.collect::<Result<_, ()>>()?,
            floor,
        })
    }

    /// The place of an earlier release: all streams before it are taken.
    fn of_one(taken: Taken) -> Result<Self, ()> {
        let WriterId(writer) = taken.offset.position.writer;
        let Some(before) = writer.checked_sub(1) else {
            // Before the first event.
            return Ok(Self::default());
        };
        Ok(Self {
            streams: BTreeMap::from([(WriterId(writer), taken)]),
            floor: Some((WriterId(before), taken.at_micros)),
        })
    }
}

fn taken(word: &str) -> Result<Taken, ()> {
    let read = || {
        let (offset, at_micros) = word.split_once('@')?;
        let mut numbers = offset.splitn(3, '.');
        let offset = EventOffset {
            position: Position::new(
                WriterId(numbers.next()?.parse().ok()?),
                CommitNo(numbers.next()?.parse().ok()?),
            ),
            record: numbers.next()?.parse().ok()?,
        };
        let at_micros = at_micros.parse().ok()?;
        Some(Taken { offset, at_micros })
    };
    read().ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> TargetPosition {
        text.parse().unwrap()
    }

    fn has(place: &TargetPosition, event: &str) -> Result<bool, ()> {
        let Taken { offset, at_micros } = taken(event).unwrap();
        place.has(offset, at_micros)
    }

    fn take(place: &mut TargetPosition, event: &str) {
        let Taken { offset, at_micros } = taken(event).unwrap();
        place.take(offset, at_micros);
    }

    #[test]
    fn a_place_is_read_as_it_is_written_and_nothing_else_is_one() {
        for text in ["streams -", "streams - 3.1071.2@5", "streams 2@4 3.1071.2@5 7.1.0@-6"] {
            assert_eq!(place(text).to_string(), text);
        }
        assert_eq!(place("3.1071.2@5").to_string(), "streams 2@5 3.1071.2@5");
        assert_eq!(
            place("0.0.0@0"),
            TargetPosition::default(),
            "as an earlier release writes it"
        );
        for text in [
            "",
            "3.1071@5",
            "3.1071.2",
            "a.1.2@5",
            "3.1.2.4@5",
            "streams",
            "streams - 3",
            "streams 3 3.1.2@5",
        ] {
            assert!(text.parse::<TargetPosition>().is_err(), "{text}");
        }
    }

    #[test]
    fn taken_commits_are_known_and_another_history_is_noticed() {
        let last = place("2.10.1@100");
        assert_eq!(has(&last, "2.10.2@100"), Ok(false));
        assert_eq!(has(&last, "3.1.0@90"), Ok(false), "a clock that was set back");
        assert_eq!(has(&last, "2.10.1@100"), Ok(true));
        assert_eq!(has(&last, "1.99.0@40"), Ok(true));
        assert_eq!(has(&last, "1.1.0@101"), Err(()), "begun after it");
        assert_eq!(has(&last, "2.10.1@99"), Err(()));
        assert_eq!(has(&TargetPosition::default(), "1.1.0@-5"), Ok(false));
    }

    #[test]
    fn streams_side_by_side_are_each_taken_once() {
        let mut last = TargetPosition::default();
        for event in ["4.10.0@100", "3.20.0@90", "4.11.0@130", "3.21.0@110"] {
            assert_eq!(has(&last, event), Ok(false), "{event}");
            take(&mut last, event);
            assert_eq!(has(&last, event), Ok(true), "{event}");
        }
        assert_eq!(has(&last, "3.19.0@80"), Ok(true));
        assert_eq!(has(&last, "3.21.0@111"), Err(()));
        let before = place("streams - 3.20.0@90 4.11.0@130");
        assert!(last.covers(&before) && !before.covers(&last));
        assert_eq!(last.newest(), place("4.11.0@130").newest());
    }

    #[test]
    fn streams_that_ended_long_ago_are_left_out() {
        let mut last = TargetPosition::default();
        take(&mut last, "1.5.0@1");
        for writer in 2..200 {
            take(&mut last, &format!("{writer}.1.0@{writer}"));
            take(&mut last, &format!("1.{}.0@{writer}", writer + 5));
        }
        assert!(last.to_string().len() < 2_000);
        assert_eq!(has(&last, "2.1.0@2"), Ok(true));
        assert_eq!(has(&last, "2.2.0@300"), Err(()), "and notices what cannot be");
        assert_eq!(has(&last, "1.204.0@199"), Ok(true), "one that goes on stays");
        assert_eq!(has(&last, "1.205.0@200"), Ok(false));
    }
}
