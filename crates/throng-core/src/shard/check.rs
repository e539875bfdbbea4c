//! Whether a program understands what was recorded: every event upcast and applied, every command read. Nothing is changed.

use super::{
    Input,
    messages::{OUTCOME_NAME, RequestOutcome},
    read::{Origin, read_command},
    registry::Kind,
    slot::apply,
};
use crate::model::Entity;
use std::{any::Any, collections::HashMap};
use throng_journal::{Record, StoredEvent};

/// States that are kept of a kind at most; of entities beyond that the events are read, but not applied.
const ENTITIES_MAX: usize = 4_000_000;

/// The entities of one kind, as their events make them.
pub trait KindCheck: Any + Send {
    /// The next event of an entity. After one that cannot be applied, its others are not looked at.
    ///
    /// # Errors
    /// It cannot be read or applied: why.
    fn event(&mut self, record: &Record<'_>) -> Result<(), String>;

    /// The entity has ended: what happens to it next begins with nothing.
    fn ended(&mut self, id: &str);

    /// A command in a timer or in a message.
    ///
    /// # Errors
    /// It cannot be read: why.
    fn command(&self, kind: &Kind, name: &str, body: &[u8]) -> Result<(), String>;

    /// Entities that were met.
    fn entities(&self) -> usize;
}

/// `None`: an event could not be applied.
pub(super) struct EntityCheck<E>(HashMap<Box<str>, Option<E>>);

impl<E> Default for EntityCheck<E> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<E: Entity> KindCheck for EntityCheck<E> {
    fn event(&mut self, record: &Record<'_>) -> Result<(), String> {
        let event = StoredEvent {
            seq: record.seq,
            position: record.place.position,
            at_micros: 0,
            name: record.name.into(),
            version: record.version,
            payload: record.body.to_vec(),
        };
        if self.0.len() >= ENTITIES_MAX && !self.0.contains_key(record.id) {
            return apply(&mut E::default(), &event).map_err(|broken| broken.reason);
        }
        let state = self.0.entry(record.id.into()).or_insert_with(|| Some(E::default()));
        let Some(known) = state else { return Ok(()) };
        apply(known, &event).map_err(|broken| {
            *state = None;
            broken.reason
        })
    }

    fn ended(&mut self, id: &str) {
        if let Some(Some(state)) = self.0.get_mut(id) {
            *state = E::default();
        }
    }

    fn command(&self, kind: &Kind, name: &str, body: &[u8]) -> Result<(), String> {
        let outcome: RequestOutcome;
        let mut input = Input::Json { name, body };
        if name == OUTCOME_NAME {
            outcome = serde_json::from_slice(body).map_err(|why| why.to_string())?;
            input = Input::Outcome(&outcome);
        }
        let read = read_command::<E>(&mut input, kind, Origin::Recorded);
        read.map(drop).map_err(|why| why.to_string())
    }

    fn entities(&self) -> usize {
        self.0.len()
    }
}
