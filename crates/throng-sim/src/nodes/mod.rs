//! Several nodes of one service in a simulated world.
//!
//! Engines and memberships are the real ones. The database, the connections to it and the network between the nodes are simulated. A call
//! of the database is slow, fails before or after its effect, and goes on if its sender dies.

mod database;
mod directory;
mod journal;
mod net;
mod store;

use crate::{
    Sim,
    faults::Faults,
    history::History,
    host::SimHost,
    simulation::Gone,
    world::{Group, RunsOn},
};
use database::{Database, DatabaseLink, Process};
use directory::FarDirectory;
use journal::FarJournal;
use net::{Net, Peering};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};
use store::FarStore;
use throng::{Engine, host::Host as _};
use throng_cluster::{
    Host, Status, Timing,
    node_loop::{NodeLoop, Parts},
};
use throng_journal::{
    CommitNo, FEATURES, Join, Journal as _, MemoryJournal, MemoryStore, NodeState, Position, ShardId, ShardSet,
    WriterId,
};
use tokio::sync::watch;

/// The nodes of a simulated cluster, numbered from 0. Clones share them.
#[derive(Clone)]
pub struct Nodes {
    sim: Sim,
    timing: Timing,
    /// The releases that nodes declare; 0 if none was set.
    apps: Arc<Mutex<BTreeMap<usize, u64>>>,
    database: Database,
    net: Net,
    running: Arc<Mutex<BTreeMap<usize, Running>>>,
}

struct Running {
    line: DatabaseLink,
    /// `None` while it starts.
    engine: Option<Engine>,
    status: Option<watch::Receiver<Status>>,
}

