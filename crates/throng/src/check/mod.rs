//! Checks, before a program is rolled out, that it understands a history.
//! It upcasts and applies every event, reads every timer and message, and rebuilds every read model. It writes and sends nothing.

mod calls;
mod compare;
mod segments;
mod what_if;
mod words;

pub(crate) use segments::{KeptCommand, TimerSet};
pub use what_if::{Changed, WhatIf};

use crate::builder::Builder;
#[cfg(feature = "projections")]
use crate::projection;
use calls::WorkerlessCalls;
use segments::Segment;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
};
use throng_core::shard::{Envelope, KindCheck, Registry, is_operator_action};
#[cfg(feature = "projections")]
use throng_journal::MemoryViews;
use throng_journal::{Address, Commit, Record, RecordKind};
use what_if::{Deciding, FINDINGS_MAX, Known};
use words::{cause, entities_text, times_text};

/// A part of a history that a program does not understand.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Misunderstood {
    /// The part's description: `event account/received version 1`, `timer of account: pay_interest`.
    pub what: String,
    /// The reason that the program gives.
    pub reason: String,
    /// The number of occurrences in the history. After an event that fails, the later events of its entity are not checked.
    pub times: u64,
    /// The first occurrence: the entity, and the commit.
    pub first: String,
}

impl Misunderstood {
    fn is_event(&self) -> bool {
        self.what.starts_with("event ")
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// The number of commits that were read.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Entities they happened to.
    pub entities: u64,
    /// Timers that are set at the end.
    pub timers: u64,
    /// The number of messages that are still waiting at the end.
    pub messages: u64,
    /// The number of read models that were rebuilt.
    pub projections: u64,
    /// All that is not understood, at most 1,000 different parts.
    pub misunderstood: Vec<Misunderstood>,
    /// The result of deciding the recorded commands again, if that was requested ([`Checker::what_if`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
}

impl CheckReport {
    /// True if everything is understood, and no re-decided command has another outcome.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.misunderstood.is_empty() && self.what_if.as_ref().is_none_or(|what_if| what_if.changed.is_empty())
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            commits,
            events,
            entities,
            timers,
            messages,
            projections,
            misunderstood,
            what_if,
        } = self;
        writeln!(
            f,
            "checked {events} events of {entities} entities in {commits} commits, {timers} timers, {messages} messages on their way, {projections} read models"
        )?;
        for found in misunderstood {
            let Misunderstood {
                what, reason, first, ..
            } = found;
            match found.is_event() {
                true => writeln!(f, "{what}: {reason} ({}, first {first})", entities_text(found.times))?,
                false => writeln!(f, "{what}: {reason} ({}, first {first})", times_text(found.times))?,
            }
        }
        if misunderstood.iter().any(Misunderstood::is_event) {
            writeln!(
                f,
                "after the first event of an entity that is not understood, its later ones are not looked at"
            )?;
        }
        if let Some(what_if) = what_if {
            writeln!(f, "{what_if}")?;
        }
        match misunderstood.len() {
            0 => write!(f, "this program understands all of it"),
            found => write!(f, "this program does not understand {found} of what there is"),
        }
    }
}

/// A program that is held against a history, commit by commit.
pub struct Checker {
    registry: Registry,
    kinds: Vec<Box<dyn KindCheck>>,
    #[cfg(feature = "projections")]
    projections: Vec<Replay>,
    /// The timers that are set, by entity and name.
    timers: HashMap<(Address, String), Waiting>,
    /// The waiting messages, by sending shard, receiver and number.
    messages: HashMap<(u16, Address, u64), Waiting>,
    found: BTreeMap<(String, String), (u64, String)>,
    workerless: WorkerlessCalls,
    deciding: Option<Deciding>,
    report: CheckReport,
}

struct Waiting {
    command: String,
    body: Vec<u8>,
    /// The entity that has set or sent it.
    by: Address,
    /// The entity and the commit that recorded it, as text.
    at: String,
    /// When a timer is due, and after how long again, in microseconds.
    due: (i64, Option<u64>),
}

#[cfg(feature = "projections")]
/// A projection with its rows; `None` once it has stopped.
struct Replay {
    consumer: Box<dyn projection::Consumer>,
    cache: Option<projection::RowCache>,
}

#[cfg(feature = "projections")]
impl Replay {
    /// The projections among these; a sink has no rows that could be rebuilt.
    fn all(consumers: Vec<Box<dyn projection::Consumer>>) -> Vec<Self> {
        let projections = consumers.into_iter().filter(|consumer| consumer.is_projection());
        let replay = |consumer| Self {
            consumer,
            cache: Some(projection::RowCache::default()),
        };
        projections.map(replay).collect()
    }
}

