//! A node that runs: its threads, its port, its connections, and its [`NodeLoop`].

use crate::{
    Links,
    joining::Joining,
    membership::Timing,
    node_loop::{Connections, Host, NodeLoop, Parts, Status},
    server::{Known, Server, Warnings},
    wire::Trust,
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::host::{Host as Clock, TokioHost};
use throng_journal::{Directory, Error, Join, Later, Node as Other, NodeId, NodeState, View};
use tokio::{
    net::TcpListener,
    runtime::{Handle, Runtime},
    sync::watch,
    task::JoinHandle,
};

/// Threads on which nodes talk.
const THREADS: usize = 2;
/// The longest time that a leaving node waits until others have its shards.
const DRAIN: Duration = Duration::from_secs(10);

/// The options with which a node takes part in a cluster.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The node's own description. An empty `peer` is replaced by the address at which it listens.
    pub join: Join,
    /// The address at which it listens for other nodes.
    pub listen: SocketAddr,
    /// The secrets and certificates by which nodes recognize each other: the same as of its [`Links`].
    pub trust: Trust,
    /// The times after which it acts.
    pub timing: Timing,
    /// A standby node owns nothing while at least this many others serve.
    pub standby: Option<usize>,
    /// The loops on which the engine's other requests are executed. Requests to other nodes are sent there, and requests from them are
    /// answered there, so that no thread has to wake another one in between. They have to run until the engine has stopped. Empty: the node
    /// has its own threads.
    pub loops: Vec<Handle>,
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
    /// The directory refuses the node: its name is taken, or the number of shards is another one. Or the database cannot be
    /// reached, or a living node has another secret.
    #[error(transparent)]
    Directory(#[from] Error),
}

/// A node of a cluster, running on threads of its own.
pub struct Node {
    node_loop: Arc<NodeLoop>,
    directory: Arc<dyn Directory>,
    task: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

/// The connections that this node makes, and those that it accepts.
struct BothWays {
    directory: Arc<dyn Directory>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    links: Links,
    server: Arc<Server>,
}

impl Connections for BothWays {
    fn refuse(&self, me: Option<NodeId>) -> Later<'_, Result<(), Error>> {
        Box::pin(async move {
            let joining = Joining {
                directory: &*self.directory,
                clock: &*self.clock,
                lease: self.lease,
                proofs: &self.links,
            };
            joining.refuse(me).await
        })
    }

    fn look(&self, me: NodeId, view: &View) {
        {
            let mut known = self.server.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.me = me.0;
            view.cluster.clone_into(&mut known.cluster);
        }
        self.links.look(me, view);
    }

    fn server_of<'a>(&'a self, me: NodeId, cluster: &'a str, node: &'a Other) -> Later<'a, Option<String>> {
        self.links.server_of(me, cluster, node)
    }

    fn newer_gone(&self, name: String, gone_for: Duration) {
        self.links.set_newer_gone(name, gone_for);
    }

    fn reaches(&self) -> BTreeSet<NodeId> {
        self.links.connected()
    }

    fn refusing(&self) -> BTreeSet<NodeId> {
        self.links.refusing()
    }

    fn changed(&self) -> Later<'_, ()> {
        Box::pin(self.links.changed())
    }

    fn describe(&self, status: &mut Status) {
        let counts = self.links.counts();
        status.refused = self.server.refusals.load(Ordering::Relaxed);
        status.looked = Some(Instant::now());
        status.connected = self.links.connected();
        status.connected.remove(&status.node);
        status.asks = counts.asks.load(Ordering::Relaxed);
        status.frames = counts.frames.load(Ordering::Relaxed);
        status.not_here = counts.not_here.load(Ordering::Relaxed);
        status.unknown = counts.unknown.load(Ordering::Relaxed);
    }
}

