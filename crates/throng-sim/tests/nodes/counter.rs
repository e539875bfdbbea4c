//! An entity whose answers name the events they depend on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::*;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Counter {
    events: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    /// Records another event.
    Add,
    /// Records an event, and tells another counter by a message to do the same.
    Send { to: u64 },
    /// Forwards the command to another counter, which answers.
    Forward { to: u64 },
    /// Records another event, if their number is even.
    AddToEven,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum CounterEvent {
    Counted,
}
impl Event for CounterEvent {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("it has {events} events")]
pub(crate) struct Odd {
    pub(crate) events: u64,
}
impl Rejection for Odd {
    fn code(&self) -> &'static str {
        "odd"
    }
}

impl Entity for Counter {
    const KIND: &'static str = "counter";
    type Id = u64;
    type Command = Command;
    type Event = CounterEvent;
    /// The number of events, including this command's.
    type Reply = u64;
    type Rejection = Odd;

    fn creates(_: &Command) -> bool {
        true
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Odd> {
        match command {
            Command::AddToEven if !self.events.is_multiple_of(2) => return Err(Odd { events: self.events }),
            Command::Add | Command::AddToEven => {}
            Command::Send { to } => turn.send::<Self>(to, Command::Add),
            Command::Forward { to } => return Ok(CommandAnswer::forward::<Self>(to, Command::Add)),
        }
        turn.emit(CounterEvent::Counted);
        Ok(CommandAnswer::after(|counter: &Self| counter.events))
    }

    fn evolve(&mut self, _: &CounterEvent) {
        self.events += 1;
    }
}

/// The query for the number of events.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Events {}

impl Query<Counter> for Events {
    const NAME: &'static str = "events";
    type Answer = u64;
    fn answer(self, counter: &Counter, _: &Moment<'_, Counter>) -> Result<u64, Odd> {
        Ok(counter.events)
    }
}
