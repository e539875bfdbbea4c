//! The service of the long run: tickets that get notes for a while and end, and counters that never end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use throng_app::{
    App,
    model::{CommandAnswer, Entity, Event, Keep, Rejection, Turn},
};

/// The number of events that are kept of each counter.
const COUNTER_KEEPS: u64 = 100;

pub(crate) fn app() -> App {
    App::new("long").with::<Ticket>().with::<Counter>()
}

#[derive(Default, Serialize, Deserialize)]
struct Ticket {
    notes: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TicketCommand {
    /// Opens the ticket, or adds a note to it.
    Note {
        /// The text of the note.
        text: String,
    },
    /// Ends the ticket.
    Close {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TicketEvent {
    Noted { text: String },
    Closed {},
}

impl Event for TicketEvent {}

/// The most notes of a ticket.
const NOTES_MAX: u32 = 1_000;

/// The reason for which a ticket refuses a command.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
enum Refusal {
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ticket has {NOTES_MAX} notes already")
    }
}

impl std::error::Error for Refusal {}

impl Rejection for Refusal {
    fn code(&self) -> &'static str {
        "full"
    }
}

/// The query for the number of notes.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Count {
    count: u64,
}

impl Entity for Ticket {
    const KIND: &'static str = "ticket";
    const PUBLIC: &'static [&'static str] = &["note", "close"];
    type Id = String;
    type Command = TicketCommand;
    type Event = TicketEvent;
    type Reply = Count;
    type Rejection = Refusal;

    fn creates(command: &TicketCommand) -> bool {
        matches!(command, TicketCommand::Note { .. })
    }

    fn decide(&self, command: TicketCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refusal> {
        match command {
            TicketCommand::Note { .. } if self.notes >= NOTES_MAX => return Err(Refusal::Full),
            TicketCommand::Note { text } => turn.emit(TicketEvent::Noted { text }),
            TicketCommand::Close {} => {
                turn.emit(TicketEvent::Closed {});
                turn.end();
            }
        }
        Ok(CommandAnswer::after(|ticket: &Self| Count {
            count: u64::from(ticket.notes),
        }))
    }

    fn evolve(&mut self, event: &TicketEvent) {
        self.notes += u32::from(matches!(event, TicketEvent::Noted { .. }));
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Counter {
    count: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CounterCommand {
    Add {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CounterEvent {
    Added {},
}

impl Event for CounterEvent {}

impl Entity for Counter {
    const KIND: &'static str = "counter";
    const KEEP: Keep = Keep::Events(COUNTER_KEEPS);
    const PUBLIC: &'static [&'static str] = &["add"];
    type Id = String;
    type Command = CounterCommand;
    type Event = CounterEvent;
    type Reply = Count;
    type Rejection = Refusal;

    fn creates(_: &CounterCommand) -> bool {
        true
    }

    fn decide(&self, _: CounterCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refusal> {
        turn.emit(CounterEvent::Added {});
        Ok(CommandAnswer::after(|counter: &Self| Count { count: counter.count }))
    }

    fn evolve(&mut self, _: &CounterEvent) {
        self.count += 1;
    }
}
