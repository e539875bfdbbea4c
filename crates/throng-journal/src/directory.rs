//! Who is there, and who owns what: where the nodes of a cluster meet.
//!
//! A **node** is one life of one process. It **owns** shards, and opens a stream that may hold records of exactly these
//! ([`Journal::open_shards`](crate::Journal::open_shards)). What a stream may hold never changes: a node that gains or loses shards ends its
//! stream and opens the next one. So a shard's history is the streams that may hold its records, in the order of their writers' numbers,
//! and whoever's stream is sealed can write nothing for any of its shards.
//!
//! Everything here is one conditional change of rows; no node decides for another one that lives.

use crate::{Error, Later, ShardId, ShardSet};
use std::{fmt, time::Duration};

/// One life of one process of a cluster; never given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a node says of itself when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// What people call it, 1 to 64 of `[a-z0-9-]`. Two that live cannot have the same.
    pub name: String,
    /// Where other nodes reach it, `host:port`.
    pub peer: String,
    /// Where clients reach it, as a URL.
    pub http: String,
    /// The program and its version.
    pub program: String,
    /// The service's release: shards go to nodes of an equal or greater one.
    pub app: u64,
    /// How many shards the service has.
    pub shards: u16,
}

/// What a node is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// It serves what it owns, and may be given more.
    Serving,
    /// It gives away what it owns.
    Draining,
    /// It has given everything away and gone.
    Left,
    /// Others have declared it dead: it can own nothing and open no stream any more.
    Dead,
}

impl NodeState {
    /// What a node says of itself with a [beat](Directory::beat): that it is over is said by [leaving](Directory::leave), with which its
    /// streams end.
    ///
    /// # Errors
    /// It is no state of one that lives.
    pub fn said_by_a_beat(self, node: NodeId) -> Result<(), Error> {
        match self {
            Self::Serving | Self::Draining => Ok(()),
            Self::Left | Self::Dead => Err(Error::Refused(format!(
                "node {node} cannot say with a beat that it is over: it has to leave, with which its streams end"
            ))),
        }
    }
}

/// A node, as all see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Of this life: the same process started again is another node.
    pub id: NodeId,
    /// What it said when it joined.
    pub said: Join,
    /// What it is at.
    pub state: NodeState,
    /// How often it has said that it lives. A number that does not change is a node that is silent; times of day are not compared.
    pub beat: u64,
    /// Its connections to the database are gone: it is, too, or is cut off.
    pub is_disconnected: bool,
}

/// What a beat is answered with: all nodes that are not over, and who owns what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The cluster's id: another cluster has another one.
    pub cluster: String,
    /// Raised by every change of owners or of nodes' states.
    pub version: u64,
    /// Those that serve or drain, and those that left or died and still own something, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The owner of each shard, by its number; `None` as long as nobody has ever owned it.
    pub owners: Vec<Option<NodeId>>,
}

impl View {
    /// The shards that a node owns.
    #[must_use]
    pub fn shards_of(&self, node: Option<NodeId>) -> ShardSet {
        let owners = self.owners.iter().enumerate();
        let own = owners.filter(|(_, owner)| **owner == node);
        own.map(|(shard, _)| ShardId(shard as u16)).collect()
    }

    /// A node by its number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

/// Where the nodes of a cluster meet. Each method is atomic.
pub trait Directory: Send + Sync {
    /// Joins: from now on others see this node. It owns nothing yet.
    ///
    /// # Errors
    /// The name is a living node's; the service has another number of shards; a node that is none of a cluster lives on this journal.
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>>;

    /// Says that a node lives, and what it is at: it [serves or drains](NodeState::said_by_a_beat).
    ///
    /// # Errors
    /// [`Error::Gone`]: it was declared dead, or has left. Another state.
    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>>;

    /// What all see now, for who is no node.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses; nothing was changed.
    fn view(&self) -> Later<'_, Result<View, Error>>;

    /// Declares a node dead that has not beaten since, and seals all its streams: nothing of it can land any more. `false`: it has
    /// beaten, or was no node that lives. Done by a node that itself is not dead.
    ///
    /// # Errors
    /// [`Error::Gone`]: the one that asks is dead itself.
    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>>;

    /// Makes a node the owner of those of these shards that nobody owns, or that one owns that is dead or has left. Which they are.
    ///
    /// # Errors
    /// [`Error::Gone`]: the node is dead itself.
    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>>;

    /// Makes another node that serves the owner of shards that this one owns, none of which an unsealed stream of it may hold.
    ///
    /// # Errors
    /// [`Error::Gone`]: the one that gives is dead. A sentence says what else stands against it: then nothing is changed.
    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>>;

    /// A node leaves: its streams are sealed, and what it still owns is free to be [taken](Self::take).
    ///
    /// # Errors
    /// The database cannot be reached, or refuses; nothing was changed.
    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>>;

    /// Asks a node, by its name, to give away all it owns, or no longer to: [`wants_drain`](Self::wants_drain). `false`: no node of this
    /// name lives.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses; nothing was changed.
    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>>;

    /// Whether a node is asked to give away all it owns.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses; nothing was changed.
    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>>;

    /// Resolves when something has changed since this was called, as far as that is told, at the latest after this long.
    fn changed(&self, at_most: Duration) -> Later<'_, ()>;
}
