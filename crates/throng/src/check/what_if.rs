//! Recorded commands, decided again by the present program, each against its entity's state at that time.
//!
//! The journal records the commands of messages and timers, and client commands of kinds with
//! [`Entity::KEEPS_COMMANDS`](crate::model::Entity::KEEPS_COMMANDS). A command's records are contiguous in its commit, and its own record
//! is the last. Their beginning is not marked, because an unrecorded client command has no last record. So every possible beginning is
//! tried, and one whose outcome matches is taken.

use super::{
    compare::{Miss, differing, miss},
    segments::{Fit, From, Segment, TimerSet},
    words::{cause, times_text},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};
use throng_core::{
    model::{Asker, Timestamp},
    shard::{Again, Decision, Effect, Envelope, KindCheck, OUTCOME_NAME, Registry, RequestOutcome},
};
use throng_journal::{Address, Record, RecordKind};

/// The most different findings that are kept, each with its count.
pub(super) const FINDINGS_MAX: usize = 1_000;

/// The time by which the second decision of a command is earlier. An outcome that differs between the two depends on time or chance.
const EARLIER_MICROS: i64 = 1_500_000;

/// The result of deciding recorded commands again.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WhatIf {
    /// The number of recorded commands that were decided again.
    pub decided: u64,
    /// The number of them that have the same outcome.
    pub same: u64,
    /// The number of these that cannot be judged. The outcome of some differs between two decisions, 1.5 seconds apart and with other
    /// random numbers. Others have no effect now, and the records before them may be theirs or those of an unrecorded command.
    pub undecided: u64,
    /// The number of events of commands that were not recorded.
    pub events_not_kept: u64,
    /// The outcomes that differ, at most 1,000 different ones.
    pub changed: Vec<Changed>,
}

/// Recorded commands whose outcome changes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Changed {
    /// The command: `message to account: Deposit`, `timer "interest" of account: PayInterest`, `command of account: Withdraw`.
    pub command: String,
    /// The recorded outcome: `event Deposited`, `refused`.
    pub was: String,
    /// The present program's outcome.
    pub would_be: String,
    /// The number of recorded commands that change in this way.
    pub times: u64,
    /// The first occurrence: the entity, the commit, and the values that differ.
    pub first: String,
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            decided,
            same,
            undecided,
            events_not_kept,
            changed,
        } = self;
        for Changed {
            command,
            was,
            would_be,
            times,
            first,
        } in changed
        {
            writeln!(
                f,
                "{command}: was {was}, would be {would_be} ({}, first {first})",
                times_text(*times)
            )?;
        }
        let differ = decided - same - undecided;
        write!(
            f,
            "decided {decided} recorded commands again: {same} come to the same, {differ} do not, {undecided} cannot be told"
        )?;
        match events_not_kept {
            0 => Ok(()),
            events => write!(f, "; {events} events came of clients' commands that were not kept"),
        }
    }
}

/// The results of deciding again.
#[derive(Default)]
pub(super) struct Deciding {
    report: WhatIf,
    /// The number of events of commands that were decided again.
    covered: u64,
    /// The kinds that at least one recorded client command was found of.
    keeping: HashSet<String>,
    /// The count and the first occurrence of each change, by command, recorded outcome and new outcome.
    changed: BTreeMap<(String, String, String), (u64, String)>,
}

/// The kinds and records that a decision is based on.
pub(super) struct Known<'a> {
    pub(super) registry: &'a Registry,
    pub(super) kinds: &'a mut [Box<dyn KindCheck>],
    pub(super) records: &'a [Record<'a>],
}

impl Segment {
    /// Tries this index as the beginning of the command's records, against the entity's state before them.
    pub(super) fn try_at(&mut self, at: usize, known: &mut Known<'_>) {
        let is_later = at == self.end || known.records[at].record == RecordKind::Event;
        let is_beginning = at == self.start || is_later && !self.begins;
        if at < self.start || matches!(self.fit, Fit::Same(_)) || !is_beginning {
            return;
        }
        let own = &known.records[self.end];
        let Some(kind) = known.registry.find(own.kind) else {
            return;
        };
        let again = |earlier, entropy| Again {
            id: own.id,
            name: &self.name,
            body: &self.body,
            now: Timestamp {
                micros: self.now.micros - if self.is_exact { 0 } else { earlier },
            },
            entropy,
            missed_ticks: self.missed_ticks,
            from: self.asker(),
            is_asked: self.is_asked,
        };
        let twice = [again(0, 1), again(EARLIER_MICROS, 2)];
        let Some([one, other]) = known.kinds[kind].decide(&twice) else {
            return;
        };
        let recorded = recorded(&known.records[at..=self.end], self.timer.as_deref(), known);
        let one = without(one, self.timer.as_deref());
        let other = without(other, self.timer.as_deref());
        match miss(self.was, &recorded, &one, &other) {
            None if recorded.is_empty() && at != self.start => self.fit = Fit::None(Some(Miss::Undecided)),
            None => self.fit = Fit::Same(at),
            Some(miss) if at == self.start => self.fit = Fit::None(Some(miss)),
            Some(_) => {}
        }
    }

