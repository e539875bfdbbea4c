//! The cause of an event, and the other effects of the same command.
//! Both are read from the event's commit, and from the commit that sent the command's message.
//!
//! A command's records are contiguous: its events, its other effects, then the record that ends its message or timer. A command that
//! left only events has no such end. Then the events of two commands may be adjacent, and only the last event's cause is certain.

use crate::{
    check::{KeptCommand, TimerSet},
    engine::Engine,
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::HashMap;
use throng_core::shard::{Delivery, OUTCOME_NAME, RequestOutcome, is_operator_action, is_refused_key};
use throng_journal::{Address, Commit, CommitNo, Error, Position, Record, RecordKind, ShardId, StoredEvent};

/// The most commits, and bytes of them, that are searched backwards for the sending of a message.
const LOOKED_BACK: u64 = 64;
const LOOKED_BACK_BYTES: usize = 4 << 20;
/// The most commits that are read for one page.
const COMMITS_MAX: usize = 200;

/// An entity's address, as the console's API writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// The kind's name, as its type declares it.
    pub kind: String,
    /// The id, as in a URL path once it is decoded.
    pub id: String,
}

impl Named {
    fn of(address: &Address) -> Self {
        let (kind, id) = (address.kind.to_string(), address.id.to_string());
        Self { kind, id }
    }
}

/// The cause of an event, as far as the journal tells it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventCause {
    /// `command`, `message`, `outcome`, `timer`, or `unknown` if its commit is no longer stored.
    pub r#type: &'static str,
    /// True if the cause is certain: no other command's events can be in between.
    pub is_certain: bool,
    /// The name of the command or the timer that caused it.
    pub name: Option<String>,
    /// The command's content, where that is recorded.
    pub body: Option<Box<RawValue>>,
    /// The client's name, where that is recorded.
    pub caller: Option<String>,
    /// The note that was given along with the request, of an outcome.
    pub note: Option<Box<RawValue>>,
    /// True if the command came with an idempotency key.
    pub has_key: bool,
    /// The entity that sent or forwarded the command, or whose outcome it is.
    pub from: Option<Named>,
    /// The message's number, `shard.number`.
    pub number: Option<String>,
    /// The commit that sent the message.
    pub sent: Option<String>,
    /// The sender's last event when it sent it.
    pub from_seq: Option<u64>,
}

/// A message that a command has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SentMessage {
    /// The receiver of the message.
    pub to: Named,
    /// The command it carries.
    pub name: String,
    /// The message's number at its sending shard: `17.3`.
    pub number: String,
}

/// A timer that a command has set or cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedTimer {
    /// Unique among the entity's timers.
    pub name: String,
    /// True if the timer was set, false if it was cancelled.
    pub set: bool,
}

/// The cause of an event, and the other effects of its command.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Provenance {
    /// The command, message or timer behind it.
    pub cause: EventCause,
    /// The messages its command has sent. Only a command's last event has them.
    pub sent: Vec<SentMessage>,
    /// The timers its command has changed. Only a command's last event has them.
    pub timers: Vec<ChangedTimer>,
}

fn number(shard: ShardId, number: u64) -> String {
    format!("{}.{number}", shard.0)
}

fn before(at: Position, commits: u64) -> Position {
    Position::new(at.writer, CommitNo(at.commit.0.saturating_sub(commits)))
}

/// A message that was taken: its receiver, and its number at its sending shard.
struct Taken {
    by: Address,
    from: ShardId,
    number: u64,
}

impl Engine {
    /// Returns the provenance of these events of an entity. It reads at most 200 commits; events beyond them get `None`.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: the journal cannot be read.
    pub async fn provenances(
        &self,
        kind: &str,
        id: &str,
        events: &[StoredEvent],
    ) -> Result<Vec<Option<Provenance>>, Error> {
        let own = Address::new(kind, id);
        let mut commits: HashMap<Position, Option<Commit>> = HashMap::new();
        let mut found = Vec::with_capacity(events.len());
        for event in events {
            if !commits.contains_key(&event.position) {
                if commits.len() >= COMMITS_MAX {
                    found.push(None);
                    continue;
                }
                let read = self.core.context.journal.read(before(event.position, 1), 0).await?;
                let commit = read.into_iter().find(|commit| commit.position() == event.position);
                commits.insert(event.position, commit);
            }
            let Some(Some(commit)) = commits.get(&event.position) else {
                let cause = EventCause {
                    r#type: "unknown",
                    ..EventCause::default()
                };
                found.push(Some(Provenance {
                    cause,
                    ..Provenance::default()
                }));
                continue;
            };
            let (mut provenance, taken) = provenance(commit, &own, event.seq);
            if let Some(taken) = taken {
                self.find_sent(commit, &taken, &mut provenance.cause).await?;
            }
            found.push(Some(provenance));
        }
        Ok(found)
    }

