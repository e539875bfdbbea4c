//! Connectivity: when a node may own shards, and which node has to give its shards away because others cannot reach it.
//!
//! Both rules depend on the view alone. A node that joins by the first rule is not driven out by the second. For with either, the number of
//! pairs of serving nodes that reach each other, less half of all pairs, only grows. So a lasting cut is resolved, and nodes do not
//! oscillate.

use super::{Node, NodeId, View};
use crate::features::REACHES;
use std::collections::BTreeSet;

/// The reason why a node may own nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// True if the address it advertises leads nowhere, or to another node.
    pub misses_itself: bool,
    /// Serving nodes that it is not connected to.
    pub not_reached: Vec<NodeId>,
    /// Serving nodes that are not connected to it.
    pub not_reached_by: Vec<NodeId>,
}

impl Apart {
    /// Describes which nodes are missing, and where, as the view shows it.
    #[must_use]
    pub fn told(&self, view: &View, me: NodeId) -> String {
        let own = view.node(me).map_or("its address", |node| node.said.peer.as_str());
        let named = |nodes: &[NodeId]| {
            let nodes = nodes.iter().filter_map(|node| view.node(*node));
            let nodes: Vec<String> = nodes
                .map(|node| format!("{} at {}", node.said.name, node.said.peer))
                .collect();
            nodes.join(", ")
        };
        let mut why: Vec<String> = Vec::new();
        if self.misses_itself {
            why.push(format!(
                "it does not reach itself at {own}, where it says that others reach it (--peer-advertise)"
            ));
        }
        if !self.not_reached.is_empty() {
            why.push(format!("it does not reach {}", named(&self.not_reached)));
        }
        if !self.not_reached_by.is_empty() {
            why.push(format!("it is not reached at {own} by {}", named(&self.not_reached_by)));
        }
        match why.is_empty() {
            true => "others have not reached it".into(),
            false => why.join("; "),
        }
    }
}

/// True if a node reaches another. A program that does not report it is assumed to reach all.
fn reaches(node: &Node, other: NodeId) -> bool {
    node.said.features < REACHES || node.reaches.contains(&other)
}

impl View {
    fn serving_beside(&self, node: NodeId) -> impl Iterator<Item = &Node> {
        self.nodes
            .iter()
            .filter(move |other| other.id != node && other.serves())
    }

    /// Returns the reason why a node may own nothing: it has to reach itself, and more than half of the other serving nodes in both
    /// directions.
    #[must_use]
    pub fn apart(&self, me: NodeId, reached: &BTreeSet<NodeId>) -> Option<Apart> {
        let mut apart = Apart {
            misses_itself: !reached.contains(&me),
            ..Apart::default()
        };
        let (mut others, mut both) = (0, 0);
        for other in self.serving_beside(me) {
            let (is_reached, is_back) = (reached.contains(&other.id), reaches(other, me));
            others += 1;
            both += usize::from(is_reached && is_back);
            if !is_reached {
                apart.not_reached.push(other.id);
            }
            if !is_back {
                apart.not_reached_by.push(other.id);
            }
        }
        let meets_others = others == 0 || both * 2 > others;
        (apart.misses_itself || !meets_others).then_some(apart)
    }

