//! The context of one command, and the effects it asks for.

use super::{Asker, Effects, Entity, Moment, OnOutcome, Published, Sent, Timer, Timestamp, Topic, Turn, note};
use crate::tagged;
use std::{any::Any, borrow::Cow, time::Duration};
use throng_journal::scratch;

impl<E: Entity> Default for Effects<E> {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            sent: Vec::new(),
            timers: Vec::new(),
            published: Vec::new(),
            ends: false,
            opened: 0,
            entropy: 0,
            missed_ticks: 0,
            restored_at: None,
            trace: None,
        }
    }
}

impl<E: Entity> Effects<E> {
    /// True if the command asks for nothing durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.sent.is_empty() && self.timers.is_empty() && !self.ends
    }

    pub(crate) fn clear(&mut self) {
        scratch::empty(&mut self.events);
        scratch::empty(&mut self.sent);
        scratch::empty(&mut self.timers);
        scratch::empty(&mut self.published);
        self.ends = false;
        self.opened = 0;
    }
}

/// Writes an `Option<Command>` of this kind as JSON, and returns the command's name.
pub(crate) fn encode<E: Entity>(command: &(dyn Any + Send), out: &mut Vec<u8>) -> serde_json::Result<&'static str> {
    match command.downcast_ref::<Option<E::Command>>() {
        Some(Some(command)) => tagged::to_parts(command, out),
        _ => Err(serde::ser::Error::custom("the command was taken already")),
    }
}

impl Sent {
    pub(crate) fn to<T: Entity>(id: &T::Id, command: T::Command) -> Self {
        Self {
            kind: T::KIND.into(),
            id: id.to_string(),
            command: Box::new(Some(command)),
            encode: encode::<T>,
            note: None,
            child: false,
            is_call: false,
        }
    }

    /// The command, if the receiver is a `T`.
    #[must_use]
    pub fn command<T: Entity>(&self) -> Option<&T::Command> {
        self.command.downcast_ref::<Option<T::Command>>()?.as_ref()
    }

    pub(crate) fn command_mut<T: Entity>(&mut self) -> Option<&mut T::Command> {
        self.command.downcast_mut::<Option<T::Command>>()?.as_mut()
    }
}

impl<'a, E: Entity> Turn<'a, E> {
    pub(crate) fn new(moment: Moment<'a, E>, out: &'a mut Effects<E>) -> Self {
        Self { moment, out }
    }

