//! The decisions of a node about the cluster: a state machine without I/O and without a clock.
//!
//! Every node looks at the same [`View`] and derives the same plan from it; each does its own part. A plan moves as few shards as possible:
//! a new node gets its share and nothing else moves; a leaving node gives away its shards.

mod plan;
mod standby;

use plan::Plan;
pub use standby::Standby;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use throng_journal::{Apart, Node, NodeId, NodeState, ShardId, ShardSet, View};

/// The times after which a node acts: on another node's silence, and on shards that are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node is dead when its beat has not changed for 1.25 times this, while the watching node has beaten all that time. At least a
    /// second.
    pub lease: Duration,
    /// The interval of beats, if nothing happens.
    pub beat: Duration,
    /// The time after which any node below its share may take shards that were assigned to another one and not taken.
    pub patience: Duration,
}

impl Timing {
    /// Derives all times from a lease.
    #[must_use]
    pub fn of(lease: Duration) -> Self {
        let lease = lease.max(Duration::from_secs(1));
        Self {
            lease,
            beat: lease / 6,
            patience: Duration::from_millis(300),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::of(Duration::from_secs(3))
    }
}

/// An action that a node is to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Declares another node dead, if its beat is still this one.
    DeclareDead {
        /// The node that was silent, or whose port and sessions are gone.
        node: NodeId,
        /// The beat that was seen. A node with another one lives.
        beat: u64,
    },
    /// Has a node drain that others have not reached for two leases.
    CutOff(NodeId),
    /// Takes shards without a living owner.
    Take(ShardSet),
    /// Gives shards to another node.
    Give {
        /// A serving node that has less than its share, or that the shards are pinned to.
        to: NodeId,
        /// The shards that are pinned there, and those that this node has above its share.
        shards: ShardSet,
    },
    /// Has the engine serve exactly these shards from now on.
    Serve(ShardSet),
    /// Leaves the cluster: the node has given away its shards, as an operator asked.
    Leave,
}

/// The facts that a node knows besides the view.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Nodes whose ports refuse connections.
    pub refusing: BTreeSet<NodeId>,
    /// The shards that the engine serves; `None`: none, and it is waiting to be told.
    pub serves: Option<ShardSet>,
    /// True if the engine serves nothing because its stream ended in order and some of its shards were given away. Further shards may be
    /// given away before the engine is told what to serve.
    pub has_given: bool,
    /// True while the engine ends one stream and begins another: it can do nothing else.
    pub is_changing: bool,
}

/// The memory of a node between two looks.
#[derive(Debug)]
pub struct Membership {
    me: NodeId,
    timing: Timing,
    /// The last beat of each other node, and the time of its first observation.
    beats: BTreeMap<NodeId, (u64, u64)>,
    /// The time since when shards have been free.
    free_since: Option<u64>,
    /// The node that [gives way](View::gives_way), and since when it is that.
    gives_way: Option<(NodeId, u64)>,
    /// The reason why this node may own nothing yet.
    apart: Option<Apart>,
}

impl Membership {
    /// Begins for a node that has just joined.
    #[must_use]
    pub fn new(me: NodeId, timing: Timing) -> Self {
        Self {
            me,
            timing,
            beats: BTreeMap::new(),
            free_since: None,
            gives_way: None,
            apart: Some(Apart::default()),
        }
    }

    /// Returns the reason why this node may own nothing yet.
    #[must_use]
    pub fn apart(&self) -> Option<&Apart> {
        self.apart.as_ref()
    }

    /// Decides whether this node, which is connected to the nodes of `reaches`, may own shards. Once it may, only other nodes can end that,
    /// by having it drain.
    pub fn meet(&mut self, view: &View, reaches: &BTreeSet<NodeId>) {
        let is_cut_off = view.node(self.me).is_some_and(|node| node.is_cut_off);
        if is_cut_off || self.apart.is_some() {
            let apart = view.apart(self.me, reaches);
            self.apart = apart.or_else(|| is_cut_off.then(Apart::default));
        }
    }

    /// Forgets all silences, because the directory could not be asked, perhaps by no node. No node is declared dead before a whole lease
    /// has been watched again.
    pub fn was_cut_off(&mut self) {
        self.beats.clear();
        self.gives_way = None;
    }

    /// Returns the time for which each other living node has not beaten, as far as this node has watched.
    #[must_use]
    pub fn silences(&self, now: u64) -> BTreeMap<NodeId, Duration> {
        let silence = |since: u64| Duration::from_micros(now.saturating_sub(since));
        self.beats
            .iter()
            .map(|(node, (_, since))| (*node, silence(*since)))
            .collect()
    }

