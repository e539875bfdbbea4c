//! An entity that keeps a text, and an engine for it on a disk in memory.

use crate::{
    disk::Disk,
    kit::{DIR, options},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use throng::{Builder, Engine, Options, model::*};
use throng_log::{EmbeddedStore, open_embedded};
use throng_testing::eventually_ok;
pub use throng_testing::fixtures::Never;

pub const ARCHIVE: &str = "archive";

#[derive(Default, Serialize, Deserialize)]
pub struct Note {
    count: u64,
    last: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub enum Command {
    Write {
        text: String,
    },
    /// Writes a text, even if the note has ended.
    Begin {
        text: String,
    },
    Close,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub enum NoteEvent {
    Written { text: String },
    Closed,
}
impl Event for NoteEvent {}

impl Entity for Note {
    const KIND: &'static str = "note";
    type Id = String;
    type Command = Command;
    type Event = NoteEvent;
    type Reply = u64;
    type Rejection = Never;

    fn recreates(command: &Command) -> bool {
        matches!(command, Command::Begin { .. })
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Command::Write { text } | Command::Begin { text } => turn.emit(NoteEvent::Written { text }),
            Command::Close => {
                turn.emit(NoteEvent::Closed);
                turn.end();
            }
        }
        Ok(CommandAnswer::after(|note: &Note| note.count))
    }

    fn evolve(&mut self, event: &NoteEvent) {
        if let NoteEvent::Written { text } = event {
            self.count += 1;
            self.last.clone_from(text);
        }
    }
}

/// The query for the number of texts, and the last one.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Look;

impl Query<Note> for Look {
    const NAME: &'static str = "Look";
    type Answer = (u64, String);

    fn answer(self, note: &Note, _: &Moment<'_, Note>) -> Result<(u64, String), Never> {
        Ok((note.count, note.last.clone()))
    }
}

/// An engine and its store.
pub struct Running {
    pub engine: Engine,
    pub store: Arc<EmbeddedStore>,
}

/// Takes the directory as soon as it is free: an engine that has ended may hold it a moment longer.
pub async fn once_free<T>(take: impl Fn() -> Result<T, throng_journal::Error>) -> T {
    let taken = eventually_ok("the directory is free", async || match take() {
        Err(in_use @ throng_journal::Error::InUse { .. }) => Err(in_use),
        taken => Ok(taken.unwrap()),
    });
    taken.await
}

/// Starts an engine on the disk as it is now, with a new process.
pub async fn start(disk: &Disk, keep: Keep) -> Running {
    start_in(disk, DIR, keep).await
}

/// Works like [`start`], in another directory.
pub async fn start_in(disk: &Disk, dir: &str, keep: Keep) -> Running {
    start_with(disk, dir, keep, |builder| builder).await
}

/// Works like [`start_in`], with more than the notes.
pub async fn start_with(disk: &Disk, dir: &str, keep: Keep, more: impl FnOnce(Builder) -> Builder) -> Running {
    let (log, store) = once_free(|| open_embedded(dir, options(disk))).await;
    log.set_archive(Some(PathBuf::from(ARCHIVE)));
    let options = Options {
        keep: BTreeMap::from([("note".to_owned(), keep)]),
        // Passes run only on a test's request.
        prune_every: Some(Duration::from_hours(1)),
        checkpoint_every: Duration::from_hours(1),
        // Long enough for a busy machine.
        deadline: Duration::from_mins(1),
        drain: Duration::from_mins(1),
        ..Options::default()
    };
    let builder = Engine::builder().with::<Note>().query::<Note, Look>().shards(2);
    let engine = more(builder.options(options))
        .start_shared(log, store.clone())
        .await
        .unwrap();
    Running { engine, store }
}

pub async fn write(engine: &Engine, id: &str, text: &str) {
    let text = text.to_owned();
    engine.entity::<Note>(id).ask(Command::Write { text }).await.unwrap();
}

pub async fn look(engine: &Engine, id: &str) -> Result<(u64, String), Error<Never>> {
    engine.entity::<Note>(id).read(Look).await
}

pub async fn seqs(engine: &Engine, id: &str) -> Vec<u64> {
    let history = engine.history(0, id, 0, 1_000).await.unwrap();
    history.events.iter().map(|event| event.seq).collect()
}
