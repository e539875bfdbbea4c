//! A node's loop with a slow engine.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng::{
    driver::peers::{Reply, Request},
    host::TokioHost,
};
use throng_cluster::{
    Host, Status, Timing,
    node_loop::{Connections, NodeLoop, Parts},
};
use throng_journal::{
    Directory, Error, Floor, Join, Later, MemoryDirectory, MemoryJournal, NodeId, NodeState, ShardSet, View,
};
use throng_testing::{eventually, soon};
use tokio::{runtime::Handle, sync::mpsc, sync::oneshot};

/// The node and the shards that an engine must serve, and the channel to confirm that it does.
type Told = (NodeId, ShardSet, oneshot::Sender<()>);

/// An engine that serves only after the test confirms.
struct SlowEngine(Mutex<mpsc::UnboundedSender<Told>>);

impl Host for SlowEngine {
    fn serve(&self, node: NodeId, shards: ShardSet) -> Later<'static, Result<(), Error>> {
        let (done, is_done) = oneshot::channel();
        self.0.lock().unwrap().send((node, shards, done)).unwrap();
        Box::pin(async move {
            let _ = is_done.await;
            Ok(())
        })
    }

    fn release(&self) -> Later<'static, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn answer(&self, _: Request, _: Duration) -> Later<'static, Reply> {
        Box::pin(std::future::ready(Reply::NotHere))
    }
}

/// A directory that asks a node to drain after its first read of its shards, before that read is answered.
struct AsksBehindALook {
    within: MemoryDirectory,
    has_asked: AtomicBool,
}

impl Directory for AsksBehindALook {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        self.within.join(join)
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        Box::pin(async move {
            let view = self.within.beat(node, state).await?;
            if view.owners == [Some(node)] && !self.has_asked.swap(true, Ordering::Relaxed) {
                self.within.ask_drain("a", true).await?;
            }
            Ok(view)
        })
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        self.within.reach(node, reaches)
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.within.cut_off(by, node)
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        self.within.view()
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        self.within.declare_dead(by, dead, beat)
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        self.within.take(by, shards)
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        self.within.give(from, to, shards)
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        self.within.leave(node)
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        self.within.ask_drain(name, drain)
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.within.wants_drain(node)
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        self.within.pin(shards, to)
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        self.within.finalize()
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        self.within.changed(at_most)
    }
}

/// Every node counts as reached.
#[derive(Default)]
struct Alone(Mutex<BTreeSet<NodeId>>);

impl Connections for Alone {
    fn look(&self, _: NodeId, view: &View) {
        *self.0.lock().unwrap() = view.nodes.iter().map(|node| node.id).collect();
    }

    fn reaches(&self) -> BTreeSet<NodeId> {
        self.0.lock().unwrap().clone()
    }

    fn refusing(&self) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }

    fn changed(&self) -> Later<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn describe(&self, _: &mut Status) {}
}

fn named(name: &str) -> Join {
    Join {
        name: name.into(),
        shards: 1,
        ..Join::default()
    }
}

/// Waits for the next instruction to the engine.
async fn next(told: &mut mpsc::UnboundedReceiver<Told>) -> Told {
    soon("the engine is told", told.recv()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_begun_for_a_dead_node_does_not_count_for_its_successor() {
    let directory = Arc::new(MemoryJournal::new().directory());
    let (tell, mut told) = mpsc::unbounded_channel();
    let node_loop = Arc::new(NodeLoop::new(Parts {
        directory: directory.clone(),
        host: Arc::new(SlowEngine(Mutex::new(tell))),
        connections: Arc::new(Alone::default()),
        clock: Arc::new(TokioHost::on(Handle::current())),
        join: named("a"),
        timing: Timing::of(Duration::from_secs(1)),
    }));
    let first = node_loop.join().await.unwrap();
    let mut statuses = node_loop.statuses();
    let running = tokio::spawn(node_loop.run(first));
    let (shards, serves) = loop {
        let (_, shards, serves) = next(&mut told).await;
        if !shards.is_empty() {
            break (shards, serves);
        }
        drop(serves);
    };

    // While the engine starts, another node declares this one dead, and leaves.
    let other = directory.join(named("b")).await.unwrap();
    let is_dead = async || {
        let view = directory.beat(other, NodeState::Serving).await.unwrap();
        let beat = view.node(first).unwrap().beat;
        directory.declare_dead(other, first, beat).await.unwrap()
    };
    while !is_dead().await {}
    directory.leave(other).await.unwrap();
    let owner = async || directory.view().await.unwrap().owners[0];
    eventually("it takes the shard as another node", async || {
        let owner = owner().await;
        owner != Some(first) && owner != Some(other)
    })
    .await;

    serves.send(()).unwrap();
    let (node, again, _) = next(&mut told).await;
    assert_ne!(node, first);
    assert_eq!(again, shards);
    let counts = |status: &Status| status.done.joins == 2 && status.done.taken == 2 * shards.len() as u64;
    soon("both are counted", statuses.wait_for(counts)).await.unwrap();
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_node_takes_shards_once_too_few_others_serve() {
    for lease in [Duration::from_hours(6), Duration::from_secs(1)] {
        let directory = Arc::new(MemoryJournal::new().directory());
        let (tell, mut told) = mpsc::unbounded_channel();
        let node_loop = NodeLoop::new(Parts {
            directory: directory.clone(),
            host: Arc::new(SlowEngine(Mutex::new(tell))),
            connections: Arc::new(Alone::default()),
            clock: Arc::new(TokioHost::on(Handle::current())),
            join: named("a"),
            timing: Timing::of(lease),
        });
        let node_loop = Arc::new(node_loop.stand_by(Some(1)));
        let node = node_loop.join().await.unwrap();
        let running = tokio::spawn(node_loop.run(node));
        let (_, mut shards, mut serves) = next(&mut told).await;
        assert!(shards.is_empty());
        if lease > Duration::from_secs(1) {
            let view = directory.view().await.unwrap();
            assert_eq!(
                view.owners,
                [None],
                "what nobody owns stays so, as long as others may come"
            );
            assert_eq!(view.node(node).unwrap().state, NodeState::Draining);
        } else {
            while shards.is_empty() {
                serves.send(()).unwrap();
                (_, shards, serves) = next(&mut told).await;
            }
        }
        running.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_behind_a_look_is_seen_before_the_next_beat() {
    let directory = Arc::new(AsksBehindALook {
        within: MemoryJournal::new().directory(),
        has_asked: AtomicBool::new(false),
    });
    let (tell, mut told) = mpsc::unbounded_channel();
    let node_loop = Arc::new(NodeLoop::new(Parts {
        directory: directory.clone(),
        host: Arc::new(SlowEngine(Mutex::new(tell))),
        connections: Arc::new(Alone::default()),
        clock: Arc::new(TokioHost::on(Handle::current())),
        join: named("a"),
        // Two beats are an hour apart.
        timing: Timing::of(Duration::from_hours(6)),
    }));
    let node = node_loop.join().await.unwrap();
    let mut statuses = node_loop.statuses();
    let running = tokio::spawn(node_loop.run(node));
    // The loop must drain without the engine's confirmation, which would make it check again.
    let served = next(&mut told).await;
    let drains = statuses.wait_for(|status| {
        let own = status.view.node(node);
        own.is_some_and(|own| own.state == NodeState::Draining)
    });
    soon("it drains at once", drains).await.unwrap();
    assert!(directory.has_asked.load(Ordering::Relaxed));
    drop(served);
    running.abort();
}
