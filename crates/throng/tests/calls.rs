//! Calls to external providers, from an engine on a journal in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use throng::{
    Builder, Engine, OperatorDecision, Options,
    journal::{
        Checkpoint, Commit, CommitNo, Journal, MemoryJournal, MemoryStore, Position, RecordKind, ShardSet, Store,
        WriterId,
    },
    model::*,
};
use throng_testing::{block_on, eventually, fixtures::Never};
use tokio::sync::Semaphore;

#[derive(Default, Serialize, Deserialize)]
struct Order {
    heard: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Pay { cents: u64, calls: u32 },
    Hang { calls: u32 },
    Break { calls: u32 },
    Block { calls: u32 },
    Cancel { call: CallId },
    Hear { text: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum OrderEvent {
    Called { call: CallId },
    Heard { text: String },
}
impl Event for OrderEvent {}

impl Entity for Order {
    const KIND: &'static str = "order";
    type Id = String;
    type Command = Command;
    type Event = OrderEvent;
    type Reply = Vec<String>;
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Command::Pay { cents, calls } => {
                for _ in 0..calls {
                    let call = turn
                        .call::<Payments>(Charge { cents })
                        .within(Duration::from_secs(60))
                        .id();
                    turn.emit(OrderEvent::Called { call });
                }
            }
            Command::Hang { calls } => {
                for cents in 0..calls.into() {
                    turn.call::<Hung>(Charge { cents });
                }
            }
            Command::Break { calls } => {
                for _ in 0..calls {
                    turn.call::<Hung>(Charge { cents: BROKEN });
                }
            }
            Command::Block { calls } => {
                for _ in 0..calls {
                    turn.call::<Hung>(Charge { cents: BLOCKING });
                }
            }
            Command::Cancel { call } => turn.cancel_call::<Payments>(call),
            Command::Hear { text } => turn.emit(OrderEvent::Heard { text }),
        }
        Ok(CommandAnswer::after(|order: &Self| order.heard.clone()))
    }

    fn evolve(&mut self, event: &OrderEvent) {
        match event {
            OrderEvent::Called { call } => self.heard.push(format!("called {call}")),
            OrderEvent::Heard { text } => self.heard.push(text.clone()),
        }
    }
}

impl OnCallOutcome<Payments> for Order {
    fn on_call_outcome(call: CallId, outcome: CallOutcome<String, String>) -> Command {
        let text = match outcome {
            CallOutcome::Answered(answer) => format!("{answer} of {call}"),
            CallOutcome::Failed(why) => format!("no: {why}"),
            CallOutcome::Refused(why) => format!("nothing was sent: {why}"),
            CallOutcome::Unknown(why) => format!("unknown: {why}"),
        };
        Command::Hear { text }
    }

    fn on_late_answer(_: CallId, answer: Result<String, String>) -> Command {
        Command::Hear {
            text: format!("late: {answer:?}"),
        }
    }
}

#[derive(JsonSchema, Serialize, Deserialize)]
struct Charge {
    cents: u64,
}

/// A provider. It declines 13 cents, panics at 14, cannot be reached at the first attempt with 15, and allows as many concurrent attempts as the test
/// sets.
struct Payments {
    may: Arc<Semaphore>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Outside for Payments {
    const NAME: &'static str = "payments";
    const CONCURRENCY: usize = 2;
    const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(2));
    type Request = Charge;
    type Answer = String;
    type Failure = String;

    async fn call(&self, charge: Charge, attempt: &Attempt) -> Result<String, CallError<String>> {
        self.keys.lock().unwrap().push(attempt.key());
        self.may.acquire().await.unwrap().forget();
        match (charge.cents, attempt.number) {
            (13, _) => Err(CallError::Failed("not 13".into())),
            (14, _) => panic!("a fault of the worker"),
            (15, 1) => Err(CallError::NotSent("no connection".into())),
            (cents, number) => Ok(format!("charged {cents} at {number}")),
        }
    }
}

struct World {
    journal: MemoryJournal,
    store: MemoryStore,
    may: Arc<Semaphore>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(may: usize) -> Self {
        let journal = MemoryJournal::new();
        Self {
            store: MemoryStore::new(journal.clone()),
            journal,
            may: Arc::new(Semaphore::new(may)),
            keys: Arc::default(),
        }
    }