impl Nodes {
    pub(crate) fn new(sim: Sim, timing: Timing) -> Self {
        let journal = MemoryJournal::new();
        let database = Database {
            world: sim.world().clone(),
            store: MemoryStore::new(journal.clone()),
            directory: journal.directory(),
            journal,
            faults: sim.shared_faults(),
            rows: Arc::default(),
            lease: timing.lease,
        };
        Self {
            net: Net::new(database.clone()),
            sim,
            timing,
            apps: Arc::default(),
            database,
            running: Arc::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<usize, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group(&self, node: usize) -> Option<Group> {
        self.running().get(&node).map(|running| running.line.process.group)
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the release that a node declares (`--app-number`), from its next start on. [`Sim::upgrade`] sets the program it runs.
    pub fn set_app(&self, node: usize, app: u64) {
        self.apps().insert(node, app);
    }

    /// Returns the number of shards that nodes of each release own, including dead nodes whose shards nobody has taken yet.
    pub async fn shards_by_app(&self) -> BTreeMap<u64, usize> {
        use throng_journal::Directory as _;
        let mut shards = BTreeMap::new();
        let Ok(view) = self.database.directory.view().await else {
            return shards;
        };
        for owner in view.owners.iter().flatten() {
            let app = view.node(*owner).map_or(0, |node| node.said.app);
            *shards.entry(app).or_default() += 1;
        }
        shards
    }

    /// Starts a node, which joins and takes part until it is killed. A node that was started already stays as it is.
    ///
    /// # Errors
    /// [`Gone`]: the process died before it joined, or cannot join. The trace has the reason.
    pub async fn start(&self, node: usize) -> Result<(), Gone> {
        let world = self.sim.world().clone();
        let group = self.sim.new_group();
        let process = Process {
            group,
            is_dead: false.into(),
            is_cut: false.into(),
            is_mute: false.into(),
            is_disconnected: false.into(),
            day_micros: Arc::default(),
            lease: Mutex::default(),
            node: 0.into(),
        };
        let line = DatabaseLink {
            database: self.database.clone(),
            process: Arc::new(process),
        };
        let host = Arc::new(SimHost {
            world: world.clone(),
            group,
            runs_on: RunsOn::World,
            day_micros: line.process.day_micros.clone(),
        });
        let running = Running {
            line: line.clone(),
            engine: None,
            status: None,
        };
        match self.running().entry(node) {
            Entry::Vacant(vacant) => vacant.insert(running),
            Entry::Occupied(_) => return Ok(()),
        };
        world.note(format_args!("node {node} starts as process {group}"));
        let peering = Arc::new(Peering::new(self.net.clone(), line.clone()));
        let builder = self.sim.builder().host(host.clone()).peers(peering.clone());
        let (net, nodes) = (self.net.clone(), self.clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        let starting = async move {
            let started = builder.start(FarJournal(line.clone()), FarStore(line.clone())).await;
            let engine = started.map_err(|why| why.to_string())?;
            let driver: Arc<dyn Host> = Arc::new(engine.driver());
            net.listen(group, driver.clone());
            let node_loop = Arc::new(NodeLoop::new(Parts {
                directory: FarDirectory(line).into(),
                host: driver,
                connections: peering,
                clock: host.clone(),
                join: Join {
                    name: format!("n{node}"),
                    peer: format!("n{node}"),
                    app: nodes.apps().get(&node).copied().unwrap_or_default(),
                    shards: nodes.sim.shards(),
                    features: FEATURES,
                    ..Join::default()
                },
                timing: nodes.timing,
            }));
            if let Some(running) = nodes.running().get_mut(&node) {
                running.engine = Some(engine);
                running.status = Some(node_loop.statuses());
            }
            let number = node_loop.join().await.map_err(|why| why.to_string())?;
            host.spawn(Box::pin(node_loop.run(number)));
            Ok::<_, String>(())
        };
        world.spawn(
            group,
            RunsOn::World,
            Box::pin(async move { drop(tell.send(starting.await)) }),
        );
        match told.await {
            Ok(Ok(())) => {
                world.note(format_args!("node {node} runs"));
                Ok(())
            }
            Ok(Err(why)) => {
                world.note(format_args!("node {node} cannot start: {why}"));
                self.kill(node);
                Err(Gone)
            }
            Err(_) => Err(Gone),
        }
    }

    /// Returns the nodes that run, paused or not.
    #[must_use]
    pub fn up(&self) -> Vec<usize> {
        let running = self.running();
        let up = running.iter().filter(|(_, running)| running.engine.is_some());
        up.map(|(node, _)| *node).collect()
    }

    /// Tells whether a node runs or is starting.
    #[must_use]
    pub fn is_started(&self, node: usize) -> bool {
        self.running().contains_key(&node)
    }

    /// Runs a closure in a node's process, and waits for its result.
    ///
    /// # Errors
    /// [`Gone`]: the node does not run, or died first.
    pub async fn call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        node: usize,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        let (group, engine) = {
            let running = self.running();
            let running = running.get(&node).ok_or(Gone)?;
            (running.line.process.group, running.engine.clone().ok_or(Gone)?)
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let called = call(engine);
        let task = Box::pin(async move { drop(tell.send(called.await)) });
        self.sim.world().spawn(group, RunsOn::World, task);
        told.await.map_err(|_| Gone)
    }

    /// Kills a node's process. Its port refuses connections and its sessions are gone; calls it sent to the database go on.
    pub fn kill(&self, node: usize) {
        let Some(Running { line, engine, status }) = self.running().remove(&node) else {
            return;
        };
        let group = line.process.group;
        self.sim.note(format_args!("node {node}, process {group}, is killed"));
        self.sim.count("node killed");
        line.process.is_dead.store(true, Ordering::Relaxed);
        self.net.forget(group);
        self.sim.world().kill(group);
        drop((engine, status));
    }

    /// Pauses a node's process for this long. Calls it sent go on.
    pub fn pause(&self, node: usize, duration: Duration) {
        if let Some(group) = self.group(node) {
            self.sim.note(format_args!("node {node} is paused for {duration:?}"));
            self.sim.count("node paused");
            self.sim.world().pause(group, duration);
        }
    }

    /// Cuts two nodes off from each other until [`mend`](Self::mend).
    pub fn cut(&self, one: usize, other: usize) {
        if let (Some(of_one), Some(of_other)) = (self.group(one), self.group(other)) {
            self.sim
                .note(format_args!("nodes {one} and {other} are cut off from each other"));
            self.sim.count("nodes cut off from each other");
            self.net.cut(of_one, of_other);
        }
    }

    /// Cuts a node off from the database until [`mend`](Self::mend).
    pub fn cut_from_database(&self, node: usize) {
        if let Some(running) = self.running().get(&node) {
            self.sim.note(format_args!("node {node} is cut off from the database"));
            self.sim.count("node cut off from the database");
            running.line.process.is_cut.store(true, Ordering::Relaxed);
        }
    }

    /// Cuts a node off from the directory until [`mend`](Self::mend). Its journal and store stay connected.
    pub fn cut_from_directory(&self, node: usize) {
        if let Some(running) = self.running().get(&node) {
            self.sim.note(format_args!("node {node} is cut off from the directory"));
            self.sim.count("node cut off from the directory");
            running.line.process.is_mute.store(true, Ordering::Relaxed);
        }
    }

    /// Repairs all connections.
    pub fn mend(&self) {
        self.sim.note(format_args!("all lines are mended"));
        self.net.mend();
        for running in self.running().values() {
            running.line.process.is_cut.store(false, Ordering::Relaxed);
            running.line.process.is_mute.store(false, Ordering::Relaxed);
        }
    }

    /// Restarts the database: the sessions of all nodes are gone until they reconnect. Its contents stay.
    pub fn restart_database(&self) {
        self.sim.note(format_args!("the database starts again"));
        self.sim.count("database restarted");
        for running in self.running().values() {
            running.line.process.is_disconnected.store(true, Ordering::Relaxed);
        }
    }

    /// Moves a node's time of day ahead or back by this many microseconds.
    pub fn set_clock(&self, node: usize, ahead_micros: i64) {
        if let Some(running) = self.running().get(&node) {
            self.sim.count("time of day of a node set");
            running.line.process.day_micros.store(ahead_micros, Ordering::Relaxed);
        }
    }

    /// Asks a node to give away all its shards, or ends that request.
    pub async fn drain(&self, node: usize, drain: bool) {
        use throng_journal::Directory as _;
        let asked = self.database.directory.ask_drain(&format!("n{node}"), drain).await;
        self.sim
            .note(format_args!("node {node} is asked to drain: {drain}, {asked:?}"));
    }

    /// Pins shards to a node, or to none. Returns `false` if the directory refuses.
    pub async fn pin(&self, shards: &ShardSet, to: Option<usize>) -> bool {
        use throng_journal::Directory as _;
        let name = to.map(|node| format!("n{node}"));
        let pinned = self.database.directory.pin(shards, name.as_deref()).await;
        if pinned.is_ok() && to.is_some() {
            self.sim.count("shards pinned");
        }
        self.sim
            .note(format_args!("the shards {shards} are pinned to {to:?}: {pinned:?}"));
        pinned.is_ok()
    }

    /// Tells whether each shard is served by a running node: a pinned shard by its node if that one serves, all others as evenly as this
    /// allows.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let running = self.running();
        let statuses: Vec<Status> = running
            .values()
            .filter_map(|running| Some(running.status.as_ref()?.borrow().clone()))
            .collect();
        let Some(newest) = statuses.iter().max_by_key(|status| status.view.version) else {
            return false;
        };
        let serving = newest.view.nodes.iter().filter(|node| node.state == NodeState::Serving);
        let is_home = |shard: ShardId, name: &String| newest.view.pins.get(&shard) == Some(name);
        let mut homes = ShardSet::default();
        let mut least = usize::MAX;
        for node in serving {
            let own = newest.view.shards_of(Some(node.id));
            least = least.min(own.len());
            for shard in newest
                .view
                .pins
                .keys()
                .filter(|shard| is_home(**shard, &node.said.name))
            {
                if !own.contains(*shard) {
                    return false;
                }
                homes.insert(*shard);
            }
        }
        let mut served = ShardSet::default();
        for status in &statuses {
            let own = newest.view.shards_of(Some(status.node));
            let is_even = own.len() <= least.saturating_add(1) || own.without(&homes).is_empty();
            if status.serves != own || !is_even || served.overlaps(&own) {
                return false;
            }
            for shard in own.iter() {
                served.insert(shard);
            }
        }
        served.len() == newest.view.owners.len() && !served.is_empty()
    }

    /// Returns the number of nodes that serve shards.
    #[must_use]
    pub fn serving(&self) -> usize {
        let running = self.running();
        let statuses = running.values().filter_map(|running| running.status.as_ref());
        statuses.filter(|status| !status.borrow().serves.is_empty()).count()
    }

    /// Waits until all shards are [served evenly](Self::is_settled), but at most this long. Returns whether they are.
    pub async fn settle(&self, at_most: Duration) -> bool {
        let until = self.sim.elapsed() + at_most;
        while !self.is_settled() {
            if self.sim.elapsed() > until {
                for (node, running) in self.running().iter() {
                    let status = running.status.as_ref().map(|status| status.borrow().clone());
                    self.sim.note(format_args!("node {node} is not settled: {status:?}"));
                }
                return false;
            }
            self.sim.sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Returns the durable history.
    #[must_use]
    pub fn history(&self) -> History {
        History {
            commits: self.database.rows().landed.clone(),
            is_pruned: false,
        }
    }

    /// Returns the present contents of the journal, without what nodes have removed.
    pub async fn left(&self) -> History {
        let journal = &self.database.journal;
        let mut commits = Vec::new();
        for stream in journal.streams(WriterId(0)).await.unwrap_or_default() {
            let start = Position::new(stream.writer, CommitNo(0));
            commits.extend(journal.read(start, usize::MAX).await.unwrap_or_default());
        }
        History {
            commits,
            is_pruned: true,
        }
    }

    /// Loses the contents of the store. Call this while no node runs.
    pub fn lose_store(&self) {
        self.sim.note(format_args!("the store is lost"));
        self.sim.count("store lost");
        self.database.store.lose();
    }

    /// Ends the world of these nodes, and checks their journal.
    pub fn end(&self) -> History {
        let all: Vec<usize> = self.running().keys().copied().collect();
        all.into_iter().for_each(|node| self.kill(node));
        for wrong in std::mem::take(&mut self.database.rows().wrong) {
            self.sim.wrong(wrong);
        }
        let history = self.history();
        for wrong in history.check(self.sim.shards(), false) {
            self.sim.wrong(wrong);
        }
        history
    }

    /// Ends all faults from now on.
    pub fn calm(&self) {
        let lie = self.sim.lie();
        self.sim.set_faults(Faults { lie, ..Faults::none() });
        self.mend();
    }
}
