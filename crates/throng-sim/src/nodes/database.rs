//! The database of simulated nodes: journal, store and directory in memory, over connections that are slow, fail and are cut.

use crate::{
    faults::{Faults, Lie},
    world::{Group, OUTSIDE, RunsOn, World},
};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use throng_journal::{
    Commit, Error, Later, MemoryDirectory, MemoryJournal, MemoryStore, NodeId, NodeState, View, WriterId,
};

/// The database that all nodes share. It outlives them.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) world: Arc<World>,
    pub(super) journal: MemoryJournal,
    pub(super) store: MemoryStore,
    pub(super) directory: MemoryDirectory,
    pub(super) faults: Arc<Mutex<Faults>>,
    pub(super) rows: Arc<Mutex<Rows>>,
    /// The length of a read lease.
    pub(super) lease: Duration,
}

/// The rows in addition to the commits.
#[derive(Default)]
pub(super) struct Rows {
    /// The leases for reads from memory, by writer.
    pub(super) leases: BTreeMap<WriterId, LeaseRow>,
    /// The connection of each node that ever joined.
    pub(super) lines: BTreeMap<NodeId, DatabaseLink>,
    /// The last answer to each node's heartbeat.
    pub(super) seen: BTreeMap<NodeId, View>,
    /// Faults: shards that moved to a node they must not move to.
    pub(super) wrong: Vec<String>,
    /// All commits, in the order in which they became durable.
    pub(super) landed: Vec<Commit>,
}

pub(super) struct LeaseRow {
    pub(super) line: DatabaseLink,
    pub(super) until_micros: u64,
    /// True if its engine has declared that it answers nothing more.
    pub(super) is_over: bool,
}

/// A process's connection to the database, and the state of that process. Clones share it.
#[derive(Clone)]
pub(super) struct DatabaseLink {
    pub(super) database: Database,
    pub(super) process: Arc<Process>,
}

pub(super) struct Process {
    pub(super) group: Group,
    /// True if the process was killed, so that its port refuses connections and its sessions are gone. Set once, by the kill.
    pub(super) is_dead: AtomicBool,
    /// True if the connection to the database is cut. The scenario sets and clears it.
    pub(super) is_cut: AtomicBool,
    /// True if its messages to the directory are lost. The scenario sets and clears it.
    pub(super) is_mute: AtomicBool,
    /// True if its sessions were dropped. The scenario sets it; the next call that gets through clears it.
    pub(super) is_disconnected: AtomicBool,
    /// The difference between its time of day and the world's.
    pub(super) day_micros: Arc<AtomicI64>,
    pub(super) lease: Mutex<Lease>,
    /// Its newest id as a node; 0: none. Stored when it joins.
    pub(super) node: AtomicU64,
}

/// The process's knowledge of its own lease.
#[derive(Default)]
pub(super) struct Lease {
    pub(super) writer: WriterId,
    pub(super) until_micros: u64,
    /// The same end by the time of day, for [`Lie::LeaseByTimeOfDay`].
    pub(super) until_day: i64,
}

pub(super) fn unreachable(doing: &str) -> Error {
    Error::Io {
        doing: doing.to_owned(),
        source: std::io::Error::other("a simulated fault: the database does not answer"),
    }
}

impl Rows {
    /// Records a fault if shards move to a node whose release is older than another node known to the one that moves them. If the shards
    /// are given away, the release must not be older than the giver's own.
    pub(super) fn goes(&mut self, by: NodeId, to: NodeId, is_given: bool) {
        let Some(view) = self.seen.get(&by) else { return };
        let app = |node: NodeId| view.node(node).map_or(0, |node| node.said.app);
        let serving = view.nodes.iter().filter(|node| node.state == NodeState::Serving);
        let newest = match is_given {
            true => app(by),
            false => serving.map(|node| node.said.app).max().unwrap_or(0),
        };
        if app(to) < newest {
            self.wrong.push(format!(
                "node {by} has shards go to node {to} of release {}, and knows of release {newest}",
                app(to)
            ));
        }
    }
}

impl Database {
    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The fate of a call.
struct Way {
    there: Option<Duration>,
    back: Option<Duration>,
    /// Set if the call fails: before its effect (`false`), or after it.
    fails: Option<bool>,
}

impl DatabaseLink {
    pub(super) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.process.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_through(&self) -> bool {
        !self.process.is_dead.load(Ordering::Relaxed) && !self.process.is_cut.load(Ordering::Relaxed)
    }

    pub(super) fn now_day(&self) -> i64 {
        self.database.world.now_micros() + self.process.day_micros.load(Ordering::Relaxed)
    }

    pub(super) fn lie(&self) -> Option<Lie> {
        self.database.faults().lie
    }

    fn way(&self, share: f64) -> Way {
        let (world, faults) = (&self.database.world, self.database.faults());
        let fails = world.chance(share).then(|| world.chance(0.5));
        Way {
            there: world.dice(|rng| faults.wait(rng)),
            back: world.dice(|rng| faults.wait(rng)),
            fails,
        }
    }

    /// Runs a call in the database. Once sent, it goes on even if its process dies. This `share` of calls fails, before or after the
    /// effect.
    pub(super) fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        share: f64,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Later<'static, Result<T, Error>> {
        let (line, way) = (self.clone(), self.way(share));
        let world = self.database.world.clone();
        let (tell, told) = tokio::sync::oneshot::channel();
        let sent = async move {
            let world = &line.database.world;
            if let Some(there) = way.there {
                world.sleep(there).await;
            }
            if !line.is_through() || way.fails == Some(false) {
                drop(tell.send(Err(unreachable(doing))));
                return;
            }
            line.process.is_disconnected.store(false, Ordering::Relaxed);
            let done = work.await;
            if let Some(back) = way.back {
                world.sleep(back).await;
            }
            let is_lost = way.fails.is_some() || !line.is_through();
            if is_lost {
                world.count("call of the database failed after it was done");
            }
            drop(tell.send(if is_lost { Err(unreachable(doing)) } else { done }));
        };
        world.spawn(OUTSIDE, RunsOn::World, Box::pin(sent));
        Box::pin(async move { told.await.unwrap_or_else(|_| Err(unreachable(doing))) })
    }
}