    fn asker(&self) -> Asker<'_> {
        match &self.from {
            From::Client(caller) => Asker::Client(caller.as_deref()),
            From::Entity(Address { kind, id }) => Asker::Entity { kind, id },
            From::Timer => Asker::Timer(self.timer.as_deref().unwrap_or_default()),
            From::Outcome(Address { kind, id }) => Asker::Outcome { kind, id },
        }
    }

    /// Its last record has been applied.
    pub(super) fn finish(self, known: &mut Known<'_>, deciding: &mut Deciding) {
        let own = &known.records[self.end];
        let (begin, miss) = match self.fit {
            Fit::None(None) => return,
            Fit::None(Some(miss)) => (self.start, Some(miss)),
            Fit::Same(begin) => {
                let kind = known.registry.find(own.kind);
                let replies = kind.map(|kind| known.kinds[kind].replies(own.id));
                let recorded = reply(&known.records[begin..=self.end]);
                let miss = match (recorded, replies) {
                    (Some(recorded), Some([Some(one), Some(other)])) => {
                        differing(&recorded, &one, &other).map(|differing| differing.miss("reply"))
                    }
                    _ => None,
                };
                (begin, miss)
            }
        };
        let events = known.records[begin..=self.end].iter();
        deciding.covered += events.filter(|record| record.record == RecordKind::Event).count() as u64;
        deciding.report.decided += 1;
        match miss {
            None => deciding.report.same += 1,
            Some(Miss::Undecided) => deciding.report.undecided += 1,
            Some(Miss::Changed { was, would_be, values }) => {
                let key = (self.what, was, cause(&would_be));
                if deciding.changed.len() < FINDINGS_MAX || deciding.changed.contains_key(&key) {
                    let first = || format!("{}/{} at {}{values}", own.kind, own.id, own.place.position);
                    deciding.changed.entry(key).or_insert_with(|| (0, first())).0 += 1;
                }
            }
        }
    }
}

impl Deciding {
    /// True once a recorded client command of the kind was found. From then on a command's records begin right after those of the one
    /// before it.
    pub(super) fn is_kept(&self, kind: &str) -> bool {
        self.keeping.contains(kind)
    }

    pub(super) fn seen(&mut self, record: &Record<'_>) {
        if record.record == RecordKind::Command && !self.is_kept(record.kind) {
            self.keeping.insert(record.kind.to_owned());
        }
    }

    /// Returns the result, for a history with this many events.
    pub(super) fn finish(self, events: u64) -> WhatIf {
        let changed = self.changed.into_iter();
        let changed = changed.map(|((command, was, would_be), (times, first))| Changed {
            command,
            was,
            would_be,
            times,
            first,
        });
        WhatIf {
            changed: changed.collect(),
            events_not_kept: events.saturating_sub(self.covered),
            ..self.report
        }
    }
}

/// Returns the effects that these records show.
fn recorded(records: &[Record<'_>], timer: Option<&str>, known: &Known<'_>) -> Vec<Effect> {
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    // Rewritten as the present program writes it, so that older formats compare equal.
    let command = |kind: &str, name: &str, body: &[u8]| {
        let kind = known.registry.find(kind);
        let read = kind.and_then(|kind| known.kinds[kind].command(name, body).ok());
        read.unwrap_or_else(|| Value::from_iter([(name, json(body))]))
    };
    let effect = |record: &Record<'_>| match record.record {
        RecordKind::Event => {
            let kind = known.registry.find(record.kind)?;
            Some(match known.kinds[kind].present(record) {
                Some((name, content)) => Effect::event(name, content),
                None => Effect::event(record.name, json(record.body)),
            })
        }
        RecordKind::Sent if record.name != OUTCOME_NAME => {
            let sent: Envelope<'_> = serde_json::from_slice(record.body).ok()?;
            let command = command(&sent.to.0, record.name, sent.command.get().as_bytes());
            Some(Effect::message(&sent.to.0, &sent.to.1, command))
        }
        RecordKind::TimerSet if Some(record.name) != timer => {
            let set: TimerSet = serde_json::from_slice(record.body).ok()?;
            let command = command(record.kind, &set.command, set.body.as_bytes());
            Some(Effect::timer_set(record.name, set.at, set.every_micros, command))
        }
        RecordKind::Ended => Some(Effect::end()),
        RecordKind::TimerCleared if Some(record.name) != timer => Some(Effect::timer_cleared(record.name)),
        _ => None,
    };
    records.iter().filter_map(effect).collect()
}

/// Returns the reply in these records: stored under an idempotency key, or sent to the asker.
fn reply(records: &[Record<'_>]) -> Option<Value> {
    records.iter().find_map(|record| match record.record {
        RecordKind::Key => {
            let kept: Value = serde_json::from_slice(record.body.get(16..)?).ok()?;
            serde_json::from_str(kept.get("answer")?.get("Reply")?.as_str()?).ok()
        }
        RecordKind::Sent if record.name == OUTCOME_NAME => {
            let sent: Envelope<'_> = serde_json::from_slice(record.body).ok()?;
            let outcome: RequestOutcome = serde_json::from_str(sent.command.get()).ok()?;
            let outcome: Value = serde_json::from_str(outcome.outcome.get()).ok()?;
            outcome.get("Ok").cloned()
        }
        _ => None,
    })
}

/// Removes the effects on the timer that asks.
fn without(decision: Decision, timer: Option<&str>) -> Decision {
    let (Decision::Done(mut effects), Some(timer)) = (decision.clone(), timer) else {
        return decision;
    };
    let own = [Effect::timer_cleared(timer).what, format!("timer {timer:?}")];
    effects.retain(|effect| !own.contains(&effect.what));
    Decision::Done(effects)
}