    /// Searches for the sending of a message, in the commit that took it and in those before it.
    async fn find_sent(&self, commit: &Commit, taken: &Taken, cause: &mut EventCause) -> Result<(), Error> {
        if sent_in(commit, taken, cause) {
            return Ok(());
        }
        let at = commit.position();
        let from = before(at, LOOKED_BACK + 1);
        let earlier = self.core.context.journal.read(from, LOOKED_BACK_BYTES).await?;
        // The nearest first.
        let mut earlier = earlier.iter().rev().filter(|earlier| earlier.position() < at);
        earlier.any(|earlier| sent_in(earlier, taken, cause));
        Ok(())
    }
}

fn is_of(record: &Record<'_>, own: &Address) -> bool {
    record.kind == &*own.kind && record.id == &*own.id
}

/// True for a record that no command with effects wrote: an operator action, or a refusal.
/// The outcome that is sent just before such a record belongs to no such command either.
fn is_of_no_command(record: &Record<'_>) -> bool {
    let was_refused = record.record == RecordKind::Taken && ["refused", "dead"].contains(&record.name);
    was_refused || is_operator_action(record) || is_refused_key(record)
}

/// Returns the provenance according to the event's own commit, and the message that its command took, if any.
fn provenance(commit: &Commit, own: &Address, seq: u64) -> (Provenance, Option<Taken>) {
    let mut provenance = Provenance::default();
    let cause = &mut provenance.cause;
    (cause.r#type, cause.is_certain) = ("command", true);
    let records: Vec<Record<'_>> = commit.records().flatten().filter(|record| is_of(record, own)).collect();
    let is_event = |record: &Record<'_>| record.record == RecordKind::Event;
    let Some(at) = records.iter().position(|record| is_event(record) && record.seq == seq) else {
        cause.r#type = "unknown";
        return (provenance, None);
    };
    let others = records[at + 1..].iter().take_while(|record| is_event(record)).count();
    cause.is_certain = others == 0;
    let rest = records[at + 1 + others..].iter().take_while(|record| !is_event(record));
    let mut rest: Vec<&Record<'_>> = rest.collect();
    if let Some(end) = rest.iter().position(|record| is_of_no_command(record)) {
        rest.truncate(end);
        rest.pop_if(|last| last.record == RecordKind::Sent && last.name == OUTCOME_NAME);
    }
    let mut taken = None;
    for (place, record) in rest.iter().copied().enumerate() {
        match record.record {
            RecordKind::Sent if others == 0 => provenance.sent.extend(sent(record)),
            RecordKind::TimerSet | RecordKind::TimerCleared => {
                let is_set = record.record == RecordKind::TimerSet;
                let is_last = place + 1 == rest.len();
                if is_last && !has_other_end(&rest) && may_end_beat(record, commit.stamp().at_micros) {
                    let cause = &mut provenance.cause;
                    (cause.r#type, cause.is_certain) = ("timer", false);
                    cause.name = Some(record.name.to_owned());
                } else if others == 0 {
                    provenance.timers.push(ChangedTimer {
                        name: record.name.to_owned(),
                        set: is_set,
                    });
                }
            }
            RecordKind::Key => provenance.cause.has_key = true,
            RecordKind::Command => {
                let cause = &mut provenance.cause;
                cause.name = Some(record.name.to_owned());
                if let Ok(kept) = serde_json::from_slice::<KeptCommand>(record.body) {
                    cause.caller = kept.caller;
                    cause.body = Some(kept.command);
                    cause.from = kept.forwarded.map(|(kind, id)| Named { kind, id });
                }
            }
            RecordKind::Taken => {
                provenance.cause.r#type = "message";
                let from = ShardId(record.version);
                provenance.cause.number = Some(number(from, record.seq));
                taken = Some(Taken {
                    by: own.clone(),
                    from,
                    number: record.seq,
                });
            }
            _ => {}
        }
    }
    (provenance, taken)
}

/// True if the records show another end than a timer's: that of a message, or of a recorded client command.
fn has_other_end(rest: &[&Record<'_>]) -> bool {
    let ends =
        |record: &&Record<'_>| matches!(record.record, RecordKind::Taken | RecordKind::Command | RecordKind::Key);
    rest.iter().any(ends)
}

/// True if the record can be the end of a tick: the timer cleared, or set to its next tick after now. A command that merely cancels a
/// timer, or sets a repeating one, writes the same record.
fn may_end_beat(record: &Record<'_>, now_micros: i64) -> bool {
    if record.record == RecordKind::TimerCleared {
        return true;
    }
    let set: Option<TimerSet> = serde_json::from_slice(record.body).ok();
    set.is_some_and(|set| {
        let every = set.every_micros.and_then(|every| i64::try_from(every).ok());
        every.is_some_and(|every| set.at.saturating_sub(every) <= now_micros)
    })
}

fn sent(record: &Record<'_>) -> Option<SentMessage> {
    let delivery = Delivery::read(record).ok()?;
    Some(SentMessage {
        to: Named::of(&delivery.to),
        name: record.name.to_owned(),
        number: number(record.shard, record.seq),
    })
}

/// Searches this commit for the sending of a message. If found, adds its sender and content to `cause` and returns true.
fn sent_in(commit: &Commit, taken: &Taken, cause: &mut EventCause) -> bool {
    let records: Vec<Record<'_>> = commit.records().flatten().collect();
    let is_sent = |record: &Record<'_>| {
        record.record == RecordKind::Sent
            && record.shard == taken.from
            && record.seq == taken.number
            && Delivery::read(record).is_ok_and(|delivery| delivery.to == taken.by)
    };
    let Some(at) = records.iter().position(is_sent) else {
        return false;
    };
    let record = &records[at];
    let sender = Address::new(record.kind, record.id);
    cause.sent = Some(commit.position().to_string());
    cause.name = Some(record.name.to_owned());
    cause.from = Some(Named::of(&sender));
    let event = records[..at].iter().rev();
    let mut event = event.filter(|event| event.record == RecordKind::Event && is_of(event, &sender));
    cause.from_seq = event.next().map(|event| event.seq);
    let body = Delivery::read(record).ok().map(|delivery| delivery.taking.command);
    if record.name == OUTCOME_NAME {
        cause.r#type = "outcome";
        let outcome = body.and_then(|body| serde_json::from_str::<RequestOutcome>(body.get()).ok());
        cause.note = outcome.as_ref().and_then(|outcome| shown_note(&outcome.note));
        cause.body = outcome.map(|outcome| outcome.outcome);
    } else {
        cause.body = body;
    }
    true
}

/// A recorded note as JSON; none of a note that says nothing.
fn shown_note(note: &str) -> Option<Box<RawValue>> {
    let json = serde_json::from_str(note).or_else(|_| to_raw_value(note));
    json.ok().filter(|_| !["", "null"].contains(&note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{CommitBuilder, Stamp, WriterId};

    const OUTCOME: &[u8] =
        br#"{"to": ["account", "bob"], "command": {"from": ["account", "ann"], "note": "", "outcome": {"Err": 1}}}"#;

    /// Returns the provenance of an event of a command without a key, followed by these records: kind, number, name, version.
    fn said(behind: &[(RecordKind, u64, &str, u16)]) -> Provenance {
        let (own, shard) = (Address::new("account", "ann"), ShardId(0));
        let mut commit = CommitBuilder::default();
        commit.push(RecordKind::Event, shard, &own, 1, "Opened", 0, b"{}");
        for (kind, seq, name, version) in behind {
            let body: &[u8] = match kind {
                RecordKind::Sent => OUTCOME,
                _ => b"{}",
            };
            commit.push(*kind, shard, &own, *seq, name, *version, body);
        }
        let commit = commit.finish(Stamp::new(WriterId(1), CommitNo(1), 0));
        provenance(&commit, &own, 1).0
    }

    #[test]
    fn note_is_shown_as_json() {
        let shown = |note: &str| shown_note(note).map(|json| json.get().to_owned());
        assert_eq!(shown(r#"{"step":2}"#).as_deref(), Some(r#"{"step":2}"#));
        assert_eq!(shown("o-1:2").as_deref(), Some(r#""o-1:2""#));
        assert_eq!((shown(""), shown("null")), (None, None));
    }

    #[test]
    fn a_refusal_behind_an_event_is_not_its_cause() {
        let refused_key = (RecordKind::Key, 0, "k", 1);
        let outcome = (RecordKind::Sent, 7, OUTCOME_NAME, 0);
        for behind in [
            vec![refused_key],
            vec![(RecordKind::Taken, 3, "refused", 0)],
            vec![(RecordKind::Taken, 3, "dead", 0)],
            vec![outcome, (RecordKind::Taken, 3, "refused", 0)],
            vec![refused_key, outcome, (RecordKind::Taken, 3, "refused", 0)],
        ] {
            let said = said(&behind);
            assert_eq!(
                (said.cause.r#type, said.cause.has_key),
                ("command", false),
                "{behind:?}"
            );
            assert!(said.sent.is_empty(), "{behind:?}");
        }
        assert_eq!(said(&[outcome]).sent.len(), 1, "what a command has sent is told");
        assert!(said(&[(RecordKind::Key, 0, "k", 0)]).cause.has_key);
        assert_eq!(said(&[(RecordKind::Taken, 3, "done", 0)]).cause.r#type, "message");
    }
}
