//! Calls of outside providers: the worker that makes them, and the entities that ask for them and get their outcome.

mod begin;
mod caller;
mod command;
mod entity;
mod outcome;
mod state;

pub use begin::Calling;
pub use caller::CallsOf;
pub use command::{AttemptResult, CallCommand, CallReject, CallReply};
pub use entity::{Call, worker_of};
pub use outcome::{CallOutcome, OnCallOutcome};
pub(crate) use outcome::{LATE, OUTCOME};
pub use state::CallEvent;
pub(crate) use state::{LOOK, opened_by};

use super::{Message, Timestamp};
use crate::trace_context::TraceContext;
use serde::{Deserialize, Serialize};
use std::{fmt, future::Future, str::FromStr, time::Duration};

/// A worker: it makes the calls that entities ask of one outside provider. It runs beside the engine, and may take its time.
///
/// A call is recorded with the command that asks for it, and is made at least once, also after a crash. Each attempt carries the same
/// [key](Attempt::key), so that the provider can tell a second attempt from a second call.
pub trait Outside: Send + Sync + 'static {
    /// The worker's name, 1 to 59 of `[a-z0-9-]`. Its calls are entities of the kind `call-NAME`. Never change it.
    const NAME: &'static str;
    /// The most attempts under way at once, in all engines of the service together.
    const CONCURRENCY: usize = 16;
    /// The most attempts that begin in this time, in all engines together, evenly spaced. `None`: no bound.
    const RATE: Option<(u32, Duration)> = None;
    /// The most repeated attempts of one engine: the first number per hundred first attempts, and the second per second.
    const RETRIES: (u32, u32) = (20, 1);
    /// The number of attempts in a row without an answer after which the circuit breaker opens, and no attempt is made for a pause. It
    /// also opens if half of the attempts of ten seconds have no answer, and there were at least this many. 0: never.
    const BREAKER: u32 = 10;
    /// The time one attempt may take.
    const TIMEOUT: Duration = Duration::from_secs(30);
    /// The time until a call is given up, unless the entity sets [another](Calling::within).
    const WITHIN: Duration = Duration::from_secs(3_600);
    /// The pause after the first attempt without an answer, and the longest pause. It doubles with each attempt.
    const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
    /// Returns the part of the provider that a request goes to, for example a host. A destination that hangs cannot take every place of the
    /// worker: it holds at most as many as are left free for the others.
    const DESTINATION: Option<fn(&Self::Request) -> String> = None;
    /// The request. It is recorded in the journal, so it must hold no secrets.
    type Request: Message;
    /// The answer of a provider that did what was asked.
    type Answer: Message;
    /// The answer of a provider that refused.
    type Failure: Message;

    /// Makes one attempt.
    ///
    /// # Errors
    /// The [`CallError`] variant tells the provider's refusal from a missing answer, and whether the provider may have done it.
    fn call(
        &self,
        request: Self::Request,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Self::Answer, CallError<Self::Failure>>> + Send;
}

/// An attempt of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The call's id.
    pub call: CallId,
    /// The number of the attempt: 1, 2, 3, …
    pub number: u32,
    /// The engine's time when the attempt began.
    pub begun: Timestamp,
    /// The time at which the call is given up: its entity then gets an outcome in any case.
    pub deadline: Timestamp,
    /// The span of this attempt, if its trace is recorded. A provider that takes part in the trace gets it as the header field `traceparent`.
    pub trace: Option<TraceContext>,
}

impl Attempt {
    /// Returns the idempotency key: 32 hexadecimal digits, the same for each attempt of the call. The first 12 hash the caller's kind and
    /// id, the others are random.
    #[must_use]
    pub fn key(&self) -> String {
        self.call.to_string()
    }
}

/// A call for which a worker may begin an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CallOffer {
    /// The call that may be attempted now.
    pub call: CallId,
    /// The number of attempts begun so far.
    pub attempts: u32,
    /// True if another engine, which has no permit, has forwarded it.
    pub is_forwarded: bool,
    /// The hash of its [destination](Outside::DESTINATION); 0 if it has none.
    #[serde(default)]
    pub destination: u64,
}

/// The reason why an attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError<F> {
    /// The provider has refused. This is the call's outcome.
    #[error("the provider refused")]
    Failed(F),
    /// Nothing has reached the provider. The call is tried again.
    #[error("nothing was sent: {0}")]
    NotSent(String),
    /// The provider may have done it. The call is tried again under the same key, unless it is made [once](Calling::once).
    #[error("in doubt: {0}")]
    InDoubt(String),
    /// The provider asks for a pause. The call is tried again after it, or given up if its deadline comes first.
    #[error("{why}; tried again after {after:?}")]
    RetryAfter {
        /// The shortest pause before the next attempt.
        after: Duration,
        /// The provider may have done it.
        is_sent: bool,
        /// The reason, for people.
        why: String,
    },
}

/// A call's id and idempotency key: 48 bits hash its caller's kind and id, 80 are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CallId(u128);

/// A text that is no call's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call's id has 32 hexadecimal digits")]
pub struct InvalidCallId;

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for CallId {
    type Err = InvalidCallId;

    fn from_str(text: &str) -> Result<Self, InvalidCallId> {
        let is_one = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(text, 16) {
            Ok(bits) if is_one => Ok(Self(bits)),
            _ => Err(InvalidCallId),
        }
    }
}

impl TryFrom<String> for CallId {
    type Error = InvalidCallId;

    fn try_from(text: String) -> Result<Self, InvalidCallId> {
        text.parse()
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> Self {
        id.to_string()
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for CallId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CallId".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
    }
}
