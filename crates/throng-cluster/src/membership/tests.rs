//! Nodes that join, leave, fall silent and die, in random order. The directory does only what its rows allow.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;
use throng_journal::{Join, Node, features};

const SHARDS: u16 = 32;
const BEAT: u64 = 500_000;

/// The directory's rows, and what each node's engine serves.
struct World {
    view: View,
    nodes: BTreeMap<NodeId, One>,
    now: u64,
}

struct One {
    membership: Membership,
    seen: NodeFacts,
    /// True while the node is paused. It does nothing, and does not notice.
    is_paused: bool,
    wants_to_leave: bool,
}

impl World {
    fn new() -> Self {
        Self {
            view: View {
                owners: vec![None; usize::from(SHARDS)],
                ..View::default()
            },
            nodes: BTreeMap::new(),
            now: 0,
        }
    }

    /// Lets a node join, under the first name without a living node.
    fn join(&mut self) {
        let id = NodeId(self.view.nodes.last().map_or(1, |last| last.id.0 + 1));
        let is_taken = |name: &String| {
            self.view
                .nodes
                .iter()
                .any(|node| node.lives() && node.said.name == *name)
        };
        let name = (0..).map(name).find(|name| !is_taken(name)).unwrap();
        let said = Join {
            name,
            ..Join::default()
        };
        self.view.nodes.push(Node::new(id, said, NodeState::Serving));
        let one = One {
            membership: Membership::new(id, Timing::default()),
            seen: NodeFacts::default(),
            is_paused: false,
            wants_to_leave: false,
        };
        self.nodes.insert(id, one);
    }

    fn pin(&mut self, shards: impl IntoIterator<Item = u16>, to: Option<usize>) {
        for shard in shards.into_iter().map(ShardId) {
            match to {
                Some(to) => self.view.pins.insert(shard, name(to)),
                None => self.view.pins.remove(&shard),
            };
        }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.view.nodes.iter_mut().find(|node| node.id == id).unwrap()
    }

    /// Lets a node beat and act, as far as the rows allow.
    fn step(&mut self, id: NodeId) {
        let wants_to_leave = self.nodes[&id].wants_to_leave;
        let node = self.node(id);
        if !matches!(node.state, NodeState::Serving | NodeState::Draining) {
            self.nodes.remove(&id);
            return;
        }
        node.beat += 1;
        node.state = if wants_to_leave {
            NodeState::Draining
        } else {
            NodeState::Serving
        };
        let view = self.view.clone();
        let one = self.nodes.get_mut(&id).unwrap();
        let actions = one.membership.actions(&view, self.now, &one.seen);
        for action in actions {
            match action {
                Action::DeclareDead { node, beat } => {
                    let dead = self.node(node);
                    if dead.beat == beat {
                        dead.state = NodeState::Dead;
                    }
                }
                Action::CutOff(node) => self.node(node).is_cut_off = true,
                Action::Take(shards) => {
                    for shard in shards.iter() {
                        let owner = self.view.owners[usize::from(shard.0)];
                        let is_free = owner.is_none_or(|owner| {
                            !matches!(
                                self.view.node(owner).unwrap().state,
                                NodeState::Serving | NodeState::Draining
                            )
                        });
                        if is_free {
                            self.view.owners[usize::from(shard.0)] = Some(id);
                        }
                    }
                }
                Action::Give { to, shards } => {
                    assert_eq!(self.view.node(to).unwrap().state, NodeState::Serving);
                    for shard in shards.iter() {
                        assert_eq!(self.view.owners[usize::from(shard.0)], Some(id), "only its own");
                        self.view.owners[usize::from(shard.0)] = Some(to);
                    }
                    let seen = &mut self.nodes.get_mut(&id).unwrap().seen;
                    (seen.serves, seen.has_given) = (None, true);
                }
                Action::Serve(shards) => {
                    let seen = &mut self.nodes.get_mut(&id).unwrap().seen;
                    (seen.serves, seen.has_given) = (Some(shards), false);
                }
                Action::Leave => self.node(id).state = NodeState::Left,
            }
        }
    }

