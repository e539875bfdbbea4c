//! The plan: which node should own which shard. A shard that is pinned to a serving node goes to that node. All others are spread evenly,
//! as far as the pinned shards leave room for that.
//!
//! A plan depends on the view only. Once it is carried out, the plan of the new view is empty, so shards do not oscillate. Each step brings
//! a pinned shard to the node where it stays, or moves another one to a node that owns at least two fewer. Whether a shard is pinned does
//! not depend on its owner.

use std::{cmp::Reverse, collections::BTreeMap};
use throng_journal::{Node, NodeId, ShardId, ShardSet, View};
use xxhash_rust::xxh3::xxh3_64;

pub(super) struct Plan {
    /// The releases of the living nodes.
    apps: BTreeMap<NodeId, u64>,
    /// The node at which each pinned shard stays, if that node serves and may take it.
    homes: BTreeMap<ShardId, NodeId>,
    /// The other shards, by the living node that owns them.
    loose: BTreeMap<NodeId, ShardSet>,
    /// The number of shards that are pinned to each serving node.
    pinned: BTreeMap<NodeId, usize>,
    /// The shards that a living node owns and that have to go to another node, by these two nodes.
    strays: BTreeMap<(NodeId, NodeId), ShardSet>,
    shards: usize,
}

impl Plan {
    pub(super) fn of(view: &View) -> Self {
        let living = view.nodes.iter().filter(|node| node.lives());
        let serving = living.clone().filter(|node| node.serves());
        let mut plan = Self {
            apps: living.clone().map(|node| (node.id, node.said.app)).collect(),
            homes: BTreeMap::new(),
            loose: living.map(|node| (node.id, ShardSet::default())).collect(),
            pinned: serving.clone().map(|node| (node.id, 0)).collect(),
            strays: BTreeMap::new(),
            shards: view.owners.len(),
        };
        let newest = plan.newest();
        for (shard, owner) in (0..).map(ShardId).zip(&view.owners) {
            let owner = owner.filter(|owner| plan.apps.contains_key(owner));
            // Shards do not go to an older program, which may not know their newest events.
            let oldest = owner.map_or(newest, |owner| plan.app(owner));
            let is_home = |node: &&Node| view.pins.get(&shard) == Some(&node.said.name) && node.said.app >= oldest;
            let home = serving.clone().find(is_home).map(|node| node.id);
            if let Some(home) = home {
                plan.homes.insert(shard, home);
                *plan.pinned.entry(home).or_default() += 1;
            }
            match (owner, home) {
                (Some(owner), None) => _ = plan.loose.entry(owner).or_default().insert(shard),
                (Some(owner), Some(home)) if owner != home => {
                    plan.strays.entry((owner, home)).or_default().insert(shard);
                }
                _ => {}
            }
        }
        plan
    }

    fn app(&self, node: NodeId) -> u64 {
        self.apps.get(&node).copied().unwrap_or(0)
    }

    /// The newest release that serves.
    fn newest(&self) -> u64 {
        self.pinned.keys().map(|node| self.app(*node)).max().unwrap_or(0)
    }

    /// The number of shards without a home that a node owns.
    fn loose_of(&self, node: NodeId) -> usize {
        self.loose.get(&node).map_or(0, ShardSet::len)
    }

    /// The number of shards of each serving node, including the pinned ones that are yet to come.
    fn counts(&self) -> BTreeMap<NodeId, usize> {
        let counts = self.pinned.iter();
        counts
            .map(|(node, pinned)| (*node, pinned + self.loose_of(*node)))
            .collect()
    }

    /// Deals the free shards to nodes.
    pub(super) fn dealt(&self, free: &ShardSet) -> BTreeMap<ShardId, NodeId> {
        // It is unknown here which program has written their newest events, but the newest serving one reads them all.
        let newest = self.newest();
        let mut counts = self.counts();
        counts.retain(|node, _| self.app(*node) == newest);
        let mut dealt = BTreeMap::new();
        for shard in free.iter() {
            if let Some(home) = self.homes.get(&shard) {
                dealt.insert(shard, *home);
                continue;
            }
            let fewest = counts
                .iter()
                .map(|(node, count)| (*count, weight(shard, *node), *node))
                .min();
            let Some((_, _, node)) = fewest else { break };
            *counts.entry(node).or_default() += 1;
            dealt.insert(shard, node);
        }
        dealt
    }

