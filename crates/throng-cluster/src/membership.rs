//! What a node does about what it sees: a state machine without I/O and without a clock of its own.
//!
//! Every node looks at the same [`View`] and comes to the same plan of it; each does its own part. A plan changes as little as it can: whoever
//! comes gets its share and nothing else moves, whoever goes gives what it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use throng_journal::{NodeId, NodeState, ShardId, ShardSet, View};
use xxhash_rust::xxh3::xxh3_64;

/// How fast a node notices, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node whose beat has not changed for 1.25 times this is dead, if whoever looks has beaten all that time. At least a second.
    pub lease: Duration,
    /// How long after one beat the next one follows, if nothing happens.
    pub beat: Duration,
    /// What is dealt to a node and not taken by it for so long may be taken by any that is below its share.
    pub patience: Duration,
}

impl Timing {
    /// Of a lease; the rest follows from it.
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

/// What a node is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Declares another one dead, if its beat is still this one.
    DeclareDead {
        /// The one that was silent, or whose port and sessions are gone.
        node: NodeId,
        /// As it was seen: with another one it lives.
        beat: u64,
    },
    /// Takes shards that are nobody's any more.
    Take(ShardSet),
    /// Gives shards to another node.
    Give {
        /// One that serves and has less than its share.
        to: NodeId,
        /// What this one has above its share.
        shards: ShardSet,
    },
    /// Has the engine serve exactly these, whatever it has served before.
    Serve(ShardSet),
    /// It has given away all it owned, as it was asked to.
    Leave,
}

/// What a node knows beside the view.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Nodes whose ports refuse connections.
    pub refusing: BTreeSet<NodeId>,
    /// What the engine serves; `None`: nothing, and it has to be told.
    pub serves: Option<ShardSet>,
    /// The engine ends one stream and begins another: it can do nothing else.
    pub is_changing: bool,
}

/// What a node remembers between two looks.
#[derive(Debug)]
pub struct Membership {
    me: NodeId,
    timing: Timing,
    /// Of each other node, its last beat, and since when it has been that.
    beats: BTreeMap<NodeId, (u64, u64)>,
    /// Since when shards have been nobody's.
    free_since: Option<u64>,
}

impl Membership {
    /// Of a node that has just joined.
    #[must_use]
    pub fn new(me: NodeId, timing: Timing) -> Self {
        Self {
            me,
            timing,
            beats: BTreeMap::new(),
            free_since: None,
        }
    }

    /// The directory could not be asked: it may be that nobody could. Nobody is declared dead before a whole lease has been watched again.
    pub fn was_cut_off(&mut self) {
        self.beats.clear();
    }

    /// How long the others that live have not beaten, as far as this node has watched.
    #[must_use]
    pub fn silences(&self, now: u64) -> BTreeMap<NodeId, Duration> {
        let silence = |since: u64| Duration::from_micros(now.saturating_sub(since));
        self.beats
            .iter()
            .map(|(node, (_, since))| (*node, silence(*since)))
            .collect()
    }