    fn round(&mut self) {
        self.now += BEAT;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            if self.nodes.get(&id).is_some_and(|one| !one.is_paused) {
                self.step(id);
            }
        }
    }

    fn serving(&self) -> Vec<NodeId> {
        let serving = self.view.nodes.iter().filter(|node| node.state == NodeState::Serving);
        serving.map(|node| node.id).collect()
    }

    fn counts(&self) -> Vec<usize> {
        let counts = self
            .serving()
            .into_iter()
            .map(|node| self.view.shards_of(Some(node)).len());
        counts.collect()
    }

    /// Checks that all shards are served, evenly, and nothing moves any more.
    fn is_settled(&mut self) -> Result<(), TestCaseError> {
        let counts = self.counts();
        prop_assert_eq!(counts.iter().sum::<usize>(), self.view.owners.len(), "{:?}", self.view);
        is_as_wished(&self.view)?;
        for (id, one) in &self.nodes {
            prop_assert_eq!(one.seen.serves.clone(), Some(self.view.shards_of(Some(*id))));
        }
        let before = self.view.owners.clone();
        (0..5).for_each(|_| self.round());
        prop_assert_eq!(before, self.view.owners.clone());
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("n{number}")
}

/// Checks a view of nodes of one release. Each pinned shard is at its node, if that one serves. A node that owns at least two
/// more shards than another one owns only shards that are pinned to it.
fn is_as_wished(view: &View) -> Result<(), TestCaseError> {
    let serving = || view.nodes.iter().filter(|node| node.state == NodeState::Serving);
    let own = |node: &Node| view.shards_of(Some(node.id));
    let least = serving().map(|node| own(node).len()).min().unwrap_or(0);
    for node in serving() {
        let own = own(node);
        let mut is_pinned = own.clone();
        for (shard, name) in &view.pins {
            if *name == node.said.name {
                prop_assert!(own.contains(*shard), "{shard} is not at {name}: {view:?}");
            } else if serving().any(|node| node.said.name == *name) {
                prop_assert!(!own.contains(*shard), "{shard} is not at {name}: {view:?}");
            }
        }
        is_pinned = is_pinned
            .iter()
            .filter(|shard| view.pins.get(shard) == Some(&node.said.name))
            .collect();
        let is_even = own.len() <= least + 1 || own == is_pinned;
        prop_assert!(
            is_even,
            "node {} has {}, another one {least}: {view:?}",
            node.id,
            own.len()
        );
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Join,
    Kill(usize),
    Pause(usize),
    Continue(usize),
    Leave(usize),
    /// Pins shards to a name, or unpins them: the first shard, the number of shards, the name.
    Pin(u16, u16, Option<usize>),
    Rounds(u8),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::Join),
        1 => (0..9usize).prop_map(Fault::Kill),
        1 => (0..9usize).prop_map(Fault::Pause),
        1 => (0..9usize).prop_map(Fault::Continue),
        1 => (0..9usize).prop_map(Fault::Leave),
        2 => (0..SHARDS, 1..SHARDS, proptest::option::weighted(0.7, 0..5usize)).prop_map(|(first, count, to)| Fault::Pin(first, count, to)),
        4 => (1..12u8).prop_map(Fault::Rounds),
    ]
}

proptest! {
    #[test]
    fn after_the_last_fault_shards_are_even_or_pinned_and_at_rest(faults in proptest::collection::vec(fault(), 0..40)) {
        let mut world = World::new();
        world.join();
        for fault in faults {
            let ids: Vec<NodeId> = world.nodes.keys().copied().collect();
            let chosen = |number: usize| ids.get(number % ids.len().max(1)).copied();
            match fault {
                Fault::Join => world.join(),
                Fault::Kill(number) if ids.len() > 1 => _ = world.nodes.remove(&chosen(number).unwrap()),
                Fault::Pause(number) => {
                    if let Some(one) = chosen(number).and_then(|id| world.nodes.get_mut(&id)) {
                        one.is_paused = true;
                    }
                }
                Fault::Continue(number) => {
                    if let Some(one) = chosen(number).and_then(|id| world.nodes.get_mut(&id)) {
                        one.is_paused = false;
                    }
                }
                Fault::Leave(number) => {
                    if let Some(one) = chosen(number).and_then(|id| world.nodes.get_mut(&id)) {
                        one.wants_to_leave = true;
                    }
                }
                Fault::Pin(first, count, to) => world.pin(first..SHARDS.min(first + count), to),
                Fault::Rounds(rounds) => (0..rounds).for_each(|_| world.round()),
                Fault::Kill(_) => {}
            }
        }
        world.nodes.values_mut().for_each(|one| one.is_paused = false);
        world.join();
        (0..80).for_each(|_| world.round());
        world.is_settled()?;
    }
}

