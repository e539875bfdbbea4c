//! The status of a cluster, as the tool and the console show it.

use serde::Serialize;
use std::collections::BTreeMap;
use throng::journal::{Node, NodeState, ShardId, ShardSet, View, features};
use throng_cluster::Status;

#[derive(Serialize)]
pub(super) struct Shown<'a> {
    pub(super) cluster: &'a str,
    pub(super) version: u64,
    pub(super) shards: usize,
    pub(super) unowned: String,
    /// The pinned shards by the name of the node, which need not be alive.
    pub(super) pinned: BTreeMap<&'a str, String>,
    /// The least release and features that a node needs to join.
    pub(super) floor: ShownFloor,
    pub(super) nodes: Vec<ShownNode<'a>>,
}

#[derive(Serialize)]
pub(super) struct ShownFloor {
    pub(super) features: u32,
    pub(super) app: u64,
}

#[derive(Serialize)]
pub(super) struct ShownNode<'a> {
    pub(super) node: u64,
    pub(super) name: &'a str,
    pub(super) state: &'static str,
    pub(super) owns: usize,
    pub(super) shards: String,
    pub(super) http: &'a str,
    pub(super) peer: &'a str,
    pub(super) program: &'a str,
    pub(super) features: u32,
    pub(super) app: u64,
    pub(super) connected: bool,
    /// True if an operator asked it to give away all its shards.
    pub(super) wants_drain: bool,
    /// The reason why it may own nothing.
    pub(super) apart: Option<String>,
}

impl ShownNode<'_> {
    /// Returns its state, or "gone?" for a node whose database sessions have ended, though it has neither left nor been declared dead.
    pub(super) fn state_or_doubt(&self) -> &'static str {
        match self.state {
            "serving" | "draining" if !self.connected => "gone?",
            state => state,
        }
    }
}

