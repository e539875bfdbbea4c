//! A node's life: it joins, says that it lives, takes and gives shards, and leaves.

use crate::{
    Links,
    frame::Secret,
    membership::{Action, Membership, Seen, Timing},
    server::{Known, Server},
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::driver::{
    Driver,
    peers::{Reply, Request},
};
use throng_journal::{Directory, Error, Join, Later, NodeId, NodeState, ShardSet, View};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{Notify, watch},
    task::JoinHandle,
    time::sleep,
};

/// Threads on which nodes talk.
const THREADS: usize = 2;
/// How long a node that leaves waits until others have what it owned.
const DRAIN: Duration = Duration::from_secs(10);

/// What membership has an engine do.
pub trait Host: Send + Sync + 'static {
    /// Serves exactly these shards from now on: ends the stream before in order, opens the next one.
    fn serve(&self, node: NodeId, shards: ShardSet) -> Later<'static, Result<(), Error>>;
    /// Ends the stream in order and serves nothing; whoever asks waits.
    fn release(&self) -> Later<'static, Result<(), Error>>;
    /// Answers what another node asks.
    fn answer(&self, request: Request, within: Duration) -> Later<'static, Reply>;
}

impl Host for Driver {
    fn serve(&self, node: NodeId, shards: ShardSet) -> Later<'static, Result<(), Error>> {
        let driver = self.clone();
        Box::pin(async move { Self::serve(&driver, node, shards).await })
    }

    fn release(&self) -> Later<'static, Result<(), Error>> {
        let driver = self.clone();
        Box::pin(async move { Self::release(&driver).await })
    }

    fn answer(&self, request: Request, within: Duration) -> Later<'static, Reply> {
        let driver = self.clone();
        Box::pin(async move { driver.answer_peer(request, within).await })
    }
}

/// How a node takes part.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What it says of itself; `peer` is filled in with where it listens, if it says nothing.
    pub join: Join,
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// What all nodes know.
    pub secret: Secret,
    /// How fast it notices.
    pub timing: Timing,
}

/// A node could not begin.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The address for other nodes.
    #[error("cannot listen for other nodes at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The system gives no threads.
    #[error("the node's threads cannot be started: {0}")]
    Threads(std::io::Error),
    /// What the directory says: who lives, another number of shards, or that the database cannot be reached.
    #[error(transparent)]
    Directory(#[from] Error),
}

/// How a node is.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its number; 0 while it is no member.
    pub node: NodeId,
    /// What it saw last.
    pub view: View,
    /// What its engine serves.
    pub serves: ShardSet,
    /// Nodes it is connected to.
    pub connected: BTreeSet<NodeId>,
    /// How often it has changed what it serves.
    pub changes: u64,
    /// How long the last change took, from the first request that waited to the first that was answered, at most.
    pub last_change: Duration,
    /// Requests sent to other nodes.
    pub asks: u64,
    /// Frames they went in.
    pub frames: u64,
    /// Requests for which no other node could be asked.
    pub not_here: u64,
    /// Requests whose outcome is not known.
    pub unknown: u64,
}

/// A node of a cluster, running on threads of its own.
pub struct Node {
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

struct Shared {
    directory: Arc<dyn Directory>,
    host: Arc<dyn Host>,
    links: Links,
    server: Arc<Server>,
    options: NodeOptions,
    /// It gives away what it has, and leaves.
    is_leaving: AtomicBool,
    wake: Notify,
    status: watch::Sender<Status>,
    change: Mutex<Change>,
    changes: AtomicU64,
}

/// What the engine serves, and whether that is being changed.
#[derive(Default)]
struct Change {
    serves: Option<ShardSet>,
    is_changing: bool,
    last: Duration,
}

impl Node {
    /// Joins, and takes part until [`leave`](Self::leave): the engine behind `host` was given `links` as its peers.
    ///
    /// # Errors
    /// The address for other nodes cannot be listened at; the directory does not let it in.
    pub fn start(
        directory: Arc<dyn Directory>,
        host: Arc<dyn Host>,
        links: Links,
        mut options: NodeOptions,
    ) -> Result<Self, NodeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("throng-node")
            .enable_all()
            .build()
            .map_err(NodeError::Threads)?;
        let listen = options.listen;
        let listener = runtime
            .block_on(TcpListener::bind(listen))
            .map_err(|error| NodeError::Listen(listen, error))?;
        if options.join.peer.is_empty() {
            let address = listener
                .local_addr()
                .map_err(|error| NodeError::Listen(listen, error))?;
            options.join.peer = address.to_string();
        }
        let node = runtime.block_on(join(&*directory, &options))?;
        let cluster = runtime.block_on(directory.view())?.cluster;
        let server = Arc::new(Server {
            host: Arc::clone(&host),
            secret: options.secret.clone(),
            shards: options.join.shards,
            known: Mutex::new(Known { cluster, me: node.0 }),
        });
        runtime.spawn(Arc::clone(&server).listen(listener));
        let shared = Arc::new(Shared {
            directory,
            host,
            links,
            server,
            options,
            is_leaving: AtomicBool::new(false),
            wake: Notify::new(),
            status: watch::Sender::new(Status::default()),
            change: Mutex::default(),
            changes: AtomicU64::new(0),
        });
        let task = runtime.spawn(Arc::clone(&shared).run(node));
        Ok(Self {
            shared,
            task: Some(task),
            runtime: Some(runtime),
        })
    }

