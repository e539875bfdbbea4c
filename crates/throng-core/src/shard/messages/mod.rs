//! Messages between entities: numbered per pair of shards, taken once.

pub(super) mod dead;
pub(super) mod decision;
mod operator_action;

use super::KeyLife;
use crate::{
    model::{RequestError, Sent, Timestamp},
    trace_context::{self, TraceContext},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{any::Any, borrow::Cow, collections::BTreeMap};
use throng_journal::{Address, ShardId};

/// A message on its way.
pub struct Delivery {
    /// The entity that is to take it.
    pub to: Address,
    /// The content, as the receiver takes it.
    pub content: MessageContent,
    /// The number and the sender, and the sender's request if it wants the outcome.
    pub taking: Taking,
    /// The commit that sent it.
    pub commit: u64,
}

/// A message's content.
pub enum MessageContent {
    /// An `Option<Command>` of the receiver.
    Typed(Box<dyn Any + Send>),
    /// The recorded command: the name and the JSON in the [`Taking`].
    Recorded,
    /// The outcome of a request.
    Outcome(RequestOutcome),
}

/// A message's number, sender and command: the facts for the record of its taking.
#[derive(Clone, Debug)]
pub struct Taking {
    /// The sending shard.
    pub from: ShardId,
    /// The message's number from that shard to the receiver's.
    pub number: u64,
    /// The sending entity.
    pub sender: Address,
    /// The request, if its asker wants the outcome.
    pub asks: Option<Asks>,
    /// The idempotency key under which it takes effect.
    pub key: Option<String>,
    /// The time the key is kept.
    pub life: KeyLife,
    /// The receiver becomes the sender's child, if it is new.
    pub child: bool,
    /// The command's name, as it was recorded.
    pub name: Cow<'static, str>,
    /// The command's content as JSON.
    pub command: Box<RawValue>,
    /// The message's history, if it was dead and an operator retries it.
    pub died: Option<Died>,
    /// The sender's span, if its trace is recorded.
    pub trace: Option<Box<TraceContext>>,
}

/// The history of a message that was dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died {
    /// The time of its first death.
    pub first: Timestamp,
    /// The attempts to take it that have failed.
    pub attempts: u32,
}

/// The request behind a message whose outcome its sender wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asks {
    /// Kind and id of the asker.
    pub by: (String, String),
    /// Kind and id of the entity that was asked; another one may answer.
    pub asked: (String, String),
    /// The note that the asker gave along.
    pub note: String,
}

/// The outcome of a request, on its way back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// The entity that was asked: kind and id.
    pub from: (String, String),
    /// The note that the asker gave along.
    pub note: String,
    /// The outcome as JSON: `{"Ok":reply}`, `{"Err":rejection}`, or the reason why it was not taken.
    pub outcome: Box<RawValue>,
}

/// The outcome of a request, as recorded: `{"Ok":reply}`, `{"Err":rejection}`, `"Unknown"`, `"Ended"`, `{"Quarantined":"why"}`, or
/// `{"Dropped":"why"}`.
#[derive(Serialize, Deserialize)]
pub(super) enum RecordedOutcome<T, R> {
    Ok(T),
    Err(R),
    Unknown,
    Ended,
    Quarantined(String),
    Dropped(String),
}

impl<T, R> From<RecordedOutcome<T, R>> for Result<T, RequestError<R>> {
    fn from(outcome: RecordedOutcome<T, R>) -> Self {
        match outcome {
            RecordedOutcome::Ok(reply) => Ok(reply),
            RecordedOutcome::Err(rejection) => Err(RequestError::Rejected(rejection)),
            RecordedOutcome::Unknown => Err(RequestError::Unknown),
            RecordedOutcome::Ended => Err(RequestError::Ended),
            RecordedOutcome::Quarantined(why) => Err(RequestError::Quarantined(why)),
            RecordedOutcome::Dropped(why) => Err(RequestError::Dropped(why)),
        }
    }
}

/// A message's record in the journal.
#[derive(Serialize, Deserialize)]
pub struct Envelope<'a> {
    /// The receiver's kind and id.
    #[serde(borrow)]
    pub to: (Cow<'a, str>, Cow<'a, str>),
    /// The request, if its asker wants the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// The idempotency key under which it takes effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The time the key is kept.
    #[serde(default, skip_serializing_if = "KeyLife::is_default")]
    pub life: KeyLife,
    /// The receiver becomes the sender's child.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub child: bool,
    /// The sender's span, if its trace is recorded.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "trace_context::if_known"
    )]
    pub trace: Option<Box<TraceContext>>,
    /// The command's content.
    #[serde(borrow)]
    pub command: &'a RawValue,
}

