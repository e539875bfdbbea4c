//! The records of a command's effects: messages, timers, keys, and the end of the message or timer that caused it.

use super::{
    call::{Call, Cause},
    read::{body_length, crashed, too_many, unwritable},
};
use crate::{
    limits,
    model::{Asker, Entity, Error, Rejection, Sent, Timer},
    shard::{
        Common, Delivery, KeyLife, Taking,
        dedup::key::{CommandKey, KeptOutcome},
        messages::{Asks, MessageContent, OUTCOME_NAME, RecordedOutcome, RequestOutcome},
        timers::{self, Due, QUARANTINE, Set},
    },
    tagged,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use throng_journal::{Address, Record, RecordKind};

pub(crate) fn known_kind<R>(common: &Common, to: &Sent) -> Result<(), Error<R>> {
    if !common.kinds.iter().any(|kind| *kind == to.kind) {
        return Err(crashed(format!(
            "it sends to the kind {:?}, which the engine was not given",
            to.kind
        )));
    }
    if !limits::is_id(&to.id) {
        // The error shows at most as much of the id as an id may have.
        let shown = &to.id[..to.id.floor_char_boundary(limits::ID_BYTES_MAX)];
        return Err(Error::Malformed(format!(
            "{shown:?} is no {}: an id has 1 to {} bytes",
            to.kind,
            limits::ID_BYTES_MAX
        )));
    }
    Ok(())
}

pub(crate) fn write_message<R: Rejection>(
    common: &mut Common,
    own: &Address,
    sent: &Sent,
    asks: Option<Asks>,
    key: Option<(String, KeyLife)>,
) -> Result<Taking, Error<R>> {
    known_kind(common, sent)?;
    let mut command = Vec::new();
    let name = sent.encoded(&mut command).map_err(|why| unwritable("command", why))?;
    let command = String::from_utf8(command).map_err(|why| unwritable("command", why))?;
    let command = RawValue::from_string(command).map_err(|why| unwritable("command", why))?;
    let (key, life) = key.map_or_else(Default::default, |(key, life)| (Some(key), life));
    let taking = Taking {
        asks,
        key,
        life,
        child: sent.child,
        ..common.message((&sent.kind, &sent.id), own, name, command)
    };
    write_sent(common, own, (&sent.kind, &sent.id), &taking)?;
    Ok(taking)
}

impl Common {
    /// Returns the next message to an entity, with nothing but a command.
    fn message(
        &mut self,
        (kind, id): (&str, &str),
        own: &Address,
        name: impl Into<Cow<'static, str>>,
        command: Box<RawValue>,
    ) -> Taking {
        Taking {
            from: self.id,
            number: self.messages.next(self.shard_of(kind, id)),
            sender: own.clone(),
            asks: None,
            key: None,
            life: KeyLife::default(),
            child: false,
            name: name.into(),
            command,
            died: None,
            trace: self.trace.map(Box::new),
        }
    }
}

fn write_sent<R>(
    common: &mut Common,
    own: &Address,
    (kind, id): (&str, &str),
    taking: &Taking,
) -> Result<(), Error<R>> {
    common.payload.clear();
    serde_json::to_writer(&mut common.payload, &taking.envelope((kind, id)))
        .map_err(|why| unwritable("message", why))?;
    too_many("the command's name", taking.name.len(), limits::NAME_BYTES_MAX)?;
    body_length(common.records.bytes(), common.payload.len())?;
    common.records.push(
        RecordKind::Sent,
        common.id,
        own,
        taking.number,
        &taking.name,
        0,
        &common.payload,
    );
    Ok(())
}

/// The outcome of a request, as a message back.
pub(crate) fn write_outcome<R>(
    common: &mut Common,
    own: &Address,
    asks: &Asks,
    outcome: String,
) -> Result<Delivery, Error<R>> {
    let outcome = RawValue::from_string(outcome).map_err(|why| unwritable("outcome", why))?;
    let heard = RequestOutcome {
        from: asks.asked.clone(),
        note: asks.note.clone(),
        outcome,
    };
    let command = serde_json::value::to_raw_value(&heard).map_err(|why| unwritable("outcome", why))?;
    let (kind, id) = (asks.by.0.as_str(), asks.by.1.as_str());
    let taking = common.message((kind, id), own, OUTCOME_NAME, command);
    write_sent(common, own, (kind, id), &taking)?;
    Ok(Delivery {
        to: Address::new(kind, id),
        content: MessageContent::Outcome(heard),
        taking,
        commit: 0,
    })
}

/// Records a refused request's outcome for its asker. If that fails, nothing of it is recorded.
pub(crate) fn report_refusal<T: Serialize, R>(
    common: &mut Common,
    own: &Address,
    asks: &Asks,
    told: &RecordedOutcome<(), T>,
) -> Result<Delivery, Error<R>> {
    let outcome = serde_json::to_string(told).map_err(|why| unwritable("rejection", why));
    let written = outcome.and_then(|outcome| write_outcome(common, own, asks, outcome));
    match &written {
        Ok(_) => common.messages.keep(),
        Err(_) => common.messages.give_back(),
    }
    written
}

pub(crate) fn write_taken(common: &mut Common, to: &Address, taking: &Taking, outcome: &str, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(limits::REASON_BYTES_MAX)];
    let body = match (outcome, reason) {
        ("dead", reason) => common.dead.note_dead(common.now, to, taking, reason),
        (_, reason) if taking.died.is_some() => common.dead.retried(to, taking, reason),
        (_, "") => Vec::new(),
        (_, reason) => serde_json::to_vec(reason).unwrap_or_default(),
    };
    write_taken_as(common, to, taking, outcome, &body);
}

