//! Event expressions: which events, in which order, select a rule.

mod state;

pub(crate) use state::RuleState;
pub use state::SelectState;

#[derive(Debug, Default)]
pub(crate) struct Machine;