/// The name under which the outcome of a request is recorded as a message.
pub const OUTCOME_NAME: &str = "~heard";

/// The numbers of a shard's messages, with what has changed since the last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    counts: MessageCounts,
    /// The receiving shards of the numbers given out for the current command.
    given: Vec<ShardId>,
    /// True if the counts have changed since the last checkpoint.
    changed: bool,
    /// True while a checkpoint stores the changes.
    storing: bool,
}

/// The numbers of the messages that a shard has sent and taken, at one moment.
#[derive(Clone, Debug, Default)]
pub struct MessageCounts {
    pub(super) sent: BTreeMap<ShardId, u64>,
    pub(super) taken: BTreeMap<ShardId, Watermark>,
}

impl MessageCounts {
    /// True if it had taken the message of this number from that shard.
    #[must_use]
    pub fn has_taken(&self, from: ShardId, number: u64) -> bool {
        self.taken
            .get(&from)
            .is_some_and(|watermark| watermark.contains(number))
    }
}

/// The numbers taken: everything up to `upto`, and some beyond it.
///
/// A message that waits leaves a gap, and the messages after it form one range. So there are at most as many ranges as messages that wait
/// from one shard to another, however long they wait. The driver has to bound that number.
/// wait from one shard to another, however long they wait. The driver has to bound that number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watermark {
    upto: u64,
    /// Ranges without a common border, from first to last, by the first.
    beyond: BTreeMap<u64, u64>,
}

impl Watermark {
    pub(super) fn contains(&self, number: u64) -> bool {
        let range = self.beyond.range(..=number).next_back();
        number <= self.upto || range.is_some_and(|(_, last)| number <= *last)
    }

    /// Adds all numbers of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.insert_range(1, other.upto);
        for (first, last) in &other.beyond {
            self.insert_range(*first, *last);
        }
    }

    fn insert_range(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        if last <= self.upto || first > last {
            return;
        }
        // Ranges that it touches become part of it.
        let met = self.beyond.range(..=last.saturating_add(1)).rev();
        let met = met
            .take_while(|(_, end)| **end + 1 >= first)
            .map(|(begin, end)| (*begin, *end));
        for (begin, end) in met.collect::<Vec<_>>() {
            self.beyond.remove(&begin);
            (first, last) = (first.min(begin), last.max(end));
        }
        if first <= self.upto + 1 {
            self.upto = last;
        } else {
            self.beyond.insert(first, last);
        }
    }

    pub(super) fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let last = self.beyond.remove(&(number + 1)).unwrap_or(number);
        if number == self.upto + 1 {
            self.upto = last;
            return;
        }
        match self.beyond.range_mut(..number).next_back() {
            Some((_, before)) if *before + 1 == number => *before = last,
            _ => _ = self.beyond.insert(number, last),
        }
    }
}

impl Numbers {
    pub(super) fn next(&mut self, to: ShardId) -> u64 {
        let last = self.counts.sent.entry(to).or_default();
        *last += 1;
        self.changed = true;
        self.given.push(to);
        *last
    }

    /// Keeps the numbers of the current command, which was staged.
    pub(super) fn keep(&mut self) {
        self.given.clear();
    }

    /// Takes back the numbers of the current command, which failed: no record has them.
    pub(super) fn give_back(&mut self) {
        for to in self.given.drain(..) {
            if let Some(last) = self.counts.sent.get_mut(&to) {
                *last -= 1;
            }
        }
    }

    pub(super) fn sent(&mut self, to: ShardId, number: u64) {
        self.changed = true;
        let last = self.counts.sent.entry(to).or_default();
        *last = (*last).max(number);
    }

    //= promise 6: taken exactly once
    pub(super) fn taken(&mut self, from: ShardId, number: u64) {
        self.changed = true;
        self.counts.taken.entry(from).or_default().insert(number);
    }

    /// Returns the counts for a checkpoint, if anything has changed since the last one.
    pub(super) fn rows(&mut self) -> Option<&MessageCounts> {
        self.storing = std::mem::take(&mut self.changed);
        self.storing.then_some(&self.counts)
    }

    /// The checkpoint with them has failed.
    pub(super) fn rows_failed(&mut self) {
        self.changed |= std::mem::take(&mut self.storing);
    }

    pub(super) fn counts(&self) -> &MessageCounts {
        &self.counts
    }

    /// Merges the counts of a record that replaces all earlier ones.
    pub(super) fn recorded(&mut self, counts: &MessageCounts) {
        self.changed = true;
        for (to, number) in &counts.sent {
            self.sent(*to, *number);
        }
        for (from, watermark) in &counts.taken {
            self.counts.taken.entry(*from).or_default().merge(watermark);
        }
    }