    fn builder(&self) -> Builder {
        let payments = Payments {
            may: self.may.clone(),
            keys: self.keys.clone(),
        };
        Engine::builder().with::<Order>().outside::<Order, Payments>(payments)
    }

    async fn engine(&self) -> Engine {
        let started = self
            .builder()
            .start_shared(Arc::new(self.journal.clone()), Arc::new(self.store.clone()));
        started.await.unwrap()
    }

    async fn attempted(&self, times: usize) {
        eventually("so many attempts have begun", async || self.attempts() >= times).await;
    }

    fn attempts(&self) -> usize {
        self.keys.lock().unwrap().len()
    }

    /// Returns the records about an entity, or with this text. An erasure leaves its own note.
    async fn records_of(&self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for commit in self.commits().await {
            for record in commit.records().flatten() {
                let body = String::from_utf8_lossy(record.body);
                let is_note = [RecordKind::Ended, RecordKind::Erasure].contains(&record.record);
                if !is_note && (record.id == text || body.contains(text)) {
                    found.push(format!("{:?} of {}: {body}", record.record, record.id));
                }
            }
        }
        found
    }

    async fn commits(&self) -> Vec<Commit> {
        let mut commits = Vec::new();
        for stream in self.journal.streams(WriterId(0)).await.unwrap() {
            let start = Position::new(stream.writer, CommitNo(0));
            commits.extend(self.journal.read(start, usize::MAX).await.unwrap());
        }
        commits
    }
}

async fn pay(engine: &Engine, id: &str, cents: u64, calls: u32) -> Vec<String> {
    engine
        .entity::<Order>(id)
        .ask(Command::Pay { cents, calls })
        .await
        .unwrap()
}

/// Waits until an order has received this many outcomes, and returns them.
async fn heard(engine: &Engine, id: &str, count: usize) -> Vec<String> {
    let mut heard = Vec::new();
    eventually("the order has heard enough", async || {
        heard = pay(engine, id, 0, 0).await;
        heard.len() >= count
    })
    .await;
    heard
}

fn call_of(called: &str) -> CallId {
    called.strip_prefix("called ").unwrap().parse().unwrap()
}

#[test]
fn call_is_made_and_its_answer_comes_back_as_a_command() {
    block_on(async {
        let world = World::new(9);
        let engine = world.engine().await;
        pay(&engine, "a", 7, 1).await;
        let heard = heard(&engine, "a", 2).await;
        let call = call_of(&heard[0]);
        assert_eq!(heard[1], format!("charged 7 at 1 of {call}"));
        assert_eq!(*world.keys.lock().unwrap(), [call.to_string()]);
        let state = engine.entity::<Call<Payments>>(call).ask(CallCommand::Cancel {}).await;
        assert!(
            matches!(
                state,
                Err(Error::Ended {
                    kind: "call-payments",
                    ..
                })
            ),
            "{state:?}"
        );
        engine.stop().await;
    });
}

#[test]
fn refusal_of_the_provider_is_an_outcome() {
    block_on(async {
        let world = World::new(9);
        let engine = world.engine().await;
        pay(&engine, "a", 13, 1).await;
        assert_eq!(heard(&engine, "a", 2).await[1], "no: not 13");
        engine.stop().await;
    });
}

#[test]
fn attempt_that_was_not_sent_is_made_again_under_its_key() {
    block_on(async {
        let world = World::new(9);
        let engine = world.engine().await;
        pay(&engine, "a", 15, 1).await;
        let heard = heard(&engine, "a", 2).await;
        let call = call_of(&heard[0]);
        assert_eq!(heard[1], format!("charged 15 at 2 of {call}"));
        assert_eq!(*world.keys.lock().unwrap(), [call.to_string(), call.to_string()]);
        engine.stop().await;
    });
}

