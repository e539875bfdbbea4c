//! Requests between nodes, over connections that are slow, break and are cut.

use super::database::{Database, DatabaseLink};
use crate::{
    faults::Lie,
    world::{Group, OUTSIDE, RunsOn},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};
use throng::driver::peers::{Peers, Reply, Request, TakenAs};
use throng_cluster::{Host, Status, node_loop::Connections};
use throng_journal::{Later, NodeId, NodeState, ShardId, View};
use tokio::sync::{mpsc, oneshot, watch};

/// The interval at which a connection is checked.
const LOOK: Duration = Duration::from_millis(20);

/// The network between all processes. Clones share it.
#[derive(Clone)]
pub(super) struct Net {
    database: Database,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// Pairs of processes whose connection is cut, the lesser one first.
    cut: BTreeSet<(Group, Group)>,
    /// The engine of each process that answers requests.
    hosts: BTreeMap<Group, Arc<dyn Host>>,
    /// The requests in flight between two processes, in order.
    sent: BTreeMap<(Group, Group), mpsc::UnboundedSender<Asked>>,
}

struct Asked {
    request: Request,
    within: Duration,
    tell: oneshot::Sender<Reply>,
}

impl Net {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            inner: Arc::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cut(&self, one: Group, other: Group) {
        self.inner().cut.insert((one.min(other), one.max(other)));
    }

    pub(super) fn mend(&self) {
        self.inner().cut.clear();
    }

    fn is_cut(&self, one: Group, other: Group) -> bool {
        self.inner().cut.contains(&(one.min(other), one.max(other)))
    }

    pub(super) fn listen(&self, group: Group, host: Arc<dyn Host>) {
        self.inner().hosts.insert(group, host);
    }

    /// Resets the connections of a dead process.
    pub(super) fn forget(&self, group: Group) {
        let mut inner = self.inner();
        let host = inner.hosts.remove(&group);
        let (of_it, others): (BTreeMap<_, _>, _) = std::mem::take(&mut inner.sent)
            .into_iter()
            .partition(|((from, to), _)| *from == group || *to == group);
        inner.sent = others;
        drop(inner);
        drop((host, of_it));
    }

    /// Returns the connection from one process to another, made at the first use.
    fn connection(&self, from: Group, to: Group) -> Option<mpsc::UnboundedSender<Asked>> {
        let mut inner = self.inner();
        let host = inner.hosts.get(&to)?.clone();
        let mut is_new = None;
        let sender = inner.sent.entry((from, to)).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            is_new = Some(receiver);
            sender
        });
        let sender = sender.clone();
        drop(inner);
        if let Some(receiver) = is_new {
            let served = serve(self.database.clone(), to, host, receiver);
            self.database.world.spawn(to, RunsOn::World, Box::pin(served));
        }
        Some(sender)
    }
}

/// Answers the requests of a connection. They start in the order received.
async fn serve(database: Database, group: Group, host: Arc<dyn Host>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let world = database.world.clone();
    while let Some(Asked { request, within, tell }) = asked.recv().await {
        let faults = database.faults();
        if let Some(wait) = world.dice(|rng| faults.wait(rng)) {
            world.sleep(wait).await;
        }
        let messages = match &request {
            Request::Take(messages) => Some(messages.len()),
            _ => None,
        };
        let mut answer = host.answer(request, within);
        let first = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let lies = faults.lie == Some(Lie::TakesBeforeDurable);
        match (first, messages.filter(|_| lies)) {
            (Poll::Ready(reply), _) => drop(tell.send(reply)),
            (Poll::Pending, Some(messages)) => {
                drop(tell.send(Reply::Taken((0..messages).map(|_| (TakenAs::Done, None)).collect())));
                let rest = async move { drop(answer.await) };
                world.spawn(group, RunsOn::World, Box::pin(rest));
            }
            (Poll::Pending, None) => {
                let rest = async move { drop(tell.send(answer.await)) };
                world.spawn(group, RunsOn::World, Box::pin(rest));
            }
        }
    }
}

/// The network of one process.
pub(super) struct Peering {
    net: Net,
    line: DatabaseLink,
    view: Mutex<View>,
    /// The number of this node. Stored when it joins.
    me: AtomicU64,
    /// The number of rounds in which the nodes were queried.
    looks: watch::Sender<u64>,
    /// True if a new round is wanted. `looked` sets it; `changed` clears it and returns.
    is_wanted: Arc<AtomicBool>,
}

