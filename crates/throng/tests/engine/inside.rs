//! Internal messages between entities, and entities that cannot be loaded, delay no other work.

use crate::kinds::{self, Command, World, ask, balance, eventually, open};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use throng::{
    Engine, Options,
    driver::Execution,
    journal::{
        Address, CommitNo, Error as JournalError, Journal, Loaded, Maybe, MemoryJournal, MemoryStore, Position,
        ShardId, Store, StoredState, WriterId,
    },
    model::*,
};
use throng_testing::{delegate, fixtures::Never};

/// The fault of an entity's row.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The row is damaged permanently.
    Damaged,
    /// The row cannot be read for a while.
    Away,
    /// The row can be read, but not decoded.
    Garbled,
}

/// A store in which one entity's row cannot be read.
struct Unreadable {
    store: MemoryStore,
    id: &'static str,
    fault: Fault,
    is_unreadable: Arc<AtomicBool>,
}

impl Store for Unreadable {
    delegate!(Store, store: covers advance history entities system system_scan remove_prefix);

    fn load(&self, address: &Address, version: u16) -> Maybe<'_, Result<Loaded, JournalError>> {
        if &*address.id != self.id || !self.is_unreadable.load(SeqCst) {
            return self.store.load(address, version);
        }
        let why = "a bit fell over".into();
        Maybe::Ready(match self.fault {
            Fault::Damaged => Err(JournalError::Row {
                address: address.clone(),
                why,
            }),
            Fault::Away => Err(JournalError::backend("reading", why)),
            Fault::Garbled => {
                let Maybe::Ready(loaded) = self.store.load(address, version) else {
                    panic!("memory answers at once")
                };
                loaded.map(|loaded| Loaded {
                    state: loaded.events.last().map(|last| StoredState {
                        address: address.clone(),
                        shard: ShardId(0),
                        seq: last.seq,
                        version,
                        bytes: b"half of a st".to_vec(),
                    }),
                    events: Vec::new(),
                })
            }
        })
    }
}

/// Returns an engine with three accounts in the store, one of them unreadable, and room for eight messages in memory.
async fn engine_with_one_unreadable(fault: Fault) -> (Engine, Arc<AtomicBool>) {
    let world = World::new();
    let engine = world.engine().await;
    for id in ["payer", "bad", "good"] {
        open(&engine, id, 1_000).await;
    }
    engine.stop().await;
    unreadable(&world, fault).await
}

async fn unreadable(world: &World, fault: Fault) -> (Engine, Arc<AtomicBool>) {
    let is_unreadable = Arc::new(AtomicBool::new(true));
    let store = Unreadable {
        store: world.store.clone(),
        id: "bad",
        fault,
        is_unreadable: is_unreadable.clone(),
    };
    let engine = World::builder()
        .options(Options {
            outbox_max: 8,
            ..Options::default()
        })
        .start_shared(Arc::new(world.journal.clone()), Arc::new(store))
        .await
        .unwrap();
    (engine, is_unreadable)
}

fn by() -> throng::OperatorDecision<'static> {
    throng::OperatorDecision::new("ann", "it is gone")
}

