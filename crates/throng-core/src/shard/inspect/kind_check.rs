//! Checking a kind against recorded history, with its type erased.

use super::decide_again::{Again, Decision};
use serde_json::Value;
use std::any::Any;
use throng_journal::Record;

/// The entities of one kind, as built from their events.
pub trait KindCheck: Any + Send {
    /// Applies the next event of an entity. After an event that fails, the entity's later events are ignored.
    ///
    /// # Errors
    /// The reason why it cannot be read or applied.
    fn event(&mut self, record: &Record<'_>) -> Result<(), String>;

    /// Takes the recorded state of an entity whose earlier events are gone.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn state(&mut self, record: &Record<'_>) -> Result<(), String>;

    /// Notes the end of an entity: its next event applies to a default state, even if earlier events were removed.
    fn ended(&mut self, record: &Record<'_>);

    /// A parent, or children, that an entity has got.
    fn family(&mut self, record: &Record<'_>);

    /// Returns a command in a timer or message as this program writes it: `{"Deposit":{"cents":5}}`, the variant around its content.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn command(&self, name: &str, body: &[u8]) -> Result<Value, String>;

    /// Returns an event as this program writes it: name and content. `None` if it cannot be read.
    fn present(&self, record: &Record<'_>) -> Option<(&'static str, Value)>;

    /// Has an entity decide a recorded command again, after the events so far, at two moments; `None` if its state is not known. Nothing is
    /// applied.
    fn decide(&mut self, twice: &[Again<'_>; 2]) -> Option<[Decision; 2]>;

    /// Returns the replies of the last two decisions, read from the present state; `None` for a decision without a reply of its own.
    fn replies(&mut self, id: &str) -> [Option<Value>; 2];

    /// Has an entity decide a command, and applies its events; `None` if the state is not known.
    fn suppose(&mut self, again: &Again<'_>) -> Option<Supposed>;

    /// Returns the entity's state in its [recorded](throng_journal::RecordKind::State) form; `None` if it is not known.
    ///
    /// # Errors
    /// The reason: it cannot be written, or is too large.
    fn recorded(&self, id: &str) -> Option<Result<Vec<u8>, String>>;

    /// Returns the version of the states that [`recorded`](Self::recorded) returns.
    fn state_version(&self) -> u16;

    /// Returns the number of entities met.
    fn entities(&self) -> usize;
}

/// The result that a supposed command would have.
#[derive(Clone, Debug, PartialEq)]
pub struct Supposed {
    /// The effects it would have, or the reason why it would have none.
    pub decision: Decision,
    /// The reply, unless another entity answers.
    pub reply: Option<Value>,
    /// The state then, as JSON.
    pub state: Option<String>,
}
