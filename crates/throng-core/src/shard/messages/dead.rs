//! Dead messages: they could not be taken. Each waits, with its whole content, for an operator to retry or drop it.
//!
//! A message that dies is recorded completely, so it does not need the log that it was sent in. The next checkpoint makes it a row of the
//! store. Until that is done, and until its end is stored, memory overrides the store. Of several records of one message the last one
//! counts.

use super::{
    Asks, Delivery, Died, MessageContent, Taking,
    decision::{drops_untaken, is_operator_action},
};
use crate::{model::Timestamp, shard::KeyLife};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, ops::Bound};
use throng_journal::{Address, ShardId};

/// A dead message as it is recorded, and as a row of the store.
#[derive(Serialize, Deserialize)]
struct Dead<'a> {
    reason: Cow<'a, str>,
    /// The time it died, in microseconds.
    at: i64,
    /// The time of its first death, if it died several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<i64>,
    /// The attempts to take it that have failed.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    attempts: u32,
    /// The sender's kind and id.
    sender: (Cow<'a, str>, Cow<'a, str>),
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asks: Option<Asks>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "KeyLife::is_default")]
    life: KeyLife,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    child: bool,
    #[serde(borrow)]
    command: &'a RawValue,
}

fn one() -> u32 {
    1
}

fn is_one(attempts: &u32) -> bool {
    *attempts == 1
}

impl Dead<'_> {
    fn first_at(&self) -> Timestamp {
        Timestamp {
            micros: self.first.unwrap_or(self.at),
        }
    }
}

/// The body of the record of a retry that took the message. A taken message without this mark never was a row.
#[derive(Serialize, Deserialize)]
struct Retried<'a> {
    retried: bool,
    reason: Cow<'a, str>,
}

/// Bytes of a cause: it is a label of a metric, too.
const CAUSE_BYTES_MAX: usize = 200;

/// A dead message, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadMessage {
    /// The sending shard, and the message's number from there to the receiver's.
    pub number: (ShardId, u64),
    /// The entity that sent it.
    pub sender: Address,
    /// The entity that could not take it.
    pub receiver: Address,
    /// The command's name; `~heard` for the outcome of a request.
    pub name: String,
    /// The reason why it is dead.
    pub reason: String,
    /// The time it died last.
    pub at: Timestamp,
    /// The time it first died, which is before `at` if a retry failed.
    pub first_at: Timestamp,
    /// The attempts to take it that have failed.
    pub attempts: u32,
}

/// The changes since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct DeadMessages {
    fresh: BTreeMap<Vec<u8>, Fresh>,
    bytes: usize,
    /// The number of checkpoints that have stored changes. An older answer of the store is stale.
    stored: u64,
    /// A message died, or is dead no more, since the last look.
    has_changed: bool,
}

#[derive(Debug)]
struct Fresh {
    /// The row's value; `None`: it was retried or dropped, and is no longer dead.
    value: Option<Vec<u8>>,
    /// A checkpoint has it.
    given: bool,
}

impl Fresh {
    /// Bytes in memory with a row of this length, about.
    fn weigh(&self, row: usize) -> usize {
        row + self.value.as_ref().map_or(0, Vec::len) + 64
    }
}

/// A shard's knowledge of a dead message, without the store.
pub enum KnownDead {
    /// The message is dead; this is its row.
    Dead(Vec<u8>),
    /// The message is not dead.
    NotDead,
    /// The store has the answer. It counts only while this number is the same.
    Stored(u64),
}

