//! Which records of a commit are a command's.

use super::compare::{Miss, Was};
use std::collections::HashMap;
use throng_core::{
    model::Timestamp,
    shard::{OUTCOME_NAME, RequestOutcome, is_operator_action, is_refused_key},
};
use throng_journal::{Address, Record, RecordKind};

/// The content of a record that sets a timer.
#[derive(serde::Deserialize)]
pub(crate) struct TimerSet {
    pub(crate) at: i64,
    #[serde(default)]
    pub(crate) every_micros: Option<u64>,
    pub(super) command: String,
    pub(super) body: String,
}

/// A command whose records end at this place in its commit.
pub(super) struct Segment {
    /// The first record that can be its own.
    pub(super) start: usize,
    /// True if that record is certainly its own.
    pub(super) begins: bool,
    /// The record that ends it.
    pub(super) end: usize,
    /// In words, without ids.
    pub(super) what: String,
    pub(super) name: String,
    pub(super) body: Vec<u8>,
    pub(super) now: Timestamp,
    /// True if the time is exact; otherwise it is the commit's.
    pub(super) is_exact: bool,
    pub(super) missed_ticks: u64,
    pub(super) from: From,
    pub(super) is_asked: bool,
    pub(super) was: Was,
    /// The timer that asked. Its being set again or cleared is not an effect of the command.
    pub(super) timer: Option<String>,
    pub(super) fit: Fit,
}

pub(super) enum Fit {
    /// No beginning matched; holds the mismatch of the first one tried.
    None(Option<Miss>),
    /// The records of the command begin at this index.
    Same(usize),
}

/// The asker of the command, see [`Asker`](throng_core::model::Asker).
pub(super) enum From {
    Client(Option<String>),
    Entity(Address),
    /// The segment's own.
    Timer,
    Outcome(Address),
}

/// Returns the entity that this outcome comes from.
fn asked(body: &[u8]) -> Option<Address> {
    let outcome: RequestOutcome = serde_json::from_slice(body).ok()?;
    Some(Address::new(outcome.from.0, outcome.from.1))
}

/// A kept command's record.
#[derive(serde::Deserialize)]
pub(crate) struct KeptCommand {
    now: i64,
    #[serde(default)]
    pub(crate) caller: Option<String>,
    #[serde(default)]
    pub(crate) forwarded: Option<(String, String)>,
    pub(crate) command: Box<serde_json::value::RawValue>,
}

/// Returns the commands of one entity whose records are contiguous, from this record on. They are read before any of them is applied.
pub(super) fn segments(
    records: &[Record<'_>],
    start: usize,
    commit_micros: i64,
    is_kept: bool,
    timer: impl Fn(&Address, &str) -> Option<TimerSet>,
    message: impl Fn(&Record<'_>) -> Option<(Address, String, Vec<u8>)>,
) -> Vec<Segment> {
    let own = Address::new(records[start].kind, records[start].id);
    let run = records[start..].iter().take_while(|record| is_of(record, &own)).count();
    let (mut found, mut begin) = (Vec::new(), start);
    // A timer may be set and become due within one commit.
    let mut set_here: HashMap<&str, TimerSet> = HashMap::new();
    for end in start..start + run {
        let record = &records[end];
        let mut segment = Segment {
            start: begin,
            begins: is_kept,
            end,
            what: String::new(),
            name: String::new(),
            body: Vec::new(),
            now: Timestamp { micros: commit_micros },
            is_exact: false,
            missed_ticks: 0,
            from: From::Client(None),
            is_asked: false,
            was: Was::Done,
            timer: None,
            fit: Fit::None(None),
        };
        match record.record {
            _ if is_operator_action(record) || is_refused_key(record) => {
                begin = end + 1;
                continue;
            }
            RecordKind::Taken => {
                segment.was = match record.name {
                    "refused" => Was::Refused,
                    "dead" => Was::Dead,
                    _ => Was::Done,
                };
                begin = end + 1;
                let Some((sender, name, body)) = message(record) else {
                    continue;
                };
                segment.what = format!("message to {}: {name}", own.kind);
                segment.from = match name == OUTCOME_NAME {
                    true => From::Outcome(asked(&body).unwrap_or(sender)),
                    false => From::Entity(sender),
                };
                (segment.name, segment.body) = (name, body);
            }
            RecordKind::Command => {
                begin = end + 1;
                let Ok(kept) = serde_json::from_slice::<KeptCommand>(record.body) else {
                    continue;
                };
                segment.what = format!("command of {}: {}", own.kind, record.name);
                segment.name = record.name.to_owned();
                segment.body = kept.command.get().as_bytes().to_vec();
                segment.now = Timestamp { micros: kept.now };
                segment.from = match kept.forwarded {
                    Some((kind, id)) => From::Entity(Address::new(kind, id)),
                    None => From::Client(kept.caller),
                };
                (segment.is_exact, segment.is_asked) = (true, true);
            }
            RecordKind::TimerSet | RecordKind::TimerCleared if ends(records, end, &own) => {
                let set = set_here.remove(record.name).or_else(|| timer(&own, record.name));
                set_here.extend(timer_set(record));
                let Some(set) = set.filter(|set| set.at <= commit_micros) else {
                    continue;
                };
                begin = end + 1;
                let late = u64::try_from(commit_micros - set.at).unwrap_or(0);
                segment.missed_ticks = set.every_micros.map_or(0, |every| late / every.max(1));
                segment.what = format!("timer {:?} of {}: {}", record.name, own.kind, set.command);
                (segment.name, segment.body) = (set.command, set.body.into_bytes());
                segment.timer = Some(record.name.to_owned());
                segment.from = From::Timer;
            }
            _ => {
                set_here.extend(timer_set(record));
                continue;
            }
        }
        found.push(segment);
    }
    found
}

/// Returns the timer's name and settings, if the record sets one.
fn timer_set<'a>(record: &Record<'a>) -> Option<(&'a str, TimerSet)> {
    let is_set = record.record == RecordKind::TimerSet;
    let set = is_set.then(|| serde_json::from_slice(record.body).ok());
    Some((record.name, set??))
}

fn is_of(record: &Record<'_>, own: &Address) -> bool {
    record.kind == &*own.kind && record.id == &*own.id
}

/// True if a timer's record ends a tick: no record of the same command follows. A new accepted command begins with an event.
fn ends(records: &[Record<'_>], at: usize, own: &Address) -> bool {
    let next = records.get(at + 1).filter(|next| is_of(next, own));
    next.is_none_or(|next| next.record == RecordKind::Event || is_refused_key(next))
}
