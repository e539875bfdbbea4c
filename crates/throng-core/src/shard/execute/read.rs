//! Reading a command, and the errors of reading and writing.

use super::call::{Call, Cause, HearFn, Input};
use crate::{
    limits,
    model::{Entity, Error, Recorded},
    shard::{
        dedup::{self, key::CommandKey},
        resident::slot::panic_text,
    },
    tagged,
};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

pub(crate) fn crashed<R>(reason: String) -> Error<R> {
    Error::Crashed { reason }
}

pub(crate) fn unwritable<R>(what: &str, why: impl std::fmt::Display) -> Error<R> {
    crashed(format!("the {what} cannot be written as JSON: {why}"))
}

pub(crate) fn too_many<R>(what: &'static str, found: usize, limit: usize) -> Result<(), Error<R>> {
    if found > limit {
        Err(Error::TooLarge { what, found, limit })
    } else {
        Ok(())
    }
}

/// Returns the length of a body if it may be recorded together with this many other bytes.
pub(crate) fn body_length<R>(bytes: usize, body: usize) -> Result<u32, Error<R>> {
    let found = bytes.saturating_add(body);
    too_many("what one command records", found, limits::RECORD_BYTES_MAX)?;
    Ok(u32::try_from(body).expect("a few megabytes"))
}

/// The idempotency key of a call.
pub(crate) fn key_of(call: &Call<'_>) -> Option<CommandKey> {
    let (key, life) = match call.cause {
        Cause::Asked { key, life, .. } => (key?, life),
        Cause::Message(taking) => (taking.key.as_deref()?, taking.life),
        Cause::Timer(_) => return None,
    };
    Some(CommandKey {
        number: dedup::id_of(call.hash, call.id, key),
        name: key.to_owned(),
        fingerprint: 0,
        life,
    })
}

/// The origin of a command: a record, perhaps of an older program, or a client. Only recorded commands are upcast.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Outside,
    Recorded,
}

/// Runs the entity's code that prepares a command for `decide`. A panic costs only this command.
fn guarded<T, R>(work: impl FnOnce() -> Result<T, Error<R>>) -> Result<T, Error<R>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic_text(panic.as_ref());
        tracing::error!("reading a command panicked: {reason}");
        Err(crashed(reason))
    })
}

pub(crate) fn read_command<E: Entity>(
    input: &mut Input<'_>,
    hears: &[(&str, HearFn<E>)],
    origin: Origin,
) -> Result<E::Command, Error<E::Rejection>> {
    guarded(|| read_unguarded::<E>(input, hears, origin))
}

fn read_unguarded<E: Entity>(
    input: &mut Input<'_>,
    hears: &[(&str, HearFn<E>)],
    origin: Origin,
) -> Result<E::Command, Error<E::Rejection>> {
    match input {
        Input::Typed(slot) => {
            let slot: &mut dyn Any = *slot;
            let command = slot.downcast_mut::<Option<E::Command>>().and_then(Option::take);
            command.ok_or_else(|| Error::Malformed(format!("this is not a command of a {}", E::KIND)))
        }
        Input::Json { name, body } => {
            too_many("the command", body.len(), limits::COMMAND_BYTES_MAX)?;
            let read = match origin {
                Origin::Outside if !E::IGNORES_UNKNOWN_FIELDS => tagged::from_client(name, body),
                Origin::Outside => {
                    tagged::from_parts(name, body).map_err(|_| tagged::explain::<E::Command>(name, body))
                }
                Origin::Recorded => tagged::from_parts(name, body).or_else(|_| upcast::<E>(name, body)),
            };
            read.map_err(Error::Malformed)
        }
        Input::Outcome(outcome) => {
            let from = &outcome.from.0;
            let (_, hear) = hears
                .iter()
                .find(|(kind, _)| kind == from)
                .ok_or_else(|| Error::Malformed(format!("{} was not given `on_outcome` for {from}", E::KIND)))?;
            hear(&outcome.from.1, &outcome.note, outcome.outcome.get().as_bytes())
                .map_err(|why| Error::Malformed(format!("the outcome from {from} cannot be read: {why}")))
        }
    }
}

/// Steps up at most.
const UPCASTS_MAX: usize = 64;

/// Upcasts a recorded command, version by version, until it can be read.
fn upcast<E: Entity>(name: &str, body: &[u8]) -> Result<E::Command, String> {
    let unreadable = || tagged::explain::<E::Command>(name, body);
    let mut recorded = Recorded {
        name: name.to_owned().into(),
        version: 1,
        payload: serde_json::from_slice(body).map_err(|_| unreadable())?,
    };
    for _ in 0..UPCASTS_MAX {
        recorded = E::upcast_command(recorded).map_err(|why| format!("{}; {why}", unreadable()))?;
        let body = serde_json::to_vec(&recorded.payload).map_err(|why| why.to_string())?;
        if let Ok(command) = tagged::from_parts(&recorded.name, &body) {
            return Ok(command);
        }
    }
    Err(format!("{}; upcast_command does not come to an end", unreadable()))
}

/// A command as it is recorded: its name, and its content.
pub(crate) fn encode_command<E: Entity>(command: &E::Command) -> Result<(&'static str, Vec<u8>), Error<E::Rejection>> {
    guarded(|| {
        let mut content = Vec::new();
        let name = tagged::to_parts(command, &mut content).map_err(|why| unwritable("command", why))?;
        Ok((name, content))
    })
}

/// Returns the hash of a command, see [`CommandKey::fingerprint`]. The caller is part of it.
pub(crate) fn fingerprint<E: Entity>(command: &E::Command, caller: Option<&str>) -> Result<u64, Error<E::Rejection>> {
    let (name, mut written) = encode_command::<E>(command)?;
    written.extend_from_slice(name.as_bytes());
    if let Some(caller) = caller {
        written.push(0);
        written.extend_from_slice(caller.as_bytes());
    }
    Ok(xxhash_rust::xxh3::xxh3_64(&written))
}