impl Peering {
    pub(super) fn new(net: Net, line: DatabaseLink) -> Self {
        Self {
            net,
            line,
            view: Mutex::default(),
            me: AtomicU64::new(0),
            looks: watch::Sender::new(0),
            is_wanted: Arc::default(),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line_of(&self, node: NodeId) -> Option<DatabaseLink> {
        self.line.database.rows().lines.get(&node).cloned()
    }
}

impl Peers for Peering {
    fn without_feature(&self, feature: u32) -> Option<String> {
        let view = self.view();
        view.without_feature(feature).map(|node| node.said.name.clone())
    }

    fn newer(&self) -> Option<String> {
        let me = NodeId(self.me.load(Ordering::Relaxed));
        let newer = self.view().newer(me).map(|node| node.said.name.clone());
        newer.filter(|_| self.line.lie() != Some(Lie::SeesNoNewer))
    }

    fn looked(&self) -> Later<'static, ()> {
        let mut looks = self.looks.subscribe();
        let lies = [Some(Lie::SeesNoNewer), Some(Lie::LooksTooEarly)].contains(&self.line.lie());
        let is_wanted = self.is_wanted.clone();
        Box::pin(async move {
            // A round in progress may have begun before this call. The one after it has not.
            for _ in 0..if lies { 0 } else { 2 } {
                is_wanted.store(true, Ordering::Relaxed);
                drop(looks.changed().await);
            }
        })
    }

    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply> {
        let not_here = || -> Later<'static, Reply> { Box::pin(std::future::ready(Reply::NotHere)) };
        let (own, world) = (self.line.process.group, self.line.database.world.clone());
        let owner = self.view().owners.get(usize::from(shard.0)).copied().flatten();
        let Some(other) = owner.and_then(|owner| self.line_of(owner)) else {
            return not_here();
        };
        let other = other.process.group;
        if other == own || self.net.is_cut(own, other) {
            return not_here();
        }
        let Some(connection) = self.net.connection(own, other) else {
            return not_here();
        };
        let (tell, told) = oneshot::channel();
        let asked = Asked { request, within, tell };
        if connection.send(asked).is_err() {
            return not_here();
        }
        world.count("asked another node");
        let (net, faults) = (self.net.clone(), self.line.database.faults());
        let back = world.dice(|rng| faults.wait(rng));
        // The sender learns of a cut only by its timeout.
        let (answer, answered) = oneshot::channel();
        let coming = async move {
            let Ok(reply) = told.await else {
                drop(answer.send(Reply::Unknown));
                return;
            };
            if let Some(back) = back {
                net.database.world.sleep(back).await;
            }
            match net.is_cut(own, other) {
                true => net.database.world.sleep(within).await,
                false => drop(answer.send(reply)),
            }
        };
        world.spawn(OUTSIDE, RunsOn::World, Box::pin(coming));
        let mut over = Box::pin(world.sleep(within));
        let mut answered = Box::pin(answered);
        Box::pin(std::future::poll_fn(move |context| {
            if let Poll::Ready(reply) = answered.as_mut().poll(context) {
                return Poll::Ready(reply.unwrap_or(Reply::Unknown));
            }
            over.as_mut().poll(context).map(|()| Reply::Unknown)
        }))
    }
}

impl Connections for Peering {
    fn look(&self, me: NodeId, view: &View) {
        view.clone_into(&mut self.view());
        self.me.store(me.0, Ordering::Relaxed);
        self.looks.send_modify(|looks| *looks += 1);
    }

    fn reaches(&self) -> BTreeSet<NodeId> {
        let view = self.view().clone();
        let is_reached = |node: &NodeId| {
            let other = self.line_of(*node).map(|other| other.process.clone());
            other.is_some_and(|other| {
                !other.is_dead.load(Ordering::Relaxed) && !self.net.is_cut(self.line.process.group, other.group)
            })
        };
        let living = view.nodes.iter().filter(|node| node.lives());
        living.map(|node| node.id).filter(is_reached).collect()
    }

    fn refusing(&self) -> BTreeSet<NodeId> {
        let view = self.view().clone();
        let living = view
            .nodes
            .iter()
            .filter(|node| matches!(node.state, NodeState::Serving | NodeState::Draining));
        let lies = self.line.lie() == Some(Lie::TrustsFreeLock);
        let refuses = |node: &NodeId| {
            let Some(other) = self.line_of(*node) else { return false };
            let is_gone = other.process.is_dead.load(Ordering::Relaxed);
            let seems_gone = lies && other.process.is_disconnected.load(Ordering::Relaxed);
            (is_gone || seems_gone) && !self.net.is_cut(self.line.process.group, other.process.group)
        };
        living.map(|node| node.id).filter(refuses).collect()
    }

    fn changed(&self) -> Later<'_, ()> {
        Box::pin(async move {
            let seen = || (self.refusing(), self.reaches());
            let before = seen();
            loop {
                self.line.database.world.sleep(LOOK).await;
                if self.is_wanted.swap(false, Ordering::Relaxed) || seen() != before {
                    return;
                }
            }
        })
    }

    fn describe(&self, _status: &mut Status) {}
}
