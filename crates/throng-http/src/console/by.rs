//! The operator of an action.

use crate::{
    caller::Administrates,
    connection::Connection,
    problem::{Answered, Problem},
};
use std::fmt;
use throng::OperatorDecision;

/// The operator, a person or a program.
pub(crate) struct By<'a> {
    administrates: Administrates,
    connection: &'a Connection,
}

impl<'a> By<'a> {
    pub(crate) fn new(administrates: Administrates, connection: &'a Connection) -> Self {
        Self {
            administrates,
            connection,
        }
    }

    pub(crate) fn administrates(&self) -> &Administrates {
        &self.administrates
    }

    pub(crate) fn name(&self) -> &str {
        &self.administrates.name
    }
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name(), self.connection.address())
    }
}

/// Returns the decision of an operator. An empty reason is refused, so that every record of an operator action has one.
pub(crate) fn decision<'a>(by: &'a By<'_>, reason: &'a str) -> Answered<OperatorDecision<'a>> {
    if reason.trim().is_empty() {
        return Err(Problem::malformed("reason is empty; say why, in a sentence.")
            .at_field("reason")
            .boxed());
    }
    Ok(decision_if_said(by, reason))
}

/// Returns the decision of an operator who need not give a reason.
pub(crate) fn decision_if_said<'a>(by: &'a By<'_>, reason: &'a str) -> OperatorDecision<'a> {
    OperatorDecision {
        by: by.name().into(),
        reason: reason.trim().into(),
    }
}