    /// Returns the serving node that has to give its shards away: more than half of the other serving nodes do not reach it. Of several, it
    /// is the one that most miss, and of these the youngest. `None` while another node is still giving its shards away.
    #[must_use]
    pub fn gives_way(&self) -> Option<NodeId> {
        let gives = |node: &&Node| node.lives() && !node.serves();
        let mut giving = self.nodes.iter().filter(gives);
        if giving.any(|node| self.owners.contains(&Some(node.id))) {
            return None;
        }
        let missed = |node: &Node| {
            self.serving_beside(node.id)
                .filter(|other| !reaches(other, node.id))
                .count()
        };
        // An older program would not notice.
        let hears = |node: &&Node| node.serves() && node.said.features >= REACHES;
        let serving = self.nodes.iter().filter(hears);
        let given_up = serving.filter(|node| missed(node) * 2 > self.serving_beside(node.id).count());
        given_up.max_by_key(|node| (missed(node), node.id)).map(|node| node.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Join, NodeState};

    /// Returns a view of `count` nodes. Each bit of `links` is a connection. The nodes of `serving` serve and own a shard each.
    fn view(count: u64, links: u32, serving: u32) -> View {
        let ids = || (1..=count).map(NodeId);
        let is_linked = |from: NodeId, to: NodeId| {
            let bit = (from.0 - 1) * (count - 1) + (to.0 - 1) - u64::from(to > from);
            from == to || links >> bit & 1 == 1
        };
        let said = Join {
            features: REACHES,
            ..Join::default()
        };
        let node = |id: NodeId| {
            let state = match serving >> (id.0 - 1) & 1 {
                1 => NodeState::Serving,
                _ => NodeState::Draining,
            };
            Node {
                reaches: ids().filter(|to| is_linked(id, *to)).collect(),
                ..Node::new(id, said.clone(), state)
            }
        };
        let nodes: Vec<Node> = ids().map(node).collect();
        let owners = nodes.iter().filter(|node| node.serves()).map(|node| Some(node.id));
        View {
            owners: owners.collect(),
            nodes,
            ..View::default()
        }
    }

    /// Lists the sets that may follow each set of serving nodes.
    fn steps(count: u64, links: u32) -> Vec<Vec<usize>> {
        let mut view = view(count, links, 0);
        let next = |serving: u32| {
            let is_one = |id: &NodeId| serving >> (id.0 - 1) & 1 == 1;
            view.owners = (1..=count).map(NodeId).filter(is_one).map(Some).collect();
            for node in &mut view.nodes {
                node.state = match is_one(&node.id) {
                    true => NodeState::Serving,
                    false => NodeState::Draining,
                };
            }
            let bit = |id: NodeId| 1 << (id.0 - 1);
            let gone = view.gives_way().map(|id| serving & !bit(id));
            let idle = view.nodes.iter().filter(|node| !node.serves());
            let joins = idle.filter(|node| view.apart(node.id, &node.reaches).is_none());
            let next = joins.map(|node| serving | bit(node.id)).chain(gone);
            next.map(|serving| serving as usize).collect()
        };
        (0..1 << count).map(next).collect()
    }

    /// Returns the sets in which every sequence of steps from this one ends. Fails if one may never end.
    fn ends(steps: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
        let mut ends = vec![None; steps.len()];
        // Each pass finds the sets that are one step further from the ends.
        for _ in steps {
            for (serving, next) in steps.iter().enumerate() {
                let after: Option<Vec<BTreeSet<usize>>> = next.iter().map(|next| ends[*next].clone()).collect();
                ends[serving] = after.map(|after| match after.is_empty() {
                    true => BTreeSet::from([serving]),
                    false => after.into_iter().flatten().collect(),
                });
            }
            if ends.iter().all(Option::is_some) {
                return ends.swap_remove(from).unwrap_or_default();
            }
        }
        panic!("nodes go back and forth: {steps:?}");
    }

    /// Returns all connections within each side, and none between the sides.
    fn cut(count: u64, sides: impl Fn(NodeId) -> usize) -> u32 {
        let ids = || (1..=count).map(NodeId);
        let pairs = ids().flat_map(|from| ids().filter(move |to| *to != from).map(move |to| (from, to)));
        let links = pairs.enumerate().filter(|(_, (from, to))| sides(*from) == sides(*to));
        links.fold(0, |links, (bit, _)| links | 1 << bit)
    }

    #[test]
    fn every_cut_of_four_nodes_ends_with_one_that_serves() {
        for count in 1..=4 {
            for links in 0..1_u32 << (count * (count - 1)) {
                let steps = steps(count, links);
                ends(&steps, 0);
                let is_end = |serving: &usize| *serving != 0 && steps[*serving].is_empty();
                assert!(
                    (1..steps.len()).all(|serving| !steps[serving].contains(&0)),
                    "the last of {count} nodes with the links {links:b} gives way"
                );
                assert!((1..steps.len()).any(|serving| is_end(&serving)));
            }
        }
    }

    #[test]
    fn of_two_halves_one_serves_and_of_two_nodes_the_older() {
        let ends_of = |count, links| ends(&steps(count, links), (1 << count) - 1);
        assert_eq!(ends_of(2, cut(2, |id| id.0 as usize)), BTreeSet::from([0b01]));
        for (other, expected) in [(2, 0b0011), (3, 0b0101), (4, 0b0110)] {
            let half = |id: NodeId| usize::from([1, other].contains(&id.0));
            assert_eq!(ends_of(4, cut(4, half)), BTreeSet::from([expected]), "1 and {other}");
        }
    }

    #[test]
    fn one_node_gives_way_at_a_time() {
        let mut cut_in_two = view(4, cut(4, |id| usize::from(id.0 > 2)), 0b1111);
        assert_eq!(cut_in_two.gives_way(), Some(NodeId(4)));
        cut_in_two.nodes[3].is_cut_off = true;
        assert_eq!(cut_in_two.gives_way(), None, "it still owns a shard");
        cut_in_two.owners.retain(|owner| *owner != Some(NodeId(4)));
        assert_eq!(cut_in_two.gives_way(), Some(NodeId(3)));
    }

    #[test]
    fn node_that_joins_names_those_it_misses() {
        // 3 reaches 1, and 2 reaches 3; 2 does not reach 1 directly.
        let links = 1 << 4 | 1 << 3;
        let view = view(3, links, 0b011);
        let apart = view.apart(NodeId(3), &BTreeSet::from([NodeId(1)])).unwrap();
        assert!(apart.misses_itself);
        assert_eq!(apart.not_reached, [NodeId(2)]);
        assert_eq!(apart.not_reached_by, [NodeId(1)]);
    }

    #[test]
    fn programs_that_do_not_say_are_taken_to_reach_all() {
        let mut old = view(3, 0, 0b111);
        old.nodes.iter_mut().for_each(|node| node.said.features = REACHES - 1);
        assert_eq!(old.gives_way(), None);
        let all = (1..=3).map(NodeId).collect();
        assert_eq!(old.apart(NodeId(3), &all), None);
    }
}