#[test]
fn calls_of_one_command_differ_and_wait_for_a_place() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        let called: HashSet<String> = pay(&engine, "a", 7, 5).await.into_iter().collect();
        assert_eq!(called.len(), 5);
        world.attempted(Payments::CONCURRENCY).await;
        world.may.add_permits(1);
        world.attempted(Payments::CONCURRENCY + 1).await;
        assert_eq!(
            world.attempts(),
            Payments::CONCURRENCY + 1,
            "the others wait for a place"
        );
        world.may.add_permits(9);
        assert_eq!(heard(&engine, "a", 10).await.len(), 10);
        engine.stop().await;
    });
}

#[test]
fn cancelled_call_under_way_keeps_the_outcome_of_its_attempt() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        let call = call_of(&pay(&engine, "a", 7, 1).await[0]);
        world.attempted(1).await;
        let order = engine.entity::<Order>("a");
        order.ask(Command::Cancel { call }).await.unwrap();
        world.may.add_permits(1);
        assert_eq!(heard(&engine, "a", 2).await[1], format!("charged 7 at 1 of {call}"));
        engine.stop().await;
    });
}

#[test]
fn panic_of_a_worker_costs_one_attempt() {
    block_on(async {
        let world = World::new(9);
        let engine = world.engine().await;
        let call = call_of(&pay(&engine, "a", 14, 1).await[0]);
        world.attempted(3).await;
        engine.entity::<Order>("a").ask(Command::Cancel { call }).await.unwrap();
        let heard = heard(&engine, "a", 2).await;
        assert!(heard[1].starts_with("unknown: "), "{heard:?}");
        engine.stop().await;
    });
}

#[test]
fn stop_waits_for_attempts_under_way() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        pay(&engine, "a", 7, 1).await;
        world.attempted(1).await;
        let permit = async {
            tokio::task::yield_now().await;
            world.may.add_permits(1);
        };
        tokio::join!(engine.stop(), permit);
        let again = world.engine().await;
        let heard = heard(&again, "a", 2).await;
        assert_eq!(heard[1], format!("charged 7 at 1 of {}", call_of(&heard[0])));
        assert_eq!(world.attempts(), 1, "the result was recorded before the end");
        again.stop().await;
    });
}

#[test]
fn quarantined_calls_take_no_place_from_others() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        let called = pay(&engine, "a", 7, 2).await;
        world.attempted(Payments::CONCURRENCY).await;
        for called in &called {
            let by = OperatorDecision::new("ann", "looks wrong");
            let call = call_of(called).to_string();
            engine.quarantine(Call::<Payments>::KIND, &call, by).await.unwrap();
        }
        pay(&engine, "b", 8, 1).await;
        world.may.add_permits(3);
        let heard = heard(&engine, "b", 2).await;
        assert_eq!(heard[1], format!("charged 8 at 1 of {}", call_of(&heard[0])));
        engine.stop().await;
    });
}

/// The cents of a call that cannot be sent.
const BROKEN: u64 = 1_000;
/// The cents of a call that blocks its thread for ever.
const BLOCKING: u64 = 1_001;

/// A provider that never answers, or cannot be reached. It counts its attempts.
struct Hung(Arc<AtomicUsize>);

impl Outside for Hung {
    const NAME: &'static str = "hung";
    const TIMEOUT: Duration = Duration::from_secs(3_600);
    const CONCURRENCY: usize = 2;
    const BREAKER: u32 = 3;
    const PAUSE: (Duration, Duration) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    type Request = Charge;
    type Answer = String;
    type Failure = String;

    async fn call(&self, charge: Charge, _: &Attempt) -> Result<String, CallError<String>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match charge.cents {
            BROKEN => Err(CallError::NotSent("no connection".into())),
            BLOCKING => loop {
                std::thread::park();
            },
            _ => std::future::pending().await,
        }
    }
}

impl OnCallOutcome<Hung> for Order {
    fn on_call_outcome(call: CallId, outcome: CallOutcome<String, String>) -> Command {
        <Self as OnCallOutcome<Payments>>::on_call_outcome(call, outcome)
    }

    fn on_late_answer(call: CallId, answer: Result<String, String>) -> Command {
        <Self as OnCallOutcome<Payments>>::on_late_answer(call, answer)
    }
}

