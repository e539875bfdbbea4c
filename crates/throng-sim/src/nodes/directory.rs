//! A node's directory: the shared database over a simulated connection.

use super::database::{DatabaseLink, unreachable};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng_journal::{Directory, Error, Floor, Join, Later, NodeId, NodeState, ShardSet, View};

/// The share of changes that no notification follows.
const UNTOLD: f64 = 0.3;
/// The number of polls while a node waits for a change.
const LOOKS: u32 = 10;

pub(super) struct FarDirectory(pub(super) DatabaseLink);

impl FarDirectory {
    fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Later<'static, Result<T, Error>> {
        if self.0.process.is_mute.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(unreachable(doing))));
        }
        self.0.call(doing, self.0.database.faults().journal_error, work)
    }

    fn is_disconnected(line: &DatabaseLink) -> bool {
        let process = &line.process;
        process.is_dead.load(Ordering::Relaxed) || process.is_disconnected.load(Ordering::Relaxed)
    }
}

impl Directory for FarDirectory {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        let line = self.0.clone();
        self.call("joining", async move {
            let database = &line.database;
            // Nodes of this name whose sessions are gone are removed, as are earlier ids of this process whose answer was lost.
            for before in database.directory.view().await?.nodes {
                let of = database.rows().lines.get(&before.id).cloned();
                let is_over = |of: &DatabaseLink| of.process.group == line.process.group || Self::is_disconnected(of);
                if before.said.name == join.name && of.as_ref().is_some_and(is_over) {
                    database.directory.leave(before.id).await?;
                }
            }
            let node = database.directory.join(join).await?;
            line.process.node.store(node.0, Ordering::Relaxed);
            database.rows().lines.insert(node, line.clone());
            Ok(node)
        })
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        let database = self.0.database.clone();
        self.call("saying that a node lives", async move {
            let mut view = database.directory.beat(node, state).await?;
            let mut rows = database.rows();
            for node in &mut view.nodes {
                node.is_disconnected = rows.lines.get(&node.id).is_some_and(Self::is_disconnected);
            }
            rows.seen.insert(node, view.clone());
            Ok(view)
        })
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        let (directory, reaches) = (self.0.database.directory.clone(), reaches.clone());
        let work = async move { directory.reach(node, &reaches).await };
        self.call("saying which nodes are reached", work)
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        let database = self.0.database.clone();
        let work = async move {
            let is_cut_off = database.directory.cut_off(by, node).await?;
            if is_cut_off {
                database.world.count("node drained that others did not reach");
                database
                    .world
                    .note(format_args!("node {node} has to drain, by node {by}"));
            }
            Ok(is_cut_off)
        };
        self.call("having a node drain that is not reached", work)
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        let directory = self.0.database.directory.clone();
        let work = async move { directory.view().await };
        self.call("looking at the nodes", work)
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        let database = self.0.database.clone();
        self.call("declaring a node dead", async move {
            let is_dead = database.directory.declare_dead(by, dead, beat).await?;
            if is_dead {
                database.world.count("node declared dead");
                let line = database.rows().lines.get(&dead).cloned();
                if line.is_some_and(|line| !line.process.is_dead.load(Ordering::Relaxed)) {
                    database.world.count("node declared dead that lived");
                }
                database
                    .world
                    .note(format_args!("node {dead} is declared dead by node {by}"));
            }
            Ok(is_dead)
        })
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        let (database, shards) = (self.0.database.clone(), shards.clone());
        self.call("taking shards", async move {
            let taken = database.directory.take(by, &shards).await?;
            if !taken.is_empty() {
                database.rows().goes(by, by, false);
            }
            database.world.note(format_args!("node {by} takes the shards {taken}"));
            Ok(taken)
        })
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        let (database, shards) = (self.0.database.clone(), shards.clone());
        self.call("giving shards", async move {
            database.directory.give(from, to, &shards).await?;
            database.rows().goes(from, to, true);
            database.world.count("shards given");
            database
                .world
                .note(format_args!("node {from} gives the shards {shards} to node {to}"));
            Ok(())
        })
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        let directory = self.0.database.directory.clone();
        let work = async move { directory.leave(node).await };
        self.call("leaving", work)
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        let (directory, name) = (self.0.database.directory.clone(), name.to_owned());
        let work = async move { directory.ask_drain(&name, drain).await };
        self.call("asking a node to drain", work)
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        let directory = self.0.database.directory.clone();
        let work = async move { directory.wants_drain(node).await };
        self.call("asking whether to drain", work)
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        let directory = self.0.database.directory.clone();
        let (shards, to) = (shards.clone(), to.map(str::to_owned));
        let work = async move { directory.pin(&shards, to.as_deref()).await };
        self.call("pinning shards", work)
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        let directory = self.0.database.directory.clone();
        let work = async move { directory.finalize().await };
        self.call("finalizing the cluster", work)
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        let database = self.0.database.clone();
        let is_told = !database.world.chance(UNTOLD) && self.0.is_through();
        Box::pin(async move {
            if !is_told {
                return database.world.sleep(at_most).await;
            }
            let version = async || database.directory.view().await.map_or(0, |view| view.version);
            let seen = version().await;
            for _ in 0..LOOKS {
                database.world.sleep(at_most / LOOKS).await;
                if version().await != seen {
                    return;
                }
            }
        })
    }
}

impl From<FarDirectory> for Arc<dyn Directory> {
    fn from(directory: FarDirectory) -> Self {
        Arc::new(directory)
    }
}
