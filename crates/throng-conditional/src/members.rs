//! Nodes and the shards they own, as stored in the root.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use throng_journal::{Error, Floor, Join, Node, NodeId, NodeState, ShardId, ShardSet, View};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Members {
    pub(crate) version: u64,
    /// The number of the last node that joined.
    pub(crate) last_node: u64,
    pub(crate) nodes: BTreeMap<u64, Member>,
    pub(crate) owners: Vec<Option<u64>>,
    pub(crate) pins: BTreeMap<u16, String>,
    pub(crate) floor_features: u32,
    pub(crate) floor_app: u64,
}

/// A node that has joined. Nodes that are over and own nothing are forgotten, except the last of each name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    peer: String,
    http: String,
    program: String,
    pub(crate) app: u64,
    pub(crate) features: u32,
    shards: u16,
    lease_millis: u64,
    kinds: Vec<String>,
    pub(crate) life: Life,
    pub(crate) beat: u64,
    pub(crate) wants_drain: bool,
    pub(crate) reaches: BTreeSet<u64>,
    pub(crate) is_cut_off: bool,
    /// Random: tells the caller that joined as this node from others.
    pub(crate) nonce: String,
    /// Random: tells the caller that declared the node dead from others.
    pub(crate) judgement: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Life {
    Serving,
    Draining,
    Left,
    Dead,
}

impl From<NodeState> for Life {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::Serving => Self::Serving,
            NodeState::Draining => Self::Draining,
            NodeState::Left => Self::Left,
            NodeState::Dead => Self::Dead,
        }
    }
}

impl Member {
    pub(crate) fn new(join: &Join, wants_drain: bool, nonce: String) -> Self {
        Self {
            name: join.name.clone(),
            peer: join.peer.clone(),
            http: join.http.clone(),
            program: join.program.clone(),
            app: join.app,
            features: join.features,
            shards: join.shards,
            lease_millis: u64::try_from(join.lease.as_millis()).unwrap_or(u64::MAX),
            kinds: join.kinds.clone(),
            life: Life::Draining,
            beat: 0,
            wants_drain,
            reaches: BTreeSet::new(),
            is_cut_off: false,
            nonce,
            judgement: None,
        }
    }

    pub(crate) fn lives(&self) -> bool {
        matches!(self.life, Life::Serving | Life::Draining)
    }

    pub(crate) fn serves(&self) -> bool {
        self.life == Life::Serving && !self.is_cut_off
    }

    fn node(&self, id: u64) -> Node {
        let said = Join {
            name: self.name.clone(),
            peer: self.peer.clone(),
            http: self.http.clone(),
            program: self.program.clone(),
            app: self.app,
            features: self.features,
            shards: self.shards,
            lease: Duration::from_millis(self.lease_millis),
            kinds: self.kinds.clone(),
        };
        let state = match self.life {
            Life::Serving => NodeState::Serving,
            Life::Draining => NodeState::Draining,
            Life::Left => NodeState::Left,
            Life::Dead => NodeState::Dead,
        };
        Node {
            beat: self.beat,
            wants_drain: self.wants_drain,
            reaches: self.reaches.iter().copied().map(NodeId).collect(),
            is_cut_off: self.is_cut_off,
            ..Node::new(NodeId(id), said, state)
        }
    }
}

impl Members {
    /// Returns the node's name if it lives.
    pub(crate) fn living(&self) -> Option<&str> {
        let living = self.nodes.values().find(|node| node.lives());
        living.map(|node| &*node.name)
    }

    /// Checks that a node owns all of these shards.
    pub(crate) fn owns(&self, node: NodeId, shards: &ShardSet) -> Result<(), Error> {
        self.lives(node)?;
        let others = shards.iter().filter(|shard| self.owner(*shard) != Some(node));
        let others: ShardSet = others.collect();
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::Refused(format!("node {node} does not own the shards {others}"))),
        }
    }

    pub(crate) fn lives(&self, node: NodeId) -> Result<(), Error> {
        match self.nodes.get(&node.0) {
            Some(member) if member.lives() => Ok(()),
            _ => Err(Error::Gone(node)),
        }
    }

    fn owner(&self, shard: ShardId) -> Option<NodeId> {
        self.owners.get(usize::from(shard.0)).copied().flatten().map(NodeId)
    }

    pub(crate) fn lease_of(&self, node: u64) -> Duration {
        let member = self.nodes.get(&node);
        member.map_or(Duration::ZERO, |member| Duration::from_millis(member.lease_millis))
    }

    pub(crate) fn floor(&self) -> Floor {
        Floor {
            features: self.floor_features,
            app: self.floor_app,
        }
    }

    pub(crate) fn view(&self, cluster: &str) -> View {
        let owns = |id: u64| self.owners.contains(&Some(id));
        let nodes = self.nodes.iter().filter(|(id, node)| node.lives() || owns(**id));
        View {
            cluster: cluster.to_owned(),
            version: self.version,
            nodes: nodes.map(|(id, node)| node.node(*id)).collect(),
            owners: self.owners.iter().map(|owner| owner.map(NodeId)).collect(),
            pins: self
                .pins
                .iter()
                .map(|(shard, name)| (ShardId(*shard), name.clone()))
                .collect(),
            floor: self.floor(),
        }
    }
}