    /// What to do now, in this order; `now` in microseconds of any clock that never goes back.
    pub fn actions(&mut self, view: &View, now: u64, seen: &Seen) -> Vec<Action> {
        let mut actions = self.dead(view, now, seen);
        if !actions.is_empty() {
            // What follows from that is seen by the next look.
            return actions;
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
        if seen.serves.as_ref() != Some(&own) {
            actions.push(Action::Serve(own));
        } else if is_draining && own.is_empty() {
            actions.push(Action::Leave);
        } else if free.is_empty()
            && let Some((to, shards)) = self.surplus(view)
        {
            actions.push(Action::Give { to, shards });
        }
        actions
    }

    fn dead(&mut self, view: &View, now: u64, seen: &Seen) -> Vec<Action> {
        let living = |state| matches!(state, NodeState::Serving | NodeState::Draining);
        let others = view
            .nodes
            .iter()
            .filter(|node| node.id != self.me && living(node.state));
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

    /// What of the free shards this node takes.
    fn dealt(&self, view: &View, free: &ShardSet, is_late: bool) -> ShardSet {
        let plan = Plan::of(view);
        let app = |node: &NodeId| view.node(*node).map_or(0, |node| node.said.app);
        // Which program has written their newest events is not known here: the newest one that serves reads them all.
        let newest = plan.counts.keys().map(app).max().unwrap_or(0);
        let mut counts = plan.counts.clone();
        counts.retain(|node, _| app(node) == newest);
        if is_late && counts.contains_key(&self.me) {
            let below = counts.get(&self.me).map_or(0, |has| plan.most().saturating_sub(*has));
            return free.iter().take(below).collect();
        }
        let mut mine = ShardSet::default();
        for shard in free.iter() {
            let fewest = counts
                .iter()
                .map(|(node, count)| (*count, weight(shard, *node), *node))
                .min();
            let Some((_, _, node)) = fewest else { break };
            *counts.entry(node).or_default() += 1;
            if node == self.me {
                mine.insert(shard);
            }
        }
        mine
    }

    /// What this node has above its share, for one other node.
    fn surplus(&self, view: &View) -> Option<(NodeId, ShardSet)> {
        let plan = Plan::of(view);
        let moved = plan.moves(view);
        let (to, count) = moved
            .into_iter()
            .find_map(|(from, to, count)| (from == self.me).then_some((to, count)))?;
        let own = view.shards_of(Some(self.me));
        // The last ones: which they are does not matter.
        let shards: Vec<ShardId> = own.iter().collect();
        let shards = shards.into_iter().rev().take(count).collect();
        Some((to, shards))
    }
}

/// Whom the shards belong to, by number.
struct Plan {
    /// Of the nodes that serve: how many each owns.
    counts: BTreeMap<NodeId, usize>,
    shards: usize,
}

impl Plan {
    fn of(view: &View) -> Self {
        let serving = view.nodes.iter().filter(|node| node.state == NodeState::Serving);
        let counts = serving.map(|node| (node.id, view.shards_of(Some(node.id)).len()));
        Self {
            counts: counts.collect(),
            shards: view.owners.len(),
        }
    }

    /// The most a node owns when all are served evenly.
    fn most(&self) -> usize {
        self.shards.div_ceil(self.counts.len().max(1))
    }

    /// How many each is to own: one more for those that own the most already, so that as little as possible moves.
    fn targets(&self) -> BTreeMap<NodeId, usize> {
        let nodes = self.counts.len().max(1);
        let (each, more) = (self.shards / nodes, self.shards % nodes);
        let mut by_count: Vec<(NodeId, usize)> = self.counts.iter().map(|(node, count)| (*node, *count)).collect();
        by_count.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
        let targets = by_count.into_iter().enumerate();
        targets
            .map(|(place, (node, _))| (node, each + usize::from(place < more)))
            .collect()
    }

    /// Who gives how many to whom: those that drain give all, and nobody gives to an older program, which may not know its events.
    fn moves(&self, view: &View) -> Vec<(NodeId, NodeId, usize)> {
        let targets = self.targets();
        let draining = view.nodes.iter().filter(|node| node.state == NodeState::Draining);
        let draining = draining.map(|node| (node.id, view.shards_of(Some(node.id)).len()));
        let above = self.counts.iter().filter_map(|(node, count)| {
            let surplus = count.saturating_sub(targets.get(node).copied().unwrap_or(0));
            (surplus > 0).then_some((*node, surplus))
        });
        let app = |node: NodeId| view.node(node).map_or(0, |node| node.said.app);
        let mut givers: Vec<(NodeId, usize)> = draining.chain(above).filter(|(_, count)| *count > 0).collect();
        let mut moves = Vec::new();
        for (node, target) in &targets {
            let mut missing = target.saturating_sub(self.counts.get(node).copied().unwrap_or(0));
            while missing > 0 {
                let Some(place) = givers.iter().position(|(giver, _)| app(*giver) <= app(*node)) else {
                    break;
                };
                let (giver, surplus) = &mut givers[place];
                let count = missing.min(*surplus);
                moves.push((*giver, *node, count));
                missing -= count;
                *surplus -= count;
                if *surplus == 0 {
                    givers.remove(place);
                }
            }
        }
        moves
    }
}

/// Shards that nobody owns who lives.
fn free(view: &View) -> ShardSet {
    let lives = |owner: NodeId| {
        let node = view.node(owner);
        node.is_some_and(|node| matches!(node.state, NodeState::Serving | NodeState::Draining))
    };
    let owners = view.owners.iter().enumerate();
    let free = owners.filter(|(_, owner)| !owner.is_some_and(lives));
    free.map(|(shard, _)| ShardId(shard as u16)).collect()
}

/// Which node a shard rather goes to, of those that own as many: by a number that all compute alike.
fn weight(shard: ShardId, node: NodeId) -> u64 {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&shard.0.to_le_bytes());
    bytes[2..].copy_from_slice(&node.0.to_le_bytes());
    xxh3_64(&bytes)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