impl DeadMessages {
    fn set(&mut self, row: Vec<u8>, value: Option<Vec<u8>>) {
        self.has_changed = true;
        let (length, fresh) = (row.len(), Fresh { value, given: false });
        self.bytes += fresh.weigh(length);
        if let Some(old) = self.fresh.insert(row, fresh) {
            self.bytes -= old.weigh(length);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Rows for a checkpoint.
    pub(crate) fn rows(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (row, fresh) in &mut self.fresh {
            fresh.given = true;
            rows.push((row.clone(), fresh.value.clone()));
        }
    }

    /// The checkpoint is done.
    pub(crate) fn stored(&mut self) {
        self.stored += 1;
        self.fresh.retain(|_, fresh| !fresh.given);
        self.bytes = self.fresh.iter().map(|(row, fresh)| fresh.weigh(row.len())).sum();
    }

    /// The checkpoint has failed.
    pub(crate) fn failed(&mut self) {
        self.fresh.values_mut().for_each(|fresh| fresh.given = false);
    }

    /// Notes a message that cannot be taken, and returns the body of its record, which becomes its row.
    pub(crate) fn note_dead(&mut self, now: Timestamp, to: &Address, taking: &Taking, reason: &str) -> Vec<u8> {
        let dead = Dead {
            reason: reason.into(),
            at: now.micros,
            first: taking.died.map(|died| died.first.micros),
            attempts: taking.died.map_or(1, |died| died.attempts.saturating_add(1)),
            sender: (taking.sender.kind.as_ref().into(), taking.sender.id.as_ref().into()),
            name: taking.name.as_ref().into(),
            asks: taking.asks.clone(),
            key: taking.key.clone(),
            life: taking.life,
            child: taking.child,
            command: &taking.command,
        };
        let body = serde_json::to_vec(&dead).unwrap_or_default();
        self.set(dead_row(to, (taking.from, taking.number)), Some(body.clone()));
        body
    }

    /// Notes a dead message that was taken by a retry, and returns the body of its record. The row is to be removed.
    pub(crate) fn retried(&mut self, to: &Address, taking: &Taking, reason: &str) -> Vec<u8> {
        self.over(to, taking);
        let retried = Retried {
            retried: true,
            reason: reason.into(),
        };
        serde_json::to_vec(&retried).unwrap_or_default()
    }

    /// Notes that a message is no longer dead. The row is to be removed.
    pub(crate) fn over(&mut self, to: &Address, taking: &Taking) {
        self.set(dead_row(to, (taking.from, taking.number)), None);
    }

    /// Takes over the record of a message that was taken.
    pub(crate) fn replay(&mut self, record: &throng_journal::Record<'_>) {
        let value = match record.name {
            "dead" => Some(record.body.to_vec()),
            _ if ends_one(record) => None,
            _ => return,
        };
        let to = Address::new(record.kind, record.id);
        self.set(dead_row(&to, (ShardId(record.version), record.seq)), value);
    }

    /// Returns the rows that changed since the last checkpoint, begin with `begin` and come after `after`. `None`: the message is no longer
    /// dead. At most `limit` of them are dead.
    pub(crate) fn changed(&self, begin: &[u8], after: &[u8], limit: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let from = match after {
            [] => Bound::Included(begin),
            after => Bound::Excluded(after),
        };
        let rows = self.fresh.range::<[u8], _>((from, Bound::Unbounded));
        let (mut found, mut dead) = (Vec::new(), 0);
        for (row, fresh) in rows.take_while(|(row, _)| row.starts_with(begin)) {
            found.push((row.clone(), fresh.value.clone()));
            dead += usize::from(fresh.value.is_some());
            if dead >= limit {
                break;
            }
        }
        found
    }

    /// Returns what is known of a dead message without the store.
    pub(crate) fn known(&self, row: &[u8]) -> KnownDead {
        match self.fresh.get(row) {
            Some(Fresh { value: Some(value), .. }) => KnownDead::Dead(value.clone()),
            Some(Fresh { value: None, .. }) => KnownDead::NotDead,
            None => KnownDead::Stored(self.stored),
        }
    }
}

/// True if the record of a taken message says that it was dead before.
pub(crate) fn ends_one(record: &throng_journal::Record<'_>) -> bool {
    if is_operator_action(record) {
        return !drops_untaken(record);
    }
    record.name != "dead" && serde_json::from_slice::<Retried<'_>>(record.body).is_ok()
}

/// Reads the reason why a message was refused or is dead from its record's body.
#[must_use]
pub fn taken_reason(body: &[u8]) -> String {
    match serde_json::from_slice(body) {
        Ok(serde_json::Value::String(reason)) => reason,
        Ok(value) => value["reason"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::new(),
    }
}

/// Returns the key of a dead message's row: `d`, kind, 0, length of the id as `u16`, id, sending shard as `u16`, number as `u64`.
#[must_use]
pub fn dead_row(to: &Address, (from, number): (ShardId, u64)) -> Vec<u8> {
    let mut row = dead_rows(Some((&to.kind, Some(&to.id))));
    row.extend_from_slice(&from.0.to_be_bytes());
    row.extend_from_slice(&number.to_be_bytes());
    row
}

/// Returns the prefix of the rows of dead messages: of all, of those to a kind, or of those to one entity.
#[must_use]
pub fn dead_rows(to: Option<(&str, Option<&str>)>) -> Vec<u8> {
    let mut row = vec![b'd'];
    if let Some((kind, id)) = to {
        row.extend_from_slice(kind.as_bytes());
        row.push(0);
        if let Some(id) = id {
            row.extend_from_slice(&(id.len() as u16).to_be_bytes());
            row.extend_from_slice(id.as_bytes());
        }
    }
    row
}

/// Reads the receiver, the sending shard and the number from a row's key.
fn read_row(row: &[u8]) -> Option<(Address, ShardId, u64)> {
    let (b'd', rest) = row.split_first()? else { return None };
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (kind, rest) = (std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]);
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (id, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (from, number) = rest.split_first_chunk::<2>()?;
    Some((
        Address::new(kind, std::str::from_utf8(id).ok()?),
        ShardId(u16::from_be_bytes(*from)),
        u64::from_be_bytes(number.try_into().ok()?),
    ))
}

impl DeadMessage {
    /// Reads a row; `None` if it is not one.
    #[must_use]
    pub fn read(row: &[u8], value: &[u8]) -> Option<Self> {
        let (receiver, from, number) = read_row(row)?;
        let dead: Dead<'_> = serde_json::from_slice(value).ok()?;
        let first_at = dead.first_at();
        Some(Self {
            number: (from, number),
            sender: Address::new(&*dead.sender.0, &*dead.sender.1),
            receiver,
            name: dead.name.into_owned(),
            reason: dead.reason.into_owned(),
            at: Timestamp { micros: dead.at },
            first_at,
            attempts: dead.attempts,
        })
    }

    /// Returns the reason without what varies between messages with the same cause: the receiver's id, numbers, and text in double quotes.
    #[must_use]
    pub fn cause(&self) -> String {
        cause(&self.reason, &self.receiver)
    }
}

/// Returns the content of a dead message from its row's value; `None` if it is not one.
#[must_use]
pub fn dead_command(value: &[u8]) -> Option<&RawValue> {
    let dead: Dead<'_> = serde_json::from_slice(value).ok()?;
    Some(dead.command)
}

fn cause(reason: &str, receiver: &Address) -> String {
    let named = format!("{}/…", receiver.kind);
    let reason = reason.replace(&receiver.to_string(), &named);
    let mut cause = String::with_capacity(reason.len());
    let mut rest = reason.as_str();
    while let Some(next) = rest.chars().next() {
        if next == '"'
            && let Some(quoted) = quoted_bytes(rest)
        {
            cause.push_str("\"…\"");
            rest = &rest[quoted..];
        } else if next.is_ascii_digit() {
            cause.push('#');
            rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        } else {
            cause.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    cause.truncate(cause.floor_char_boundary(CAUSE_BYTES_MAX));
    cause
}

/// Returns the bytes of the quoted text at the beginning; `None` if it does not end.
fn quoted_bytes(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

impl Delivery {
    /// Returns a dead message to be taken again.
    ///
    /// # Errors
    /// A sentence says why the row cannot be read.
    pub fn again(row: &[u8], value: &[u8]) -> Result<Self, String> {
        let (to, from, number) = read_row(row).ok_or("its name is not that of a dead message")?;
        let dead: Dead<'_> = serde_json::from_slice(value).map_err(|why| why.to_string())?;
        let died = Died {
            first: dead.first_at(),
            attempts: dead.attempts,
        };
        Ok(Self {
            to,
            content: MessageContent::read(&dead.name, dead.command)?,
            taking: Taking {
                from,
                number,
                sender: Address::new(&*dead.sender.0, &*dead.sender.1),
                asks: dead.asks,
                key: dead.key,
                life: dead.life,
                child: dead.child,
                name: dead.name.into_owned().into(),
                command: dead.command.to_owned(),
                died: Some(died),
                trace: None,
            },
            commit: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_its_entity_for_any_id() {
        for id in ["a", "a\0b", "ü", &"x".repeat(256)] {
            let to = Address::new("kind", id);
            let row = dead_row(&to, (ShardId(7), 9));
            assert_eq!(read_row(&row), Some((to, ShardId(7), 9)));
            assert!(row.starts_with(&dead_rows(Some(("kind", Some(id))))));
            assert!(row.starts_with(&dead_rows(Some(("kind", None)))) && row.starts_with(&dead_rows(None)));
        }
        assert_eq!(read_row(b"d"), None);
    }

    #[test]
    fn messages_that_died_of_the_same_have_one_cause() {
        let of = |id: &str, reason: &str| cause(reason, &Address::new("account", id));
        for id in ["a", "a/\"b\"", "17", "ü"] {
            assert_eq!(
                of(id, &format!("there is no account {id:?}")),
                "there is no account \"…\""
            );
            let quarantined = format!("account/{id} is quarantined since event 12: no step up from version 3");
            let cause = of(id, &quarantined);
            assert_eq!(
                cause,
                "account/… is quarantined since event #: no step up from version #"
            );
        }
        let column = |column| format!("missing field `class` at line 1 column {column}");
        assert_eq!(of("a", &column(63)), of("b", &column(7)));
        assert_ne!(of("a", "unknown variant `x`"), of("a", "unknown variant `y`"));
        assert_eq!(of("a", "no end of \"this"), "no end of \"this");
        assert_eq!(of("a", &"é".repeat(999)).len(), CAUSE_BYTES_MAX);
    }

    #[test]
    fn changes_during_a_checkpoint_go_to_the_next() {
        let (mut dead, mut rows) = (DeadMessages::default(), Vec::new());
        dead.set(vec![1], Some(vec![9; 10]));
        dead.set(vec![2], Some(vec![9; 10]));
        dead.rows(&mut rows);
        dead.set(vec![1], None);
        dead.stored();
        assert_eq!(rows.len(), 2);
        rows.clear();
        dead.rows(&mut rows);
        assert_eq!(rows, [(vec![1], None)]);
        dead.failed();
        dead.stored();
        assert_eq!(dead.fresh.len(), 1, "a checkpoint that failed takes nothing");
        assert_eq!(dead.bytes(), 65);
    }
}
