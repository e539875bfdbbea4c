//! The connections to other nodes, on the asking side.

use crate::{
    frame::{self, Ask, FRAME_BYTES_MAX, Frame, Hello, PROTOCOL, Role},
    joining::Proofs,
    node_loop::Status,
    wire::{self, Trust, Wire},
};
use futures_util::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::driver::peers::{Peers, Reply, Request};
use throng_journal::{Later, Node, NodeId, ShardId, View, features, scratch};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::{Notify, oneshot, watch},
    time::{sleep, timeout},
};

/// Most requests that wait for another node's answer.
const ASKS_MAX: usize = 4_096;
/// The most requests in one frame.
const ASKS_A_FRAME: usize = 1_024;
/// The approximate most bytes of requests in one frame. One request always fits.
const ASK_BYTES_A_FRAME: usize = 1 << 20;
/// The interval between two searches for expired requests.
const SWEEP: Duration = Duration::from_millis(50);
/// The first pause before a node is tried again, and the longest. It doubles each time.
const RETRY: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
const CONNECT: Duration = Duration::from_secs(1);
const HANDSHAKE: Duration = Duration::from_secs(3);
/// The longest time that a console waits for another node's report.
const REPORT: Duration = Duration::from_secs(1);
/// The time after which a connection that takes nothing has failed.
const STALLED: Duration = Duration::from_secs(3);
/// The number of refused connections in a row after which a port counts as closed.
const REFUSED: u32 = 2;
/// The number of failures in a row after which they are logged.
const FAILED: u32 = 3;

/// The connections over which an engine's requests go to the owner of the shard. Clones share them.
#[derive(Clone)]
pub struct Links {
    shared: Arc<Shared>,
}

struct Shared {
    /// The number of each shard's owner, 0 for none. Each look at the nodes writes it; requests read it.
    owners: Box<[AtomicU64]>,
    nodes: RwLock<HashMap<NodeId, Arc<Link>>>,
    me: AtomicU64,
    cluster: Mutex<String>,
    /// The living node that understands the least: its newest feature, and its name.
    oldest: Mutex<Option<(u32, String)>>,
    /// The name of a living node of a newer release than this one's.
    newer: Mutex<Option<String>>,
    /// A node of a newer release that was gone before this process joined: its name, the time it had been gone, and when that was.
    newer_gone: OnceLock<(String, Duration, Instant)>,
    /// The number of looks at the nodes so far.
    looks: watch::Sender<u64>,
    trust: Trust,
    /// The event loops that handle connections. All connections to a node are on the same loop.
    loops: OnceLock<Vec<Handle>>,
    /// Wakes the node's membership for another look: a connection began to fail or to work, or a look was requested.
    changed: Notify,
    counts: Counts,
    /// Returns this node's report for others. Set once, before it joins.
    report: OnceLock<Report>,
}

/// Returns a node's report as JSON.
type Report = Box<dyn Fn() -> String + Send + Sync>;

/// The counts of requests to other nodes since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asks: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) not_here: AtomicU64,
    pub(crate) unknown: AtomicU64,
}

/// The connection to one node.
struct Link {
    node: NodeId,
    address: String,
    next_id: AtomicU32,
    queue: Mutex<Queue>,
    wake: Notify,
    refuses: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Queue {
    is_connected: bool,
    /// The requests to send with the next frame.
    waiting: Vec<Ask>,
    /// The requests that are not answered, sent or not.
    asked: HashMap<u32, Asked>,
}

struct Asked {
    tell: oneshot::Sender<Reply>,
    until: Instant,
    is_sent: bool,
}

impl Links {
    /// Returns links to the nodes of a cluster whose service has this many shards. They lead to no node until a [`Node`](crate::Node) with
    /// them has joined.
    #[must_use]
    pub fn new(shards: u16, trust: Trust) -> Self {
        Self {
            shared: Arc::new(Shared {
                owners: (0..shards).map(|_| AtomicU64::new(0)).collect(),
                nodes: RwLock::default(),
                me: AtomicU64::new(0),
                cluster: Mutex::default(),
                oldest: Mutex::default(),
                newer: Mutex::default(),
                newer_gone: OnceLock::new(),
                looks: watch::Sender::new(0),
                trust,
                loops: OnceLock::new(),
                changed: Notify::new(),
                counts: Counts::default(),
                report: OnceLock::new(),
            }),
        }
    }

    /// Sets this node's report for the consoles of other nodes: JSON of at most 3 KiB. Called once.
    pub fn tell(&self, report: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.shared.report.set(Box::new(report));
    }