impl Builder {
    /// Holds this program against a history instead of starting an engine on it.
    #[must_use]
    #[cfg_attr(not(feature = "projections"), expect(unused_mut, reason = "nothing is taken out"))]
    pub fn checker(mut self) -> Checker {
        #[cfg(feature = "projections")]
        let projections = Replay::all(self.take_consumers());
        let registry = self.into_registry();
        Checker {
            kinds: registry.kinds().iter().map(|kind| kind.check()).collect(),
            registry,
            #[cfg(feature = "projections")]
            projections,
            timers: HashMap::new(),
            messages: HashMap::new(),
            found: BTreeMap::new(),
            workerless: WorkerlessCalls::default(),
            deciding: None,
            report: CheckReport::default(),
        }
    }
}

impl Checker {
    /// The next commit of the history.
    pub async fn commit(&mut self, commit: &Commit) {
        self.report.commits += 1;
        let position = commit.position();
        let mut records = Vec::with_capacity(commit.record_count());
        for record in commit.records() {
            match record {
                Ok(record) => records.push(record),
                Err(why) => self.misunderstood("a record".into(), why.to_string(), position.to_string()),
            }
        }
        match self.deciding.take() {
            None => records.iter().for_each(|record| self.record(record)),
            Some(mut deciding) => {
                self.decide_again(&records, commit.stamp().at_micros, &mut deciding);
                self.deciding = Some(deciding);
            }
        }
        #[cfg(feature = "projections")]
        self.replay(commit).await;
    }

    /// Decides the recorded commands again, too, each against its entity's state at that time. Call this before the first commit.
    #[must_use]
    pub fn what_if(mut self) -> Self {
        self.deciding = Some(Deciding::default());
        self
    }

