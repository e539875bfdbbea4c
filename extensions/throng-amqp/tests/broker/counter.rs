//! The commands of a counter, as messages contain them.

use serde::{Deserialize, Serialize};
use throng::model::Entity as _;
use throng_amqp::{EntityCommand, Message, frame};
pub(crate) use throng_testing::fixtures::{Command, Counter, CounterEvent, Hits};

/// A message's body: the counter, and its command.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) counter: String,
    pub(crate) command: String,
}

pub(crate) fn ask(counter: &str, command: &str) -> Vec<u8> {
    let (counter, command) = (counter.to_owned(), command.to_owned());
    serde_json::to_vec(&Ask { counter, command }).unwrap()
}

/// Reads single messages, and messages that contain several commands.
pub(crate) fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
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
