//! Small entities for tests that need any entity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::*;

/// The rejection of an entity that never rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("never")]
pub struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

/// Counts its hits, so that a test sees an event lost or applied twice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counter {
    hits: u64,
}

/// Commands of a counter. Each answers with its hits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Command {
    /// Hits it once.
    Hit {},
    /// Hits it a thousand times, and is not public.
    Grant {},
    /// Hits it once, also after its end.
    Begin {},
    /// Ends it.
    Close {},
    /// The entity refuses it.
    Refuse {},
    /// Panics.
    Crash {},
}

/// Events of a counter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub enum CounterEvent {
    /// The counter was hit.
    Hit {
        /// The number of hits.
        by: u64,
    },
    /// The counter has ended.
    Closed {},
}
impl Event for CounterEvent {}

/// The refusal of a counter, and of any entity that refuses without a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("this counter does not like that")]
pub struct Dislike;
impl Rejection for Dislike {
    fn code(&self) -> &'static str {
        "dislike"
    }
}

impl Entity for Counter {
    const KIND: &'static str = "counter";
    const PUBLIC: &'static [&'static str] = &["Hit", "Begin", "Close", "Refuse", "Crash"];
    type Id = String;
    type Command = Command;
    type Event = CounterEvent;
    type Reply = u64;
    type Rejection = Dislike;

    fn recreates(command: &Command) -> bool {
        matches!(command, Command::Begin {})
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Dislike> {
        match command {
            Command::Hit {} | Command::Begin {} => turn.emit(CounterEvent::Hit { by: 1 }),
            Command::Grant {} => turn.emit(CounterEvent::Hit { by: 1_000 }),
            Command::Close {} => {
                turn.emit(CounterEvent::Closed {});
                turn.end();
            }
            Command::Refuse {} => return Err(Dislike),
            Command::Crash {} => panic!("the counter fell over"),
        }
        Ok(CommandAnswer::after(|counter: &Self| counter.hits))
    }

    fn evolve(&mut self, event: &CounterEvent) {
        if let CounterEvent::Hit { by } = event {
            self.hits += by;
        }
    }
}

/// Asks how often a counter was hit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Hits;

impl Query<Counter> for Hits {
    const NAME: &'static str = "Hits";
    type Answer = u64;

    fn answer(self, counter: &Counter, _: &Moment<'_, Counter>) -> Result<u64, Dislike> {
        Ok(counter.hits)
    }
}
