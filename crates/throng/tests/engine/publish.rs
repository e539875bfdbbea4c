//! The values that entities publish: live, in order, and only once durable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::pin::pin;
use throng::{
    Engine,
    journal::{Journal, MemoryJournal, MemoryStore},
    model::{CommandAnswer, Entity, Error, Event, Topic, Turn},
    services::bus::Heard,
};
use throng_testing::{HeldJournal, block_on, fixtures::Dislike};
use tokio::sync::watch;

const TICKS: Topic<String> = Topic::new("ticks");

#[derive(Default, Serialize, Deserialize)]
struct Clock(u64);

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Tick,
    /// Publishes a value, and records no event.
    Look,
    /// Publishes a value, and refuses.
    Refuse,
    /// Publishes a value, and panics.
    Break,
    PublishMany {
        count: usize,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum ClockEvent {
    Tick,
}

impl Event for ClockEvent {}

impl Entity for Clock {
    const KIND: &'static str = "clock";
    type Id = String;
    type Command = Command;
    type Event = ClockEvent;
    type Reply = u64;
    type Rejection = Dislike;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Dislike> {
        let said = |what: &str| format!("{} {what} {}", turn.id(), self.0);
        match command {
            Command::Tick => {
                turn.publish(&TICKS, said("ticks after"));
                turn.emit(ClockEvent::Tick);
            }
            Command::Look => turn.publish(&TICKS, said("shows")),
            Command::Refuse => {
                turn.publish(&TICKS, said("refuses at"));
                return Err(Dislike);
            }
            Command::Break => {
                turn.publish(&TICKS, said("breaks at"));
                panic!("it was asked to");
            }
            Command::PublishMany { count } => (0..count).for_each(|n| turn.publish(&TICKS, n.to_string())),
        }
        Ok(CommandAnswer::after(|clock: &Self| clock.0))
    }

    fn evolve(&mut self, _: &ClockEvent) {
        self.0 += 1;
    }
}

fn run(is_held: bool, test: impl AsyncFnOnce(Engine, watch::Sender<bool>)) {
    block_on(async {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let (journal, hold) = HeldJournal::new(journal, is_held);
        let builder = Engine::builder().with::<Clock>();
        let engine = builder
            .start(Box::new(journal) as Box<dyn Journal>, store)
            .await
            .unwrap();
        test(engine.clone(), hold).await;
        engine.stop().await;
    });
}

#[test]
fn only_accepted_commands_publish_and_in_order() {
    run(false, async |engine, _hold| {
        let clock = || engine.entity::<Clock>("a");
        let mut first = engine.topic(&TICKS).unwrap().subscribe();
        clock().ask(Command::Tick).await.unwrap();
        assert_eq!(first.next().await, Some(Heard::Event("a ticks after 0".to_owned())));
        // Gets only values published from now on.
        let mut ticks = engine.topic(&TICKS).unwrap().subscribe();
        clock().ask(Command::Tick).await.unwrap();
        assert_eq!(clock().ask(Command::Refuse).await, Err(Error::Rejected(Dislike)));
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
    run(true, async |engine, hold| {
        let mut ticks = engine.topic(&TICKS).unwrap().subscribe();
        {
            let mut asked = pin!(engine.entity::<Clock>("a").ask(Command::Tick));
            let mut looked = pin!(engine.entity::<Clock>("a").ask(Command::Look));
            for _ in 0..100 {
                tokio::select! {
                    biased;
                    _ = &mut asked => panic!("its commit is held"),
                    // The answer depends on the tick.
                    _ = &mut looked => panic!("its commit is held"),
                    () = tokio::task::yield_now() => {}
                }
            }
            assert_eq!(ticks.try_next(), None);
            hold.send(false).unwrap();
            assert_eq!((asked.await, looked.await), (Ok(1), Ok(1)));
        }
        for expected in ["a ticks after 0", "a shows 1"] {
            assert_eq!(ticks.next().await, Some(Heard::Event(expected.to_owned())));
        }
    });
}