    /// What it saw last, and what its engine serves.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// How it is, now and later; also once the node itself is gone.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Waits until its engine serves something or knows that others do, for so long at most; whether it does.
    #[must_use]
    pub fn wait_until_serving(&self, at_most: Duration) -> bool {
        let mut status = self.shared.status.subscribe();
        let Some(runtime) = &self.runtime else { return false };
        let serving = status.wait_for(|status| status.changes > 0);
        runtime.block_on(async { tokio::time::timeout(at_most, serving).await.is_ok() })
    }

    /// Gives away what it owns, as far as others take it, for ten seconds at most. The engine is then to be stopped, and
    /// [`leave`](Self::leave) called.
    pub fn drain(&self) {
        self.shared.is_leaving.store(true, Ordering::Release);
        self.shared.wake.notify_one();
        let (Some(runtime), mut status) = (&self.runtime, self.shared.status.subscribe()) else {
            return;
        };
        let drained = status.wait_for(|status| {
            let others = status.view.nodes.iter().filter(|node| node.state == NodeState::Serving);
            let are_there = others.filter(|node| node.id != status.node).count() > 0;
            !are_there || status.view.shards_of(Some(status.node)).is_empty()
        });
        runtime.block_on(async { drop(tokio::time::timeout(DRAIN, drained).await) });
    }

    /// Leaves: what it owns still is free to be taken.
    pub fn leave(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let node = self.shared.status.borrow().node;
        let left = runtime.block_on(self.shared.directory.leave(node));
        if let Err(error) = left {
            tracing::warn!("node {node} could not say that it leaves, the others notice: {error}");
        }
        runtime.shutdown_background();
    }
}

