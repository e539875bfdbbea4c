//! A small entity, and what messages ask of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::*;
use throng_amqp::{EntityCommand, Incoming, frame};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Counter {
    hits: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Hit {},
    Refuse {},
    Crash {},
    /// Rows of the service's own.
    Grant {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Happened {
    Hit { by: u64 },
}
impl Event for Happened {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("this counter does not like that")]
pub(crate) struct Dislike;
impl Rejection for Dislike {
    fn code(&self) -> &'static str {
        "dislike"
    }
}

impl Entity for Counter {
    const KIND: &'static str = "counter";
    const PUBLIC: &'static [&'static str] = &["Hit", "Refuse", "Crash"];
    type Id = String;
    type Command = Command;
    type Event = Happened;
    type Reply = u64;
    type Rejection = Dislike;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Dislike> {
        match command {
            Command::Hit {} => turn.emit(Happened::Hit { by: 1 }),
            Command::Grant {} => turn.emit(Happened::Hit { by: 1_000 }),
            Command::Refuse {} => return Err(Dislike),
            Command::Crash {} => panic!("the counter fell over"),
        }
        Ok(Answer::after(|counter: &Counter| counter.hits))
    }

    fn evolve(&mut self, Happened::Hit { by }: &Happened) {
        self.hits += by;
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Hits;

impl Query<Counter> for Hits {
    const NAME: &'static str = "Hits";
    type Answer = u64;

    fn answer(self, counter: &Counter, _: &Moment<'_, Counter>) -> Result<u64, Dislike> {
        Ok(counter.hits)
    }
}

/// A message's body: which counter, and what it is asked.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) counter: String,
    pub(crate) command: String,
}

pub(crate) fn ask(counter: &str, command: &str) -> Vec<u8> {
    let (counter, command) = (counter.to_owned(), command.to_owned());
    serde_json::to_vec(&Ask { counter, command }).unwrap()
}

/// Reads messages and frames of them.
pub(crate) fn read(message: &Incoming<'_>) -> Result<Vec<EntityCommand>, String> {
    frame::commands(message, |body| {
        let Ask { counter, command } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        assert_ne!(command, "Panic", "the reader fell over");
        let kind = if command == "Nothing" { "nothing" } else { Counter::KIND };
        Ok(match command.strip_prefix("private ") {
            Some(command) => EntityCommand::private(kind, counter, command.to_owned(), Vec::new()),
            None => EntityCommand::new(kind, counter, command, Vec::new()),
        })
    })
}