/// Returns an engine with an additional provider that never answers, and the number of its attempts.
async fn hanging(world: &World, options: Options) -> (Engine, Arc<AtomicUsize>) {
    let attempts = Arc::new(AtomicUsize::new(0));
    let drain = Duration::ZERO;
    let builder = world.builder().outside::<Order, Hung>(Hung(attempts.clone()));
    let started = builder
        .options(Options { drain, ..options })
        .start_shared(Arc::new(world.journal.clone()), Arc::new(world.store.clone()));
    (started.await.unwrap(), attempts)
}

#[test]
fn provider_that_never_answers_holds_up_no_other() {
    holds_up_no_other(Command::Hang { calls: 100 });
}

#[test]
fn worker_that_blocks_its_threads_holds_up_no_other() {
    holds_up_no_other(Command::Block { calls: 100 });
}

fn holds_up_no_other(calls: Command) {
    block_on(async {
        let world = World::new(20);
        let (engine, attempts) = hanging(&world, Options::default()).await;
        engine.entity::<Order>("a").ask(calls).await.unwrap();
        eventually("the attempts hang", async || {
            attempts.load(Ordering::Relaxed) == Hung::CONCURRENCY
        })
        .await;
        pay(&engine, "a", 7, 5).await;
        pay(&engine, "b", 7, 5).await;
        for order in ["a", "b"] {
            let heard = heard(&engine, order, 10).await;
            let charged = heard.iter().filter(|text| text.starts_with("charged 7"));
            assert_eq!(charged.count(), 5, "{heard:?}");
        }
        assert_eq!(attempts.load(Ordering::Relaxed), Hung::CONCURRENCY);
        engine.stop().await;
    });
}

#[test]
fn open_breaker_is_in_the_metrics() {
    block_on(async {
        let (engine, _) = hanging(&World::new(0), Options::default()).await;
        let stats = engine.stats();
        for caller in 0..3 {
            let calls = Command::Break { calls: 1 };
            engine.entity::<Order>(caller.to_string()).ask(calls).await.unwrap();
        }
        eventually("the breaker is open", async || {
            stats.last_level("calls.hung.breaker") == Some(2.0)
        })
        .await;
        let calls = Command::Break { calls: 1 };
        engine.entity::<Order>("a").ask(calls).await.unwrap();
        eventually("a call was refused", async || {
            stats.sum("calls.hung.refused_by_breaker", 100) > 0 && stats.last_level("calls.hung.waiting") == Some(1.0)
        })
        .await;
        engine.stop().await;
    });
}

#[test]
fn waiting_calls_leave_memory() {
    // A shard keeps its last used entity: 256 calls of about a kilobyte each, whatever the budget.
    const MEMORY: usize = 272 << 10;
    const CALLS: u64 = 1_500;
    block_on(async {
        let options = Options {
            memory_bytes_max: MEMORY,
            ..Options::default()
        };
        let (engine, attempts) = hanging(&World::new(0), options).await;
        for caller in 0..CALLS / 50 {
            let order = || engine.entity::<Order>(caller.to_string());
            while let Err(why) = order().ask(Command::Hang { calls: 50 }).await {
                assert!(matches!(why, Error::Overloaded { .. }), "{why}");
                engine.checkpoint().await.unwrap();
            }
        }
        eventually("the calls are in the store", async || {
            engine.checkpoint().await.unwrap();
            let statistics = engine.statistics();
            statistics.outbox == 0 && statistics.entity_bytes <= MEMORY as u64 && statistics.entities < CALLS / 4
        })
        .await;
        // The kinds are orders, and the calls of both workers.
        assert_eq!(engine.entities(2, None, 10_000).await.unwrap().len() as u64, CALLS);
        assert!(attempts.load(Ordering::Relaxed) <= Hung::CONCURRENCY);
        engine.stop().await;
    });
}

/// Returns the number of calls without an outcome, according to the engine's metrics.
fn open_calls(engine: &Engine, worker: &str) -> f64 {
    engine
        .stats()
        .last_level(&format!("calls.{worker}.open"))
        .unwrap_or_default()
}

