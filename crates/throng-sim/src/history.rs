//! The contents of a journal after a run, and the rules they must obey.

use std::collections::BTreeMap;
use throng_core::{
    limits,
    shard::{Envelope, taken_reason},
};
use throng_journal::{Address, Commit, RecordKind, StoredEvent, WriterId};

/// All durable commits, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The commits of all writers, in the order in which they became durable.
    pub commits: Vec<Commit>,
    /// True if history was removed: an entity's events may not begin with the first, and a message's outcome may be missing.
    pub is_pruned: bool,
}

/// A message in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The entity that sent it.
    pub from: Address,
    /// Its number among the messages from the sender's shard to the receiver's.
    pub number: u64,
    /// The entity that it is sent to.
    pub to: Address,
    /// The command's name.
    pub name: String,
    /// The note of the request it belongs to.
    pub note: Option<String>,
    /// The final outcome: done, refused, dead, dropped. `None` while the message is not settled.
    pub outcome: Option<String>,
    /// The number of retries after it was dead.
    pub retries: u32,
    /// Why it was refused or is dead.
    pub reason: String,
}

/// Returns a body as text, or as dots if it is not text.
fn printable(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.replace(
        |letter: char| letter.is_control() || letter == char::REPLACEMENT_CHARACTER,
        ".",
    )
}

impl History {
    /// Returns an entity's events in order.
    #[must_use]
    pub fn events(&self, kind: &str, id: &str) -> Vec<StoredEvent> {
        let mut events = Vec::new();
        for commit in &self.commits {
            for record in commit.records().flatten() {
                if record.record == RecordKind::Event && (record.kind, record.id) == (kind, id) {
                    events.push(StoredEvent {
                        seq: record.seq,
                        position: commit.position(),
                        at_micros: commit.stamp().at_micros,
                        name: record.name.into(),
                        version: record.version,
                        payload: record.body.to_vec(),
                    });
                }
            }
        }
        events
    }

    /// Returns the number of events of each address that has any.
    #[must_use]
    pub fn entities(&self) -> BTreeMap<Address, u64> {
        let mut entities = BTreeMap::new();
        for commit in &self.commits {
            for record in commit.records().flatten() {
                if record.record == RecordKind::Event {
                    *entities.entry(Address::new(record.kind, record.id)).or_default() += 1;
                }
            }
        }
        entities
    }

    /// Returns all messages in the order they were sent, and the faults among them.
    #[must_use]
    pub fn messages(&self, shards: u16) -> (Vec<SentMessage>, Vec<String>) {
        let (mut messages, mut wrong) = (Vec::new(), Vec::new());
        let mut numbers: BTreeMap<(u16, u16, u64), usize> = BTreeMap::new();
        // Messages between the same two entities are taken in the order they were sent.
        let mut newest: BTreeMap<(Address, Address), usize> = BTreeMap::new();
        for commit in &self.commits {
            for record in commit.records().flatten() {
                let own = Address::new(record.kind, record.id);
                if record.record == RecordKind::Sent {
                    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(record.body) else {
                        wrong.push(format!("a message of {own} in {} cannot be read", commit.position()));
                        continue;
                    };
                    let to = Address::new(&*envelope.to.0, &*envelope.to.1);
                    let shard = limits::shard_of(limits::hash(&to.kind, &to.id), shards).0;
                    if numbers
                        .insert((record.shard.0, shard, record.seq), messages.len())
                        .is_some()
                    {
                        wrong.push(format!(
                            "promise 6: shard {} numbered two messages to shard {shard} {}",
                            record.shard, record.seq
                        ));
                    }
                    messages.push(SentMessage {
                        from: own,
                        number: record.seq,
                        to,
                        name: record.name.to_owned(),
                        note: envelope.asks.map(|asks| asks.note),
                        outcome: None,
                        retries: 0,
                        reason: String::new(),
                    });
                } else if record.record == RecordKind::Taken {
                    let Some(at) = numbers.get(&(record.version, record.shard.0, record.seq)) else {
                        if self.is_pruned {
                            continue;
                        }
                        wrong.push(format!(
                            "promise 6: {own} took a message nobody sent ({})",
                            commit.position()
                        ));
                        continue;
                    };
                    let message = &mut messages[*at];
                    if message.to != own {
                        wrong.push(format!("promise 6: {own} took a message for {}", message.to));
                    }
                    message.reason = taken_reason(record.body);
                    match message.outcome.replace(record.name.to_owned()).as_deref() {
                        None => {}
                        // An operator does this, so no order applies.
                        Some("dead") => {
                            message.retries += 1;
                            continue;
                        }
                        Some(_) => wrong.push(format!(
                            "promise 6: {own} took message {} of {} twice",
                            message.number, message.from
                        )),
                    }
                    let pair = (message.from.clone(), own);
                    if let Some(before) = newest.insert(pair, *at)
                        && before > *at
                    {
                        let message = &messages[*at];
                        wrong.push(format!(
                            "promise 6: {} took message {} of {} after a later one",
                            message.to, message.number, message.from
                        ));
                    }
                }
            }
        }
        (messages, wrong)
    }