    /// Returns the number of shards that a node takes of those that others have not taken in time: what it lacks to its share, but at least
    /// one. Otherwise some would stay free if the nodes below their share may take none.
    pub(super) fn late(&self, node: NodeId) -> usize {
        let counts = self.counts();
        match counts.get(&node) {
            Some(count) if self.app(node) == self.newest() => {
                let share = self.shards.div_ceil(counts.len());
                share.saturating_sub(*count).max(1)
            }
            _ => 0,
        }
    }

    /// Returns the number of shards without a home that each serving node should own. With the pinned ones, the nodes own as equally many
    /// as possible. The nodes that own the most already get the odd ones, so that as few shards as possible move.
    fn targets(&self) -> BTreeMap<NodeId, usize> {
        let loose: usize = self.loose.values().map(ShardSet::len).sum();
        // Every node is filled up to this level: the highest for which there are enough shards.
        let needed = |level: usize| {
            self.pinned
                .values()
                .map(|pinned| level.saturating_sub(*pinned))
                .sum::<usize>()
        };
        let level = (0..=self.shards)
            .rev()
            .find(|level| needed(*level) <= loose)
            .unwrap_or(0);
        let more = loose - needed(level);
        let counts = self.counts();
        let mut filled: Vec<NodeId> = self
            .pinned
            .iter()
            .filter(|(_, pinned)| **pinned <= level)
            .map(|(node, _)| *node)
            .collect();
        filled.sort_by_key(|node| (Reverse(counts.get(node).copied()), *node));
        let mut targets: BTreeMap<NodeId, usize> = self.pinned.keys().map(|node| (*node, 0)).collect();
        for (place, node) in filled.into_iter().enumerate() {
            let pinned = self.pinned.get(&node).copied().unwrap_or(0);
            targets.insert(node, level - pinned + usize::from(place < more));
        }
        targets
    }

    /// Returns the shards to move, by giver and receiver: pinned shards to their node, and the shards that a node has above its share. A
    /// draining node gives all.
    pub(super) fn gives(mut self) -> BTreeMap<(NodeId, NodeId), ShardSet> {
        let targets = self.targets();
        let mut gives = std::mem::take(&mut self.strays);
        let surplus = |node: NodeId| {
            self.loose_of(node)
                .saturating_sub(targets.get(&node).copied().unwrap_or(0))
        };
        let drain = self.loose.keys().filter(|node| !targets.contains_key(node));
        let givers = drain.chain(targets.keys()).map(|node| (*node, surplus(*node)));
        let mut givers: Vec<(NodeId, usize)> = givers.filter(|(_, surplus)| *surplus > 0).collect();
        for (node, target) in &targets {
            let mut missing = target.saturating_sub(self.loose_of(*node));
            while missing > 0 {
                let is_as_old = |(giver, _): &(NodeId, usize)| self.app(*giver) <= self.app(*node);
                let Some(place) = givers.iter().position(is_as_old) else {
                    break;
                };
                let (giver, surplus) = &mut givers[place];
                let count = missing.min(*surplus);
                missing -= count;
                *surplus -= count;
                let giver = *giver;
                if *surplus == 0 {
                    givers.remove(place);
                }
                let taken = take_last(self.loose.get_mut(&giver), count);
                let given = gives.entry((giver, *node)).or_default();
                *given = given.union(&taken);
            }
        }
        gives
    }
}

/// Takes out the last ones: which they are does not matter.
fn take_last(set: Option<&mut ShardSet>, count: usize) -> ShardSet {
    let Some(set) = set else { return ShardSet::default() };
    let taken: ShardSet = set.iter().skip(set.len().saturating_sub(count)).collect();
    *set = set.without(&taken);
    taken
}

