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

/// A command of a pico. None of it is public: clients come through channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PicoCommand {
    /// Brings the root pico into being.
    Found(Newborn),
    /// Brings a child into being; its parent asks.
    Born(Newborn),
    /// Runs an event on the pico, and answers with its directives.
    Event(Incoming),
    /// Handles a scheduled event.
    Due(ScheduleId),
    /// Goes on with an event that waited for answers.
    Resume {
        /// The number under which the event waits.
        waiting: u64,
        /// The answers, in the order they were asked for.
        answers: Answers,
    },
    /// Looks at an event again that has waited for long.
    Retry(u64),
    /// Sends an event to a pico of another engine; the pico asks itself.
    Post(Incoming),
    /// Ends the pico and all below it; its parent asks.
    Delete {},
    /// Begins to look for a way to another parent; its parent asks, or the service of a pico that has none.
    Move {
        /// A channel of the new parent.
        to: Eci,
    },
    /// Looks whether the new parent may be one; the pico asks itself.
    Seek {},
    /// Takes the pico that asks as a child.
    Adopt {
        /// The channel over which it asks, whose policy decides.
        via: Secret,
        /// The old parent, on whose behalf it is asked.
        by: Option<PicoId>,
    },
    /// The answer of the new parent.
    Adopted {
        /// The place among its children, or the reason why it is none of them.
        outcome: Result<Adoption, Box<str>>,
    },
    /// The child of this number has another parent now; it says so itself.
    Left {
        /// Its number among the children.
        number: u32,
    },
    /// Brings a pico into being as it was elsewhere; the service asks.
    Import(Box<Imported>),
    /// More of what an imported pico is; the service asks.
    ImportMore(Portion),
}

/// The description of a new pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Newborn {
    /// The realm of rulesets: all picos of an engine have the same.
    pub realm: Secret,
    /// The parent's channel; `None` for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Eci>,
    /// Its number among its parent's children.
    #[serde(default)]
    pub number: u32,
    /// The secret of its channel for its parent.
    #[serde(default)]
    pub down: Secret,
    /// The rulesets that its parent installs in it at its birth, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rulesets: Vec<Installing>,
    /// The attributes of the event that asked for it, if one did: then it has a name, and tells its parent that it is there.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub asked: Value,
}

/// A pico's place among the children of its new parent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Adoption {
    /// The channel by which the child reaches its parent.
    pub parent: Eci,
    /// Its number among the parent's children.
    pub number: u32,
    /// The secret of its channel for the parent.
    pub down: Secret,
}

/// A pico that an export describes, with the first portion of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Imported {
    /// The pico, without the contents of `portion` and of those that follow.
    pub body: Body,
    /// True if the remains of an import that broke off give way.
    pub replaces: bool,
    /// The part that fits into one message; the rest follows.
    pub portion: Portion,
}

/// A part of what an imported pico is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Portion {
    /// The changes in the order in which they are applied.
    pub changes: Vec<Change>,
    /// Events that wait for answers.
    pub waiting: Vec<Waiting>,
}

/// A ruleset to be installed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installing {
    /// The ruleset's, by which it is queried and removed.
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
    /// The channel it comes over.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// Its attributes, a map.
    pub attributes: Value,
    /// The pico on whose behalf the service itself sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PicoId>,
    /// The query about the pico once it has handled the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Asked>,
    /// The answers from elsewhere so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// A query: of which ruleset, for what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The id of an installed ruleset.
    pub rid: Arc<str>,
    /// Its shared function or value.
    pub name: Arc<str>,
    /// The arguments by name, a map.
    pub arguments: Value,
}

/// The answers from elsewhere for an event or a query, with the time and chance of its first run: with the same it runs again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// The start of its random numbers.
    pub seed: Secret,
    /// The answers in the order of their requests.
    pub given: Vec<(Ask, Answered)>,
}

/// An event of a pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PicoEvent {
    /// The pico came into being.
    Born {
        /// The entity's own id.
        id: PicoId,
        /// The gifts of its parent, or of the engine.
        newborn: Newborn,
        /// The secret from which it makes the channels of its own children.
        key: Secret,
        /// The secret of its own channel.
        own: Secret,
    },
    /// The pico handled an event, and these are all its effects.
    Ran(Handled),
    /// An event failed and changed nothing.
    Failed {
        /// The event, as it came: it changed nothing.
        handled: Handled,
        /// The reason, in a sentence.
        error: Box<str>,
    },
    /// An event waits for answers.
    Waiting(Waiting),
    /// The pico came into being as it was elsewhere.
    Imported(Box<Body>),
    /// The pico ended, as its parent asked.
    Deleted {},
}