#[test]
fn a_third_node_gets_exactly_its_share_and_nothing_else_moves() {
    let mut world = World::new();
    world.view.owners = vec![None; 256];
    world.join();
    world.join();
    (0..10).for_each(|_| world.round());
    assert_eq!(world.counts(), [128, 128]);
    let before = world.view.owners.clone();
    world.join();
    (0..10).for_each(|_| world.round());
    assert_eq!(world.counts(), [86, 85, 85]);
    let moved = before
        .iter()
        .zip(&world.view.owners)
        .filter(|(before, now)| before != now);
    assert_eq!(moved.count(), 85);
}

#[test]
fn pinned_shards_come_back_to_their_node_when_it_returns() {
    let mut world = World::new();
    (0..3).for_each(|_| world.join());
    (0..20).for_each(|_| world.round());
    let of = |world: &World, id| world.view.shards_of(Some(NodeId(id)));
    let pinned: ShardSet = (0..20).map(ShardId).collect();
    world.pin(0..20, Some(1));
    (0..20).for_each(|_| world.round());
    assert_eq!(of(&world, 2), pinned, "and no others, as it has more than its share");
    assert_eq!(world.counts(), [6, 20, 6]);
    // The node gives its shards away when it drains, ...
    world.nodes.get_mut(&NodeId(2)).unwrap().wants_to_leave = true;
    (0..20).for_each(|_| world.round());
    assert_eq!(world.counts(), [16, 16]);
    // ... and the next node of its name gets them, even after a kill.
    for (id, counts) in [(4, [6, 6, 20]), (5, [6, 6, 20])] {
        world.join();
        (0..20).for_each(|_| world.round());
        assert_eq!((of(&world, id), world.counts()), (pinned.clone(), counts.to_vec()));
        world.nodes.remove(&NodeId(id));
        (0..20).for_each(|_| world.round());
        assert_eq!(world.counts(), [16, 16]);
    }
    world.join();
    (0..20).for_each(|_| world.round());
    world.pin(0..20, None);
    (0..20).for_each(|_| world.round());
    assert_eq!(world.counts(), [11, 10, 11]);
}

#[test]
fn a_node_takes_pinned_shards_without_owner_at_once() {
    let mut world = World::new();
    (0..3).for_each(|_| world.join());
    world.pin(0..SHARDS, Some(2));
    (1..=3).for_each(|id| world.step(NodeId(id)));
    assert_eq!(world.view.shards_of(Some(NodeId(3))).len(), usize::from(SHARDS));
}

#[test]
fn shards_are_not_pinned_to_a_program_older_than_their_writer() {
    let mut world = World::new();
    world.join();
    world.join();
    world.node(NodeId(2)).said.app = 1;
    (0..10).for_each(|_| world.round());
    let new = world.view.shards_of(Some(NodeId(2)));
    world.pin(0..SHARDS, Some(0));
    (0..10).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(NodeId(2))), new);
    // The older node was upgraded.
    world.node(NodeId(1)).said.app = 1;
    (0..10).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(NodeId(1))).len(), usize::from(SHARDS));
}

#[test]
fn shards_a_node_of_the_newest_program_left_late_are_taken() {
    let mut world = World::new();
    (0..3).for_each(|_| world.join());
    (0..10).for_each(|_| world.round());
    world.node(NodeId(3)).said.app = 1;
    world.nodes.remove(&NodeId(1));
    world.node(NodeId(1)).state = NodeState::Dead;
    // The shards were seen free before, but there was no time to take them.
    world.nodes.get_mut(&NodeId(3)).unwrap().membership.free_since = Some(world.now);
    (0..20).for_each(|_| world.round());
    assert_eq!(world.counts().iter().sum::<usize>(), usize::from(SHARDS));
}