impl Node {
    /// Joins, and takes part until [`leave`](Self::leave). The engine behind `host` must have `links` as its peers.
    ///
    /// # Errors
    /// [`NodeError`]: the address for other nodes cannot be listened at, or the directory refuses the node.
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
        if options.loops.is_empty() {
            options.loops.push(runtime.handle().clone());
        }
        links.run_on(&options.loops);
        let clock: Arc<dyn Clock> = Arc::new(TokioHost::on(runtime.handle().clone()));
        // If the directory cannot be reached, joining will report it.
        let view = runtime.block_on(directory.view()).unwrap_or_default();
        let server = Arc::new(Server {
            loops: options.loops,
            host: Arc::clone(&host),
            directory: Arc::clone(&directory),
            trust: options.trust,
            shards: options.join.shards,
            known: Mutex::new(Known {
                cluster: view.cluster,
                me: 0,
            }),
            refused: Warnings::default(),
            refusals: AtomicU64::new(0),
            links: links.clone(),
        });
        let node_loop = NodeLoop::new(Parts {
            directory: Arc::clone(&directory),
            host,
            connections: Arc::new(BothWays {
                directory: Arc::clone(&directory),
                clock: Arc::clone(&clock),
                lease: options.timing.lease,
                links,
                server: Arc::clone(&server),
            }),
            clock,
            join: options.join,
            timing: options.timing,
        });
        let node_loop = Arc::new(node_loop.stand_by(options.standby));
        // Nodes that join at the same moment ask for its proof.
        runtime.spawn(Arc::clone(&server).listen(listener));
        let node = runtime.block_on(node_loop.join())?;
        let cluster = runtime.block_on(directory.view())?.cluster;
        *server.known.lock().unwrap_or_else(PoisonError::into_inner) = Known { cluster, me: node.0 };
        let task = runtime.spawn(Arc::clone(&node_loop).run(node));
        Ok(Self {
            node_loop,
            directory,
            task: Some(task),
            runtime: Some(runtime),
        })
    }

    /// Returns the node's last view of the cluster, and the shards that its engine serves.
    #[must_use]
    pub fn status(&self) -> Status {
        self.node_loop.statuses().borrow().clone()
    }

    /// Returns the node's present status and each later one. The last one stays readable after the node has gone.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.node_loop.statuses()
    }

    /// Waits until its engine serves the node's shards, and the node may own some, but not longer than this. Returns whether that is so.
    #[must_use]
    pub fn wait_until_serving(&self, at_most: Duration) -> bool {
        let mut status = self.node_loop.statuses();
        let Some(runtime) = &self.runtime else { return false };
        let serving = status.wait_for(|status| {
            let owned = status.view.owners.iter().flatten().count();
            let is_served = status.changes > 0 && status.serves == status.view.shards_of(Some(status.node));
            status.apart.is_none() && is_served && (owned > 0 || status.view.owners.is_empty())
        });
        runtime.block_on(async { tokio::time::timeout(at_most, serving).await.is_ok() })
    }

    /// Gives away its shards, as far as others take them, for at most ten seconds. The caller then stops the engine and calls
    /// [`leave`](Self::leave).
    pub fn drain(&self) {
        self.node_loop.drain();
        let (Some(runtime), mut status) = (&self.runtime, self.node_loop.statuses()) else {
            return;
        };
        let drained = status.wait_for(|status| {
            let others = status.view.nodes.iter().filter(|node| node.state == NodeState::Serving);
            let are_there = others.filter(|node| node.id != status.node).count() > 0;
            !are_there || status.view.shards_of(Some(status.node)).is_empty()
        });
        runtime.block_on(async { drop(tokio::time::timeout(DRAIN, drained).await) });
    }

    /// Leaves the cluster. Shards that it still owns are free to be taken.
    pub fn leave(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let node = self.status().node;
        let left = runtime.block_on(self.directory.leave(node));
        if let Err(error) = left {
            tracing::warn!("node {node} could not say that it leaves, the others notice: {error}");
        }
        runtime.shutdown_background();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
