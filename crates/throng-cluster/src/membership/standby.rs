//! A standby node owns nothing until it is needed.

use std::time::Duration;
use throng_journal::{Node, NodeId, View};

/// The leases for which too few others have to serve before a standby node serves.
const NEEDED: u32 = 2;
/// The leases for which enough others have to serve before the oldest node stands by again; each younger one waits a lease more. So of
/// several nodes that see each other serve, only one stands by at a time.
const SPARE: u32 = 4;

/// Decides when a standby node may own shards.
#[derive(Debug)]
pub struct Standby {
    /// The number of other serving nodes from which on this node stands by.
    others_min: usize,
    is_needed: bool,
    /// The time from which the opposite is right.
    since: Option<u64>,
}

impl Standby {
    /// Returns the rule for a node that stands by while at least this many others serve.
    #[must_use]
    pub fn new(others_min: usize) -> Self {
        Self {
            others_min,
            is_needed: false,
            since: None,
        }
    }

    /// True if it may own shards; `now` is in microseconds of a monotonic clock.
    pub fn is_needed(&mut self, me: NodeId, view: &View, now: u64, lease: Duration) -> bool {
        let serving = view.nodes.iter().filter(|node| node.id != me && node.serves());
        let are_few = serving.count() < self.others_min;
        if are_few == self.is_needed {
            self.since = None;
            return self.is_needed;
        }
        let leases = match self.is_needed {
            false => NEEDED,
            true => SPARE + older(me, view),
        };
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= super::micros(lease * leases) {
            (self.is_needed, self.since) = (are_few, None);
        }
        self.is_needed
    }
}

fn older(me: NodeId, view: &View) -> u32 {
    let older = view.nodes.iter().filter(|node: &&Node| node.lives() && node.id < me);
    u32::try_from(older.count()).unwrap_or(u32::MAX - SPARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use throng_journal::{Join, NodeState};

    const LEASE: Duration = Duration::from_secs(3);

    /// Nodes that always serve, and the numbers of those that stand by.
    struct Cluster {
        always: Vec<u64>,
        standby: BTreeMap<u64, Standby>,
        now: u64,
    }

    impl Cluster {
        fn serving(&self) -> Vec<u64> {
            let needed = self.standby.iter().filter(|(_, standby)| standby.is_needed);
            self.always
                .iter()
                .copied()
                .chain(needed.map(|(node, _)| *node))
                .collect()
        }

        /// Lets each node check once, a sixth of a lease after its last check.
        fn look(&mut self) {
            self.now += super::super::micros(LEASE / 6);
            let serving = self.serving();
            let node = |node: u64| match serving.contains(&node) {
                true => Node::new(NodeId(node), Join::default(), NodeState::Serving),
                false => Node::new(NodeId(node), Join::default(), NodeState::Draining),
            };
            let nodes = self.always.iter().chain(self.standby.keys());
            let view = View {
                nodes: nodes.map(|id| node(*id)).collect(),
                ..View::default()
            };
            for (node, standby) in &mut self.standby {
                standby.is_needed(NodeId(*node), &view, self.now, LEASE);
            }
        }
    }

    #[test]
    fn standbys_replace_missing_nodes_and_come_to_rest() {
        for count in 1..4_u64 {
            for always in 0..5_u64 {
                let standby = (0..count).map(|number| (100 + 16 * number, Standby::new(3)));
                let mut cluster = Cluster {
                    always: (1..=always).collect(),
                    standby: standby.collect(),
                    now: 0,
                };
                let expected = always.max(3).min(always + count);
                for round in 0..2_000 {
                    cluster.look();
                    let serving = cluster.serving();
                    let is_early = round < 6 * u64::from(NEEDED);
                    assert!(
                        !is_early || serving.len() as u64 == always,
                        "{always}, {count}: a restart is shorter"
                    );
                    assert!(
                        round < 1_000 || serving.len() as u64 == expected,
                        "{always}, {count}: {serving:?}"
                    );
                }
                // The other nodes return.
                cluster.always = (1..=3).collect();
                (0..2_000).for_each(|_| cluster.look());
                assert_eq!(cluster.serving(), [1, 2, 3], "{always}, {count}");
            }
        }
    }
}
