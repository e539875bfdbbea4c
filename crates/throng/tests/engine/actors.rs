//! Actors of an engine, in place and on workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::{Actor, Error, Placement, Timestamp},
};
use throng_testing::{block_on, fixtures::Dislike};

/// A counter that runs in place.
struct Rate(u64);

#[derive(Serialize, Deserialize, JsonSchema)]
enum RateCommand {
    Hit,
    /// Refuses, but counts the hit.
    Refuse,
    Break,
}

impl Actor for Rate {
    const KIND: &'static str = "rate";
    // Two generations of one actor in each of 64 parts.
    const KEPT_MAX: usize = 128;
    type Id = String;
    type Command = RateCommand;
    type Reply = u64;
    type Rejection = Dislike;

    fn start(_: &String) -> Self {
        Self(0)
    }

    fn receive(&mut self, command: RateCommand, _: Timestamp) -> Result<u64, Dislike> {
        self.0 += 1;
        match command {
            RateCommand::Hit => Ok(self.0),
            RateCommand::Refuse => Err(Dislike),
            RateCommand::Break => panic!("it was asked to"),
        }
    }
}

/// An actor on a worker that waits for the test.
struct Slow;

#[derive(Serialize, Deserialize, JsonSchema)]
enum SlowCommand {
    /// Reports that it has begun, and continues when told.
    Wait,
    Pass,
}

static BEGUN: Mutex<Option<mpsc::Sender<()>>> = Mutex::new(None);
static GO: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

impl Actor for Slow {
    const KIND: &'static str = "slow";
    const PLACEMENT: Placement = Placement::Workers;
    type Id = u64;
    type Command = SlowCommand;
    type Reply = String;
    type Rejection = Dislike;

    fn start(_: &u64) -> Self {
        Self
    }

    fn receive(&mut self, command: SlowCommand, _: Timestamp) -> Result<String, Dislike> {
        if matches!(command, SlowCommand::Wait) {
            BEGUN.lock().unwrap().as_ref().unwrap().send(()).unwrap();
            GO.lock().unwrap().as_ref().unwrap().recv().unwrap();
        }
        Ok(std::thread::current().name().unwrap_or_default().to_owned())
    }
}

fn run(test: impl AsyncFnOnce(Engine)) {
    block_on(async {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let builder = Engine::builder().actor::<Rate>().actor::<Slow>();
        let engine = builder.start(journal, store).await.unwrap();
        test(engine.clone()).await;
        engine.stop().await;
        let after = engine.actor::<Rate>("a").ask(RateCommand::Hit).await;
        assert!(matches!(after, Err(Error::Unavailable { .. })), "{after:?}");
    });
}

#[test]
fn an_actor_changes_itself_and_one_that_panics_begins_anew() {
    run(async |engine| {
        let rate = |id: &str| engine.actor::<Rate>(id);
        assert_eq!(rate("a").ask(RateCommand::Hit).await, Ok(1));
        assert_eq!(rate("a").ask(RateCommand::Refuse).await, Err(Error::Rejected(Dislike)));
        rate("a").tell(RateCommand::Hit).unwrap();
        assert_eq!(rate("a").ask(RateCommand::Hit).await, Ok(4));
        assert_eq!(rate("b").ask(RateCommand::Hit).await, Ok(1));
        let crashed = rate("a").ask(RateCommand::Break).await;
        assert!(matches!(crashed, Err(Error::Crashed { .. })), "{crashed:?}");
        assert_eq!(rate("a").ask(RateCommand::Hit).await, Ok(1));
        assert_eq!(rate("b").ask(RateCommand::Hit).await, Ok(2));
        let nobody = rate("").ask(RateCommand::Hit).await;
        assert!(matches!(nobody, Err(Error::Malformed(_))), "{nobody:?}");
    });
}

#[test]
fn commands_of_many_threads_are_received_one_at_a_time() {
    const THREADS: u64 = 4;
    const HITS: u64 = 1_000;
    run(async |engine| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..HITS {
                        engine.actor::<Rate>("a").tell(RateCommand::Hit).unwrap();
                    }
                });
            }
        });
        assert_eq!(
            engine.actor::<Rate>("a").ask(RateCommand::Hit).await,
            Ok(THREADS * HITS + 1)
        );
    });
}

#[test]
fn idle_actors_are_forgotten_and_busy_ones_kept() {
    run(async |engine| {
        let hit = async |id: String| engine.actor::<Rate>(id).ask(RateCommand::Hit).await.unwrap();
        hit("rare".into()).await;
        for number in 0..2_000 {
            assert_eq!(hit(format!("other {number}")).await, 1);
            assert_eq!(hit("used".into()).await, number + 1, "it is in use");
        }
        assert_eq!(hit("rare".into()).await, 1);
    });
}

#[test]
fn an_ask_of_an_actor_on_workers_does_not_block_and_is_timely() {
    run(async |engine| {
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        *BEGUN.lock().unwrap() = Some(begun);
        *GO.lock().unwrap() = Some(may_go);
        let slow = || engine.actor::<Slow>(7_u64);
        slow().tell(SlowCommand::Wait).unwrap();
        has_begun.recv().unwrap();
        // The actor is busy, and this thread runs.
        let late = slow().within(Duration::from_millis(1)).ask(SlowCommand::Pass).await;
        assert_eq!(late, Err(Error::OutcomeUnknown));
        go.send(()).unwrap();
        assert_eq!(
            slow().ask(SlowCommand::Pass).await.as_deref(),
            Ok("slow"),
            "its own thread"
        );
        // The queue is bounded: a command to a full queue is refused at once.
        slow().tell(SlowCommand::Wait).unwrap();
        has_begun.recv().unwrap();
        let full = loop {
            if let Err(error) = slow().tell(SlowCommand::Pass) {
                break error;
            }
        };
        assert!(matches!(full, Error::Overloaded { .. }), "{full:?}");
        go.send(()).unwrap();
    });
}

#[test]
fn metrics_hold_the_records_of_actors_and_services() {
    run(async |engine| {
        for _ in 0..3 {
            engine.actor::<Rate>("a").ask(RateCommand::Hit).await.unwrap();
        }
        engine.stats().counter("orders").add(2);
        let mut text = String::new();
        engine.metrics().encode(&mut text).unwrap();
        for line in [
            r#"throng_service_events_total{key="rate.received"} 3"#,
            r#"throng_service_events_total{key="orders"} 2"#,
        ] {
            assert!(text.lines().any(|has| has.starts_with(line)), "{line} is not in {text}");
        }
    });
}