/// Records that a message was taken, with its outcome and the record's body.
//= promise 6: taken exactly once
pub(crate) fn write_taken_as(common: &mut Common, to: &Address, taking: &Taking, outcome: &str, body: &[u8]) {
    common.messages.taken(taking.from, taking.number);
    let shape = (outcome, taking.from.0);
    common.records.push_parts(
        RecordKind::Taken,
        common.id,
        (&to.kind, &to.id),
        taking.number,
        shape,
        body,
    );
}

/// Records the tick of a timer that cannot be executed as a dead message of its entity to itself, so that it is listed, counted and retried
/// like the others.
pub(crate) fn write_dead_tick(common: &mut Common, due: &Due, reason: &str) {
    let own = &due.address;
    let body = String::from_utf8_lossy(&due.body).into_owned();
    let Ok(command) = RawValue::from_string(body) else {
        tracing::error!("the tick of the timer {:?} of {own} is no JSON and is lost", due.name);
        return;
    };
    let taking = common.message((&own.kind, &own.id), own, due.command.clone(), command);
    let written: Result<(), Error<std::convert::Infallible>> =
        write_sent(common, own, (&own.kind, &own.id), &taking).inspect(|()| common.messages.keep());
    match written {
        Ok(()) => write_taken(common, own, &taking, "dead", reason),
        Err(why) => {
            common.messages.give_back();
            tracing::error!("the tick of the timer {:?} of {own} is lost: {why}", due.name);
        }
    }
}

pub(crate) fn write_timer<E: Entity>(
    common: &mut Common,
    own: &Address,
    timer: Timer<E::Command>,
) -> Result<(String, Option<Set>), Error<E::Rejection>> {
    let (name, set) = match timer {
        Timer::Cancel(name) | Timer::Set { name, .. } if name == QUARANTINE => {
            return Err(crashed(format!("no entity's own timer may be named {QUARANTINE:?}")));
        }
        Timer::Cancel(name) => (name, None),
        Timer::Set {
            name,
            at,
            every,
            command,
        } => {
            let mut body = Vec::new();
            let named = tagged::to_parts(&command, &mut body).map_err(|why| unwritable("command", why))?;
            let set = Set {
                at: at.micros,
                every_micros: every.map(|every| u64::try_from(every.as_micros()).unwrap_or(u64::MAX)),
                command: named.to_owned(),
                body: String::from_utf8(body).map_err(|why| unwritable("command", why))?,
            };
            (name, Some(set))
        }
    };
    too_many("the timer's name", name.len(), limits::NAME_BYTES_MAX)?;
    body_length(common.records.bytes(), set.as_ref().map_or(0, |set| set.body.len()))?;
    record_timer(common, own, &name, set.as_ref());
    Ok((name.into_owned(), set))
}