    /// Returns the entity, time and asker of this turn.
    #[must_use]
    pub fn moment(&self) -> &Moment<'a, E> {
        &self.moment
    }

    /// Returns the entity's id.
    #[must_use]
    pub fn id(&self) -> &'a E::Id {
        self.moment.id
    }

    /// Returns the time; within a shard it never goes back.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.moment.now
    }

    /// Returns the asker: a client, an entity, a timer, or the engine with the outcome of a request.
    #[must_use]
    pub fn from(&self) -> Asker<'a> {
        self.moment.from
    }

    /// True if this entity has no events yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.moment.seq == 0
    }

    /// Returns the number of ticks of a repeating timer that were missed before the present one; 0 for every other command. For example,
    /// after some days without service, interest for `1 + turn.missed_ticks()` days is due.
    #[must_use]
    pub fn missed_ticks(&self) -> u64 {
        self.out.missed_ticks
    }

    /// Returns a number that nobody can guess, fresh for each command: for capabilities and tokens.
    #[must_use]
    pub fn unguessable(&self) -> u128 {
        self.out.entropy
    }

    /// Returns the parent, as kind and id.
    #[must_use]
    pub fn parent(&self) -> Option<(&'a str, &'a str)> {
        let (kind, id) = self.moment.family?.parent.as_ref()?;
        Some((kind, id))
    }

    /// Returns the ids of the children of a kind, sorted.
    pub fn children<T: Entity>(&self) -> impl Iterator<Item = &'a str> {
        let children = self.moment.family.into_iter().flat_map(|family| &family.children);
        children.filter(|(kind, _)| kind == T::KIND).map(|(_, id)| id.as_str())
    }

    /// Records an event.
    pub fn emit(&mut self, event: E::Event) {
        self.out.events.push(event);
    }

    /// Ends the entity: the events of this command are its last ones. Its timers are cancelled. From then on a command is answered
    /// [`Ended`](super::Error::Ended), a message is refused, and a request gets
    /// [`RequestError::Ended`](super::RequestError::Ended). The last state and the history can be read for as long as the kind
    /// [keeps](super::Entity::KEEP) them. Only a command that [creates anew](Entity::recreates) brings the id back.
    ///
    /// Messages of the same command are still delivered. Ending an entity without any event has no effect.
    pub fn end(&mut self) {
        self.out.ends = true;
    }

    /// Sends a message to another entity. It is durable with this command's events, and taken exactly once, in order.
    pub fn send<T: Entity>(&mut self, to: impl Into<T::Id>, command: T::Command) {
        self.out.sent.push(Sent::to::<T>(&to.into(), command));
    }

    /// Sends a message whose command creates a child. The receiver, if it is new, has this entity as its parent from then on.
    pub fn create<T: Entity>(&mut self, id: impl Into<T::Id>, command: T::Command) {
        self.out.sent.push(Sent {
            child: true,
            ..Sent::to::<T>(&id.into(), command)
        });
    }

    /// Sends a message whose outcome comes back as a command of this entity: the reply, a refusal, or that nobody is there
    /// ([`RequestError`](super::RequestError)). The kind must stand in [`Entity::REQUESTS`].
    ///
    /// # Panics
    /// When the note cannot be written as JSON, as a map with keys that are no texts. The command then has no effect.
    pub fn request<T: Entity>(
        &mut self,
        to: impl Into<T::Id>,
        command: T::Command,
        note: impl Into<<E as OnOutcome<T>>::Note>,
    ) where
        E: OnOutcome<T>,
    {
        const {
            assert!(
                contains(E::REQUESTS, T::KIND),
                "name the kind in the asker's `Entity::REQUESTS`"
            );
        }
        self.out.sent.push(Sent {
            note: Some(note::write(&note.into())),
            ..Sent::to::<T>(&to.into(), command)
        });
    }

    /// Sets a named durable timer, replacing one of the same name. The entity gets this command at that time, and then again after each
    /// `every`.
    ///
    /// A repeating timer keeps its rhythm: it is due at `at`, `at + every`, `at + 2 * every` and so on, however late a tick is
    /// executed. Ticks are missed while the service is down or the entity cannot be loaded. The entity then gets one command for
    /// all of them, and [`missed_ticks`](Self::missed_ticks) returns how many it should make up for.
    pub fn remind(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        at: Timestamp,
        every: Option<Duration>,
        command: E::Command,
    ) {
        self.out.timers.push(Timer::Set {
            name: name.into(),
            at,
            every,
            command,
        });
    }

    /// Publishes a value to the present listeners of the topic, once this command is durable, at most once. A value
    /// that must not be lost has to be an event, and a reader that must not miss it follows the events.
    pub fn publish<T: Clone + Send + Sync + 'static>(&mut self, topic: &Topic<T>, value: T) {
        self.out.published.push(Published {
            topic: topic.name(),
            value: Box::new(value),
        });
    }

    /// Cancels a named timer.
    pub fn cancel(&mut self, name: impl Into<Cow<'static, str>>) {
        self.out.timers.push(Timer::Cancel(name.into()));
    }
}

/// True if `text` is one of `texts`; for use at compile time.
const fn contains(texts: &[&str], text: &str) -> bool {
    let mut at = 0;
    while at < texts.len() {
        if is_same(texts[at].as_bytes(), text.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn a_kind_is_found_by_its_whole_name() {
        assert!(contains(&["bank", "account"], "account"));
        for other in ["acc", "accounts", "", "Account"] {
            assert!(!contains(&["bank", "account"], other), "{other}");
        }
    }
}
