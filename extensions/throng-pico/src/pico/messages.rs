//! A pico's commands, events, replies and rejections.

use super::{Body, Change, schedule::ScheduleId};
use crate::{
    ask::{Answered, Ask},
    id::{Eci, PicoId, Secret},
    intern::name,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng::model::{Event, Rejection};
use throng_krl::Value;

/// A command of a pico. None is public: clients use channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PicoCommand {
    /// Creates the root pico.
    Found(Newborn),
    /// Creates a child. Its parent sends this.
    Born(Newborn),
    /// Runs an event on the pico. The reply has its directives.
    Event(Incoming),
    /// Handles a scheduled event.
    Due(ScheduleId),
    /// Continues an event that waits for answers.
    Resume {
        /// The number under which the event waits.
        waiting: u64,
        /// The answers, in the order of the requests.
        answers: Answers,
    },
    /// Tries an event again that has waited for long.
    Retry(u64),
    /// Sends an event to a pico of another engine. The pico sends this to itself.
    Post(Incoming),
    /// Ends the pico and all picos below it. Its parent sends this.
    Delete {},
    /// Begins a move to another parent. Its parent sends this; for a pico without one, the service.
    Move {
        /// A channel of the new parent.
        to: Eci,
    },
    /// Checks that the new parent is possible. The pico sends this to itself.
    Seek {},
    /// Takes the sender as a child.
    Adopt {
        /// The channel that the sender uses. Its policy decides.
        via: Secret,
        /// The sender's old parent, on whose behalf it asks.
        by: Option<PicoId>,
    },
    /// Delivers the new parent's answer.
    Adopted {
        /// The place among its children, or the reason for the refusal.
        outcome: Result<Adoption, Box<str>>,
    },
    /// Tells that a child has another parent now. The child sends this.
    Left {
        /// The child's number.
        number: u32,
    },
    /// Creates a pico from an export. The service sends this.
    Import(Box<Imported>),
    /// Adds another portion to an imported pico. The service sends this.
    ImportMore(Portion),
}

/// The description of a new pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Newborn {
    /// The realm of rulesets. All picos of an engine have the same.
    pub realm: Secret,
    /// The parent's channel; `None` for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Eci>,
    /// The number among its parent's children.
    #[serde(default)]
    pub number: u32,
    /// The secret of the channel that its parent uses.
    #[serde(default)]
    pub down: Secret,
    /// The rulesets to install at its birth, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rulesets: Vec<Installing>,
    /// The attributes of the event that asked for the pico, if one did. Then the pico takes its name from them, and tells its parent that it exists.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub asked: Value,
}

/// A pico's place among the children of its new parent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Adoption {
    /// The channel by which the child reaches its parent.
    pub parent: Eci,
    /// The number among the parent's children.
    pub number: u32,
    /// The secret of the channel that the parent uses.
    pub down: Secret,
}

/// A pico from an export, with its first portion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Imported {
    /// The pico without the contents of the portions.
    pub body: Body,
    /// True if the pico replaces the remains of an interrupted import.
    pub replaces: bool,
    /// The part that fits into one message. More messages may follow.
    pub portion: Portion,
}

/// A part of an imported pico.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Portion {
    /// The changes in the order in which they are applied.
    pub changes: Vec<Change>,
    /// Events that wait for answers.
    pub waiting: Vec<Waiting>,
}

/// A ruleset to install.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installing {
    /// The id by which it is queried and removed.
    pub rid: Arc<str>,
    /// The URL it came from.
    pub url: Arc<str>,
    /// The value of `configure using` and `ctx:rid_config`, a map.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// An event on its way to a pico.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Incoming {
    /// The channel on which it arrives.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// Its attributes, a map.
    pub attributes: Value,
    /// The pico on whose behalf the service sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PicoId>,
    /// A query to answer after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Asked>,
    /// The answers to its requests so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// A query of a ruleset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The id of an installed ruleset.
    pub rid: Arc<str>,
    /// The shared function or value.
    pub name: Arc<str>,
    /// The arguments by name, a map.
    pub arguments: Value,
}

/// The answers to the requests of an event or a query, with the time and the seed of its first run. With these a repeated run is the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The time, in milliseconds since 1970.
    pub time_ms: i64,
    /// The seed of its random numbers.
    pub seed: Secret,
    /// The answers, in the order of their requests.
    pub given: Vec<(Ask, Answered)>,
}

/// An event of a pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PicoEvent {
    /// The pico was created.
    Born {
        /// The entity's own id.
        id: PicoId,
        /// The data from its parent or from the engine.
        newborn: Newborn,
        /// The secret from which it derives the channels of its children.
        key: Secret,
        /// The secret of its own channel.
        own: Secret,
    },
    /// The pico handled an event, with these effects.
    Ran(Handled),
    /// An event failed and changed nothing.
    Failed {
        /// The event, without effects.
        handled: Handled,
        /// A sentence with the reason.
        error: Box<str>,
    },
    /// An event waits for answers.
    Waiting(Waiting),
    /// The pico was created from an export.
    Imported(Box<Body>),
    /// The pico ended at its parent's request.
    Deleted {},
}