    /// Returns this node's own report; empty if none was set.
    #[must_use]
    pub fn report(&self) -> String {
        self.shared.report.get().map_or_else(String::new, |report| report())
    }

    /// Asks all connected nodes for their reports, concurrently. A node that does not answer within a second is left out.
    pub async fn reports(&self, status: &Status) -> BTreeMap<NodeId, String> {
        let nodes = status.view.nodes.iter();
        let others = nodes.filter(|node| node.lives() && status.connected.contains(&node.id));
        let asked = others.map(|node| async move { Some((node.id, self.report_of(status, node).await?)) });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn report_of(&self, status: &Status, node: &Node) -> Option<String> {
        if node.said.features < features::TELLS {
            return None;
        }
        let own = self.hello(status.node, &status.view.cluster);
        let ask = async {
            let shaken = shake_hands(&self.shared.trust, own, Some(node.id), &node.said.peer).await;
            let mut wire = shaken.ok()?;
            wire.send(&Frame::AsksReport).await.ok()?;
            match wire.receive().await {
                Ok(Frame::Reports(report)) if !report.is_empty() => Some(report),
                _ => None,
            }
        };
        timeout(REPORT, ask).await.ok().flatten()
    }

    /// Sets the loops for connections, before the first [`look`](Self::look). Called once.
    pub(crate) fn run_on(&self, loops: &[Handle]) {
        let _ = self.shared.loops.set(loops.to_vec());
    }

    /// Takes a node's present view: the nodes, and the owners of shards.
    pub(crate) fn look(&self, me: NodeId, view: &View) {
        let shared = &self.shared;
        shared.me.store(me.0, Ordering::Release);
        view.cluster
            .clone_into(&mut shared.cluster.lock().unwrap_or_else(PoisonError::into_inner));
        // Also connects to itself, to see whether others can reach it at the address that it advertises.
        let living = |node: &&Node| node.lives();
        let mut nodes = shared.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|id, link| {
            let is_there = view.nodes.iter().filter(living).any(|node| node.id == *id);
            if !is_there {
                link.is_over.store(true, Ordering::Release);
                link.wake.notify_one();
            }
            is_there
        });
        for node in view.nodes.iter().filter(living) {
            nodes.entry(node.id).or_insert_with(|| {
                let link = Arc::new(Link {
                    node: node.id,
                    address: node.said.peer.clone(),
                    next_id: AtomicU32::new(0),
                    queue: Mutex::default(),
                    wake: Notify::new(),
                    refuses: AtomicBool::new(false),
                    is_over: AtomicBool::new(false),
                });
                let loops = shared.loops.get().map_or(&[][..], Vec::as_slice);
                if let Some(on) = loops.get(node.id.0 as usize % loops.len().max(1)) {
                    on.spawn(run(Connecting {
                        shared: Arc::clone(&self.shared),
                        link: Arc::clone(&link),
                    }));
                }
                link
            });
        }
        drop(nodes);
        let living = view.nodes.iter().filter(|node| node.lives()).map(|node| &node.said);
        let oldest = living.min_by_key(|said| said.features);
        *shared.oldest.lock().unwrap_or_else(PoisonError::into_inner) =
            oldest.map(|said| (said.features, said.name.clone()));
        let newer = view.newer(me).map(|node| node.said.name.clone());
        *shared.newer.lock().unwrap_or_else(PoisonError::into_inner) = newer;
        for (owner, own) in view.owners.iter().zip(&shared.owners) {
            own.store(owner.map_or(0, |owner| owner.0), Ordering::Release);
        }
        shared.looks.send_modify(|looks| *looks += 1);
    }

    /// Sets a node of a newer release that was gone before this process joined, and the time it has been gone. Called once.
    pub(crate) fn set_newer_gone(&self, name: String, gone_for: Duration) {
        let _ = self.shared.newer_gone.set((name, gone_for, Instant::now()));
    }

    /// Returns the nodes whose ports refuse connections.
    pub(crate) fn refusing(&self) -> BTreeSet<NodeId> {
        let nodes = self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let refusing = nodes.values().filter(|link| link.refuses.load(Ordering::Acquire));
        refusing.map(|link| link.node).collect()
    }

    /// Nodes that are connected.
    pub(crate) fn connected(&self) -> BTreeSet<NodeId> {
        let nodes = self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let connected = nodes.values().filter(|link| link.queue().is_connected);
        connected.map(|link| link.node).collect()
    }

