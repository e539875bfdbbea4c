//! Event expressions: the events that select a rule, and their order.

mod builder;
mod machine;
mod state;

pub use state::SelectState;

pub(crate) use builder::{Builder, TooLarge};
pub(crate) use machine::{END, Machine, START, Trigger};
pub(crate) use state::RuleState;
