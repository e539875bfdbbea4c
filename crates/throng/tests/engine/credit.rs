//! An entity that multiplies its messages or timers is stopped by the engine. Entities that only send many are not.

use crate::{
    kinds::{World, eventually},
    nodes::{Cluster, SHARDS, shards},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use throng::{Builder, Engine, Options, Quarantined, journal::Address, model::*};
use throng_testing::fixtures::Never;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    notes: u64,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Note,
    /// Lets another cell send two of these back.
    Divide {
        to: String,
    },
    /// Sets two timers that do the same at once.
    Alarm {},
    /// Tells others to record an event, several times each, and to report that back.
    FanOut {
        to: u32,
        times: u32,
    },
    Tell {
        from: String,
    },
    /// Passes a message on to the next cell.
    Pass {
        left: u32,
    },
    /// Tells the hub and two other cells to record an event.
    Feed,
    Spread,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum CellEvent {
    Noted,
}
impl Event for CellEvent {}

impl Entity for Cell {
    const KIND: &'static str = "cell";
    type Id = String;
    type Command = Command;
    type Event = CellEvent;
    type Reply = u64;
    type Rejection = Never;

    fn creates(_: &Command) -> bool {
        true
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let own = turn.id().clone();
        turn.emit(CellEvent::Noted);
        match command {
            Command::Note => {}
            Command::Divide { to } => {
                (0..2).for_each(|_| turn.send::<Self>(to.clone(), Command::Divide { to: own.clone() }));
            }
            Command::Alarm {} => {
                for half in ["a", "b"] {
                    // The number of events so far makes the name unique.
                    let name = format!("{half}{}", self.notes);
                    turn.remind(name, turn.now().after(Duration::ZERO), None, Command::Alarm {});
                }
            }
            Command::FanOut { to, times } => {
                for number in 0..to * times {
                    let from = own.clone();
                    turn.send::<Self>(format!("of-{own}-{}", number % to), Command::Tell { from });
                }
            }
            Command::Tell { from } => turn.send::<Self>(from, Command::Note),
            Command::Pass { left: 0 } => {}
            Command::Pass { left } => turn.send::<Self>(format!("pass-{}", left % 7), Command::Pass { left: left - 1 }),
            Command::Feed => turn.send::<Self>("hub", Command::Spread),
            Command::Spread => (0..2).for_each(|sink| turn.send::<Self>(format!("sink-{sink}"), Command::Note)),
        }
        Ok(CommandAnswer::after(|cell: &Self| cell.notes))
    }

    fn evolve(&mut self, _: &CellEvent) {
        self.notes += 1;
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Notes {}
impl Query<Cell> for Notes {
    const NAME: &'static str = "notes";
    type Answer = u64;
    fn answer(self, cell: &Cell, _: &Moment<'_, Cell>) -> Result<u64, Never> {
        Ok(cell.notes)
    }
}

/// Adds the cells, and limits the memory to few messages.
fn with_cells(builder: Builder) -> Builder {
    let options = Options {
        outbox_max: 64,
        ..Options::default()
    };
    builder.with::<Cell>().query::<Cell, Notes>().options(options)
}

async fn start(world: &World) -> Engine {
    let builder = with_cells(Engine::builder());
    let (journal, store) = (Arc::new(world.journal.clone()), Arc::new(world.store.clone()));
    builder.start_shared(journal, store).await.unwrap()
}

/// Sends a command, and repeats it while the engine has no room.
async fn ask(engine: &Engine, id: &str, command: Command) {
    eventually(async || match engine.entity::<Cell>(id).ask(command.clone()).await {
        Ok(_) => true,
        Err(Error::Overloaded { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
}

async fn notes(engine: &Engine, id: &str) -> u64 {
    engine.entity::<Cell>(id).read(Notes {}).await.unwrap_or_default()
}

async fn stopped(engine: &Engine) -> Vec<Quarantined> {
    engine.quarantined(9).await.unwrap()
}

/// Waits until the engine is idle: a command of another entity of this node then gets a commit of its own.
async fn rests(engine: &Engine, other: &str) {
    eventually(async || {
        let before = engine.metrics().commits();
        ask(engine, other, Command::Note).await;
        engine.metrics().commits() == before + 1
    })
    .await;
}

//= promise 9: everything is bounded
#[tokio::test]
async fn entity_that_multiplies_is_quarantined_by_the_engine() {
    let world = World::new();
    let engine = start(&world).await;
    ask(&engine, "bad", Command::Divide { to: "bad".into() }).await;
    eventually(async || !stopped(&engine).await.is_empty()).await;
    let of = &stopped(&engine).await[0];
    assert_eq!(
        (&of.address, of.by.as_deref()),
        (&Address::new("cell", "bad"), Some("the engine"))
    );
    assert!(of.reason.starts_with("it multiplies: "), "{}", of.reason);
    rests(&engine, "other").await;
    engine.stop().await;
    let engine = start(&world).await;
    assert_eq!(stopped(&engine).await.len(), 1);
    rests(&engine, "other").await;
}

#[tokio::test]
async fn entities_that_multiply_together_are_quarantined() {
    let world = World::new();
    let engine = start(&world).await;
    ask(&engine, "one", Command::Divide { to: "two".into() }).await;
    eventually(async || !stopped(&engine).await.is_empty()).await;
    rests(&engine, "other").await;
    assert!(
        stopped(&engine)
            .await
            .iter()
            .all(|of| ["one", "two"].contains(&&*of.address.id))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_that_multiply_over_two_nodes_are_quarantined() {
    let cluster = Cluster::new();
    let nodes = [
        cluster.node_with("one", with_cells).await,
        cluster.node_with("other", with_cells).await,
    ];
    let halves = [shards(0, 128), shards(128, SHARDS)];
    cluster.take(&nodes[0], &halves[0]).await;
    cluster.take(&nodes[1], &halves[1]).await;
    let on = |half: usize, name: &str| {
        let registry = nodes[0].engine.registry();
        let mut ids = (0..).map(|number: u32| format!("{name}-{number}"));
        ids.find(|id| halves[half].contains(registry.shard_of("cell", id)))
            .unwrap()
    };
    let (one, two) = (on(0, "one"), on(1, "two"));
    ask(&nodes[0].engine, &one, Command::Divide { to: two.clone() }).await;
    let all = async || [stopped(&nodes[0].engine).await, stopped(&nodes[1].engine).await].concat();
    eventually(async || !all().await.is_empty()).await;
    rests(&nodes[0].engine, &on(0, "other")).await;
    assert!(all().await.iter().all(|of| [&*one, &*two].contains(&&*of.address.id)));
}

#[tokio::test]
async fn entity_that_multiplies_timers_is_quarantined() {
    let world = World::new();
    let engine = start(&world).await;
    ask(&engine, "bad", Command::Alarm {}).await;
    // The entity must set some ten thousand timers first.
    eventually(async || !stopped(&engine).await.is_empty()).await;
    let of = &stopped(&engine).await[0];
    assert!(of.reason.contains("timers"), "{}", of.reason);
    rests(&engine, "other").await;
}

//= promise 9: everything is bounded
#[tokio::test]
async fn entities_that_send_much_are_not_quarantined() {
    let world = World::new();
    let engine = start(&world).await;
    ask(&engine, "fan", Command::FanOut { to: 25, times: 20 }).await;
    ask(&engine, "pass-0", Command::Pass { left: 700 }).await;
    for feeder in 0..300 {
        ask(&engine, &format!("feeder-{}", feeder % 10), Command::Feed).await;
    }
    eventually(async || notes(&engine, "fan").await == 501).await;
    eventually(async || notes(&engine, "sink-1").await == 300).await;
    let passed = async || {
        let mut sum = 0;
        for at in 0..7 {
            sum += notes(&engine, &format!("pass-{at}")).await;
        }
        sum
    };
    eventually(async || passed().await == 701).await;
    assert_eq!((stopped(&engine).await, notes(&engine, "hub").await), (Vec::new(), 300));
}