/// Pays, and repeats that while the engine has no room for the message.
async fn pay(engine: &Engine, to: &str) {
    let command = || Command::pay(to, 1);
    eventually(async || match ask(engine, "payer", command()).await {
        Ok(_) => true,
        Err(Error::Overloaded { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
}

#[tokio::test]
async fn an_unloadable_entity_holds_up_none_and_catches_up_in_order() {
    let (engine, is_unreadable) = engine_with_one_unreadable(Fault::Away).await;
    for _ in 0..40 {
        pay(&engine, "bad").await;
        pay(&engine, "good").await;
    }
    eventually(async || balance(&engine, "good").await == 1_040).await;
    let stuck = engine.stuck();
    assert_eq!(stuck.len(), 1);
    eventually(async || engine.stuck()[0].messages == 40).await;
    assert!(
        stuck[0].since.micros > 0 && engine.stuck()[0].since == stuck[0].since,
        "since the first time"
    );
    assert_eq!(&*stuck[0].address.id, "bad");
    assert!(
        stuck[0].reason.contains("account/bad cannot be loaded"),
        "{}",
        stuck[0].reason
    );
    engine.checkpoint().await.unwrap();

    is_unreadable.store(false, SeqCst);
    eventually(async || engine.stuck().is_empty()).await;
    eventually(async || balance(&engine, "bad").await == 1_040).await;
    assert_eq!(engine.dead_messages(None, None, 10).await.unwrap().messages.len(), 0);
}

#[tokio::test]
async fn an_operator_can_retry_a_damaged_entity_and_its_messages() {
    let (engine, is_unreadable) = engine_with_one_unreadable(Fault::Damaged).await;
    for _ in 0..40 {
        pay(&engine, "bad").await;
    }
    open(&engine, "another", 1).await;
    let dead = async || engine.dead_messages(None, None, 100).await.unwrap().messages;
    eventually(async || dead().await.len() == 40).await;
    assert!(dead().await[0].reason.contains("a bit fell over"));
    let quarantined = engine.quarantined(10).await.unwrap();
    assert_eq!(quarantined.len(), 1);
    assert_eq!(&*quarantined[0].address.id, "bad");
    assert_eq!(quarantined[0].refused, 40);
    assert!(quarantined[0].since.micros > 0 && quarantined[0].since <= dead().await[0].at);
    assert_eq!(engine.populations().await.unwrap()[0].quarantined, 1);
    let refused = ask(&engine, "bad", Command::Deposit { amount: 1 }).await;
    assert!(matches!(refused, Err(Error::Quarantined { .. })), "{refused:?}");

    is_unreadable.store(false, SeqCst);
    assert!(engine.release("account", "bad", by()).await.unwrap());
    assert_eq!(engine.populations().await.unwrap()[0].quarantined, 0);
    assert_eq!(balance(&engine, "bad").await, 1_000);
    let (tried, _) = engine.retry_all_dead("account", "bad", None).await.unwrap();
    assert_eq!(tried.len(), 40);
    assert_eq!(balance(&engine, "bad").await, 1_040);
}

#[tokio::test]
async fn an_operator_cancels_an_unfirable_timer_for_good() {
    let world = World::new();
    let engine = world.engine().await;
    for id in ["bad", "good"] {
        open(&engine, id, 1_000).await;
        let every_ms = Some(1);
        let remind = Command::remind(1, every_ms);
        ask(&engine, id, remind).await.unwrap();
    }
    engine.stop().await;
    let (engine, _) = unreadable(&world, Fault::Damaged).await;
    let late = async || engine.late_timers(9).await.unwrap();
    eventually(async || late().await.len() == 1).await;
    assert_eq!(
        (&*late().await[0].due.address.id, &*late().await[0].due.name),
        ("bad", "tick")
    );
    for (id, name) in [("good", "tick"), ("bad", "tock")] {
        let told = engine.cancel_late_timer("account", id, name, by()).await.unwrap_err();
        assert!(matches!(told, Error::Unknown { .. }), "{told}");
    }
    engine.cancel_late_timer("account", "bad", "tick", by()).await.unwrap();
    assert_eq!(late().await, []);
    engine.stop().await;
    let again = world.engine().await;
    let timers = async |id: &str| again.timers_of(0, id, 9).await.unwrap().len();
    assert_eq!((timers("bad").await, timers("good").await), (0, 1));
}

#[tokio::test]
async fn a_request_to_a_quarantined_entity_is_answered() {
    let (engine, _) = engine_with_one_unreadable(Fault::Damaged).await;
    let collect = Command::collect("bad", 1);
    ask(&engine, "payer", collect).await.unwrap();
    eventually(async || kinds::text(&engine, "payer").await.contains("a bit fell over")).await;
    assert!(
        kinds::text(&engine, "payer")
            .await
            .starts_with("bad/bad: the entity is quarantined")
    );
    let dead = engine.dead_messages(None, None, 9).await.unwrap();
    assert_eq!(dead.messages, [], "whoever asked knows");
}

#[tokio::test]
async fn an_entity_with_senseless_state_is_rebuilt_from_events() {
    let (engine, _) = engine_with_one_unreadable(Fault::Garbled).await;
    assert_eq!(balance(&engine, "bad").await, 1_000);
    pay(&engine, "bad").await;
    eventually(async || balance(&engine, "bad").await == 1_001).await;
    assert!(engine.quarantined(10).await.unwrap().is_empty());
}

#[derive(Default, Serialize, Deserialize)]
struct Ball {
    hits: u64,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Play {
    Open,
    /// Records an event and tells the other entity to do the same, for ever.
    Hit {
        to: String,
        back: String,
    },
    /// Publishes a value, and another entity answers.
    Pass {
        to: String,
    },
    Look,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Hit {
    Hit { padding: String },
}
impl Event for Hit {}

const PASSES: Topic<u32> = Topic::new("passes");

impl Entity for Ball {
    const KIND: &'static str = "ball";
    type Id = String;
    type Command = Play;
    type Event = Hit;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, command: Play, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Play::Hit { to, back } => {
                turn.emit(Hit::Hit {
                    padding: "x".repeat(1_000),
                });
                turn.send::<Self>(to.clone(), Play::Hit { to: back, back: to });
            }
            Play::Pass { to } => {
                turn.publish(&PASSES, 1);
                return Ok(CommandAnswer::forward::<Self>(to, Play::Look));
            }
            Play::Open => turn.emit(Hit::Hit { padding: String::new() }),
            Play::Look => {}
        }
        Ok(CommandAnswer::after(|ball: &Self| ball.hits))
    }

    fn evolve(&mut self, _: &Hit) {
        self.hits += 1;
    }
}

/// Returns the size of the journal's largest commit, in bytes.
pub(crate) async fn largest_commit(journal: &MemoryJournal) -> usize {
    let begin = Position::new(WriterId(1), CommitNo(0));
    let commits = journal.read(begin, usize::MAX).await.unwrap();
    commits.iter().map(|commit| commit.bytes().len()).max().unwrap()
}

//= promise 9: everything is bounded
#[tokio::test]
async fn endless_messages_stop_no_commit_and_fill_none_without_bound() {
    const COMMIT_BYTES_MAX: usize = 64 << 10;
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder()
        .with::<Ball>()
        .options(Options {
            commit_bytes_max: COMMIT_BYTES_MAX,
            ..Options::default()
        })
        .start_shared(Arc::new(journal.clone()), Arc::new(store))
        .await
        .unwrap();
    for id in ["a", "b", "quiet"] {
        engine.entity::<Ball>(id).ask(Play::Open).await.unwrap();
    }
    let (to, back) = ("b".into(), "a".into());
    engine.entity::<Ball>("a").ask(Play::Hit { to, back }).await.unwrap();
    let before = engine.metrics().commits();
    let (mut asked, mut hits) = (0, 0);
    while asked < 100 || hits <= 100 {
        engine.entity::<Ball>("quiet").ask(Play::Open).await.unwrap();
        asked += 1;
        hits = engine.entity::<Ball>("a").ask(Play::Look).await.unwrap();
        assert!(asked < 10_000, "the exchange goes on: {hits}");
    }
    assert!(engine.metrics().commits() >= before + asked);
    let largest = largest_commit(&journal).await;
    assert!(largest < 2 * COMMIT_BYTES_MAX, "a commit had {largest} bytes");
}

#[tokio::test]
async fn messages_are_taken_also_with_tiny_commits() {
    for commit_bytes_max in [0, 1] {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let engine = Engine::builder().with::<Ball>().options(Options {
            commit_bytes_max,
            ..Options::default()
        });
        let engine = engine.start_shared(Arc::new(journal), Arc::new(store)).await.unwrap();
        for id in ["a", "b"] {
            engine.entity::<Ball>(id).ask(Play::Open).await.unwrap();
        }
        let (to, back) = ("b".into(), "a".into());
        engine.entity::<Ball>("a").ask(Play::Hit { to, back }).await.unwrap();
        eventually(async || engine.entity::<Ball>("b").ask(Play::Look).await.unwrap() >= 3).await;
    }
}

#[tokio::test]
async fn a_forwarded_command_publishes_once_despite_retries() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder().with::<Ball>().start(journal, store).await.unwrap();
    for id in ["a", "b"] {
        engine.entity::<Ball>(id).ask(Play::Open).await.unwrap();
    }
    let mut listener = engine.topic(&PASSES).unwrap().subscribe();
    let driver = engine.driver();
    let attempt = driver.command(0, "a", "Pass", br#"{"to":"b"}"#.as_slice()).unwrap();
    let mut executed = match driver.try_now(attempt) {
        Execution::Done(executed) => executed,
        Execution::Wait(waiting) => driver.execute(waiting.into_owned()).await.unwrap(),
        Execution::Refused(error) => panic!("{error}"),
    };
    assert_eq!(executed.answer().await.unwrap(), b"1");
    assert_eq!(engine.entity::<Ball>("a").ask(Play::Look).await.unwrap(), 1);
    let mut count = 0;
    while listener.try_next().is_some() {
        count += 1;
    }
    assert_eq!(count, 1);
}