#[test]
fn given_and_taken_shards_go_to_equal_or_newer_programs() {
    let mut world = World::new();
    world.join();
    world.join();
    (0..10).for_each(|_| world.round());
    // In a rolling upgrade the new program joins and gets its share. When an old node dies, only the new one takes its shards.
    world.join();
    world.node(NodeId(3)).said.app = 1;
    (0..10).for_each(|_| world.round());
    assert_eq!(world.counts(), [11, 11, 10]);
    world.nodes.remove(&NodeId(2));
    (0..20).for_each(|_| world.round());
    let new = world.view.shards_of(Some(NodeId(3)));
    assert_eq!((world.view.shards_of(Some(NodeId(1))).len(), new.len()), (11, 21));
    // The new node keeps the shards it has written, though the old one has fewer.
    (0..20).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(NodeId(3))), new);
}

#[test]
fn a_silent_node_is_dead_after_its_lease_unless_we_were_cut_off() {
    let mut world = World::new();
    world.join();
    world.join();
    (0..4).for_each(|_| world.round());
    let (one, other) = (NodeId(1), NodeId(2));
    world.nodes.get_mut(&other).unwrap().is_paused = true;
    let until_dead = |world: &mut World| {
        let begun = world.now;
        while world.view.node(other).unwrap().state == NodeState::Serving {
            world.round();
        }
        world.now - begun
    };
    (0..6).for_each(|_| world.round());
    world.nodes.get_mut(&one).unwrap().membership.was_cut_off();
    let took = until_dead(&mut world);
    assert!((3_750_000..=3_750_000 + 2 * BEAT).contains(&took), "{took}");
}

#[test]
fn a_refusing_port_alone_or_a_lost_session_alone_proves_nothing() {
    for (refuses, is_disconnected, is_dead) in [(true, false, false), (false, true, false), (true, true, true)] {
        let mut world = World::new();
        world.join();
        world.join();
        (0..4).for_each(|_| world.round());
        world.nodes.get_mut(&NodeId(2)).unwrap().is_paused = true;
        world.node(NodeId(2)).is_disconnected = is_disconnected;
        let one = world.nodes.get_mut(&NodeId(1)).unwrap();
        one.seen.refusing = if refuses {
            BTreeSet::from([NodeId(2)])
        } else {
            BTreeSet::new()
        };
        world.round();
        let state = world.view.node(NodeId(2)).unwrap().state;
        assert_eq!(state == NodeState::Dead, is_dead, "{refuses} {is_disconnected}");
    }
}

#[test]
fn silence_lasts_from_the_first_sight_of_a_beat_to_the_next() {
    let mut world = World::new();
    world.join();
    world.join();
    let silence = |world: &World| {
        world.nodes[&NodeId(1)]
            .membership
            .silences(world.now)
            .get(&NodeId(2))
            .copied()
    };
    world.step(NodeId(1));
    world.now += BEAT;
    assert_eq!(silence(&world), Some(Duration::from_micros(BEAT)));
    world.step(NodeId(2));
    world.step(NodeId(1));
    assert_eq!(silence(&world), Some(Duration::ZERO));
}

#[test]
fn a_node_gives_to_all_receivers_before_it_serves_the_rest() {
    let mut world = World::new();
    (0..3).for_each(|_| world.join());
    (0..20).for_each(|_| world.round());
    let id = NodeId(3);
    world.node(id).state = NodeState::Draining;
    let (view, own) = (world.view.clone(), world.view.shards_of(Some(id)));
    let acts = |view: &View, seen: &NodeFacts| {
        let mut membership = Membership::new(id, Timing::default());
        membership.actions(view, 0, seen)
    };
    let serves = NodeFacts {
        serves: Some(own),
        ..NodeFacts::default()
    };
    let [Action::Give { to, shards }] = &acts(&view, &serves)[..] else {
        panic!("it gives");
    };
    let mut given = view.clone();
    for shard in shards.iter() {
        given.owners[usize::from(shard.0)] = Some(*to);
    }
    let rest = given.shards_of(Some(id));
    assert!(!rest.is_empty());
    let has_given = NodeFacts {
        has_given: true,
        ..NodeFacts::default()
    };
    let [Action::Give { to: next, shards }] = &acts(&given, &has_given)[..] else {
        panic!("it gives the rest");
    };
    assert_ne!(next, to);
    assert_eq!(*shards, rest);
    // No shards are given away unless the stream is known to have ended.
    assert_eq!(acts(&given, &NodeFacts::default()), [Action::Serve(rest)]);
}