    /// Does the same as [`record`](Self::record) for each record of a commit, and decides the commit's commands again.
    fn decide_again(&mut self, records: &[Record<'_>], commit_micros: i64, deciding: &mut Deciding) {
        let mut segments: VecDeque<Segment> = VecDeque::new();
        for (at, record) in records.iter().enumerate() {
            let is_of_run = at > 0 && (records[at - 1].kind, records[at - 1].id) == (record.kind, record.id);
            if !is_of_run {
                let is_kept = deciding.is_kept(record.kind);
                segments = self.segments(records, at, commit_micros, is_kept);
            }
            let ends_here = segments.front().is_some_and(|segment| segment.end == at);
            if let Some(segment) = segments.front_mut() {
                segment.try_at(at, &mut self.known(records));
            }
            self.record(record);
            deciding.seen(record);
            if ends_here && let Some(segment) = segments.pop_front() {
                segment.finish(&mut self.known(records), deciding);
            }
        }
    }

    fn known<'a>(&'a mut self, records: &'a [Record<'a>]) -> Known<'a> {
        Known {
            registry: &self.registry,
            kinds: &mut self.kinds,
            records,
        }
    }

    fn segments(&self, records: &[Record<'_>], at: usize, commit_micros: i64, is_kept: bool) -> VecDeque<Segment> {
        let timer = |own: &Address, name: &str| {
            let set = self.timers.get(&(own.clone(), name.to_owned()))?;
            Some(TimerSet {
                at: set.due.0,
                every_micros: set.due.1,
                command: set.command.clone(),
                body: String::from_utf8_lossy(&set.body).into_owned(),
            })
        };
        let message = |taken: &Record<'_>| {
            let own = Address::new(taken.kind, taken.id);
            let sent = self.messages.get(&(taken.version, own, taken.seq))?;
            Some((sent.by.clone(), sent.command.clone(), sent.body.clone()))
        };
        segments::segments(records, at, commit_micros, is_kept, timer, message).into()
    }

    /// Has the read models take the next commit.
    #[cfg(feature = "projections")]
    async fn replay(&mut self, commit: &Commit) {
        // All its rows are in the cache, so the store behind it may be empty.
        let nowhere = MemoryViews::new();
        let mut stopped = Vec::new();
        for Replay { consumer, cache } in &mut self.projections {
            let Some(rows) = cache else { continue };
            let handled = consumer
                .handle(std::slice::from_ref(commit), &[], &[], rows, &nowhere)
                .await;
            let why = match handled {
                Ok(handled) => handled.poison.map(|(why, _)| why),
                Err(why) => Some(why),
            };
            if let Some(why) = why {
                stopped.push((format!("projection {}", consumer.name()), why));
                *cache = None;
            }
        }
        for (what, why) in stopped {
            self.misunderstood(what, why, commit.position().to_string());
        }
    }

    /// Checks the timers and messages that still wait, and returns the report.
    #[must_use]
    pub fn finish(mut self) -> CheckReport {
        for ((address, name), timer) in std::mem::take(&mut self.timers) {
            self.report.timers += 1;
            self.command(&address, &timer, || {
                format!("timer {name:?} of {}: {}", address.kind, timer.command)
            });
        }
        for ((_, to, _), message) in std::mem::take(&mut self.messages) {
            self.report.messages += 1;
            self.command(&to, &message, || format!("message to {}: {}", to.kind, message.command));
        }
        self.found.extend(std::mem::take(&mut self.workerless).finish());
        let mut report = self.report;
        report.entities = self.kinds.iter().map(|kind| kind.entities() as u64).sum();
        #[cfg(feature = "projections")]
        {
            report.projections = self.projections.len() as u64;
        }
        report.what_if = self.deciding.map(|deciding| deciding.finish(report.events));
        let found = self.found.into_iter();
        report.misunderstood = found
            .map(|((what, reason), (times, first))| Misunderstood {
                what,
                reason,
                times,
                first,
            })
            .collect();
        report
    }

    fn record(&mut self, record: &Record<'_>) {
        let at = || format!("{}/{} at {}", record.kind, record.id, record.place.position);
        let own = || Address::new(record.kind, record.id);
        if self.registry.find(record.kind).is_none() && self.workerless.record(record) {
            self.report.events += u64::from(record.record == RecordKind::Event);
            return;
        }
        match record.record {
            RecordKind::Event => {
                self.report.events += 1;
                let applied = match self.registry.find(record.kind) {
                    Some(kind) => self.kinds[kind].event(record),
                    None => Err("the program was not given this kind".into()),
                };
                if let Err(why) = applied {
                    let what = format!("event {}/{} version {}", record.kind, record.name, record.version);
                    self.misunderstood(what, why, at());
                }
            }
            RecordKind::State => {
                let read = match self.registry.find(record.kind) {
                    Some(kind) => self.kinds[kind].state(record),
                    None => Err("the program was not given this kind".into()),
                };
                if let Err(why) = read {
                    let what = format!("state of {} version {}", record.kind, record.version);
                    self.misunderstood(what, why, at());
                }
            }
            RecordKind::Ended => {
                if let Some(kind) = self.registry.find(record.kind) {
                    self.kinds[kind].ended(record);
                }
                self.timers.retain(|(of, _), _| *of != own());
            }
            // An operator's decision is no command of the entity.
            RecordKind::TimerSet if is_operator_action(record) => {}
            RecordKind::TimerSet => {
                if let Ok(set) = serde_json::from_slice::<TimerSet>(record.body) {
                    let timer = Waiting {
                        command: set.command,
                        body: set.body.into_bytes(),
                        by: own(),
                        at: at(),
                        due: (set.at, set.every_micros),
                    };
                    self.timers.insert((own(), record.name.to_owned()), timer);
                }
            }
            RecordKind::TimerCleared => {
                self.timers.remove(&(own(), record.name.to_owned()));
            }
            RecordKind::Sent => {
                if let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(record.body) {
                    let to = Address::new(&*envelope.to.0, &*envelope.to.1);
                    let message = Waiting {
                        command: record.name.to_owned(),
                        body: envelope.command.get().as_bytes().to_vec(),
                        by: own(),
                        at: at(),
                        due: (0, None),
                    };
                    self.messages.insert((record.shard.0, to, record.seq), message);
                }
            }
            RecordKind::Family => {
                if let Some(kind) = self.registry.find(record.kind) {
                    self.kinds[kind].family(record);
                }
            }
            RecordKind::Taken => {
                self.messages.remove(&(record.version, own(), record.seq));
            }
            _ => {}
        }
    }

    fn command(&mut self, to: &Address, waiting: &Waiting, what: impl FnOnce() -> String) {
        if self.registry.find(&to.kind).is_none() && self.workerless.message(to, &waiting.command, &waiting.at) {
            return;
        }
        let read = match self.registry.find(&to.kind) {
            Some(kind) => self.kinds[kind].command(&waiting.command, &waiting.body),
            None => Err("the program was not given this kind".into()),
        };
        if let Err(why) = read.map(drop) {
            self.misunderstood(what(), why, waiting.at.clone());
        }
    }

    fn misunderstood(&mut self, what: String, reason: String, first: String) {
        let reason = cause(&reason);
        if self.found.len() >= FINDINGS_MAX && !self.found.contains_key(&(what.clone(), reason.clone())) {
            return;
        }
        self.found.entry((what, reason)).or_insert((0, first)).0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_in_bodies_of_many_lengths_is_found_once() {
        let mut checker = Builder::default().checker();
        for column in 63..69 {
            let what = "event order/held version 1".to_owned();
            let reason = format!("missing field `class` at line 1 column {column}");
            checker.misunderstood(what, reason, format!("order/{column} at 1.7"));
        }
        let report = checker.finish();
        assert_eq!(report.misunderstood.len(), 1, "{report}");
        let said = "event order/held version 1: missing field `class` (6 entities, first order/63 at 1.7)\n";
        assert!(report.to_string().contains(said), "{report}");
    }
}