/// Rewrites the marks of timers as an older release leaves them, which does not count calls.
async fn older_release_was_here(world: &World) {
    let mut marks = Vec::new();
    let mut visit = |row: &[u8], value: &[u8]| marks.push((row.to_vec(), Some(value[..16].to_vec())));
    world
        .store
        .system_scan(b"T\x00", b"", usize::MAX, &mut visit)
        .await
        .unwrap();
    let shards = ShardSet::first(256);
    let upto = world.store.covers(&shards).await.unwrap()[0].upto.unwrap();
    let checkpoint = Checkpoint {
        upto,
        shards,
        system: marks,
        ..Checkpoint::default()
    };
    world.store.advance(checkpoint).await.unwrap();
}

#[test]
fn open_calls_are_counted_in_memory_and_not() {
    const HUNG: u32 = 1_000;
    block_on(async {
        let options = || Options {
            memory_bytes_max: 272 << 10,
            ..Options::default()
        };
        let world = World::new(0);
        let (engine, _) = hanging(&world, options()).await;
        for caller in 0..HUNG / 50 {
            let order = || engine.entity::<Order>(caller.to_string());
            while order().ask(Command::Hang { calls: 50 }).await.is_err() {
                engine.checkpoint().await.unwrap();
            }
        }
        let open = f64::from(HUNG);
        eventually("the calls have begun", async || open_calls(&engine, "hung") == open).await;
        engine.checkpoint().await.unwrap();
        // A shard keeps its last used entity.
        eventually("the calls are in the store", async || {
            engine.checkpoint().await.unwrap();
            engine.statistics().entities < u64::from(HUNG) / 2
        })
        .await;
        assert_eq!(open_calls(&engine, "hung"), open);
        engine.stop().await;
        // The second engine has room for more at once.
        let (again, _) = hanging(&world, Options::default()).await;
        assert_eq!(open_calls(&again, "hung"), open);
        pay(&again, "b", 7, 5).await;
        eventually("payments have begun", async || open_calls(&again, "payments") == 5.0).await;
        again.erase("order", "b").await.unwrap();
        again.checkpoint().await.unwrap();
        assert_eq!(open_calls(&again, "payments"), 0.0);
        assert_eq!(open_calls(&again, "hung"), open);
        again.stop().await;

        older_release_was_here(&world).await;
        let (engine, _) = hanging(&world, options()).await;
        assert_eq!(open_calls(&engine, "hung"), open);
        assert_eq!(open_calls(&engine, "payments"), 0.0);
        engine.stop().await;
    });
}

#[test]
fn call_is_open_until_its_outcome_is_told() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        let ann = || OperatorDecision::new("ann", "they are gone");
        // The first attempt is not sent.
        let called = pay(&engine, "a", 15, 3).await;
        world.attempted(Payments::CONCURRENCY).await;
        assert_eq!(open_calls(&engine, "payments"), 3.0);
        let sent = world.keys.lock().unwrap().clone();
        let all: Vec<String> = called.iter().map(|called| call_of(called).to_string()).collect();
        let unsent = all.iter().find(|call| !sent.contains(call)).unwrap();
        engine
            .give_up_call(Call::<Payments>::KIND, unsent, ann())
            .await
            .unwrap();
        assert_eq!(open_calls(&engine, "payments"), 2.0);
        // The second attempt is in flight, and its answer is awaited.
        engine
            .give_up_call(Call::<Payments>::KIND, &sent[0], ann())
            .await
            .unwrap();
        assert_eq!(open_calls(&engine, "payments"), 1.0);
        engine.checkpoint().await.unwrap();
        assert_eq!(open_calls(&engine, "payments"), 1.0);
        world.may.add_permits(2);
        world.attempted(Payments::CONCURRENCY + 1).await;
        assert_eq!(open_calls(&engine, "payments"), 1.0, "it is tried again");
        world.may.add_permits(1);
        eventually("the last one was answered", async || {
            open_calls(&engine, "payments") == 0.0
        })
        .await;
        engine.checkpoint().await.unwrap();
        assert_eq!(open_calls(&engine, "payments"), 0.0);
        engine.stop().await;
    });
}

