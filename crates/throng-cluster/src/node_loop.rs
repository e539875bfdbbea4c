//! A node's loop: it beats, takes and gives shards, and joins again when it was declared dead. It uses only the sockets, clock and threads
//! that it is given, so that a simulator can run it.

use crate::membership::{Action, Membership, NodeFacts, Standby, Timing};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::{
    driver::{
        Driver,
        peers::{Reply, Request},
    },
    host::Host as Clock,
};
use throng_journal::{Directory, Error, Join, Later, Node, NodeId, NodeState, ShardSet, View};
use tokio::sync::{Notify, watch};

/// The number of times a silent node is asked for its server: it may be about to find out itself.
const SERVER_LOOKS: u32 = 10;

/// The engine, as far as membership controls it.
pub trait Host: Send + Sync + 'static {
    /// Serves exactly these shards from now on: ends the current stream in order, and opens the next one.
    fn serve(&self, node: NodeId, shards: ShardSet) -> Later<'static, Result<(), Error>>;
    /// Ends the stream in order and serves nothing; callers wait.
    fn release(&self) -> Later<'static, Result<(), Error>>;
    /// Answers another node's request.
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

/// The connections to the other nodes, as a node's loop uses them.
pub trait Connections: Send + Sync + 'static {
    /// Checks that this node can take part beside the living ones: before it joins, and again with its number.
    ///
    /// # Errors
    /// [`Error::Refused`] names a node with another secret; or the directory cannot be read.
    fn refuse(&self, _me: Option<NodeId>) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Takes the present view: the nodes, and the owners of shards.
    fn look(&self, me: NodeId, view: &View);
    /// Asks a node which database server it uses; `None`: it does not answer, or does not know.
    fn server_of<'a>(&'a self, _me: NodeId, _cluster: &'a str, _node: &'a Node) -> Later<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }
    /// Takes a node of a newer release that was gone before this one joined, and the time it had been gone.
    fn newer_gone(&self, _name: String, _gone_for: Duration) {}
    /// Returns the connected nodes, including this one.
    fn reaches(&self) -> BTreeSet<NodeId>;
    /// Returns the nodes whose ports refuse connections.
    fn refusing(&self) -> BTreeSet<NodeId>;
    /// Resolves when a connection began to fail, or to work.
    fn changed(&self) -> Later<'_, ()>;
    /// Adds to a status what is known of connections.
    fn describe(&self, status: &mut Status);
}

/// The status of a node.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its number; 0 while it is no member.
    pub node: NodeId,
    /// The cluster as it saw it last.
    pub view: View,
    /// The lease that it applies, see [`Timing::lease`].
    pub lease: Duration,
    /// The time for which each other living node had not beaten at the last look. Nodes look about as often as others beat.
    pub silences: BTreeMap<NodeId, Duration>,
    /// The time of its last look; `None` in a simulation, which has no such clock.
    pub looked: Option<Instant>,
    /// A living node that uses another database server: there are two primaries.
    pub two_primaries: Option<String>,
    /// The shards that its engine serves.
    pub serves: ShardSet,
    /// Nodes it is connected to.
    pub connected: BTreeSet<NodeId>,
    /// The reason why it may own nothing yet, and is not ready: the nodes that it does not reach, or that do not reach it.
    pub apart: Option<String>,
    /// The number of times it has changed which shards it serves.
    pub changes: u64,
    /// The longest possible wait of a request during the last change.
    pub last_change: Duration,
    /// The node's deeds since its start.
    pub done: Done,
    /// The connections to its port for other nodes that were refused.
    pub refused: u64,
    /// Requests sent to other nodes.
    pub asks: u64,
    /// Frames they went in.
    pub frames: u64,
    /// The requests for which no other node could be asked.
    pub not_here: u64,
    /// Requests whose outcome is not known.
    pub unknown: u64,
}

/// The deeds of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The number of times it has joined: more than once if others had declared it dead.
    pub joins: u64,
    /// The number of shards that it took because they had no living owner.
    pub taken: u64,
    /// Shards that it gave to other nodes.
    pub given: u64,
    /// Nodes that it declared dead.
    pub deaths: u64,
    /// The number of nodes that it had drain because most others did not reach them.
    pub cut_off: u64,
}

