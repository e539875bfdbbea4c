//! Commands of a call, and its replies to them.

use super::{CallId, CallOffer};
use crate::{
    model::{Rejection, Timestamp},
    trace_context::{self, TraceContext},
};
use serde::{Deserialize, Serialize, ser::Error as _};
use serde_json::Value;
use std::time::Duration;

/// The command with which an entity asks for a call.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Begin {
    /// The entity's kind and id.
    pub(super) caller: (String, String),
    #[cfg_attr(feature = "schemas", schemars(with = "Value"))]
    pub(super) request: Request,
    /// The time of the entity's command.
    pub(super) at: Timestamp,
    /// The time the call may take, in microseconds.
    pub(super) within_micros: u64,
    /// No second attempt is made.
    pub(super) once: bool,
    /// The line (queue of in-order calls) in which the call waits for those before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<CallId>,
}

impl Begin {
    /// The time at which the call is given up.
    pub(super) fn deadline(&self) -> Timestamp {
        self.at.after(Duration::from_micros(self.within_micros))
    }
}

/// Commands of a call: of the entity that makes it, of its timer, and of the worker.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum CallCommand {
    /// The first command: an entity asks for the call.
    Begin(Begin),
    /// A call joins this line. The calls of a line are made one after the other.
    Join {
        /// The call that joins. It is admitted once it is first in the line.
        call: CallId,
        /// The deadline of the call. If it has not left some time later, the line passes over it.
        until: Timestamp,
    },
    /// A call of this line has its outcome.
    Leave {
        /// The call that left: later ones need not wait for it.
        call: CallId,
    },
    /// All earlier calls in its line have their outcomes.
    Admit {},
    /// The entity wants no further attempt.
    Cancel {},
    /// The timer is due.
    Look {},
    /// Other engines offer calls to the owner of this permit's shard. Nothing is recorded.
    Offer {
        /// Calls that are ready, of any owner.
        calls: Vec<CallOffer>,
    },
    /// A worker is about to make an attempt.
    Start {},
    /// An attempt has a result.
    Finish {
        /// The number that [`Go`](CallReply::Go) gave.
        attempt: u32,
        /// The answer, or why there is none.
        result: AttemptResult,
        /// The pause that the provider asks for, in microseconds.
        #[serde(default)]
        after_micros: u64,
    },
    /// An operator wants the next attempt now.
    Hasten {
        /// The name under which the operator is known.
        by: String,
        /// The reason, if one was given.
        reason: String,
    },
    /// An operator gives it up.
    GiveUp {
        /// The name under which the operator is known.
        by: String,
        /// The operator's reason: the entity is told.
        reason: String,
    },
}

/// Replies of a call.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum CallReply {
    /// The command is recorded.
    #[default]
    Done,
    /// The worker makes this attempt.
    Go {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The request as JSON of the worker's type.
        request: Value,
        /// The time at which the call is given up.
        deadline: Timestamp,
        /// The span of the turn that began the call, if its trace is recorded.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "trace_context::if_known"
        )]
        #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
        trace: Option<Box<TraceContext>>,
    },
    /// An operator has given it up, and the outcome is on its way to the entity.
    GivenUp {
        /// True if an attempt may have reached the provider. The outcome is then `Unknown`, else `Refused`.
        is_sent: bool,
    },
}

/// Refusals of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum CallReject {
    /// No attempt may begin now.
    #[error("no attempt of this call may begin now")]
    NotReady {},
    /// The calls before it in its line have no outcome yet.
    #[error("this call waits for the calls before it")]
    InLine {},
    /// An attempt is under way.
    #[error("an attempt of this call is under way")]
    UnderWay {},
    /// The outcome was told to the entity already.
    #[error("this call has its outcome")]
    Over {},
}

impl Rejection for CallReject {
    fn code(&self) -> &'static str {
        match self {
            Self::NotReady {} => "not-ready",
            Self::InLine {} => "in-line",
            Self::UnderWay {} => "under-way",
            Self::Over {} => "over",
        }
    }
}

/// A request as JSON. If the request cannot be written as JSON, the command that makes the call fails when it is recorded.
#[derive(Deserialize)]
#[serde(from = "Value")]
pub(super) struct Request(Result<Value, String>);

impl Request {
    pub(super) fn of(request: &impl Serialize) -> Self {
        Self(serde_json::to_value(request).map_err(|why| why.to_string()))
    }

    pub(super) fn into_value(self) -> Value {
        self.0.unwrap_or_default()
    }
}

impl From<Value> for Request {
    fn from(value: Value) -> Self {
        Self(Ok(value))
    }
}

impl Serialize for Request {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(value) => value.serialize(serializer),
            Err(why) => Err(S::Error::custom(format!("the request of a call: {why}"))),
        }
    }
}

/// An attempt's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum AttemptResult {
    /// The provider did it.
    Answered(Value),
    /// The provider will not do it.
    Failed(Value),
    /// Nothing has reached the provider.
    NotSent(String),
    /// The provider may have done it.
    InDoubt(String),
}