    /// Resolves when a connection began to fail, or to work.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Links {
    fn hello(&self, me: NodeId, cluster: &str) -> Hello {
        Hello {
            protocol: PROTOCOL,
            cluster: cluster.to_owned(),
            node: me.0,
            shards: self.shared.owners.len() as u16,
            nonce: rand::random(),
        }
    }

    /// Asks a node which database server it uses.
    pub(crate) fn server_of<'a>(&'a self, me: NodeId, cluster: &'a str, node: &'a Node) -> Later<'a, Option<String>> {
        let own = self.hello(me, cluster);
        Box::pin(async move {
            if node.said.features < features::REACHES {
                return None;
            }
            // It may have joined there as another node.
            let shaken = shake_hands(&self.shared.trust, own, None, &node.said.peer).await;
            let mut wire = shaken.ok()?;
            wire.send(&Frame::AsksServer).await.ok()?;
            match timeout(HANDSHAKE, wire.receive()).await {
                Ok(Ok(Frame::UsesServer(server))) if !server.is_empty() => Some(server),
                _ => None,
            }
        })
    }
}

impl Proofs for Links {
    fn has_other_secret<'a>(&'a self, me: NodeId, cluster: &'a str, node: &'a Node) -> Later<'a, bool> {
        let own = self.hello(me, cluster);
        Box::pin(async move {
            let shaken = shake_hands(&self.shared.trust, own, Some(node.id), &node.said.peer).await;
            matches!(shaken, Err(Failed::OtherSecret))
        })
    }
}

impl Peers for Links {
    fn without_feature(&self, feature: u32) -> Option<String> {
        let oldest = self.shared.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        oldest
            .as_ref()
            .filter(|(known, _)| *known < feature)
            .map(|(_, name)| name.clone())
    }

    fn newer(&self) -> Option<String> {
        let newer = self.shared.newer.lock().unwrap_or_else(PoisonError::into_inner);
        newer.clone()
    }

    fn newer_gone(&self) -> Option<(String, Duration)> {
        let (name, gone_for, since) = self.shared.newer_gone.get()?;
        Some((name.clone(), *gone_for + since.elapsed()))
    }

    fn looked(&self) -> Later<'static, ()> {
        let shared = Arc::clone(&self.shared);
        let mut looks = shared.looks.subscribe();
        Box::pin(async move {
            // A look under way may have begun before this call; the one after it has not.
            for _ in 0..2 {
                shared.changed.notify_one();
                // The sender is held here, so this cannot fail.
                let _ = looks.changed().await;
            }
        })
    }

    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply> {
        let shared = &self.shared;
        let not_here = || -> Later<'static, Reply> {
            shared.counts.not_here.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Reply::NotHere))
        };
        let owner = shared
            .owners
            .get(usize::from(shard.0))
            .map(|owner| owner.load(Ordering::Acquire));
        let is_other = |owner: &u64| ![0, shared.me.load(Ordering::Acquire)].contains(owner);
        let link = owner.filter(is_other).and_then(|owner| {
            let nodes = shared.nodes.read().unwrap_or_else(PoisonError::into_inner);
            nodes.get(&NodeId(owner)).cloned()
        });
        let Some(told) = link.and_then(|link| link.ask(shard, request, within)) else {
            return not_here();
        };
        shared.counts.asks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { told.await.unwrap_or(Reply::Unknown) })
    }
}