    /// Returns every record as a line of printable characters.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for commit in &self.commits {
            for record in commit.records().flatten() {
                lines.push(format!(
                    "{} {:?} shard {} {}/{} {} {} v{} {}",
                    commit.position(),
                    record.record,
                    record.shard,
                    record.kind,
                    record.id,
                    record.seq,
                    record.name,
                    record.version,
                    printable(record.body),
                ));
            }
        }
        lines
    }

    /// Checks promise 5: each entity's sequence numbers and each writer's commits have no gaps.
    #[must_use]
    pub fn gaps(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut commits: BTreeMap<WriterId, u64> = BTreeMap::new();
        let mut events: BTreeMap<Address, u64> = BTreeMap::new();
        for commit in &self.commits {
            let position = commit.position();
            let last = commits.entry(position.writer).or_default();
            if position.commit.0 != *last + 1 {
                let writer = position.writer;
                wrong.push(format!(
                    "promise 5: commit {position} follows commit {last} of writer {writer}"
                ));
            }
            *last = position.commit.0;
            for record in commit.records().flatten() {
                if record.record == RecordKind::Event {
                    let seq = events.entry(Address::new(record.kind, record.id)).or_default();
                    *seq = match *seq {
                        0 if self.is_pruned => record.seq,
                        before => before + 1,
                    };
                    if record.seq != *seq {
                        wrong.push(format!(
                            "promise 5: event {} of {}/{} stands in {position} where {seq} was due",
                            record.seq, record.kind, record.id
                        ));
                        *seq = record.seq;
                    }
                }
            }
        }
        wrong
    }

    /// Checks the rules of every journal. `quiet` tells that no message is in flight any more.
    #[must_use]
    pub fn check(&self, shards: u16, quiet: bool) -> Vec<String> {
        let mut wrong = self.gaps();
        let (messages, mut of_messages) = self.messages(shards);
        wrong.append(&mut of_messages);
        for message in &messages {
            match (&message.outcome, quiet) {
                (None, true) => wrong.push(format!(
                    "promise 6: message {} {:?} from {} to {} was never taken",
                    message.number, message.name, message.from, message.to
                )),
                (Some(outcome), _) if !["done", "refused", "dead", "dropped"].contains(&outcome.as_str()) => {
                    wrong.push(format!(
                        "promise 6: the outcome {outcome:?} of a message to {}",
                        message.to
                    ));
                }
                _ => {}
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_of_a_record_is_shown_in_printable_characters() {
        assert_eq!(printable(b"{\"name\":\"Zo\xc3\xab\"}"), "{\"name\":\"Zo\u{eb}\"}");
        assert_eq!(printable(b"\x00\x01a\xff\n"), "..a..");
    }
}
