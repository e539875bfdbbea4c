//! Slow commands: the time for which a command waited before it ran does not count.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Waker},
};
use throng::{
    Engine,
    host::{Host, TokioHost},
    journal::{MemoryJournal, MemoryStore},
    model::*,
};
use throng_testing::{delegate, fixtures::Never};

/// A host whose clock advances only on request.
pub(crate) struct Stopwatch {
    pub(crate) host: TokioHost,
    pub(crate) micros: Arc<AtomicU64>,
}

impl Host for Stopwatch {
    delegate!(Host, host: now entropy spawn sleep close);

    fn elapsed_micros(&self) -> u64 {
        self.micros.load(SeqCst)
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Door {
    opened: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Open,
    /// Reports that it is running, and continues when allowed.
    Hold,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum DoorEvent {
    Opened,
}
impl Event for DoorEvent {}

static HELD: OnceLock<(Sender<()>, Mutex<Receiver<()>>)> = OnceLock::new();

impl Entity for Door {
    const KIND: &'static str = "door";
    type Id = String;
    type Command = Command;
    type Event = DoorEvent;
    type Reply = u32;
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        if matches!(command, Command::Hold) {
            let (holds, may_go) = HELD.get().unwrap();
            holds.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        }
        turn.emit(DoorEvent::Opened);
        Ok(CommandAnswer::after(|door: &Self| door.opened))
    }

    fn evolve(&mut self, _: &DoorEvent) {
        self.opened += 1;
    }
}

fn slow_commands(engine: &Engine) -> String {
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("throng_commands_slow_total "));
    line.unwrap().rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waited_for_its_shard_was_not_slow() {
    let (holds, is_held) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    HELD.set((holds, Mutex::new(may_go))).unwrap();
    let micros = Arc::new(AtomicU64::new(1_000_000));
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder()
        .with::<Door>()
        .host(Arc::new(Stopwatch {
            host: TokioHost::new().unwrap(),
            micros: micros.clone(),
        }))
        .start(journal, store)
        .await
        .unwrap();
    engine.entity::<Door>("front").ask(Command::Open).await.unwrap();

    let slow = tokio::spawn({
        let door = engine.entity::<Door>("front");
        async move { door.ask(Command::Hold).await }
    });
    tokio::task::block_in_place(|| is_held.recv().unwrap());
    let mut waits = pin!(engine.entity::<Door>("front").ask(Command::Open));
    // The command is now in the shard's inbox.
    let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    micros.fetch_add(200_000, SeqCst);
    go.send(()).unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), 2);
    assert_eq!(waits.await.unwrap(), 3);
    assert_eq!(slow_commands(&engine), "1", "only the one that was at work");
}