impl Link {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request; `None` if there is no connection, or too many wait: nothing was done.
    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Option<oneshot::Receiver<Reply>> {
        let (tell, told) = oneshot::channel();
        let mut queue = self.queue();
        if !queue.is_connected || queue.asked.len() >= ASKS_MAX {
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let asked = Asked {
            tell,
            until: Instant::now() + within,
            is_sent: false,
        };
        queue.asked.insert(id, asked);
        let is_first = queue.waiting.is_empty();
        queue.waiting.push(Ask {
            id,
            shard: shard.0,
            within_micros: u32::try_from(within.as_micros()).unwrap_or(u32::MAX),
            request,
        });
        drop(queue);
        if is_first {
            self.wake.notify_one();
        }
        Some(told)
    }

    /// Removes and returns waiting requests, as many as fit into one frame.
    fn take(&self) -> Vec<Ask> {
        let mut queue = self.queue();
        let mut bytes = 0;
        let fits = |ask: &&Ask| {
            let is_first = bytes == 0;
            bytes += weight(&ask.request);
            is_first || bytes <= ASK_BYTES_A_FRAME
        };
        let count = queue.waiting.iter().take(ASKS_A_FRAME).take_while(fits).count();
        let taken: Vec<Ask> = queue.waiting.drain(..count).collect();
        for ask in &taken {
            if let Some(asked) = queue.asked.get_mut(&ask.id) {
                asked.is_sent = true;
            }
        }
        taken
    }

    fn answered(&self, answers: Vec<(u32, Reply)>) {
        let mut queue = self.queue();
        for (id, reply) in answers {
            if let Some(asked) = queue.asked.remove(&id) {
                // The asker may have gone.
                let _ = asked.tell.send(reply);
            }
        }
    }

    /// Ends all requests of a broken connection: those that were sent may have been executed, the others were not.
    fn broken(&self, counts: &Counts) {
        let mut queue = self.queue();
        queue.is_connected = false;
        queue.waiting.clear();
        for (_, asked) in queue.asked.drain() {
            let reply = if asked.is_sent { Reply::Unknown } else { Reply::NotHere };
            if asked.is_sent {
                counts.unknown.fetch_add(1, Ordering::Relaxed);
            }
            let _ = asked.tell.send(reply);
        }
    }

    /// Ends expired requests.
    fn sweep(&self) {
        let now = Instant::now();
        let mut queue = self.queue();
        let over = queue.asked.extract_if(|_, asked| asked.until <= now);
        let over: Vec<(u32, Asked)> = over.collect();
        for (id, asked) in over {
            if !asked.is_sent {
                queue.waiting.retain(|ask| ask.id != id);
            }
            let reply = if asked.is_sent { Reply::Unknown } else { Reply::NotHere };
            let _ = asked.tell.send(reply);
        }
    }
}

/// About as many bytes as it takes in a frame.
fn weight(request: &Request) -> usize {
    match request {
        Request::Ask(ask) | Request::AskTraced(ask, _) => {
            let body = match &ask.what {
                throng::driver::peers::Asked::Command { body, .. } => body.len(),
                throng::driver::peers::Asked::Query { arguments, .. } => arguments.len(),
            };
            128 + ask.id.len() + body
        }
        Request::History { id, .. } => 128 + id.len(),
        Request::Erase { kind, id } => 64 + kind.len() + id.len(),
        Request::Record { kind, id } => 64 + kind.len() + id.len(),
        Request::Prune { .. } => 16,
        Request::List { after, .. } => 128 + after.as_ref().map_or(0, String::len),
        Request::Fields { ids, .. } => ids.iter().map(|id| 16 + id.len()).sum(),
        Request::Operate(action) | Request::DropSent(action) => 128 + action.id.len() + action.reason.len(),
        Request::Take(messages) | Request::DropMessages { messages, .. } => {
            messages.iter().map(|message| 128 + message.body.len()).sum()
        }
    }
}

/// A connection that is maintained. When it is dropped, also with its loop, its waiting requests end.
struct Connecting {
    shared: Arc<Shared>,
    link: Arc<Link>,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.link.broken(&self.shared.counts);
    }
}

