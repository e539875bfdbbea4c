//! Diaries: entities of three kinds with different retention.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::model::*;
pub(crate) use throng_testing::fixtures::Never;

pub(crate) const KINDS: [&str; 3] = ["forever", "aged", "counted"];
pub(crate) const FOREVER: usize = 0;
pub(crate) const AGED: usize = 1;
pub(crate) const COUNTED: usize = 2;
pub(crate) const AGE: Duration = Duration::from_secs(2);
pub(crate) const EVENTS: u64 = 3;

/// Returns the retention option of an engine.
pub(crate) fn keep() -> [(String, Keep); 2] {
    let keep = [(AGED, Keep::Age(AGE)), (COUNTED, Keep::Events(EVENTS))];
    keep.map(|(kind, keep)| (KINDS[kind].to_owned(), keep))
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Diary<const K: usize> {
    count: u64,
    sum: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    /// Writes a number, and sends it to another diary.
    Write {
        number: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
    /// Writes a number, even if the diary has ended.
    Begin {
        number: u64,
    },
    Close,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum DiaryEvent {
    Written { number: u64, by: String },
    Closed,
}
impl Event for DiaryEvent {}

/// Returns a text that only an entity's own events contain.
pub(crate) fn secret(kind: usize, id: u64) -> String {
    format!("secret of {} {id}", KINDS[kind])
}

impl<const K: usize> Entity for Diary<K> {
    const KIND: &'static str = KINDS[K];
    type Id = u64;
    type Command = Command;
    type Event = DiaryEvent;
    type Reply = u64;
    type Rejection = Never;

    fn recreates(command: &Command) -> bool {
        matches!(command, Command::Begin { .. })
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Command::Begin { number } => {
                let by = secret(K, *turn.id());
                turn.emit(DiaryEvent::Written { number, by });
            }
            Command::Write { number, to } => {
                let by = secret(K, *turn.id());
                turn.emit(DiaryEvent::Written { number, by });
                if let Some(to) = to {
                    turn.send::<Self>(to, Command::Write { number, to: None });
                }
            }
            Command::Close => {
                turn.emit(DiaryEvent::Closed);
                turn.end();
            }
        }
        Ok(CommandAnswer::after(|diary: &Self| diary.count))
    }

    fn evolve(&mut self, event: &DiaryEvent) {
        if let DiaryEvent::Written { number, .. } = event {
            self.count += 1;
            self.sum += number;
        }
    }
}

/// The query for the number of entries and their sum.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Look;

impl<const K: usize> Query<Diary<K>> for Look {
    const NAME: &'static str = "Look";
    type Answer = (u64, u64);

    fn answer(self, diary: &Diary<K>, _: &Moment<'_, Diary<K>>) -> Result<(u64, u64), Never> {
        Ok((diary.count, diary.sum))
    }
}
