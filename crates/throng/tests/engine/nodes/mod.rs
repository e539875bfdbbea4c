//! Engines of one cluster in one process, which reach each other without a network.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test takes what it needs")]

use super::kinds::World;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Builder, Engine,
    driver::peers::{Peers, Reply, Request},
    journal::{Directory, Join, Journal, Later, MemoryDirectory, NodeId, NodeState, ShardId, ShardSet},
};

pub const SHARDS: u16 = 256;

/// Engines that reach each other without a network.
pub struct Cluster {
    pub world: World,
    pub directory: Arc<MemoryDirectory>,
    pub wires: Arc<Wires>,
}

#[derive(Default)]
pub struct Wires {
    engines: Mutex<BTreeMap<NodeId, Engine>>,
    /// The name of a node that knows no features.
    pub old: Mutex<Option<String>>,
    owners: Mutex<Vec<Option<NodeId>>>,
    /// Loses every n-th answer. 0: none.
    pub lost_every: AtomicU64,
    pub asked: AtomicU64,
    /// Loses all requests between nodes.
    pub are_cut: AtomicBool,
}

impl Peers for Wires {
    fn without_feature(&self, _: u32) -> Option<String> {
        self.old.lock().unwrap().clone()
    }

    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply> {
        let owner = self.owners.lock().unwrap().get(usize::from(shard.0)).copied().flatten();
        let engine = owner.and_then(|owner| self.engines.lock().unwrap().get(&owner).cloned());
        let engine = engine.filter(|_| !self.are_cut.load(SeqCst));
        let number = self.asked.fetch_add(1, SeqCst) + 1;
        let lost_every = self.lost_every.load(SeqCst);
        Box::pin(async move {
            let Some(engine) = engine else { return Reply::NotHere };
            // Encoded as for a network.
            let request = serde_json::from_slice(&serde_json::to_vec(&request).unwrap()).unwrap();
            let reply = engine.driver().answer_peer(request, within).await;
            match lost_every {
                every if every > 0 && number.is_multiple_of(every) => Reply::Unknown,
                _ => serde_json::from_slice(&serde_json::to_vec(&reply).unwrap()).unwrap(),
            }
        })
    }
}

pub struct Node {
    pub id: NodeId,
    pub engine: Engine,
}

impl Cluster {
    pub fn new() -> Self {
        let world = World::new();
        Self {
            directory: Arc::new(world.journal.directory()),
            wires: Arc::default(),
            world,
        }
    }

    pub async fn node(&self, name: &str) -> Node {
        self.node_with(name, |builder| builder).await
    }

    /// Adds a node whose builder `more` extends.
    pub async fn node_with(&self, name: &str, more: impl FnOnce(Builder) -> Builder) -> Node {
        let engine = self.world.node_with(self.wires.clone(), more).await;
        self.join(name, engine).await
    }

    /// Adds a node with a journal of its own, which replaces the common journal.
    pub async fn node_on(&self, name: &str, journal: Arc<dyn Journal>) -> Node {
        let engine = self.world.node_on(journal, self.wires.clone()).await;
        self.join(name, engine).await
    }

    async fn join(&self, name: &str, engine: Engine) -> Node {
        let join = Join {
            name: name.into(),
            shards: SHARDS,
            ..Join::default()
        };
        let id = self.directory.join(join).await.unwrap();
        self.directory.beat(id, NodeState::Serving).await.unwrap();
        self.wires.engines.lock().unwrap().insert(id, engine.clone());
        Node { id, engine }
    }

    /// Lets the node take those of these shards that have no owner.
    pub async fn take(&self, node: &Node, shards: &ShardSet) {
        let taken = self.directory.take(node.id, shards).await.unwrap();
        assert_eq!(&taken, shards);
        self.serve(node).await;
    }

    pub async fn serve(&self, node: &Node) {
        let view = self.directory.beat(node.id, NodeState::Serving).await.unwrap();
        *self.wires.owners.lock().unwrap() = view.owners.clone();
        node.engine
            .driver()
            .serve(node.id, view.shards_of(Some(node.id)))
            .await
            .unwrap();
    }

    pub async fn give(&self, from: &Node, to: &Node, shards: &ShardSet) {
        from.engine.driver().release().await.unwrap();
        self.directory.give(from.id, to.id, shards).await.unwrap();
        self.serve(from).await;
        self.serve(to).await;
    }
}

pub fn shards(from: u16, to: u16) -> ShardSet {
    (from..to).map(ShardId).collect()
}

/// Returns enough ids for entities on all nodes.
pub fn ids() -> impl Iterator<Item = String> {
    (0..64).map(|number| format!("a{number}"))
}
