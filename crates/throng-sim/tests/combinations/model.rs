//! The diaries as they must be, according to everything acknowledged.

use crate::diary::{AGE, AGED, COUNTED, EVENTS, FOREVER, KINDS, Never};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use throng::{
    FeedError, History,
    model::{Error, Timestamp},
};

/// A kind and an id.
pub(crate) type Of = (usize, u64);
/// The numbers in a read model: by diary, then by place in the diary.
pub(crate) type Rows = BTreeMap<u64, BTreeMap<u64, u64>>;

/// The number that represents the end of a diary.
pub(crate) const CLOSED: u64 = 0;

/// A diary with all of its events, including removed ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// The events' numbers, and the times of their requests.
    events: Vec<(u64, Timestamp)>,
    /// The number of events before each new beginning.
    begun_anew: Vec<usize>,
    /// The number of events before it was erased.
    erased: usize,
    pub(crate) is_closed: bool,
    pub(crate) is_erased: bool,
    /// True if it was restored from a copy, which keeps some or all of the removed events.
    pub(crate) is_restored: bool,
}

pub(crate) type Models = BTreeMap<Of, Model>;

impl Model {
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed || self.is_erased
    }

    pub(crate) fn count(&self) -> u64 {
        self.shown().0
    }

    /// Returns the number of events before the last beginning.
    fn before(&self) -> usize {
        self.begun_anew.last().copied().unwrap_or_default()
    }

    pub(crate) fn write(&mut self, number: u64, at: Timestamp) {
        if self.is_over() {
            self.begun_anew.push(self.events.len());
            (self.is_closed, self.is_erased) = (false, false);
        }
        self.events.push((number, at));
    }

    pub(crate) fn close(&mut self, at: Timestamp) {
        self.events.push((CLOSED, at));
        self.is_closed = true;
    }

    pub(crate) fn erase(&mut self) {
        self.erased = self.events.len();
        (self.is_closed, self.is_erased, self.is_restored) = (false, true, false);
    }

    fn shown(&self) -> (u64, u64) {
        self.shown_since(self.before())
    }

    fn shown_since(&self, before: usize) -> (u64, u64) {
        let own = self.events[before..].iter().map(|(number, _)| *number);
        let written = own.filter(|number| *number != CLOSED);
        written.fold((0, 0), |(count, sum), number| (count + 1, sum + number))
    }

    /// Returns the number of events that may be removed by then.
    fn may_be_gone(&self, kind: usize, now: Timestamp) -> usize {
        let age = i64::try_from(AGE.as_micros()).unwrap();
        let all = self.events.len();
        let of_kind = match kind {
            FOREVER => 0,
            AGED => {
                let is_over = |(_, at): &&(u64, Timestamp)| at.micros + age <= now.micros;
                self.events.iter().take_while(is_over).count()
            }
            _ if self.is_over() => all,
            _ => self.before().max(all.saturating_sub(EVENTS as usize)),
        };
        of_kind.max(self.erased)
    }

    /// Returns the fault of the diary's answer, as a sentence.
    pub(crate) fn wrong_answer(&self, kind: usize, answer: &Result<(u64, u64), Error<Never>>) -> Option<String> {
        let is_right = match answer {
            // A copy made before the erasure has all of it, and says that it ended.
            Ok(shown) if self.is_closed || (self.is_erased && self.is_restored) => {
                // If it is rebuilt from its events, a diary that was begun anew and ended again has the earlier events, too.
                let mut begun = [0].iter().chain(&self.begun_anew);
                begun.any(|before| *shown == self.shown_since(*before))
            }
            Ok(shown) => !self.is_erased && *shown == self.shown(),
            Err(Error::Ended { .. }) => self.is_erased || (self.is_closed && (kind != FOREVER || self.erased > 0)),
            Err(_) => false,
        };
        let expected = match self.is_erased {
            true => "it was erased".into(),
            false => format!("it is {:?}, closed: {}", self.shown(), self.is_closed),
        };
        (!is_right).then(|| format!("it answers {answer:?}, and {expected}"))
    }

    /// Returns the fault of its history, which must be complete from its first kept event on.
    pub(crate) fn wrong_history(
        &self,
        kind: usize,
        now: Timestamp,
        history: Result<History, FeedError>,
    ) -> Option<String> {
        let history = match history {
            Ok(history) => history,
            Err(FeedError::Engine(Error::Unknown { .. })) => History::default(),
            Err(error) => return Some(format!("its history: {error}")),
        };
        let number = |payload: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
            value["number"].as_u64()
        };
        let events = history.events.iter();
        let found: Vec<(u64, u64)> = events
            .map(|event| (event.seq, number(&event.payload).unwrap_or(CLOSED)))
            .collect();
        let all = self.events.iter().zip(1..).map(|((number, _), seq)| (seq, *number));
        let all: Vec<(u64, u64)> = all.collect();
        let may_be_gone = self.may_be_gone(kind, now);
        if self.is_restored {
            let is_right = found.iter().all(|event| all.contains(event))
                && found.is_sorted()
                && all[may_be_gone..].iter().all(|event| found.contains(event));
            return (!is_right).then(|| format!("its history is {found:?}, of {all:?}"));
        }
        let gone = all.len().saturating_sub(found.len());
        if all[gone..] != found {
            return Some(format!("its history is {found:?}, of {all:?}"));
        }
        if gone < self.erased {
            return Some(format!("{found:?} is left, and up to {} was erased", self.erased));
        }
        if gone > may_be_gone {
            return Some(format!("{found:?} is left, and only up to {may_be_gone} may go"));
        }
        if !found.is_empty() && history.removed != gone as u64 {
            return Some(format!(
                "{found:?} is left, and {} are told to be removed",
                history.removed
            ));
        }
        None
    }
}

/// Returns the events of counted diaries that a read model lacks, or its fault as a sentence.
pub(crate) fn lacking(models: &Models, rows: &Rows) -> Result<BTreeSet<(u64, u64)>, String> {
    let mut lacking = BTreeSet::new();
    for (id, row) in rows {
        let events = models.get(&(COUNTED, *id)).map_or(&[][..], |model| &model.events);
        for (seq, number) in row {
            let known = events.get(*seq as usize - 1).map(|(number, _)| *number);
            if known != Some(*number) {
                return Err(format!(
                    "the read model has event {seq} of {id} as {number}, it is {known:?}"
                ));
            }
        }
    }
    for ((_, id), model) in models.iter().filter(|((kind, _), _)| *kind == COUNTED) {
        let row = rows.get(id);
        let kept = (model.erased + 1..=model.events.len()).map(|seq| seq as u64);
        let missing = kept.filter(|seq| row.is_none_or(|row| !row.contains_key(seq)));
        lacking.extend(missing.map(|seq| (*id, seq)));
    }
    Ok(lacking)
}

pub(crate) fn name((kind, id): Of) -> String {
    format!("{} {id}", KINDS[kind])
}

/// Everything acknowledged at a moment between two commands.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) upto: Option<throng::journal::Position>,
    pub(crate) models: Models,
    /// True if nothing was in flight.
    pub(crate) is_exact: bool,
}

pub(crate) const TICK: Duration = Duration::from_millis(1);