fn record_timer(common: &mut Common, own: &Address, name: &str, set: Option<&Set>) {
    let kind = if set.is_some() {
        RecordKind::TimerSet
    } else {
        RecordKind::TimerCleared
    };
    let body = set.and_then(|set| serde_json::to_vec(set).ok()).unwrap_or_default();
    let version = set.map_or_else(|| common.timers.version_of_clearing(own, name), |_| 0);
    common.records.push(kind, common.id, own, 0, name, version, &body);
}

/// The version of a key's record that is about a refusal.
const REFUSED_VERSION: u16 = 1;

/// True if this record is that of a command refused under its key. It belongs to no accepted command.
#[must_use]
pub fn is_refused_key(record: &Record<'_>) -> bool {
    record.record == RecordKind::Key && record.version == REFUSED_VERSION
}

//= promise 4: a key takes effect once
pub(crate) fn write_key<R>(
    common: &mut Common,
    own: &Address,
    key: &CommandKey,
    kept: &KeptOutcome,
) -> Result<(), Error<R>> {
    let body = serde_json::to_vec(kept).map_err(|why| unwritable("reply", why))?;
    // A derived key may be longer than a record's name, so the body holds its fingerprint and number.
    let mut with_number = key.number.to_le_bytes().to_vec();
    with_number.extend_from_slice(&body);
    let shown = &key.name[..key.name.floor_char_boundary(limits::NAME_BYTES_MAX)];
    let version = if kept.is_refusal() { REFUSED_VERSION } else { 0 };
    common
        .records
        .push(RecordKind::Key, common.id, own, 0, shown, version, &with_number);
    Ok(())
}

/// A client's command as it is kept.
#[derive(Serialize)]
struct KeptCommand<'a> {
    /// The time the entity saw, microseconds.
    now: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    /// Kind and id of the entity that has forwarded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded: Option<(&'a str, &'a str)>,
    command: &'a RawValue,
}

/// Records a client's command, behind the records of its effects.
pub(crate) fn write_command<E: Entity>(
    common: &mut Common,
    call: &Call<'_>,
    name: &str,
    content: Vec<u8>,
) -> Result<(), Error<E::Rejection>> {
    let (caller, forwarded) = match call.asker() {
        Asker::Client(caller) => (caller, None),
        Asker::Entity { kind, id } => (None, Some((kind, id))),
        Asker::Timer(_) | Asker::Outcome { .. } => (None, None),
    };
    let command = String::from_utf8(content).map_err(|why| unwritable("command", why))?;
    let command = &*RawValue::from_string(command).map_err(|why| unwritable("command", why))?;
    common.payload.clear();
    let kept = KeptCommand {
        now: call.now.micros,
        caller,
        forwarded,
        command,
    };
    serde_json::to_writer(&mut common.payload, &kept).map_err(|why| unwritable("command", why))?;
    body_length(common.records.bytes(), common.payload.len())?;
    let (own, shape) = ((E::KIND, call.id), (name, 0));
    common
        .records
        .push_parts(RecordKind::Command, common.id, own, 0, shape, &common.payload);
    Ok(())
}

/// Records the end of the message or timer that caused the call, together with the call's effects.
pub(crate) fn close_cause(common: &mut Common, call: &Call<'_>, own: &Address, outcome: &str, reason: &str) {
    match call.cause {
        Cause::Asked { .. } => {}
        Cause::Message(taking) => write_taken(common, own, taking, outcome, reason),
        // Only if the command has not itself set or cancelled the timer.
        Cause::Timer(due) if common.timers.is_set(own, &due.name, due.at) => {
            let set = timers::next_after(due, call.now).map(|at| Set {
                at: at.micros,
                every_micros: due.every_micros,
                command: due.command.clone(),
                body: String::from_utf8_lossy(&due.body).into_owned(),
            });
            record_timer(common, own, &due.name, set.as_ref());
            match set {
                Some(set) => common.timers.set(own, &due.name, set),
                None => common.timers.clear(own, &due.name),
            }
        }
        Cause::Timer(_) => {}
    }
}