/// A handled event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handled {
    /// The transaction's id, which `event-wait` returns.
    pub eid: Arc<str>,
    /// The channel on which it arrived.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// The attributes of the event, a map.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub attributes: Value,
    /// The changes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The log entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Logged>,
    /// The selected rules, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<SelectedRule>,
    /// The number under which it was waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<u64>,
    /// The schedule that ends with this event, because it had a single time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<ScheduleId>,
}

/// An entry of a pico's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// The level: `klog`, `info`, `warn` or `error`.
    pub level: Box<str>,
    /// The ruleset whose rule or function logged it.
    pub rid: Arc<str>,
    /// The rule; `None` outside a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The logged text, or the subject of the entry.
    pub message: Arc<str>,
    /// The argument of `klog` or `log`; null for a bare text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// A rule that an event selected. Both counts are 0 if the event failed in the rule, or if its `foreach` had no round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedRule {
    /// The rule's ruleset.
    #[serde(with = "name")]
    pub rid: Arc<str>,
    /// The rule's name in its ruleset.
    #[serde(with = "name")]
    pub rule: Arc<str>,
    /// The number of times it ran its actions. With `foreach`, each round counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fired: u32,
    /// The number of times its condition prevented that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_fired: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An event that waits for answers to its requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// The number among the waiting events.
    pub number: u64,
    /// The number of tries.
    pub tries: u32,
    /// True for an event of the pico itself, which arrived on no channel.
    #[serde(default)]
    pub is_own: bool,
    /// The event.
    pub incoming: Incoming,
    /// The id of its schedule, if it was scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<ScheduleId>,
}

/// The reply of a pico.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    /// The transaction's id; empty if there was none.
    pub eid: Arc<str>,
    /// The directives of the rules, as shown to clients.
    #[serde(default)]
    pub directives: Vec<Value>,
    /// The error, if the event failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// The answer to the query after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Result<Value, PicoRejection>>,
    /// The place among the children, for a pico that asked to be adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Box<Adoption>>,
}

/// A rejection of a pico. It changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum PicoRejection {
    /// There is no such channel.
    #[error("ECI not found {eci}")]
    NoChannel {
        /// The requested channel.
        eci: Box<str>,
    },
    /// The pico was deleted, together with its channels.
    #[error("ECI not found: the pico was deleted")]
    Deleted {},
    /// The channel is only for the pico's family.
    #[error("This is a family channel and only the owner can use it.")]
    Family {},
    /// The channel's policy denies the request.
    #[error("Denied by channel policy")]
    Denied {},
    /// The channel's policy does not allow the request.
    #[error("Not allowed by channel policy")]
    NotAllowed {},
    /// The ruleset is not installed.
    #[error("Pico doesn't have {rid} installed.")]
    NotInstalled {
        /// The requested ruleset.
        rid: Box<str>,
    },
    /// The ruleset shares nothing of this name.
    #[error("Ruleset {rid} does not have query function \"{name}\"")]
    NoQuery {
        /// The requested ruleset.
        rid: Box<str>,
        /// The requested name.
        name: Box<str>,
    },
    /// The request is malformed.
    #[error("{why}")]
    Malformed {
        /// A sentence with the fault.
        why: Box<str>,
    },
    /// A rule or a native ruleset failed.
    #[error("{error}")]
    Failed {
        /// The program's error, with its location.
        error: Box<str>,
    },
    /// A request has to be answered first.
    #[error("the pico waits for an answer from elsewhere")]
    Waits {
        /// The request to answer before the event or query runs again.
        ask: Box<Ask>,
        /// The answers so far.
        answers: Box<Answers>,
    },
    /// The sender is not the pico's parent.
    #[error("only a pico's parent may ask this")]
    NotTheParent {},
    /// The pico exists already.
    #[error("there is a pico {pico} already")]
    Exists {
        /// The id that is in use.
        pico: PicoId,
    },
}

impl Event for PicoEvent {}

impl Rejection for PicoRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::NoChannel { .. } => "eci-not-found",
            Self::Deleted {} => "pico-deleted",
            Self::Family {} => "family-channel",
            Self::Denied {} => "denied-by-policy",
            Self::NotAllowed {} => "not-allowed-by-policy",
            Self::NotInstalled { .. } => "ruleset-not-installed",
            Self::NoQuery { .. } => "no-such-query",
            Self::Malformed { .. } => "malformed-event",
            Self::Failed { .. } => "ruleset-failed",
            Self::Waits { .. } => "pico-waits",
            Self::NotTheParent {} => "not-the-parent",
            Self::Exists { .. } => "pico-exists",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::NoChannel { .. } | Self::NotInstalled { .. } | Self::NoQuery { .. } => 404,
            Self::Family {} | Self::Denied {} | Self::NotAllowed {} | Self::NotTheParent {} => 403,
            Self::Malformed { .. } => 400,
            Self::Deleted {} => 410,
            Self::Failed { .. } => 500,
            Self::Waits { .. } => 503,
            Self::Exists { .. } => 409,
        }
    }
}

/// Implements an empty schema. No route uses these types; the routes have schemas of their own.
macro_rules! without_schema {
    ($($type:ty),*) => {$(
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!(true)
            }
        }
    )*};
}

without_schema!(PicoCommand, PicoEvent, Ran, PicoRejection, Asked, super::Pico);
