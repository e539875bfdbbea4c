//! Sinks whose receivers lose delivered events.

use crate::{
    kinds::{Account, Command, World, ask, eventually, open},
    nodes::{Cluster, ids, shards},
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};
use throng::{
    Builder, Engine,
    journal::{Directory, Later, MemoryViews},
    projection::{DurableEvent, EventOffset, ProjectionState, Sink, SinkError, begin_anew},
};

/// A receiver that keeps its deliveries, and can lose them.
#[derive(Clone, Default)]
struct Shelf {
    kept: Arc<Mutex<Vec<(EventOffset, u64)>>>,
    cleared: Arc<AtomicU32>,
    completed: Arc<AtomicU32>,
}

impl Shelf {
    fn numbers(&self) -> Vec<u64> {
        self.kept.lock().unwrap().iter().map(|(_, seq)| *seq).collect()
    }

    fn reached(&self) -> Option<EventOffset> {
        self.kept.lock().unwrap().last().map(|(offset, _)| *offset)
    }

    fn lose_all_but(&self, count: usize) {
        self.kept.lock().unwrap().truncate(count);
    }
}

impl Sink for Shelf {
    const NAME: &'static str = "shelf";
    type Of = Account;

    fn deliver(&self, batch: Vec<DurableEvent<Account>>) -> Later<'_, Result<(), SinkError>> {
        let mut kept = self.kept.lock().unwrap();
        kept.extend(batch.into_iter().map(|seen| (seen.offset, seen.seq)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn compare(&self, delivered: Option<EventOffset>) -> Later<'_, Result<(), SinkError>> {
        let has = |event| self.kept.lock().unwrap().iter().any(|(kept, _)| *kept == event);
        let compared = match delivered.is_none_or(has) {
            true => Ok(()),
            false => Err(SinkError::Behind {
                reached: self.reached(),
            }),
        };
        Box::pin(std::future::ready(compared))
    }

    fn clear(&self) -> Later<'_, Result<(), SinkError>> {
        self.cleared.fetch_add(1, SeqCst);
        self.kept.lock().unwrap().clear();
        Box::pin(std::future::ready(Ok(())))
    }

    fn complete(&self) -> Later<'_, Result<(), SinkError>> {
        self.completed.fetch_add(1, SeqCst);
        Box::pin(std::future::ready(Ok(())))
    }
}

async fn start(world: &World, views: &MemoryViews, shelf: &Shelf) -> Engine {
    world
        .start(World::builder().sink(shelf.clone()).views(Arc::new(views.clone())))
        .await
        .unwrap()
}

async fn deposit(engine: &Engine) {
    ask(engine, "ann", Command::Deposit { amount: 1 }).await.unwrap();
}

/// Returns an engine whose sink has delivered six events, each in a commit of its own.
async fn with_six(world: &World, views: &MemoryViews, shelf: &Shelf) -> Engine {
    let engine = start(world, views, shelf).await;
    open(&engine, "ann", 1).await;
    for delivered in 1..6 {
        eventually(async || shelf.numbers().len() == delivered).await;
        deposit(&engine).await;
    }
    all_are_there(&engine, shelf, 6).await;
    engine
}

async fn all_are_there(engine: &Engine, shelf: &Shelf, count: u64) {
    eventually(async || shelf.numbers() == (1..=count).collect::<Vec<_>>()).await;
    eventually(async || {
        let progress = &engine.projections()[0];
        !progress.is_rebuilding && progress.lag_commits == 0
    })
    .await;
}

#[tokio::test]
async fn sink_delivers_lost_events_again_after_a_restart() {
    for left in [3, 0] {
        let (world, views, shelf) = (World::new(), MemoryViews::new(), Shelf::default());
        let engine = with_six(&world, &views, &shelf).await;
        engine.stop().await;
        shelf.lose_all_but(left);
        let engine = start(&world, &views, &shelf).await;
        // Happens without a new event.
        all_are_there(&engine, &shelf, 6).await;
        deposit(&engine).await;
        all_are_there(&engine, &shelf, 7).await;
        assert!(shelf.completed.load(SeqCst) >= 2, "after each beginning");
        engine.stop().await;
    }
}

#[tokio::test]
async fn sink_delivers_events_lost_while_idle_again() {
    let (world, views, shelf) = (World::new(), MemoryViews::new(), Shelf::default());
    let engine = with_six(&world, &views, &shelf).await;
    shelf.lose_all_but(2);
    all_are_there(&engine, &shelf, 6).await;
    engine.stop().await;
}

#[tokio::test]
async fn rebuild_of_a_sink_clears_its_deliveries() {
    let (world, views, shelf) = (World::new(), MemoryViews::new(), Shelf::default());
    let engine = with_six(&world, &views, &shelf).await;
    assert!(engine.rebuild_projection("shelf"));
    eventually(async || shelf.cleared.load(SeqCst) == 1).await;
    all_are_there(&engine, &shelf, 6).await;
    engine.stop().await;
    let come_to = begin_anew(&views, "shelf").await.unwrap();
    assert!(come_to.is_some());
    assert_eq!(begin_anew(&views, "nobody").await.unwrap(), None);
    let engine = start(&world, &views, &shelf).await;
    eventually(async || shelf.cleared.load(SeqCst) == 2).await;
    all_are_there(&engine, &shelf, 6).await;
    engine.stop().await;
    let engine = start(&world, &views, &shelf).await;
    deposit(&engine).await;
    all_are_there(&engine, &shelf, 7).await;
    assert_eq!(shelf.cleared.load(SeqCst), 2, "once for each request");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_clears_a_receiver_that_lost_events_and_fills_it() {
    let (cluster, views, shelf) = (Cluster::new(), MemoryViews::new(), Shelf::default());
    let more = || {
        let (views, shelf) = (views.clone(), shelf.clone());
        |builder: Builder| builder.sink(shelf).views(Arc::new(views))
    };
    let nodes = [
        cluster.node_with("one", more()).await,
        cluster.node_with("other", more()).await,
    ];
    cluster.take(&nodes[0], &shards(0, 128)).await;
    cluster.take(&nodes[1], &shards(128, 256)).await;
    for id in ids() {
        ask(&nodes[0].engine, &id, Command::Open { balance: 1 }).await.unwrap();
    }
    let accounts = ids().count();
    let has_all = async || {
        eventually(async || shelf.numbers().len() == accounts).await;
        eventually(async || nodes.iter().all(|node| !node.engine.projections()[0].is_rebuilding)).await;
    };
    has_all().await;
    shelf.lose_all_but(accounts / 2);
    // The next runner of the sink compares at once.
    let runs = |node: &crate::nodes::Node| node.engine.projections()[0].state == ProjectionState::Running;
    let (from, to) = match runs(&nodes[0]) {
        true => (&nodes[0], &nodes[1]),
        false => (&nodes[1], &nodes[0]),
    };
    let own = cluster.directory.view().await.unwrap().shards_of(Some(from.id));
    cluster.give(from, to, &own.iter().skip(1).collect()).await;
    has_all().await;
    let mut offsets: Vec<EventOffset> = shelf.kept.lock().unwrap().iter().map(|(offset, _)| *offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), accounts, "each once");
}
