//! The entity: a small single-threaded, event-sourced thing with an id; and the types with which it decides.

use super::{
    Asker, CommandReply, Event, Family, IndexedField, Keep, Message, Published, Recorded, Sent, Timer, Timestamp, UpcastError,
};
use crate::trace_context::TraceContext;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Display, panic::RefUnwindSafe, str::FromStr};

/// The type of an id: `u64`, `String`, or a service's own, such as `resort:season:day`. The id's text (1 to 256 bytes) is the
/// address, so two different ids must have different texts.
pub trait EntityId: Display + FromStr<Err: Display> + Clone + Send + Sync + 'static {}
impl<T: Display + FromStr<Err: Display> + Clone + Send + Sync + 'static> EntityId for T {}

/// An entity's "no". Nothing has happened, and the asker is told why.
pub trait Rejection: std::error::Error + Message {
    /// A stable code: the problem's `type`, a label in metrics.
    fn code(&self) -> &'static str;
    /// The HTTP status.
    fn status(&self) -> u16 {
        409
    }
    /// The field of the command at fault, if it is one.
    fn field(&self) -> Option<&'static str> {
        None
    }
}

/// A small single-threaded, event-sourced thing with an id. `Default` is its state before the first event.
///
/// Commands and events are serde enums with struct, newtype or unit variants; the variant's serde name is the command's
/// name in the route and the event's name in the journal.
pub trait Entity: Default + Serialize + DeserializeOwned + Send + RefUnwindSafe + 'static {
    /// The kind's name, the first part of every address: 1 to 64 of `[a-z0-9-]`. Never change it: it decides where data lives.
    const KIND: &'static str;
    /// The version of the state. Raise it when the state's shape or meaning changes: stored states are then rebuilt from the
    /// events.
    const STATE_VERSION: u16 = 1;
    /// The retention of its events, unless the service says otherwise.
    const KEEP: Keep = Keep::Forever;
    /// The commands that clients may send over the network, by their serde names. All others come only from entities, timers,
    /// outcomes and the service's own code. They have no routes, are in no document, and are refused with 403. A gateway does not
    /// start if one of these names is no command of the kind.
    const PUBLIC: &'static [&'static str] = &[];
    /// Fields of the state by which operators filter the kind's entities. A kind without any pays nothing. With some, a checkpoint writes a
    /// small row for each entity that has changed since the one before; a command does nothing for them.
    const INDEXED: &'static [IndexedField<Self>] = &[];
    /// The address within the kind.
    type Id: EntityId;
    /// The commands whose replies are each of one type, with that type. A document then shows it as the reply of the command's route, and a
    /// generated client has it; of all other commands any [`Reply`](Self::Reply) is shown. Let `Reply` be an enum with
    /// `#[serde(untagged)]`. [`Subject`](crate::subject::Subject) and simulations refuse a reply that is not of its type. A gateway does not
    /// start if a name is no command of the kind.
    const REPLIES: &'static [CommandReply] = &[];
    /// The commands it takes.
    type Command: Message;
    /// The events it emits.
    type Event: Event;
    /// The reply to a command.
    type Reply: Message;
    /// A refusal.
    type Rejection: Rejection;
    /// The kinds it [requests](Turn::request) something of, and hears from ([`OnOutcome`]). A request to another kind does not compile, and
    /// an engine that was not given `on_outcome` for one of these does not start.
    const REQUESTS: &'static [&'static str] = &[];
    /// Accepts unknown fields in a client's command or query, instead of refusing it with the field's name (400). The price: a
    /// client of a later program, or a misspelt optional field, goes unnoticed. Recorded data may always have unknown fields.
    const IGNORES_UNKNOWN_FIELDS: bool = false;
    /// Records each accepted client command that has durable effects, beside its events. `check --what-if` can then decide it
    /// again with a later program. Each command costs its JSON and some 60 bytes in the journal, and the time to write them.
    /// Programs that do not know such records cannot read the journal.
    const KEEPS_COMMANDS: bool = false;

    /// True if this command may bring the entity into being. If not, an id without events is answered `Unknown` (404) before `decide`.
    fn creates(_command: &Self::Command) -> bool {
        true
    }

    /// True if this command may create anew an entity that has [ended](Turn::end). Such a command must also
    /// [create](Self::creates). The entity then begins with [`Default`], and its events are numbered on. All other commands to an
    /// ended entity are answered `Ended` (410) before `decide`.
    fn recreates(_command: &Self::Command) -> bool {
        false
    }

    /// Decides a command without changing the state. The effects gathered in `turn` are dropped if this returns an error or
    /// panics.
    ///
    /// # Errors
    /// The entity's [`Rejection`](Entity::Rejection).
    fn decide(&self, command: Self::Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Self::Rejection>;

    /// Applies an event to the state, also on replay. It must handle every event and must not fail.
    fn evolve(&mut self, event: &Self::Event);

    /// Takes a recorded command that this program cannot read one step up: renames it, or fills in a field. Called for commands in
    /// timers and messages, never for a client's. For a renamed variant, `#[serde(alias = "old_name")]` is enough.
    ///
    /// # Errors
    /// [`UpcastError`]: there is no step up. The timer's tick or the message is dead, with this reason, and can be retried.
    fn upcast_command(old: Recorded) -> Result<Recorded, UpcastError> {
        Err(UpcastError(format!(
            "there is no step up from the command {}",
            old.name
        )))
    }

    /// Takes a stored state of an older [`STATE_VERSION`](Self::STATE_VERSION) one version up, as JSON. Called only where the
    /// events behind the state are not kept any more; otherwise the state is rebuilt from them.
    ///
    /// # Errors
    /// [`UpcastError`]: there is no step up. The entity is quarantined, with this reason.
    fn upcast_state(version: u16, _state: serde_json::Value) -> Result<serde_json::Value, UpcastError> {
        Err(UpcastError(format!(
            "there is no step up from a state of version {version}"
        )))
    }

    /// The bytes of this state in memory beyond `size_of::<Self>()`, in collections and texts. They decide when entities are
    /// passivated.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The circumstances under which an entity decides a command or answers a query.
pub struct Moment<'a, E: Entity> {
    /// The entity's id.
    pub id: &'a E::Id,
    /// The number of its events, since it was created anew if it had ended.
    pub seq: u64,
    /// The time; within a shard it never goes back.
    pub now: Timestamp,
    /// The asker: a client with its name where that is known, an entity, a timer, or an outcome.
    pub from: Asker<'a>,
    /// Parent and children.
    pub family: Option<&'a Family>,
}

