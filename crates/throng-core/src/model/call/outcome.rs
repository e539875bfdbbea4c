//! The outcome of a call, as its entity gets it.

use super::{CallId, Outside};
use crate::model::Entity;
use serde::{Deserialize, Serialize};

/// The note of the one outcome that each call has.
pub(crate) const OUTCOME: &str = "outcome";
/// The note of an answer that came after the outcome was delivered.
pub(crate) const LATE: &str = "late";

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum CallOutcome<A, F> {
    /// The provider did it.
    Answered(A),
    /// The provider will not do it.
    Failed(F),
    /// Nothing was sent, and nothing will be: the call was cancelled, or its deadline came first. Only this outcome says for certain that
    /// nothing happened outside.
    Refused(String),
    /// An attempt was sent, and there is no answer. An answer that comes later is passed to [`OnCallOutcome::on_late_answer`].
    Unknown(String),
}

/// Takes the outcome of a call as a command of the entity that made it: exactly once, also after a crash.
pub trait OnCallOutcome<W: Outside>: Entity {
    /// Turns the outcome into a command of this entity.
    fn on_call_outcome(call: CallId, outcome: CallOutcome<W::Answer, W::Failure>) -> Self::Command;

    /// Turns a late answer into a command: one that came after another outcome was delivered, which was [`Unknown`](CallOutcome::Unknown)
    /// or the failure of another attempt. The entity may have to undo what the provider did.
    fn on_late_answer(call: CallId, answer: Result<W::Answer, W::Failure>) -> Self::Command;
}