/// Keeps a connection to a node, until it is a member no more.
async fn run(connecting: Connecting) {
    let Connecting { shared, link } = &connecting;
    let (mut pause, mut refused, mut failed, mut told) = (RETRY.0, 0, 0, None::<String>);
    while !link.is_over.load(Ordering::Acquire) {
        match connect(shared, link).await {
            Ok(wire) => {
                (pause, refused, failed, told) = (RETRY.0, 0, 0, None);
                link.refuses.store(false, Ordering::Release);
                link.queue().is_connected = true;
                shared.changed.notify_one();
                if let Err(why) = carry(shared, link, wire).await {
                    tracing::debug!("the connection to node {} ({}) is over: {why}", link.node, link.address);
                }
                link.broken(&shared.counts);
                shared.changed.notify_one();
            }
            Err(Failed::Refused) => {
                refused += 1;
                if refused >= REFUSED && !link.refuses.swap(true, Ordering::AcqRel) {
                    tracing::warn!(
                        "nobody listens at {} any more, where node {} was",
                        link.address,
                        link.node
                    );
                    shared.changed.notify_one();
                }
            }
            Err(failure) => {
                let why = match failure {
                    Failed::Otherwise(why) => why,
                    _ => "it does not know the cluster's secret: give all nodes the same --cluster-secret-file".into(),
                };
                // Logged once, as long as it stays the same. A node that is about to join does not know its number yet.
                failed += 1;
                if failed >= FAILED && told.as_ref() != Some(&why) {
                    tracing::warn!("node {} cannot be asked at {}: {why}", link.node, link.address);
                    told = Some(why);
                }
            }
        }
        sleep(pause + pause.mul_f64(rand::random::<f64>() / 4.0)).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

enum Failed {
    Refused,
    /// The other node has another secret.
    OtherSecret,
    Otherwise(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Otherwise(why)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Otherwise(error.to_string())
    }
}

/// Connects, and proves to the other node who this one is. No bytes may follow its answer.
async fn connect(shared: &Shared, link: &Link) -> Result<Wire, Failed> {
    let own = Hello {
        protocol: PROTOCOL,
        cluster: shared.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        node: shared.me.load(Ordering::Acquire),
        shards: shared.owners.len() as u16,
        nonce: rand::random(),
    };
    shake_hands(&shared.trust, own, Some(link.node), &link.address).await
}

async fn shake_hands(trust: &Trust, own: Hello, node: Option<NodeId>, address: &str) -> Result<Wire, Failed> {
    let connected = match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(Failed::Refused),
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err("it does not answer".to_string().into()),
    };
    connected.set_nodelay(true)?;
    let trusted = trust.now();
    let shake = async {
        let mut wire = Wire::connected(connected, address, &trusted).await?;
        wire.send(&Frame::Hello(own.clone())).await?;
        let (hello, proof) = match wire.receive().await? {
            Frame::Welcome { hello, proof } => (hello, proof),
            Frame::Refused(why) => return Err(Failed::from(format!("it does not let this node in: {why}"))),
            _ => return Err("it does not answer as a node does".to_string().into()),
        };
        // Checked first: a node that has just joined proves it before it knows its number.
        let Some(secret) = trusted.proved_by(&proof, Role::Server, &own, &hello) else {
            return Err(Failed::OtherSecret);
        };
        if node.is_some_and(|node| hello.node != node.0) {
            return Err(format!("another node, {}, is there", hello.node).into());
        }
        let proof = secret.proof(Role::Client, &own, &hello);
        wire.send(&Frame::Proof(proof)).await?;
        Ok(wire)
    };
    match timeout(HANDSHAKE, shake).await {
        Ok(shaken) => shaken,
        Err(_) => Err("it takes too long to say who it is".to_string().into()),
    }
}

/// Sends requests and passes on answers, until the connection ends.
async fn carry(shared: &Shared, link: &Link, wire: Wire) -> Result<(), String> {
    let Wire {
        mut reader, mut writer, ..
    } = wire;
    let write = async {
        let mut bytes = Vec::new();
        loop {
            if link.is_over.load(Ordering::Acquire) {
                return Err("it is no member any more".to_owned());
            }
            let asks = link.take();
            if asks.is_empty() {
                link.wake.notified().await;
                continue;
            }
            scratch::empty(&mut bytes);
            let ids: Vec<u32> = asks.iter().map(|ask| ask.id).collect();
            if let Err(why) = frame::encode(&Frame::Asks(asks), &mut bytes) {
                tracing::error!("a request cannot be sent to node {}: {why}", link.node);
                link.answered(ids.into_iter().map(|id| (id, Reply::NotHere)).collect());
                continue;
            }
            shared.counts.frames.fetch_add(1, Ordering::Relaxed);
            let write = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            match timeout(STALLED, write).await {
                Ok(written) => written.map_err(|why| why.to_string())?,
                Err(_) => return Err("it reads nothing".to_owned()),
            }
        }
    };
    let read = async {
        let mut bytes: Vec<u8> = Vec::with_capacity(64 << 10);
        loop {
            let mut used = 0;
            while let Some((frame, length)) =
                frame::decode(&bytes[used..], FRAME_BYTES_MAX).map_err(|why| why.to_string())?
            {
                used += length;
                match frame {
                    Frame::Answers(answers) => link.answered(answers),
                    Frame::Refused(why) => return Err(why),
                    _ => return Err("it sends what nobody asked for".to_owned()),
                }
            }
            wire::advance(&mut bytes, used);
            if reader.read_buf(&mut bytes).await.map_err(|why| why.to_string())? == 0 {
                return Err("it was closed".to_owned());
            }
        }
    };
    let sweep = async {
        loop {
            sleep(SWEEP).await;
            link.sweep();
        }
    };
    tokio::select! {
        over = write => over,
        over = read => over,
        () = sweep => Ok(()),
    }
}
