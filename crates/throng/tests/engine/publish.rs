//! What entities publish: live, in order, and not before it is durable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::pin::pin;
use throng::{
    Engine,
    journal::{
        Append, Commit, CommitNo, Durability, Error as JournalError, Journal, Later, Maybe, MemoryJournal, MemoryStore,
        Opened, Place, Position, ShardId, Taken, WriterId,
    },
    model::{Answer, Entity, Error, Event, Rejection, Topic, Turn},
    services::bus::Heard,
};
use tokio::sync::watch;

const TICKS: Topic<String> = Topic::new("ticks");

#[derive(Default, Serialize, Deserialize)]
struct Clock(u64);

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Tick,
    /// Publishes, and happens to be no event.
    Look,
    /// Publishes, and says no.
    Refuse,
    /// Publishes, and panics.
    Break,
    PublishMany {
        count: usize,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Happened {
    Tick,
}

impl Event for Happened {}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("no")]
struct No;

impl Rejection for No {
    fn code(&self) -> &'static str {
        "no"
    }
}

impl Entity for Clock {
    const KIND: &'static str = "clock";
    type Id = String;
    type Command = Command;
    type Event = Happened;
    type Reply = u64;
    type Rejection = No;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, No> {
        let said = |what: &str| format!("{} {what} {}", turn.id(), self.0);
        match command {
            Command::Tick => {
                turn.publish(&TICKS, said("ticks after"));
                turn.emit(Happened::Tick);
            }
            Command::Look => turn.publish(&TICKS, said("shows")),
            Command::Refuse => {
                turn.publish(&TICKS, said("refuses at"));
                return Err(No);
            }
            Command::Break => {
                turn.publish(&TICKS, said("breaks at"));
                panic!("it was asked to");
            }
            Command::PublishMany { count } => (0..count).for_each(|n| turn.publish(&TICKS, n.to_string())),
        }
        Ok(Answer::after(|clock: &Self| clock.0))
    }

    fn evolve(&mut self, _: &Happened) {
        self.0 += 1;
    }
}

/// A journal that appends nothing until it may.
pub(crate) struct Held(pub(crate) MemoryJournal, pub(crate) watch::Receiver<bool>);

impl Journal for Held {
    fn append(&self, commit: Commit) -> Append {
        let (journal, mut may) = (self.0.clone(), self.1.clone());
        Append::Later(Box::pin(async move {
            may.wait_for(|may| *may).await.unwrap();
            match journal.append(commit) {
                Append::Done(appended) => appended,
                Append::Later(appended) => appended.await,
            }
        }))
    }
    fn open(&self, node: &str) -> Later<'_, Result<Opened, JournalError>> {
        self.0.open(node)
    }
    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, JournalError>> {
        self.0.take(by, shards)
    }
    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, JournalError>> {
        self.0.seal(writer)
    }
    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, JournalError>> {
        self.0.read(after, bytes_max)
    }
    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, JournalError>> {
        self.0.read_at(places)
    }
    fn forget(&self, upto: Position) {
        self.0.forget(upto);
    }
    fn depth(&self) -> usize {
        1
    }
    fn durability(&self) -> Durability {
        self.0.durability()
    }
}

fn run(may: bool, test: impl AsyncFnOnce(Engine, watch::Sender<bool>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let (gate, may) = watch::channel(may);
        let builder = Engine::builder().with::<Clock>();
        let journal: Box<dyn Journal> = Box::new(Held(journal, may));
        let engine = builder.start(journal, store).await.unwrap();
        test(engine.clone(), gate).await;
        engine.stop().await;
    });
}

#[test]
fn only_accepted_commands_publish_and_in_order() {
    run(true, async |engine, _gate| {
        let clock = || engine.entity::<Clock>("a");
        let mut first = engine.topic(&TICKS).unwrap().subscribe();
        clock().ask(Command::Tick).await.unwrap();
        assert_eq!(first.next().await, Some(Heard::Event("a ticks after 0".to_owned())));
        // OnOutcome what comes from now on.
        let mut ticks = engine.topic(&TICKS).unwrap().subscribe();
        clock().ask(Command::Tick).await.unwrap();
        assert_eq!(clock().ask(Command::Refuse).await, Err(Error::Rejected(No)));
        clock().ask(Command::Break).await.unwrap_err();
        clock().ask(Command::Look).await.unwrap();
        clock().ask(Command::Tick).await.unwrap();
        let refused = clock().ask(Command::PublishMany { count: 1_001 }).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
        clock().ask(Command::PublishMany { count: 1_000 }).await.unwrap();
        for expected in ["a ticks after 1", "a shows 2", "a ticks after 2", "0", "1"] {
            assert_eq!(ticks.next().await, Some(Heard::Event(expected.to_owned())));
        }
        assert!(engine.topic(&Topic::<u64>::new("ticks")).is_err(), "it has texts");
    });
}

//= promise 3: answers rest on durable events
#[test]
fn nothing_is_published_before_it_is_durable() {
    run(false, async |engine, gate| {
        let mut ticks = engine.topic(&TICKS).unwrap().subscribe();
        {
            let mut asked = pin!(engine.entity::<Clock>("a").ask(Command::Tick));
            let mut looked = pin!(engine.entity::<Clock>("a").ask(Command::Look));
            for _ in 0..100 {
                tokio::select! {
                    biased;
                    _ = &mut asked => panic!("its commit is held"),
                    // It rests on the tick.
                    _ = &mut looked => panic!("its commit is held"),
                    () = tokio::task::yield_now() => {}
                }
            }
            assert_eq!(ticks.try_next(), None);
            gate.send(true).unwrap();
            assert_eq!((asked.await, looked.await), (Ok(1), Ok(1)));
        }
        for expected in ["a ticks after 0", "a shows 1"] {
            assert_eq!(ticks.next().await, Some(Heard::Event(expected.to_owned())));
        }
    });
}