/// An event that was handled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handled {
    /// The id that `event-wait` answers with.
    pub eid: Arc<str>,
    /// The channel it came over.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// The attributes as they came with it, a map.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub attributes: Value,
    /// The changes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The log entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Logged>,
    /// The rules that were selected, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<SelectedRule>,
    /// The number under which it had waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<u64>,
    /// The schedule that ends with it: it was scheduled once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<ScheduleId>,
}

/// An entry of a pico's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// Its weight: `klog`, `info`, `warn`, `error`.
    pub level: Box<str>,
    /// The ruleset whose rule or function logged it.
    pub rid: Arc<str>,
    /// The rule; `None` for a function outside of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The text that was logged, or what the entry is about.
    pub message: Arc<str>,
    /// The argument of `klog` or `log`; null for a bare text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// A rule that an event selected. Both counts are 0 where the event failed in it, or its `foreach` had no round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedRule {
    /// The ruleset it is in.
    #[serde(with = "name")]
    pub rid: Arc<str>,
    /// The rule's name in its ruleset.
    #[serde(with = "name")]
    pub rule: Arc<str>,
    /// Times it took its actions: with `foreach`, once a round.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fired: u32,
    /// Times its condition kept it from them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_fired: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An event that waits for answers from elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// Its number among those that wait.
    pub number: u64,
    /// The number of tries.
    pub tries: u32,
    /// True for an event of the pico's own, which came over no channel.
    #[serde(default)]
    pub is_own: bool,
    /// The event.
    pub incoming: Incoming,
    /// The event was scheduled, under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<ScheduleId>,
}

/// The reply of a pico.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    /// The transaction; empty where there was none.
    pub eid: Arc<str>,
    /// The directives of the rules, as clients see them.
    #[serde(default)]
    pub directives: Vec<Value>,
    /// Why the event failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// The answer to the query that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Result<Value, PicoRejection>>,
    /// The place among the children of the pico that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Box<Adoption>>,
}

/// Why a pico says no. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum PicoRejection {
    /// There is no such channel.
    #[error("ECI not found {eci}")]
    NoChannel {
        /// The channel that was asked for.
        eci: Box<str>,
    },
    /// The pico was deleted, and its channels with it.
    #[error("ECI not found: the pico was deleted")]
    Deleted {},
    /// The channel is for its family.
    #[error("This is a family channel and only the owner can use it.")]
    Family {},
    /// The channel's policy denies it.
    #[error("Denied by channel policy")]
    Denied {},
    /// The channel's policy does not allow it.
    #[error("Not allowed by channel policy")]
    NotAllowed {},
    /// The ruleset is not installed.
    #[error("Pico doesn't have {rid} installed.")]
    NotInstalled {
        /// The ruleset that was asked.
        rid: Box<str>,
    },
    /// The ruleset shares nothing of this name.
    #[error("Ruleset {rid} does not have query function \"{name}\"")]
    NoQuery {
        /// The ruleset that was asked.
        rid: Box<str>,
        /// The name that was asked for.
        name: Box<str>,
    },
    /// The request is malformed.
    #[error("{why}")]
    Malformed {
        /// The fault, in a sentence.
        why: Box<str>,
    },
    /// A rule failed, or a native ruleset did: nothing was changed.
    #[error("{error}")]
    Failed {
        /// The error of the program, with its place.
        error: Box<str>,
    },
    /// Answers from elsewhere are needed first.
    #[error("the pico waits for an answer from elsewhere")]
    Waits {
        /// The request that has to be answered before it is run again.
        ask: Box<Ask>,
        /// The answers so far.
        answers: Box<Answers>,
    },
    /// The asker is not the pico's parent.
    #[error("only a pico's parent may ask this")]
    NotTheParent {},
    /// The pico exists already.
    #[error("there is a pico {pico} already")]
    Exists {
        /// The pico that has this id already.
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

/// Implements an empty schema. These types are no part of any route: the routes have schemas of their own.
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