/// Returns a node's view of the cluster for an administrator.
pub(crate) fn report(status: &Status) -> serde_json::Value {
    let mut report = serde_json::to_value(Shown::of(&status.view)).unwrap_or_default();
    report["node"] = status.node.0.into();
    report["lease_ms"] = (status.lease.as_secs_f64() * 1e3).into();
    let since_look = status.looked.map(|looked| looked.elapsed()).unwrap_or_default();
    for (shown, node) in report["nodes"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .zip(&status.view.nodes)
    {
        let silence = status.silences.get(&node.id);
        shown["silent_ms"] = silence
            .map(|silence| (*silence + since_look).as_secs_f64() * 1e3)
            .into();
    }
    report["serves"] = status.serves.len().into();
    report["apart"] = status.apart.clone().into();
    report["two_primaries"] = status.two_primaries.clone().into();
    report["reaches"] = status.connected.iter().map(|node| node.0).collect();
    report["changes"] = status.changes.into();
    report["last_change_ms"] = (status.last_change.as_secs_f64() * 1e3).into();
    report["asked"] = status.asks.into();
    report["frames"] = status.frames.into();
    report["not_here"] = status.not_here.into();
    report["unknown"] = status.unknown.into();
    report
}

/// Returns the owners of all shards, for clients that ask owners directly.
pub(crate) fn owners(status: &Status) -> serde_json::Value {
    let view = &status.view;
    let owning = view.nodes.iter().filter(|node| node.lives()).filter_map(|node| {
        let shards = view.shards_of(Some(node.id));
        let said = &node.said;
        (!shards.is_empty())
            .then(|| serde_json::json!({ "name": said.name, "http": said.http, "shards": shards.to_string() }))
    });
    serde_json::json!({ "version": view.version, "shards": view.owners.len(), "owners": owning.collect::<Vec<_>>() })
}

/// Returns the URL for clients of a shard's owner.
pub(crate) fn owner(status: &Status, shard: ShardId) -> Option<String> {
    let owner = status.view.owners.get(usize::from(shard.0)).copied().flatten()?;
    let owner = status.view.node(owner).filter(|node| node.lives())?;
    Some(owner.said.http.clone())
}

/// Returns the reason why a node drains without having been asked to.
fn apart(view: &View, node: &Node) -> Option<String> {
    let is_asked = node.state != NodeState::Draining || node.wants_drain;
    let is_told = node.said.features >= features::REACHES;
    let apart = view.apart(node.id, &node.reaches).filter(|_| is_told && !is_asked);
    apart.map(|apart| apart.told(view, node.id))
}

impl<'a> Shown<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let owned: ShardSet = view.nodes.iter().fold(ShardSet::default(), |all, node| {
            all.union(&view.shards_of(Some(node.id)))
        });
        let all = ShardSet::first(u16::try_from(view.owners.len()).unwrap_or(u16::MAX));
        let mut pinned: BTreeMap<&str, ShardSet> = BTreeMap::new();
        for (shard, name) in &view.pins {
            pinned.entry(name).or_default().insert(*shard);
        }
        Self {
            cluster: &view.cluster,
            version: view.version,
            shards: view.owners.len(),
            unowned: all.without(&owned).to_string(),
            floor: ShownFloor {
                features: view.floor.features,
                app: view.floor.app,
            },
            pinned: pinned
                .into_iter()
                .map(|(name, shards)| (name, shards.to_string()))
                .collect(),
            nodes: view
                .nodes
                .iter()
                .map(|node| {
                    let shards = view.shards_of(Some(node.id));
                    ShownNode {
                        node: node.id.0,
                        name: &node.said.name,
                        state: match node.state {
                            NodeState::Serving => "serving",
                            NodeState::Draining => "draining",
                            NodeState::Left => "left",
                            NodeState::Dead => "dead",
                        },
                        owns: shards.len(),
                        shards: shards.to_string(),
                        http: &node.said.http,
                        peer: &node.said.peer,
                        program: &node.said.program,
                        features: node.said.features,
                        app: node.said.app,
                        connected: !node.is_disconnected,
                        wants_drain: node.wants_drain,
                        apart: apart(view, node),
                    }
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{Join, NodeId};

    #[test]
    fn owners_are_the_living_nodes_that_own_shards() {
        let node = |number, name: &str, state| {
            let (name, http) = (name.to_owned(), format!("http://{name}:8080"));
            let said = Join {
                name,
                http,
                ..Join::default()
            };
            Node::new(NodeId(number), said, state)
        };
        let view = View {
            version: 5,
            nodes: vec![
                node(1, "a", NodeState::Serving),
                node(2, "b", NodeState::Dead),
                node(3, "c", NodeState::Serving),
            ],
            owners: [1, 1, 2, 1].map(|owner| Some(NodeId(owner))).to_vec(),
            ..View::default()
        };
        let status = Status {
            view,
            ..Status::default()
        };
        let a = serde_json::json!({ "name": "a", "http": "http://a:8080", "shards": "0-1,3" });
        assert_eq!(
            owners(&status),
            serde_json::json!({ "version": 5, "shards": 4, "owners": [a] })
        );
    }

    #[test]
    fn ended_nodes_are_told_from_disconnected_ones() {
        let node = |state, is_disconnected| Node {
            is_disconnected,
            ..Node::new(NodeId(1), Join::default(), state)
        };
        let states = [
            (NodeState::Serving, false, "serving"),
            (NodeState::Serving, true, "gone?"),
            (NodeState::Draining, true, "gone?"),
            (NodeState::Left, true, "left"),
            (NodeState::Dead, true, "dead"),
            (NodeState::Dead, false, "dead"),
        ];
        for (state, is_disconnected, shown) in states {
            let view = View {
                nodes: vec![node(state, is_disconnected)],
                ..View::default()
            };
            assert_eq!(Shown::of(&view).nodes[0].state_or_doubt(), shown);
        }
    }
}
