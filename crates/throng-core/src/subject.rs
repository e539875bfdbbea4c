//! Testing an entity without an engine: given events, when a command, then look.

use crate::{
    model::{Asker, CommandAnswer, Effects, Entity, Error, Moment, Sent, Timestamp, Topic, Turn, wrong_reply},
    tagged,
};

/// An entity under test, without an engine.
///
/// ```
/// # use throng_core::{model::*, subject::Subject};
/// # use serde::{Serialize, Deserialize};
/// # use schemars::JsonSchema;
/// # #[derive(Default, Serialize, Deserialize)] struct Counter { hits: u64 }
/// # #[derive(Serialize, Deserialize, JsonSchema)] enum Do { Hit }
/// # #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)] enum Did { Hit {} }
/// # impl Event for Did {}
/// # #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)] #[error("never")] struct Never;
/// # impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
/// # impl Entity for Counter {
/// #   const KIND: &'static str = "counter";
/// #   type Id = String; type Command = Do; type Event = Did; type Reply = u64; type Rejection = Never;
/// #   fn decide(&self, _: Do, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
/// #     turn.emit(Did::Hit {}); Ok(CommandAnswer::after(|counter: &Counter| counter.hits)) }
/// #   fn evolve(&mut self, _: &Did) { self.hits += 1 } }
/// let mut counter = Subject::<Counter>::given("front-page", [Did::Hit {}]);
/// let done = counter.when(Do::Hit).unwrap();
/// assert_eq!(done.effects.events, [Did::Hit {}]);
/// assert_eq!(done.reply, Some(2));
/// ```
pub struct Subject<E: Entity> {
    /// The entity's state after the events so far.
    pub state: E,
    /// The id that commands see.
    pub id: E::Id,
    /// The number of events so far; after it was created anew, of those since then.
    pub seq: u64,
    /// True once the entity has ended.
    pub has_ended: bool,
    /// The time commands see.
    pub now: Timestamp,
    /// The asker, as [`Turn::from`] returns it. An anonymous client, unless set.
    pub from: Asker<'static>,
    /// The value of [`Turn::missed_ticks`].
    pub missed_ticks: u64,
}

/// The result of an accepted command.
pub struct Done<E: Entity> {
    /// The effects that the command asked for.
    pub effects: Effects<E>,
    /// Its reply, unless it forwarded.
    pub reply: Option<E::Reply>,
    /// The message it forwarded instead of a reply.
    pub forwarded: Option<Sent>,
}

impl<E: Entity> Subject<E> {
    /// An entity these events have happened to.
    pub fn given(id: impl Into<E::Id>, events: impl IntoIterator<Item = E::Event>) -> Self {
        let mut subject = Self {
            state: E::default(),
            id: id.into(),
            seq: 0,
            has_ended: false,
            now: Timestamp::default(),
            from: Asker::Client(None),
            missed_ticks: 0,
        };
        for event in events {
            subject.state.evolve(&event);
            subject.seq += 1;
        }
        subject
    }

    /// Has the entity decide, and applies the events.
    ///
    /// # Errors
    /// The entity's "no", `Unknown` when it does not exist and the command is not one that creates, or `Ended`.
    ///
    /// # Panics
    /// When the reply is not of the type that [`Entity::REPLIES`] names for the command.
    pub fn when(&mut self, command: E::Command) -> Result<Done<E>, Error<E::Rejection>> {
        if self.has_ended && !E::recreates(&command) {
            return Err(Error::Ended {
                kind: E::KIND,
                id: self.id.to_string(),
            });
        }
        if (self.seq == 0 || self.has_ended) && !E::creates(&command) {
            return Err(Error::Unknown {
                kind: E::KIND,
                id: self.id.to_string(),
            });
        }
        let mut effects = Effects::<E> {
            entropy: u128::from(self.seq) + 1,
            missed_ticks: self.missed_ticks,
            ..Effects::default()
        };
        let nothing = E::default();
        let (state, seq) = match self.has_ended {
            true => (&nothing, 0),
            false => (&self.state, self.seq),
        };
        let name = match E::REPLIES {
            [] => "",
            _ => tagged::to_parts(&command, &mut Vec::new()).unwrap_or_default(),
        };
        let moment = Moment {
            id: &self.id,
            seq,
            now: self.now,
            from: self.from,
            family: None,
        };
        let answer = state
            .decide(command, &mut Turn::new(moment, &mut effects))
            .map_err(Error::Rejected)?;
        if self.has_ended && !effects.events.is_empty() {
            (self.state, self.seq, self.has_ended) = (nothing, 0, false);
        }
        for event in &effects.events {
            self.state.evolve(event);
            self.seq += 1;
        }
        self.has_ended |= effects.ends && self.seq > 0;
        let (reply, forwarded) = match answer {
            CommandAnswer::Now(reply) => (Some(reply), None),
            CommandAnswer::After(read) => (Some(read(&self.state)), None),
            CommandAnswer::Forward(to) => (None, Some(to)),
        };
        if let Some(why) = reply
            .as_ref()
            .and_then(|reply| wrong_reply((E::KIND, E::REPLIES), name, reply))
        {
            panic!("{why}");
        }
        Ok(Done {
            effects,
            reply,
            forwarded,
        })
    }
}

impl<E: Entity> Done<E> {
    /// The commands sent to a kind: id and command.
    pub fn sent<T: Entity>(&self) -> impl Iterator<Item = (&str, &T::Command)> {
        let sent = self.effects.sent.iter().filter(|sent| sent.kind == T::KIND);
        sent.filter_map(|sent| Some((sent.id.as_str(), sent.command::<T>()?)))
    }

    /// The values published on a topic.
    pub fn published<T: 'static>(&self, topic: &Topic<T>) -> impl Iterator<Item = &T> {
        let of = self.effects.published.iter().filter(|of| of.topic == topic.name());
        of.filter_map(|of| of.value.downcast_ref())
    }
}
