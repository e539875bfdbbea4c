//! An entity without events, which only forwards and sends.

use crate::account::{Account, Command as AccountCommand, No, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::*;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    /// The account answers.
    Pass { op: u64, to: u64, amount: i64 },
    /// The account gets a message, and the relay answers.
    Post { op: u64, to: u64, amount: i64 },
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum Nothing {
    Never {},
}

impl Event for Nothing {}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Relay {}

impl Entity for Relay {
    const KIND: &'static str = "relay";
    type Id = u64;
    type Command = Command;
    type Event = Nothing;
    type Reply = View;
    type Rejection = No;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, No> {
        // Only the kind and the command of the receiver count, not its generation.
        match command {
            Command::Pass { op, to, amount } => {
                let parts = 1;
                Ok(CommandAnswer::forward::<Account<1>>(
                    to,
                    AccountCommand::Add { op, amount, parts },
                ))
            }
            Command::Post { op, to, amount } => {
                turn.send::<Account<1>>(to, AccountCommand::Receive { op, part: 0, amount });
                Ok(CommandAnswer::Now(View {
                    id: *turn.id(),
                    ..View::default()
                }))
            }
        }
    }

    fn evolve(&mut self, _: &Nothing) {}
}