    /// Returns the actions to take now, in this order. `now` is in microseconds of any monotonic clock.
    pub fn actions(&mut self, view: &View, now: u64, seen: &NodeFacts) -> Vec<Action> {
        let mut actions = self.dead(view, now, seen);
        if !actions.is_empty() {
            // The next look shows the consequences.
            return actions;
        }
        if let Some(node) = self.cut_off(view, now) {
            actions.push(Action::CutOff(node));
        }
        let free = free(view);
        if free.is_empty() {
            self.free_since = None;
        }
        let own = view.shards_of(Some(self.me));
        let is_draining = view.node(self.me).is_some_and(|node| node.state == NodeState::Draining);
        if !free.is_empty() {
            let since = *self.free_since.get_or_insert(now);
            let is_late = now.saturating_sub(since) >= micros(self.timing.patience);
            let mine = self.dealt(view, &free, is_late);
            if !mine.is_empty() {
                actions.push(Action::Take(mine));
            }
        }
        if seen.is_changing {
            return actions;
        }
        let is_served = seen.serves.as_ref() == Some(&own);
        let may_give = (is_served || seen.has_given) && free.is_empty();
        if let Some((to, shards)) = may_give.then(|| self.surplus(view)).flatten() {
            actions.push(Action::Give { to, shards });
        } else if !is_served {
            actions.push(Action::Serve(own));
        } else if is_draining && own.is_empty() {
            actions.push(Action::Leave);
        }
        actions
    }

    fn cut_off(&mut self, view: &View, now: u64) -> Option<NodeId> {
        let since = |node| {
            self.gives_way
                .filter(|(before, _)| *before == node)
                .map_or(now, |(_, since)| since)
        };
        self.gives_way = view.gives_way().map(|node| (node, since(node)));
        let is_long = |since: u64| now.saturating_sub(since) >= 2 * micros(self.timing.lease);
        self.gives_way
            .filter(|(_, since)| is_long(*since))
            .map(|(node, _)| node)
    }

    fn dead(&mut self, view: &View, now: u64, seen: &NodeFacts) -> Vec<Action> {
        let others = view.nodes.iter().filter(|node| node.id != self.me && node.lives());
        let mut dead = Vec::new();
        let mut beats = BTreeMap::new();
        for node in others {
            let known = self.beats.get(&node.id).filter(|(beat, _)| *beat == node.beat);
            let since = known.map_or(now, |(_, since)| *since);
            beats.insert(node.id, (node.beat, since));
            let is_silent = now.saturating_sub(since) >= micros(self.timing.lease) * 5 / 4;
            let is_gone = seen.refusing.contains(&node.id) && node.is_disconnected;
            if is_silent || is_gone {
                let (node, beat) = (node.id, node.beat);
                dead.push(Action::DeclareDead { node, beat });
            }
        }
        self.beats = beats;
        dead
    }

    /// The free shards that this node takes.
    fn dealt(&self, view: &View, free: &ShardSet, is_late: bool) -> ShardSet {
        let plan = Plan::of(&takers(view));
        if is_late {
            return free.iter().take(plan.late(self.me)).collect();
        }
        let dealt = plan.dealt(free).into_iter();
        dealt
            .filter(|(_, node)| *node == self.me)
            .map(|(shard, _)| shard)
            .collect()
    }

    /// Returns the next node that this node has to give shards to, and these shards.
    fn surplus(&self, view: &View) -> Option<(NodeId, ShardSet)> {
        let gives = Plan::of(view).gives();
        let mut own = gives.into_iter().filter(|((from, _), _)| *from == self.me);
        own.next().map(|((_, to), shards)| (to, shards))
    }
}

/// Counts nodes that were asked to drain as serving if no node serves. Otherwise nobody would take the free shards after these nodes have
/// started again.
fn takers(view: &View) -> Cow<'_, View> {
    let mut view = Cow::Borrowed(view);
    if !view.nodes.iter().any(Node::serves) {
        let is_drained = |node: &Node| node.lives() && node.wants_drain && view.apart(node.id, &node.reaches).is_none();
        let drained: BTreeSet<NodeId> = view
            .nodes
            .iter()
            .filter(|node| is_drained(node))
            .map(|node| node.id)
            .collect();
        let nodes = view.to_mut().nodes.iter_mut();
        let drained = nodes.filter(|node| drained.contains(&node.id));
        drained.for_each(|node| node.state = NodeState::Serving);
    }
    view
}

/// Returns the shards whose owner neither lives nor may still answer. To take shards of an owner that may still answer, a node would have
/// to wait, and to serve nothing meanwhile.
fn free(view: &View) -> ShardSet {
    let has = |owner: NodeId| view.node(owner).is_some_and(|node| node.lives() || node.may_answer);
    let owners = view.owners.iter().enumerate();
    let free = owners.filter(|(_, owner)| !owner.is_some_and(has));
    free.map(|(shard, _)| ShardId(shard as u16)).collect()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