    /// Sets the counts that the store holds, at recovery.
    pub(super) fn restore(&mut self, counts: MessageCounts) {
        self.counts = counts;
    }
}

impl MessageContent {
    /// Returns the command of a sent message.
    #[must_use]
    pub fn typed(sent: Sent) -> Self {
        match sent.command.downcast() {
            Ok(outcome) => Self::Outcome(*outcome),
            Err(command) => Self::Typed(command),
        }
    }

    /// Returns the content of a recorded message.
    fn read(name: &str, command: &RawValue) -> Result<Self, String> {
        match name {
            OUTCOME_NAME => serde_json::from_str(command.get()).map(Self::Outcome),
            _ => Ok(Self::Recorded),
        }
        .map_err(|why| why.to_string())
    }
}

impl Delivery {
    /// Reads a message back from its record.
    ///
    /// # Errors
    /// A sentence says why the record is not a message.
    pub fn read(record: &throng_journal::Record<'_>) -> Result<Self, String> {
        Self::of_parts(
            (record.shard, record.seq),
            Address::new(record.kind, record.id),
            record.name,
            record.body,
            record.place.position.commit.0,
        )
    }

    /// Returns a message from the parts of its record: the sending shard and its number there, the sender, the command's name, the
    /// [`Envelope`], and the commit that sent it.
    ///
    /// # Errors
    /// A sentence says why the body is not a message's.
    pub fn of_parts(
        (from, number): (ShardId, u64),
        sender: Address,
        name: &str,
        body: &[u8],
        commit: u64,
    ) -> Result<Self, String> {
        let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(|why| why.to_string())?;
        Ok(Self {
            to: Address::new(&*envelope.to.0, &*envelope.to.1),
            content: MessageContent::read(name, envelope.command)?,
            taking: Taking {
                from,
                number,
                sender,
                asks: envelope.asks,
                key: envelope.key,
                life: envelope.life,
                child: envelope.child,
                name: name.to_owned().into(),
                command: envelope.command.to_owned(),
                died: None,
                trace: envelope.trace,
            },
            commit,
        })
    }

    /// The body of its record.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'_> {
        self.taking.envelope((&self.to.kind, &self.to.id))
    }
}

impl Taking {
    /// Returns the body of the record of a message to this entity (kind and id).
    pub(super) fn envelope<'a>(&'a self, (kind, id): (&'a str, &'a str)) -> Envelope<'a> {
        Envelope {
            to: (Cow::Borrowed(kind), Cow::Borrowed(id)),
            asks: self.asks.clone(),
            key: self.key.clone(),
            life: self.life,
            child: self.child,
            trace: self.trace.clone(),
            command: &self.command,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_watermark_is_a_set_of_numbers(numbers in proptest::collection::vec(1u64..60, 0..100)) {
            let mut watermark = Watermark::default();
            let set: BTreeSet<u64> = numbers.iter().copied().collect();
            numbers.iter().for_each(|number| watermark.insert(*number));
            prop_assert!((1..60).all(|number| watermark.contains(number) == set.contains(&number)));
            let mut end = watermark.upto;
            for (first, last) in &watermark.beyond {
                prop_assert!(*first > end + 1 && last >= first, "{watermark:?}");
                end = *last;
            }
            let row = serde_json::to_vec(&watermark).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Watermark>(&row).unwrap(), watermark);
        }
    }

    proptest! {
        #[test]
        fn merged_watermarks_are_a_union(one in proptest::collection::vec(1u64..40, 0..40), other in proptest::collection::vec(1u64..40, 0..40)) {
            let of = |numbers: &[u64]| {
                let mut watermark = Watermark::default();
                numbers.iter().for_each(|number| watermark.insert(*number));
                watermark
            };
            let mut merged = of(&one);
            merged.merge(&of(&other));
            prop_assert_eq!(merged, of(&[one, other].concat()));
        }
    }

    #[test]
    fn one_message_that_waits_costs_the_same_however_many_follow_it() {
        let mut watermark = Watermark::default();
        (1..100_000)
            .filter(|number| *number != 7 && *number != 9_000)
            .for_each(|number| watermark.insert(number));
        assert_eq!(
            serde_json::to_string(&watermark).unwrap(),
            r#"{"upto":6,"beyond":{"8":8999,"9001":99999}}"#
        );
        watermark.insert(7);
        watermark.insert(9_000);
        assert_eq!(
            serde_json::to_string(&watermark).unwrap(),
            r#"{"upto":99999,"beyond":{}}"#
        );
    }
}