/// A node without its threads and sockets.
pub struct NodeLoop {
    parts: Parts,
    /// The number of other serving nodes from which on the node stands by.
    stands_by_beside: Option<usize>,
    /// Set by [`drain`](Self::drain): the node gives away its shards, and leaves.
    is_leaving: AtomicBool,
    wake: Notify,
    status: watch::Sender<Status>,
    change: Mutex<Change>,
    changes: AtomicU64,
    /// Counted by the node's tasks as they act.
    done: Mutex<Done>,
    /// The name of the node that uses another server, and the [text](Status::two_primaries) about it.
    two_primaries: Mutex<Option<(String, String)>>,
}

/// The parts that a loop is made of.
pub struct Parts {
    /// The directory through which the nodes find each other.
    pub directory: Arc<dyn Directory>,
    /// The engine that serves the node's shards.
    pub host: Arc<dyn Host>,
    /// The connections to the other nodes.
    pub connections: Arc<dyn Connections>,
    /// The clock, which also runs its tasks.
    pub clock: Arc<dyn Clock>,
    /// The node's own description.
    pub join: Join,
    /// The times after which it acts.
    pub timing: Timing,
}

/// The last report of the nodes it reaches, and the reason why it may own nothing.
struct Meeting {
    reaches: BTreeSet<NodeId>,
    told: Option<String>,
    /// The time since when it may own nothing.
    begun: u64,
}

impl Meeting {
    fn new(begun: u64) -> Self {
        Self {
            reaches: BTreeSet::new(),
            told: None,
            begun,
        }
    }
}

/// The shards that the engine serves, and the change under way.
#[derive(Default)]
struct Change {
    /// The present node number. Changes begun under an earlier number do not count.
    node: NodeId,
    serves: Option<ShardSet>,
    /// See [`NodeFacts::has_given`].
    has_given: bool,
    is_changing: bool,
    last: Duration,
}

