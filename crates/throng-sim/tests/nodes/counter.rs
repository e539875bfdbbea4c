//! An entity whose answers say which of its events they rest on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::*;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Counter {
    events: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    /// Records one more event.
    Add,
    /// Counts, and has another one count by a message.
    Send { to: u64 },
    /// Another one counts, and answers.
    Forward { to: u64 },
    /// Records one more event, if there is an even number of them.
    AddToEven,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum Happened {
    Counted,
}
impl Event for Happened {}

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
    type Event = Happened;
    /// The number of events with this command's.
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
        turn.emit(Happened::Counted);
        Ok(CommandAnswer::after(|counter: &Self| counter.events))
    }

    fn evolve(&mut self, _: &Happened) {
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