#[test]
fn erased_order_takes_its_calls_along() {
    block_on(async {
        let world = World::new(1);
        let engine = world.engine().await;
        let answered = call_of(&pay(&engine, "a", 424_242, 1).await[0]);
        heard(&engine, "a", 2).await;
        let open = call_of(&pay(&engine, "a", 424_242, 1).await[2]);
        world.attempted(2).await;
        let other = call_of(&pay(&engine, "b", 7, 1).await[0]);
        world.attempted(3).await;

        engine.erase("order", "a").await.unwrap();
        for text in [answered.to_string(), open.to_string(), "424242".into()] {
            assert_eq!(world.records_of(&text).await, [""; 0], "{text}");
        }
        world.may.add_permits(2);
        assert_eq!(heard(&engine, "b", 2).await[1], format!("charged 7 at 1 of {other}"));
        assert!(!world.records_of(&other.to_string()).await.is_empty());
        engine.stop().await;
    });
}

#[test]
fn operator_gives_a_call_up_or_has_it_made_at_once() {
    block_on(async {
        let world = World::new(0);
        let engine = world.engine().await;
        let ann = || OperatorDecision::new("ann", "they are gone");
        let kind = Call::<Payments>::KIND;
        let called = pay(&engine, "a", 7, 3).await;
        world.attempted(Payments::CONCURRENCY).await;
        let sent = world.keys.lock().unwrap().clone();
        let all: Vec<String> = called.iter().map(|called| call_of(called).to_string()).collect();
        let unsent = all.iter().find(|call| !sent.contains(call)).unwrap();
        assert!(!engine.give_up_call(kind, unsent, ann()).await.unwrap());
        assert!(engine.give_up_call(kind, &sent[0], ann()).await.unwrap());
        let heard = heard(&engine, "a", 5).await;
        let why = "ann has given it up: they are gone";
        assert_eq!(
            heard[3..],
            [format!("nothing was sent: {why}"), format!("unknown: {why}")]
        );

        let under_way = engine.hasten_call(kind, &sent[1], ann()).await.unwrap_err().to_string();
        assert!(under_way.contains("under way"), "{under_way}");
        let no_call = engine.give_up_call("order", "a", ann()).await.unwrap_err().to_string();
        assert!(no_call.contains("order is no kind of calls"), "{no_call}");
        world.may.add_permits(2);
        engine.stop().await;
    });
}

#[test]
fn check_counts_open_calls_of_a_missing_worker() {
    block_on(async {
        let world = World::new(1);
        let engine = world.engine().await;
        pay(&engine, "a", 7, 1).await;
        heard(&engine, "a", 2).await;
        pay(&engine, "a", 8, 1).await;
        world.attempted(2).await;
        let mut checker = Engine::builder().with::<Order>().checker();
        for commit in world.commits().await {
            checker.commit(&commit).await;
        }
        let report = checker.finish();
        let found: Vec<_> = report
            .misunderstood
            .iter()
            .map(|part| (&*part.what, &*part.reason))
            .collect();
        let why = "the program was not given it (`outside`): 1 open call waits until it is";
        assert_eq!(found, [("calls of the worker \"payments\"", why)]);
        world.may.add_permits(1);
        engine.stop().await;
    });
}

/// Another worker with the same name.
struct Impostor;

impl Outside for Impostor {
    const NAME: &'static str = Payments::NAME;
    type Request = Charge;
    type Answer = String;
    type Failure = String;

    async fn call(&self, _: Charge, _: &Attempt) -> Result<String, CallError<String>> {
        Err(CallError::NotSent("it is never asked".into()))
    }
}

impl OnCallOutcome<Impostor> for Order {
    fn on_call_outcome(call: CallId, outcome: CallOutcome<String, String>) -> Command {
        <Self as OnCallOutcome<Payments>>::on_call_outcome(call, outcome)
    }

    fn on_late_answer(call: CallId, answer: Result<String, String>) -> Command {
        <Self as OnCallOutcome<Payments>>::on_late_answer(call, answer)
    }
}

#[test]
#[should_panic(expected = "the kind \"call-payments\" of a worker's calls is given twice")]
fn two_workers_of_one_name_are_refused() {
    drop(World::new(0).builder().outside::<Order, Impostor>(Impostor));
}
