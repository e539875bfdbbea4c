//! Decides a recorded command again with the present program. The decision is JSON that can be compared.

use crate::{
    model::{Asker, CommandAnswer, Effects, Entity, Family, Moment, Sent, Timer, Timestamp, Turn},
    shard::resident::slot::{panic_text, parse_id},
    tagged,
};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A recorded command, and the facts that its entity had then.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// The entity's id.
    pub id: &'a str,
    /// The command's name, as it was recorded.
    pub name: &'a str,
    /// The command's content, as it was recorded.
    pub body: &'a [u8],
    /// The time the entity sees.
    pub now: Timestamp,
    /// The value of [`Turn::unguessable`].
    pub entropy: u128,
    /// The value of [`Turn::missed_ticks`].
    pub missed_ticks: u64,
    /// The asker at that time; for a client, the recorded name.
    pub from: Asker<'a>,
    /// True if a client asked, not a message or a timer. A forwarded command is then recorded only if it creates a child, or together with
    /// other effects.
    pub is_asked: bool,
}

/// The result that a command would have.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The command is accepted, with these effects in the order they are recorded.
    Done(Vec<Effect>),
    /// The entity refuses, or does not exist.
    Refused(String),
    /// The command cannot be read, or panics.
    Failed(String),
}

/// Something a command has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The effect without ids and values: `event Deposited`, `message to account: Deposit`, `timer "tick"`.
    pub what: String,
    /// Ids and values: an event's fields, a message's receiver and command, a timer's due time.
    pub content: Value,
}

impl Effect {
    /// Returns an event of this name, with its fields as the present program writes them.
    #[must_use]
    pub fn event(name: &str, content: Value) -> Self {
        let what = format!("event {name}");
        Self { what, content }
    }

    /// A message; its command as [`KindCheck::command`](super::kind_check::KindCheck::command) writes it.
    #[must_use]
    pub fn message(kind: &str, id: &str, command: Value) -> Self {
        let name = command.as_object().and_then(|parts| parts.keys().next());
        Self {
            what: format!("message to {kind}: {}", name.map_or("", |name| name)),
            content: json!({ "id": id, "command": command }),
        }
    }

    /// Returns a timer that was set, its command as written by [`KindCheck::command`](super::kind_check::KindCheck::command).
    #[must_use]
    pub fn timer_set(name: &str, at: i64, every_micros: Option<u64>, command: Value) -> Self {
        Self {
            what: format!("timer {name:?}"),
            content: json!({ "at": at, "every_micros": every_micros, "command": command }),
        }
    }

    /// The end of the entity.
    #[must_use]
    pub fn end() -> Self {
        Self {
            what: "its end".into(),
            content: Value::Null,
        }
    }

    /// Returns a timer that was cancelled.
    #[must_use]
    pub fn timer_cleared(name: &str) -> Self {
        Self {
            what: format!("timer {name:?} cancelled"),
            content: Value::Null,
        }
    }
}

/// An entity, as its events make it.
pub(crate) struct Checked<E> {
    /// The state; `None` if an event could not be applied, or earlier events were removed and no state has been read since.
    pub(crate) state: Option<E>,
    /// The number of its last event.
    pub(crate) last: u64,
    /// True if events were removed, and no state has been read since.
    pub(crate) is_unfounded: bool,
    /// The number of events so far; after it was created anew, of those since then.
    pub(crate) seq: u64,
    /// True if the entity has ended, and was not created anew. Its state is then the default.
    pub(crate) has_ended: bool,
    pub(crate) family: Option<Box<Family>>,
}

impl<E: Entity> Default for Checked<E> {
    fn default() -> Self {
        Self {
            state: Some(E::default()),
            last: 0,
            is_unfounded: false,
            seq: 0,
            has_ended: false,
            family: None,
        }
    }
}

/// A decision, with what is needed to apply it and to reply.
pub(crate) struct Decided<E: Entity> {
    pub(crate) decision: Decision,
    /// The answer; `None` unless the command was accepted.
    pub(crate) answer: Option<CommandAnswer<E>>,
    pub(crate) events: Vec<E::Event>,
}

impl<E: Entity> From<Decision> for Decided<E> {
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            answer: None,
            events: Vec::new(),
        }
    }
}

/// Has an entity decide a command; `None` if its state is not known.
pub(crate) fn decide<E: Entity>(entity: &Checked<E>, again: &Again<'_>, command: E::Command) -> Option<Decided<E>> {
    let state = entity.state.as_ref()?;
    let id = parse_id::<E>(again.id).ok()?;
    if entity.has_ended && !E::recreates(&command) {
        return Some(Decision::Refused("the entity has ended".into()).into());
    }
    if entity.seq == 0 && !E::creates(&command) {
        return Some(Decision::Refused("there is no such entity".into()).into());
    }
    let mut effects = Effects::<E> {
        entropy: again.entropy,
        missed_ticks: again.missed_ticks,
        ..Effects::default()
    };
    let moment = Moment {
        id: &id,
        seq: entity.seq,
        now: again.now,
        from: again.from,
        family: entity.family.as_deref(),
    };
    let decided = catch_unwind(AssertUnwindSafe(|| {
        state.decide(command, &mut Turn::new(moment, &mut effects))
    }));
    Some(match decided {
        Err(panic) => Decision::Failed(format!("it panics: {}", panic_text(panic.as_ref()))).into(),
        Ok(Err(rejection)) => Decision::Refused(rejection.to_string()).into(),
        Ok(Ok(answer)) => match written(&effects, &answer, again.is_asked, entity.seq) {
            Ok(written) => Decided {
                decision: Decision::Done(written),
                answer: Some(answer),
                events: effects.events,
            },
            Err(why) => Decision::Failed(format!("it cannot be written as JSON: {why}")).into(),
        },
    })
}

/// The effects in the order in which they are recorded.
fn written<E: Entity>(
    effects: &Effects<E>,
    answer: &CommandAnswer<E>,
    is_asked: bool,
    seq: u64,
) -> serde_json::Result<Vec<Effect>> {
    let mut all = Vec::new();
    for event in &effects.events {
        let mut content = Vec::new();
        let name = tagged::to_parts(event, &mut content)?;
        all.push(Effect::event(name, parsed(&content)));
    }
    for sent in &effects.sent {
        all.push(message(sent)?);
    }
    for timer in &effects.timers {
        all.push(match timer {
            Timer::Cancel(name) => Effect::timer_cleared(name),
            Timer::Set {
                name,
                at,
                every,
                command,
            } => {
                let mut content = Vec::new();
                let command = tagged::to_parts(command, &mut content)?;
                let every = every.map(|every| u64::try_from(every.as_micros()).unwrap_or(u64::MAX));
                let command = Value::from_iter([(command, parsed(&content))]);
                Effect::timer_set(name, at.micros, every, command)
            }
        });
    }
    if let CommandAnswer::Forward(to) = answer
        && (!is_asked || to.child || !effects.is_empty())
    {
        all.push(message(to)?);
    }
    // An entity without events cannot end.
    if effects.ends && (seq > 0 || !effects.events.is_empty()) {
        all.push(Effect::end());
    }
    Ok(all)
}

fn message(sent: &Sent) -> serde_json::Result<Effect> {
    let mut content = Vec::new();
    let command = sent.encoded(&mut content)?;
    let command = Value::from_iter([(command, parsed(&content))]);
    Ok(Effect::message(&sent.kind, &sent.id, command))
}

/// Parses JSON that this program has just written.
pub(crate) fn parsed(written: &[u8]) -> Value {
    serde_json::from_slice(written).unwrap_or_default()
}