/// Joins. What stands against it may be over in a moment: a node of the same name that was killed is there until its sessions are gone.
async fn join(directory: &dyn Directory, options: &NodeOptions) -> Result<NodeId, Error> {
    let begun = Instant::now();
    loop {
        match directory.join(options.join.clone()).await {
            Err(Error::Refused(why)) if begun.elapsed() < options.timing.lease => {
                tracing::info!("the node cannot join yet: {why}");
                sleep(options.timing.beat / 2).await;
            }
            joined => return joined,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    async fn run(self: Arc<Self>, first: NodeId) {
        let (mut node, begun) = (first, Instant::now());
        let mut membership = Membership::new(node, self.options.timing);
        loop {
            let state = match self.is_leaving.load(Ordering::Acquire) || self.is_drained(node).await {
                true => NodeState::Draining,
                false => NodeState::Serving,
            };
            let view = match self.directory.beat(node, state).await {
                Ok(view) => view,
                Err(Error::Gone(_)) => {
                    tracing::error!("node {node} was declared dead by the others, it joins again");
                    node = self.join_again().await;
                    membership = Membership::new(node, self.options.timing);
                    continue;
                }
                Err(error) => {
                    tracing::warn!("node {node} cannot say that it lives: {error}");
                    membership.was_cut_off();
                    sleep(self.options.timing.beat / 2).await;
                    continue;
                }
            };
            self.look(node, &view);
            let now = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            let actions = membership.actions(&view, now, &self.seen());
            let mut has_changed = false;
            for action in actions {
                has_changed |= self.act(node, &view, action).await;
            }
            if has_changed {
                continue;
            }
            tokio::select! {
                () = self.directory.changed(self.options.timing.beat) => {}
                () = self.links.changed() => {}
                () = self.wake.notified() => {}
            }
        }
    }

    async fn is_drained(&self, node: NodeId) -> bool {
        self.directory.wants_drain(node).await.unwrap_or(false)
    }

    async fn join_again(&self) -> NodeId {
        loop {
            match self.directory.join(self.options.join.clone()).await {
                Ok(node) => {
                    let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
                    change.serves = None;
                    return node;
                }
                Err(error) => {
                    tracing::error!("the node cannot join again, it is tried again: {error}");
                    sleep(self.options.timing.beat).await;
                }
            }
        }
    }

    /// Goes by what is seen: owners, connections, who may come.
    fn look(&self, node: NodeId, view: &View) {
        self.links.look(node, view);
        let mut known = self.server.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.me = node.0;
        view.cluster.clone_into(&mut known.cluster);
        drop(known);
        let counts = self.links.counts();
        let (serves, last_change) = {
            let change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
            (change.serves.clone().unwrap_or_default(), change.last)
        };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.status.send_replace(Status {
            node,
            view: view.clone(),
            serves,
            connected: self.links.connected(),
            changes: count(&self.changes),
            last_change,
            asks: count(&counts.asks),
            frames: count(&counts.frames),
            not_here: count(&counts.not_here),
            unknown: count(&counts.unknown),
        });
    }

    fn seen(&self) -> Seen {
        let change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        Seen {
            refusing: self.links.refusing(),
            serves: change.serves.clone(),
            is_changing: change.is_changing,
        }
    }

    /// `true`: what is seen is another thing now.
    async fn act(self: &Arc<Self>, node: NodeId, view: &View, action: Action) -> bool {
        match action {
            Action::DeclareDead { node: dead, beat } => {
                let name = view.node(dead).map_or_else(String::new, |dead| dead.said.name.clone());
                match self.directory.declare_dead(node, dead, beat).await {
                    Ok(true) => tracing::warn!("node {dead} ({name}) is dead: its shards are taken over"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!("node {dead} ({name}) cannot be declared dead: {error}"),
                }
                true
            }
            Action::Take(shards) => match self.directory.take(node, &shards).await {
                Ok(taken) => {
                    tracing::info!("takes the shards {taken}");
                    !taken.is_empty()
                }
                Err(error) => {
                    tracing::warn!("shards cannot be taken: {error}");
                    false
                }
            },
            Action::Serve(shards) => {
                self.begin_change();
                let shared = Arc::clone(self);
                tokio::spawn(async move {
                    let begun = Instant::now();
                    let served = shared.host.serve(node, shards.clone()).await;
                    let last = begun.elapsed();
                    let serves = match served {
                        Ok(()) => {
                            tracing::info!(
                                "serves {} shards ({shards}) after {:.3} s",
                                shards.len(),
                                last.as_secs_f64()
                            );
                            shared.changes.fetch_add(1, Ordering::Relaxed);
                            Some(shards)
                        }
                        Err(error) => {
                            tracing::error!("the shards {shards} cannot be served, it is tried again: {error}");
                            sleep(shared.options.timing.beat / 2).await;
                            None
                        }
                    };
                    shared.end_change(serves, last);
                });
                false
            }
            Action::Give { to, shards } => {
                self.begin_change();
                let shared = Arc::clone(self);
                tokio::spawn(async move {
                    let begun = Instant::now();
                    let given = async {
                        shared.host.release().await?;
                        shared.directory.give(node, to, &shards).await
                    };
                    match given.await {
                        Ok(()) => tracing::info!("has given {} shards ({shards}) to node {to}", shards.len()),
                        Err(error) => tracing::warn!("the shards {shards} are not given to node {to}: {error}"),
                    }
                    // Whatever came of it: the engine serves nothing now, and is told what it owns by the next look.
                    shared.end_change(None, begun.elapsed());
                });
                false
            }
            Action::Leave => false,
        }
    }

    fn begin_change(&self) {
        self.change.lock().unwrap_or_else(PoisonError::into_inner).is_changing = true;
    }

    fn end_change(&self, serves: Option<ShardSet>, last: Duration) {
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        *change = Change {
            serves,
            is_changing: false,
            last,
        };
        drop(change);
        self.wake.notify_one();
    }
}
