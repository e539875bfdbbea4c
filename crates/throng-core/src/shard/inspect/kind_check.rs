//! Holding a kind against what was recorded, its type erased.

use super::decide_again::{Again, Decision};
use serde_json::Value;
use std::any::Any;
use throng_journal::Record;

/// The entities of one kind, as their events make them.
pub trait KindCheck: Any + Send {
    /// The next event of an entity. After one that cannot be applied, its others are not looked at.
    ///
    /// # Errors
    /// It cannot be read or applied: why.
    fn event(&mut self, record: &Record<'_>) -> Result<(), String>;

    /// Takes the recorded state of an entity whose earlier events are gone.
    ///
    /// # Errors
    /// It cannot be read: why.
    fn state(&mut self, record: &Record<'_>) -> Result<(), String>;

    /// The entity has ended: what happens to it next begins with nothing, also where its events are gone.
    fn ended(&mut self, record: &Record<'_>);

    /// A parent, or children, that an entity has got.
    fn family(&mut self, record: &Record<'_>);

    /// A command in a timer or in a message, as this program writes it: `{"Deposit":{"cents":5}}`, its variant around its content.
    ///
    /// # Errors
    /// It cannot be read: why.
    fn command(&self, name: &str, body: &[u8]) -> Result<Value, String>;

    /// An event, as this program writes it: its name, and its content. `None` if it cannot be read.
    fn present(&self, record: &Record<'_>) -> Option<(&'static str, Value)>;

    /// Has an entity decide a recorded command again, after the events so far, at two moments; `None` if it is not known how it was
    /// then. Nothing is applied.
    fn decide(&mut self, twice: &[Again<'_>; 2]) -> Option<[Decision; 2]>;

    /// The replies of the last decisions, read from the entity as it is now; `None` for a decision without a reply of its own.
    fn replies(&mut self, id: &str) -> [Option<Value>; 2];

    /// Has an entity decide a command, and applies what comes of it; `None` if it is not known how it was then.
    fn suppose(&mut self, again: &Again<'_>) -> Option<Supposed>;

    /// The entity's state as it would be [recorded](throng_journal::RecordKind::State); `None` if it is not known.
    ///
    /// # Errors
    /// It cannot be written, or is too large.
    fn recorded(&self, id: &str) -> Option<Result<Vec<u8>, String>>;

    /// The version of what [`recorded`](Self::recorded) gives.
    fn state_version(&self) -> u16;

    /// Entities that were met.
    fn entities(&self) -> usize;
}

/// The result that a supposed command would have.
#[derive(Clone, Debug, PartialEq)]
pub struct Supposed {
    /// The effects it would have, or the reason why it would have none.
    pub decision: Decision,
    /// The reply, of one that is not answered by another entity.
    pub reply: Option<Value>,
    /// The state then, as JSON.
    pub state: Option<String>,
}