#[test]
fn younger_of_two_cut_nodes_drains_after_two_leases() {
    let mut world = World::new();
    world.join();
    world.join();
    (0..4).for_each(|_| world.round());
    for node in &mut world.view.nodes {
        node.said.features = features::REACHES;
        node.reaches = [node.id].into();
    }
    let until_cut_off = |world: &mut World| {
        let begun = world.now;
        while !world.node(NodeId(2)).is_cut_off {
            assert!(world.now - begun < 20_000_000, "nobody gives way");
            world.round();
        }
        world.now - begun
    };
    (0..6).for_each(|_| world.round());
    // Observations from before an outage of the database do not count.
    for one in world.nodes.values_mut() {
        one.membership.was_cut_off();
    }
    let took = until_cut_off(&mut world);
    assert!((6_000_000..=6_000_000 + 2 * BEAT).contains(&took), "{took}");
    (0..20).for_each(|_| world.round());
    assert!(!world.node(NodeId(1)).is_cut_off, "the older one serves on");
}

#[test]
fn survivors_keep_their_shards_while_a_dead_node_may_answer() {
    let mut world = World::new();
    world.join();
    world.join();
    (0..10).for_each(|_| world.round());
    let (one, other) = (NodeId(1), NodeId(2));
    let own = world.view.shards_of(Some(one));
    world.nodes.remove(&other);
    (world.node(other).state, world.node(other).may_answer) = (NodeState::Dead, true);
    (0..20).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(one)), own);
    assert_eq!(world.nodes[&one].seen.serves, Some(own), "it goes on with its own");
    world.node(other).may_answer = false;
    (0..20).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(one)).len(), usize::from(SHARDS));
}

#[test]
fn node_serves_once_reached_and_until_others_cut_it_off() {
    let mut world = World::new();
    world.join();
    world.join();
    world.node(NodeId(1)).said.features = features::REACHES;
    world.node(NodeId(1)).reaches = [NodeId(1)].into();
    let mut joining = Membership::new(NodeId(2), Timing::default());
    let (alone, both) = (BTreeSet::from([NodeId(2)]), BTreeSet::from([NodeId(1), NodeId(2)]));
    joining.meet(&world.view, &both);
    let apart = joining.apart().unwrap();
    assert_eq!(
        (apart.misses_itself, &apart.not_reached_by[..]),
        (false, &[NodeId(1)][..])
    );
    world.node(NodeId(1)).reaches = both.clone();
    joining.meet(&world.view, &both);
    assert_eq!(joining.apart(), None);
    joining.meet(&world.view, &alone);
    assert_eq!(joining.apart(), None, "it is for the others to say");
    world.node(NodeId(2)).is_cut_off = true;
    joining.meet(&world.view, &both);
    assert!(joining.apart().is_some());
    world.node(NodeId(2)).is_cut_off = false;
    joining.meet(&world.view, &both);
    assert_eq!(joining.apart(), None);
}

#[test]
fn node_that_is_to_drain_takes_shards_where_no_node_serves() {
    let mut world = World::new();
    world.join();
    let id = NodeId(1);
    world.node(id).wants_drain = true;
    world.node(id).reaches = [id].into();
    world.nodes.get_mut(&id).unwrap().wants_to_leave = true;
    (0..10).for_each(|_| world.round());
    assert_eq!(world.view.shards_of(Some(id)).len(), usize::from(SHARDS));
    world.join();
    (0..20).for_each(|_| world.round());
    assert!(world.view.shards_of(Some(id)).is_empty(), "another one serves");
}