/// Returns the weight of a node for a shard, which all nodes compute alike. Of nodes that own equally many, the least weight gets it.
fn weight(shard: ShardId, node: NodeId) -> u64 {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&shard.0.to_le_bytes());
    bytes[2..].copy_from_slice(&node.0.to_le_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;
    use throng_journal::{Join, NodeState};

    const SHARDS: u16 = 24;

    /// Nodes of these releases, which serve or drain. Each shard is at a node, and pinned to a node, to an absent name, or not at all.
    #[derive(Clone, Debug)]
    struct Given {
        nodes: Vec<(u64, bool)>,
        owners: Vec<usize>,
        pins: Vec<Option<usize>>,
    }

    fn given(releases: u64) -> impl Strategy<Value = Given> {
        let shards = usize::from(SHARDS);
        (1..5usize).prop_flat_map(move |nodes| {
            let given = (
                proptest::collection::vec((0..releases, proptest::bool::weighted(0.8)), nodes),
                proptest::collection::vec(0..nodes, shards),
                proptest::collection::vec(proptest::option::weighted(0.4, 0..nodes + 1), shards),
            );
            given.prop_map(|(mut nodes, owners, pins)| {
                nodes[0].1 = true;
                Given { nodes, owners, pins }
            })
        })
    }

    fn id(node: usize) -> NodeId {
        NodeId(node as u64 + 1)
    }

    impl Given {
        fn view(&self) -> View {
            let node = |(number, (app, serves)): (usize, &(u64, bool))| {
                let said = Join {
                    name: number.to_string(),
                    app: *app,
                    ..Join::default()
                };
                let state = match serves {
                    true => NodeState::Serving,
                    false => NodeState::Draining,
                };
                Node::new(id(number), said, state)
            };
            let pins = (0..).map(ShardId).zip(&self.pins);
            View {
                nodes: self.nodes.iter().enumerate().map(node).collect(),
                owners: self.owners.iter().map(|owner| Some(id(*owner))).collect(),
                pins: pins
                    .filter_map(|(shard, pin)| Some((shard, pin.as_ref()?.to_string())))
                    .collect(),
                ..View::default()
            }
        }
    }

    fn carry_out(view: &mut View, from: NodeId, to: NodeId, shards: &ShardSet) {
        for shard in shards.iter() {
            let owner = &mut view.owners[usize::from(shard.0)];
            assert_eq!(*owner, Some(from));
            *owner = Some(to);
        }
    }

    /// Returns the smallest number of homeless shards that must move to reach an even distribution.
    fn fewest(plan: &Plan) -> usize {
        let loose: usize = plan.loose.values().map(ShardSet::len).sum();
        let nodes: Vec<NodeId> = plan.pinned.keys().copied().collect();
        let mut fewest = usize::MAX;
        let mut each = vec![0; nodes.len()];
        loop {
            let totals: Vec<usize> = nodes
                .iter()
                .zip(&each)
                .map(|(node, own)| plan.pinned[node] + own)
                .collect();
            let least = totals.iter().min().copied().unwrap_or(0);
            let is_even = totals
                .iter()
                .zip(&each)
                .all(|(total, own)| *own == 0 || *total <= least + 1);
            if each.iter().sum::<usize>() == loose && is_even {
                let gained = nodes
                    .iter()
                    .zip(&each)
                    .map(|(node, own)| own.saturating_sub(plan.loose_of(*node)));
                fewest = fewest.min(gained.sum());
            }
            // Counts through all ways to distribute them.
            let Some(place) = each.iter().position(|own| *own < loose) else {
                return fewest;
            };
            each[place] += 1;
            each[..place].fill(0);
        }
    }

    fn counts(view: &View) -> Vec<usize> {
        let serving = view.nodes.iter().filter(|node| node.serves());
        serving.map(|node| view.shards_of(Some(node.id)).len()).collect()
    }

    /// Deals the shards of all nodes that do not serve, and checks that nothing remains to do.
    fn deal(view: &mut View) {
        let has_owner = |owner: &Option<NodeId>| owner.and_then(|owner| view.node(owner)).is_some_and(Node::serves);
        let owners = (0..).map(ShardId).zip(&view.owners);
        let free: ShardSet = owners
            .filter(|(_, owner)| !has_owner(owner))
            .map(|(shard, _)| shard)
            .collect();
        for (shard, node) in Plan::of(view).dealt(&free) {
            view.owners[usize::from(shard.0)] = Some(node);
        }
        assert!(Plan::of(view).gives().is_empty(), "{view:?}");
    }

    /// Removes each zone in turn, in all possible sets of nodes.
    #[test]
    fn losing_any_zone_leaves_the_rest_even_and_moves_no_more() {
        for (nodes, shards) in (2..=6_usize).flat_map(|nodes| (1..=2 * nodes + 1).map(move |shards| (nodes, shards))) {
            let given = Given {
                nodes: vec![(0, true); nodes],
                owners: Vec::new(),
                pins: Vec::new(),
            };
            let mut whole = given.view();
            whole.owners = vec![None; shards];
            deal(&mut whole);
            let all = 1_u32 << nodes;
            for (zone, other) in (1..all - 1).flat_map(|zone| (0..all).map(move |other| (zone, other))) {
                if zone & other != 0 || zone | other == all - 1 {
                    continue;
                }
                let mut view = whole.clone();
                for lost in [zone, other] {
                    for (number, node) in view.nodes.iter_mut().enumerate() {
                        if lost >> number & 1 == 1 {
                            node.state = NodeState::Dead;
                        }
                    }
                    let before = view.clone();
                    deal(&mut view);
                    let counts = counts(&view);
                    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                    assert!(
                        most - least <= 1,
                        "{nodes} nodes without {zone:b}, {other:b}: {counts:?}"
                    );
                    let mut both = before.owners.iter().zip(&view.owners);
                    let stays = |owner: &Option<NodeId>| before.node(owner.unwrap()).unwrap().serves();
                    assert!(both.all(|(owner, next)| owner == next || !stays(owner)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_plan_moves_the_fewest_shards_and_leaves_nothing_to_do(given in given(1)) {
            prop_assume!(given.nodes.len() < 4);
            let mut view = given.view();
            let plan = Plan::of(&view);
            let (strays, fewest) = (plan.strays.values().map(ShardSet::len).sum::<usize>(), fewest(&plan));
            let gives = plan.gives();
            let moved: usize = gives.values().map(ShardSet::len).sum();
            prop_assert_eq!(moved, strays + fewest);
            for ((from, to), shards) in &gives {
                carry_out(&mut view, *from, *to, shards);
            }
            let rest = Plan::of(&view).gives();
            prop_assert!(rest.is_empty(), "{rest:?}");
        }

        #[test]
        fn plans_come_to_an_end_whoever_does_its_part_first(given in given(3), order in proptest::collection::vec(any::<prop::sample::Index>(), 200)) {
            let mut view = given.view();
            for next in order {
                let gives = Plan::of(&view).gives();
                if gives.is_empty() {
                    break;
                }
                let ((from, to), shards) = gives.iter().nth(next.index(gives.len())).unwrap();
                let app = |node: NodeId| view.node(node).unwrap().said.app;
                prop_assert!(app(*from) <= app(*to));
                prop_assert_eq!(view.node(*to).unwrap().state, NodeState::Serving);
                carry_out(&mut view, *from, *to, shards);
            }
            prop_assert!(Plan::of(&view).gives().is_empty());
            for (shard, name) in &view.pins {
                let home = view.nodes.iter().find(|node| node.said.name == *name && node.state == NodeState::Serving);
                let owner = view.owners[usize::from(shard.0)].unwrap();
                let can = |home: &&Node| home.said.app >= view.node(owner).unwrap().said.app;
                prop_assert!(home.filter(can).is_none_or(|home| home.id == owner), "{shard}: {view:?}");
            }
        }
    }
}