/// The view that one command has of the world, and the effects it asks for; the buffers behind it are reused.
pub struct Turn<'a, E: Entity> {
    pub(crate) moment: Moment<'a, E>,
    pub(crate) out: &'a mut Effects<E>,
}

/// The effects that a command asks for besides its answer.
pub struct Effects<E: Entity> {
    /// The events, in order.
    pub events: Vec<E::Event>,
    /// Messages to other entities, in order.
    pub sent: Vec<Sent>,
    /// Timers set and cancelled.
    pub timers: Vec<Timer<E::Command>>,
    /// Live values, in order.
    pub published: Vec<Published>,
    /// The entity ends with this.
    pub ends: bool,
    /// The calls outside that begin with this, or have their outcome: 1, 0 or -1.
    pub(crate) opened: i64,
    pub(crate) entropy: u128,
    pub(crate) missed_ticks: u64,
    /// The time at which the journal was served instead of the one it is a copy of.
    pub(crate) restored_at: Option<Timestamp>,
    /// The span of the turn, if its trace is recorded.
    pub(crate) trace: Option<TraceContext>,
}

/// Reads a reply from a state.
pub type Read<E> = Box<dyn FnOnce(&E) -> <E as Entity>::Reply + Send>;

/// Exactly one answer a command, by construction.
pub enum Answer<E: Entity> {
    /// This reply, made from the state before the events.
    Now(E::Reply),
    /// Read from the state after the events.
    After(Read<E>),
    /// Another entity answers the asker.
    Forward(Sent),
}

/// Takes the outcome of a durable request to `T` as a command of the asker, exactly once, also after a crash. A refusal is an
/// outcome, too, and so is a missing receiver.
pub trait OnOutcome<T: Entity>: Entity {
    /// The note that the asker gives along with a request, and has back with its outcome: `()` if it needs none. A `String` stands in the
    /// journal as it is, any other type as JSON. `schema diff` holds a later program's type against the notes on their way.
    type Note: Message;

    /// Turns the outcome into a command of this entity.
    fn on_outcome(
        from: T::Id,
        note: Self::Note,
        outcome: Result<T::Reply, RequestError<T::Rejection>>,
    ) -> Self::Command;
}

/// The reason why a request was not done. It had no effect, and will have none.
///
/// A request that crashes its receiver, or that the receiver's program cannot read, gets no outcome: the fault is that
/// program's. The message is dead, with the reason, until an operator has it retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError<R> {
    /// The entity said no.
    #[error("{0}")]
    Rejected(R),
    /// The entity does not exist, and the command does not create.
    #[error("there is no such entity")]
    Unknown,
    /// The entity has ended, and the command is none that creates it anew.
    #[error("the entity has ended")]
    Ended,
    /// The entity cannot be brought back, for this reason.
    #[error("the entity is quarantined: {0}")]
    Quarantined(String),
    /// An operator has dropped the request, for this reason.
    #[error("the request was dropped: {0}")]
    Dropped(String),
}
