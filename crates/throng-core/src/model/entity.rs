//! The entity: a small single-threaded, event-sourced thing with an id; and the types with which it decides.

use super::{
    Asker, CommandReply, Event, Family, IndexedField, Keep, Message, Published, Recorded, Sent, Timer, Timestamp,
    UpcastError,
};
use crate::trace_context::TraceContext;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Display, panic::RefUnwindSafe, str::FromStr};

/// The type of an id: `u64`, `String`, or a service's own, such as `resort:season:day`. The id's text (1 to 256 bytes) is the
/// address, so two different ids must have different texts.
pub trait EntityId: Display + FromStr<Err: Display> + Clone + Send + Sync + 'static {}
impl<T: Display + FromStr<Err: Display> + Clone + Send + Sync + 'static> EntityId for T {}

/// A refusal of an entity. Nothing has happened, and the asker gets the reason.
pub trait Rejection: std::error::Error + Message {
    /// The stable code of the refusal: the problem's `type` in HTTP, a label in metrics.
    fn code(&self) -> &'static str;
    /// The HTTP status.
    fn status(&self) -> u16 {
        409
    }
    /// The name of the command's field at fault, if there is one.
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
    /// The kinds that this kind sends [requests](Turn::request) to and handles the outcomes of ([`OnOutcome`]). A request to another kind
    /// does not compile. An engine that was not given `on_outcome` for each of these does not start.
    const REQUESTS: &'static [&'static str] = &[];
    /// Accepts unknown fields in a client's command or query, instead of refusing them by name (400). The price: a misspelt optional field,
    /// or a field that only a later program knows, is ignored silently. Recorded data may always have unknown fields.
    const IGNORES_UNKNOWN_FIELDS: bool = false;
    /// Records each accepted client command that has durable effects, beside its events, so that `check --what-if` can decide it
    /// again with a later program. A command costs its JSON and some 60 bytes in the journal, and the time to write them.
    /// Older programs, which do not know such records, cannot read the journal.
    const KEEPS_COMMANDS: bool = false;

    /// True if this command may create the entity. For all other commands an id without events is answered `Unknown` (404) before `decide`.
    fn creates(_command: &Self::Command) -> bool {
        true
    }

    /// True if this command may create anew an entity that has [ended](Turn::end). Such a command must also
    /// [create](Self::creates). The entity then starts from [`Default`], and the numbers of its events go on. All other commands to an
    /// ended entity are answered `Ended` (410) before `decide`.
    fn recreates(_command: &Self::Command) -> bool {
        false
    }

    /// Decides a command without changing the state. The effects gathered in `turn` are dropped if this returns an error or
    /// panics.
    ///
    /// # Errors
    /// The entity's [`Rejection`](Entity::Rejection).
    fn decide(&self, command: Self::Command, turn: &mut Turn<'_, Self>)
    -> Result<CommandAnswer<Self>, Self::Rejection>;

    /// Applies an event to the state, also on replay. It must handle every event and must not fail.
    fn evolve(&mut self, event: &Self::Event);

    /// Converts a recorded command that this program cannot read to the next version: renames it, or fills in a field. Called for commands
    /// in
    /// timers and messages, never for a client's. For a renamed variant, `#[serde(alias = "old_name")]` is enough.
    ///
    /// # Errors
    /// [`UpcastError`]: there is no such version. The timer's tick or the message is dead, with this reason, and can be retried.
    fn upcast_command(old: Recorded) -> Result<Recorded, UpcastError> {
        Err(UpcastError(format!(
            "there is no step up from the command {}",
            old.name
        )))
    }

    /// Converts a stored state of an older [`STATE_VERSION`](Self::STATE_VERSION) to the next version, as JSON. Called only if the
    /// events behind the state are no longer stored; otherwise the state is rebuilt from them.
    ///
    /// # Errors
    /// [`UpcastError`]: there is no such version. The entity is quarantined, with this reason.
    fn upcast_state(version: u16, _state: serde_json::Value) -> Result<serde_json::Value, UpcastError> {
        Err(UpcastError(format!(
            "there is no step up from a state of version {version}"
        )))
    }

    /// Returns the bytes that this state holds in memory beyond `size_of::<Self>()`, in collections and texts. The engine passivates
    /// entities by these sizes.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The circumstances under which an entity decides a command or answers a query.
pub struct Moment<'a, E: Entity> {
    /// The entity's id.
    pub id: &'a E::Id,
    /// The number of its events; after it was created anew, of those since then.
    pub seq: u64,
    /// The time; within a shard it never goes back.
    pub now: Timestamp,
    /// The asker: a client (with its name if known), an entity, a timer, or an outcome.
    pub from: Asker<'a>,
    /// Parent and children.
    pub family: Option<&'a Family>,
}

/// The context of one command: the facts it may use, and the effects it asks for. The buffers behind it are reused.
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
    /// True if the entity ends with this command.
    pub ends: bool,
    /// The calls outside that begin with this, or have their outcome: 1, 0 or -1.
    pub(crate) opened: i64,
    pub(crate) entropy: u128,
    pub(crate) missed_ticks: u64,
    /// The time at which the restored copy of another journal was first served; `None` if this journal is no copy.
    pub(crate) restored_at: Option<Timestamp>,
    /// The span of the turn, if its trace is recorded.
    pub(crate) trace: Option<TraceContext>,
}

/// Reads a reply from a state.
pub type Read<E> = Box<dyn FnOnce(&E) -> <E as Entity>::Reply + Send>;

/// The one answer to a command.
pub enum CommandAnswer<E: Entity> {
    /// Replies with a value made from the state before the events.
    Now(E::Reply),
    /// Replies with a value read from the state after the events.
    After(Read<E>),
    /// Has another entity answer the asker.
    Forward(Sent),
}

/// Takes the outcome of a durable request to `T` as a command of the asker, exactly once, also after a crash. A refusal and a missing
/// receiver are outcomes, too.
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
/// A request that panics in its receiver, or that the receiver's program cannot read, gets no outcome, because the fault is in that
/// program. The message is dead, with the reason, until an operator retries it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError<R> {
    /// The entity refused.
    #[error("{0}")]
    Rejected(R),
    /// The entity does not exist, and the command does not create.
    #[error("there is no such entity")]
    Unknown,
    /// The entity has ended, and the command does not create it anew.
    #[error("the entity has ended")]
    Ended,
    /// The receiver cannot be loaded, for this reason.
    #[error("the entity is quarantined: {0}")]
    Quarantined(String),
    /// An operator has dropped the request, for this reason.
    #[error("the request was dropped: {0}")]
    Dropped(String),
}