impl NodeLoop {
    /// Returns a loop for a node that has not joined yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            stands_by_beside: None,
            is_leaving: AtomicBool::new(false),
            wake: Notify::new(),
            status: watch::Sender::new(Status::default()),
            change: Mutex::default(),
            changes: AtomicU64::new(0),
            done: Mutex::default(),
            two_primaries: Mutex::default(),
        }
    }

    /// Makes it a standby node, which owns nothing while at least this many others serve; `None`: it is an ordinary node.
    #[must_use]
    pub fn stand_by(mut self, others_min: Option<usize>) -> Self {
        self.stands_by_beside = others_min;
        self
    }

    /// Returns the node's present status and each later one.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Has the node give away all shards that it owns, and leave.
    pub fn drain(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Joins the cluster. A refusal is retried, since it may be temporary: a killed node of the same name counts as alive until its
    /// sessions are gone.
    ///
    /// # Errors
    /// The errors of [`Directory::join`], if a refusal lasts for a lease. If a living node has another secret, this one has left again, or
    /// not joined.
    pub async fn join(&self) -> Result<NodeId, Error> {
        let Parts { directory, timing, .. } = &self.parts;
        let begun = self.parts.clock.elapsed_micros();
        self.looked_around().await?;
        let node = loop {
            match directory.join(self.parts.join.clone()).await {
                Err(Error::Refused(why)) if self.since(begun) < timing.lease => {
                    tracing::info!("the node cannot join yet: {why}");
                    self.parts.clock.sleep(timing.beat / 2).await;
                }
                joined => break joined?,
            }
        };
        self.stays(node).await
    }

    /// Checks the living nodes before it joins.
    async fn looked_around(&self) -> Result<(), Error> {
        match self.parts.connections.refuse(None).await {
            Err(refused @ Error::Refused(_)) => Err(refused),
            // If the directory cannot be reached, joining will report it.
            _ => Ok(()),
        }
    }

    /// Leaves again if nodes that joined before are incompatible with this one.
    async fn stays(&self, node: NodeId) -> Result<NodeId, Error> {
        let Err(refused) = self.parts.connections.refuse(Some(node)).await else {
            return Ok(node);
        };
        if let Err(error) = self.parts.directory.leave(node).await {
            tracing::warn!("node {node} could not say that it leaves, the others notice: {error}");
        }
        Err(refused)
    }

    fn since(&self, begun_micros: u64) -> Duration {
        Duration::from_micros(self.parts.clock.elapsed_micros().saturating_sub(begun_micros))
    }

    /// Takes part, as the node that has [joined](Self::join), for as long as this is polled.
    pub async fn run(self: Arc<Self>, first: NodeId) {
        let mut node = first;
        let mut membership = Membership::new(node, self.parts.timing);
        let mut meeting = Meeting::new(self.parts.clock.elapsed_micros());
        self.become_node(node);
        let mut standby = self.stands_by_beside.map(Standby::new);
        let mut stands_by = standby.is_some();
        let mut knows_gone = false;
        // The sending time of the last answered beat, and whether missing answers were logged.
        let (mut beaten, mut is_told) = (self.parts.clock.elapsed_micros(), false);
        loop {
            // Requested before the look. Otherwise a change during the look would be seen a beat later.
            let changed = self.parts.directory.changed(self.parts.timing.beat);
            let is_apart = membership.apart().is_some();
            let state =
                match is_apart || stands_by || self.is_leaving.load(Ordering::Acquire) || self.is_drained(node).await {
                    true => NodeState::Draining,
                    false => NodeState::Serving,
                };
            let sent = self.parts.clock.elapsed_micros();
            let view = match self.parts.directory.beat(node, state).await {
                Ok(view) => {
                    (beaten, is_told) = (sent, false);
                    view
                }
                Err(error @ (Error::Gone(_) | Error::RolledBack(_))) => {
                    match error {
                        Error::Gone(_) => {
                            tracing::error!("node {node} was declared dead by the others, it joins again");
                        }
                        other => tracing::error!("node {node} owns nothing any more and joins again: {other}"),
                    }
                    node = self.join_again().await;
                    membership = Membership::new(node, self.parts.timing);
                    meeting = Meeting::new(self.parts.clock.elapsed_micros());
                    continue;
                }
                Err(error) => {
                    let silent = self.since(beaten);
                    if silent >= self.parts.timing.lease && !std::mem::replace(&mut is_told, true) {
                        tracing::error!(
                            "node {node} could not say for {:.1} s that it lives, longer than a lease: the others may take its shards; is the \
                             database there? {error}",
                            silent.as_secs_f64()
                        );
                    }
                    tracing::warn!("node {node} cannot say that it lives: {error}");
                    membership.was_cut_off();
                    self.parts.clock.sleep(self.parts.timing.beat / 2).await;
                    continue;
                }
            };
            self.parts.connections.look(node, &view);
            // After a look: a node that was there then is seen, and one that was not is asked for.
            if !knows_gone {
                match self.parts.directory.newer_gone(node).await {
                    Ok(gone) => {
                        knows_gone = true;
                        if let Some((name, gone_for)) = gone {
                            self.parts.connections.newer_gone(name, gone_for);
                        }
                    }
                    Err(error) => tracing::debug!("whether a newer node was there is asked again: {error}"),
                }
            }
            let now = self.parts.clock.elapsed_micros();
            self.say_reached(node, &mut meeting).await;
            membership.meet(&view, &meeting.reaches);
            if let Some(standby) = &mut standby {
                stands_by = !standby.is_needed(node, &view, now, self.parts.timing.lease);
            }
            let apart = membership.apart().map(|apart| apart.told(&view, node));
            self.tell_apart(node, apart.as_deref(), &mut meeting);
            let has_met = apart.is_some() != is_apart;
            let actions = match has_met {
                // The other nodes are informed first.
                true => Vec::new(),
                false => membership.actions(&view, now, &self.seen()),
            };
            self.publish(node, &view, (membership.silences(now), apart));
            let mut has_changed = has_met;
            for action in actions {
                has_changed |= self.act(node, &view, action).await;
            }
            if has_changed {
                continue;
            }
            // Shards of a dead owner are taken as soon as it can no longer answer.
            let beat = self.parts.timing.beat;
            let is_awaited = view.nodes.iter().any(|node| node.may_answer);
            tokio::select! {
                biased;
                () = changed => {}
                () = self.parts.clock.sleep(beat / 10), if is_awaited => {}
                () = self.parts.connections.changed() => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Asks a silent but connected node where it beats: it may use another server, which was promoted beside this one.
    fn look_for_another_server(self: &Arc<Self>, me: NodeId, view: &View, silent: NodeId) {
        let Some(other) = view.node(silent).cloned() else {
            return;
        };
        if !self.parts.connections.reaches().contains(&silent) {
            return;
        }
        let (node_loop, cluster) = (Arc::clone(self), view.cluster.clone());
        self.parts.clock.spawn(Box::pin(async move {
            let mut found = None;
            for _ in 0..SERVER_LOOKS {
                let theirs = node_loop.parts.connections.server_of(me, &cluster, &other).await;
                let own = node_loop.parts.directory.server().await.ok().flatten();
                found = theirs.zip(own);
                if found.is_some() {
                    break;
                }
                node_loop.parts.clock.sleep(node_loop.parts.timing.beat).await;
            }
            let Some((theirs, own)) = found.filter(|(theirs, own)| theirs != own) else {
                return;
            };
            let found = format!(
                "node {silent} ({} at {}) lives and uses {theirs} of the database, and this node uses {own}: there are TWO PRIMARIES, on \
                 each of which nodes serve by themselves; end the older one now",
                other.said.name, other.said.peer
            );
            tracing::error!("{found}");
            *node_loop.two_primaries.lock().unwrap_or_else(PoisonError::into_inner) = Some((other.said.name, found));
            node_loop.wake.notify_one();
        }));
    }

    /// Reports the reached nodes, if they have changed.
    async fn say_reached(&self, node: NodeId, meeting: &mut Meeting) {
        let reaches = self.parts.connections.reaches();
        if reaches != meeting.reaches {
            match self.parts.directory.reach(node, &reaches).await {
                Ok(()) => meeting.reaches = reaches,
                Err(error) => tracing::debug!("which nodes are reached is said again: {error}"),
            }
        }
    }

    /// Connections take a moment: only then it is a warning.
    fn tell_apart(&self, node: NodeId, apart: Option<&str>, meeting: &mut Meeting) {
        let patience = self.parts.timing.lease / 3;
        match apart {
            Some(why) if meeting.told.as_deref() != Some(why) && self.since(meeting.begun) >= patience => {
                tracing::warn!(
                    "node {node} owns nothing and is not ready until more than half of the serving nodes reach it and it reaches them: {why}; \
                     the warnings here and at these nodes say why"
                );
                meeting.told = Some(why.to_owned());
            }
            Some(_) => {}
            None => {
                if meeting.told.take().is_some() {
                    tracing::info!("node {node} may own shards: it reaches the others, and they reach it");
                }
                meeting.begun = self.parts.clock.elapsed_micros();
            }
        }
    }

    async fn is_drained(&self, node: NodeId) -> bool {
        self.parts.directory.wants_drain(node).await.unwrap_or(false)
    }

    async fn join_again(&self) -> NodeId {
        loop {
            let joined = async {
                self.looked_around().await?;
                let node = self.parts.directory.join(self.parts.join.clone()).await?;
                self.stays(node).await
            };
            match joined.await {
                Ok(node) => {
                    self.become_node(node);
                    return node;
                }
                Err(error) => {
                    tracing::error!("the node cannot join again, it is tried again: {error}");
                    self.parts.clock.sleep(self.pause_after(&error)).await;
                }
            }
        }
    }

    /// Returns the pause before a failed attempt is repeated. A loss waits for an operator, so its pause is longer.
    fn pause_after(&self, error: &Error) -> Duration {
        match error {
            Error::Lost { .. } => self.parts.timing.lease,
            _ => self.parts.timing.beat / 2,
        }
    }

    fn has_done(&self, count: impl FnOnce(&mut Done)) {
        count(&mut self.done.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn become_node(&self, node: NodeId) {
        self.has_done(|done| done.joins += 1);
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        (change.node, change.serves, change.has_given) = (node, None, false);
    }

    fn publish(&self, node: NodeId, view: &View, (silences, apart): (BTreeMap<NodeId, Duration>, Option<String>)) {
        let (serves, last_change) = {
            let change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
            (change.serves.clone().unwrap_or_default(), change.last)
        };
        let mut status = Status {
            node,
            view: view.clone(),
            lease: self.parts.timing.lease,
            silences,
            apart,
            two_primaries: self.two_primaries(view),
            serves,
            changes: self.changes.load(Ordering::Relaxed),
            last_change,
            done: *self.done.lock().unwrap_or_else(PoisonError::into_inner),
            ..Status::default()
        };
        self.parts.connections.describe(&mut status);
        self.status.send_replace(status);
    }

    /// Returns the message about two primaries, and drops it once the other node has joined here.
    fn two_primaries(&self, view: &View) -> Option<String> {
        let mut found = self.two_primaries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = |name: &str| view.nodes.iter().any(|node| node.lives() && node.said.name == name);
        found.take_if(|(name, _)| is_here(name));
        found.as_ref().map(|(_, told)| told.clone())
    }

    fn seen(&self) -> NodeFacts {
        let change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        NodeFacts {
            refusing: self.parts.connections.refusing(),
            serves: change.serves.clone(),
            has_given: change.has_given,
            is_changing: change.is_changing,
        }
    }

    /// Carries out an action; returns true if the view has changed by it.
    async fn act(self: &Arc<Self>, node: NodeId, view: &View, action: Action) -> bool {
        match action {
            Action::DeclareDead { node: dead, beat } => {
                self.look_for_another_server(node, view, dead);
                let name = view.node(dead).map_or_else(String::new, |dead| dead.said.name.clone());
                match self.parts.directory.declare_dead(node, dead, beat).await {
                    Ok(true) => {
                        self.has_done(|done| done.deaths += 1);
                        tracing::warn!("node {dead} ({name}) is dead: its shards are taken over");
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!("node {dead} ({name}) cannot be declared dead: {error}"),
                }
                true
            }
            Action::CutOff(unreached) => {
                let name = view
                    .node(unreached)
                    .map_or_else(String::new, |node| node.said.name.clone());
                match self.parts.directory.cut_off(node, unreached).await {
                    Ok(true) => {
                        self.has_done(|done| done.cut_off += 1);
                        tracing::warn!(
                            "node {unreached} ({name}) gives its shards away: most of the other nodes have not reached it for {:?}",
                            2 * self.parts.timing.lease
                        );
                    }
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!("node {unreached} ({name}), which is not reached, cannot be drained: {error}")
                    }
                }
                true
            }
            Action::Take(shards) => match self.parts.directory.take(node, &shards).await {
                Ok(taken) => {
                    tracing::info!("takes the shards {taken}");
                    self.has_done(|done| done.taken += taken.len() as u64);
                    !taken.is_empty()
                }
                Err(error) => {
                    tracing::warn!("shards cannot be taken: {error}");
                    false
                }
            },
            Action::Serve(shards) => {
                self.begin_change();
                let node_loop = Arc::clone(self);
                self.parts.clock.spawn(Box::pin(async move {
                    let begun = node_loop.parts.clock.elapsed_micros();
                    let served = node_loop.parts.host.serve(node, shards.clone()).await;
                    let last = node_loop.since(begun);
                    let serves = match served {
                        Ok(()) => {
                            tracing::info!(
                                "serves {} shards ({shards}) after {:.3} s",
                                shards.len(),
                                last.as_secs_f64()
                            );
                            node_loop.changes.fetch_add(1, Ordering::Relaxed);
                            Some(shards)
                        }
                        Err(error) => {
                            tracing::error!("the shards {shards} cannot be served, it is tried again: {error}");
                            node_loop.parts.clock.sleep(node_loop.pause_after(&error)).await;
                            None
                        }
                    };
                    node_loop.end_change(node, (serves, false), last);
                }));
                false
            }
            Action::Give { to, shards } => {
                self.begin_change();
                let node_loop = Arc::clone(self);
                self.parts.clock.spawn(Box::pin(async move {
                    let begun = node_loop.parts.clock.elapsed_micros();
                    let given = async {
                        node_loop.parts.host.release().await?;
                        node_loop.parts.directory.give(node, to, &shards).await
                    };
                    let given = given.await;
                    let has_given = given.is_ok();
                    match given {
                        Ok(()) => {
                            node_loop.has_done(|done| done.given += shards.len() as u64);
                            tracing::info!("has given {} shards ({shards}) to node {to}", shards.len());
                        }
                        // The receiver is ending, too, or is gone.
                        Err(Error::Refused(why)) => tracing::info!("the shards {shards} stay here: {why}"),
                        Err(error) => tracing::warn!("the shards {shards} are not given to node {to}: {error}"),
                    }
                    // In any case the engine serves nothing now; the next look tells it what it owns.
                    node_loop.end_change(node, (None, has_given), node_loop.since(begun));
                }));
                false
            }
            Action::Leave => false,
        }
    }

    fn begin_change(&self) {
        self.change.lock().unwrap_or_else(PoisonError::into_inner).is_changing = true;
    }

    /// Ends a change. If it was begun for a node that has been declared dead meanwhile, its result does not count: its stream is sealed,
    /// even if this process owns its shards again.
    fn end_change(&self, of: NodeId, (serves, has_given): (Option<ShardSet>, bool), last: Duration) {
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        change.serves = serves.filter(|_| change.node == of);
        change.has_given = has_given && change.node == of;
        (change.is_changing, change.last) = (false, last);
        drop(change);
        self.wake.notify_one();
    }
}
