//! Membership and ownership: the place where the nodes of a cluster meet.
//!
//! A **node** is one run of one process. It **owns** shards, and opens a stream that may hold records of exactly these
//! ([`Journal::open_shards`](crate::Journal::open_shards)). What a stream may hold never changes: a node that gains or loses shards ends its
//! stream and opens the next one. So a shard's history is the streams that may hold its records, in the order of their writers' numbers,
//! and whoever's stream is sealed can write nothing for any of its shards.
//!
//! Everything here is one conditional change of rows; no node decides for another one that lives.

mod reach;

pub use reach::Apart;

use crate::{Error, Later, ShardId, ShardSet, features};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// The number of a node, from its start to its end; never given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The newest feature that this program knows.
pub const FEATURES: u32 = features::INDEXES;

/// A node's description of itself when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// The name for people, 1 to 64 of `[a-z0-9-]`. Two living nodes cannot have the same.
    pub name: String,
    /// The address for other nodes, `host:port`.
    pub peer: String,
    /// The URL for clients.
    pub http: String,
    /// The program and its version.
    pub program: String,
    /// The service's release: shards go to nodes of an equal or greater one.
    pub app: u64,
    /// The newest of what nodes ask of each other that it understands: a number that programs raise with each request or rule that those
    /// before do not know. 0: of a program that did not say.
    pub features: u32,
    /// The number of shards of the service.
    pub shards: u16,
    /// The lease of its cluster, the same at all nodes. Zero: of a program that did not say.
    pub lease: Duration,
    /// The kinds of entities that its program has.
    pub kinds: Vec<String>,
}

/// The release and features that a node must have to be let in: what a cluster was [finalized](Directory::finalize) at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The least [`Join::features`].
    pub features: u32,
    /// The oldest [`Join::app`].
    pub app: u64,
}

impl Floor {
    /// Says so if a node is of an older program or release.
    ///
    /// # Errors
    /// [`Error::Refused`] in a sentence.
    pub fn refuse(&self, join: &Join) -> Result<(), Error> {
        if join.features < self.features {
            return Err(Error::Refused(format!(
                "this program ({}) knows the features up to {}, and since the cluster was finalized its nodes have to know those up to {}: \
                 start a newer program",
                join.program, join.features, self.features
            )));
        }
        if join.app < self.app {
            return Err(Error::Refused(format!(
                "this is release {} of the service, and since the cluster was finalized its nodes have to be of release {} at least: start \
                 a newer one, with its --app-number",
                join.app, self.app
            )));
        }
        Ok(())
    }
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// The node serves the shards it owns, and may be given more.
    Serving,
    /// The node gives its shards away.
    Draining,
    /// The node has given everything away and gone.
    Left,
    /// Others have declared it dead: it can own nothing and open no stream any more.
    Dead,
}

impl NodeState {
    /// Checks a state that a node sends with a [beat](Directory::beat). A beat cannot end a node: it [leaves](Directory::leave), and with
    /// that its streams end.
    ///
    /// # Errors
    /// [`Error::Refused`]: the state is none of a node that lives.
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
    /// The number of this run: the same process started again is another node.
    pub id: NodeId,
    /// Its description when it joined.
    pub said: Join,
    /// Its state.
    pub state: NodeState,
    /// The number of its signs of life. A node whose number does not change is silent; times of day are not compared.
    pub beat: u64,
    /// Its connections to the database are gone: it is, too, or is cut off.
    pub is_disconnected: bool,
    /// An operator has asked it to give away all it owns.
    pub wants_drain: bool,
    /// Nodes whose ports it is connected to, itself among them, as it [said](Directory::reach) last.
    pub reaches: BTreeSet<NodeId>,
    /// Others have [said](Directory::cut_off) that they cannot reach it, and it has not begun to drain yet.
    pub is_cut_off: bool,
    /// The node is over, and its engine may still answer reads from memory: nobody can serve what it owned yet.
    pub may_answer: bool,
}

impl Node {
    /// Makes one that has not beaten yet.
    #[must_use]
    pub fn new(id: NodeId, said: Join, state: NodeState) -> Self {
        Self {
            id,
            said,
            state,
            beat: 0,
            is_disconnected: false,
            wants_drain: false,
            reaches: BTreeSet::new(),
            is_cut_off: false,
            may_answer: false,
        }
    }

    /// Tells if it may own shards.
    #[must_use]
    pub fn lives(&self) -> bool {
        matches!(self.state, NodeState::Serving | NodeState::Draining)
    }

    /// Tells if it may be given shards.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.state == NodeState::Serving && !self.is_cut_off
    }
}

/// The answer to a beat: all nodes that are not over, and the owners of the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The cluster's id: another cluster has another one.
    pub cluster: String,
    /// Raised by every change of owners or of nodes' states.
    pub version: u64,
    /// The nodes that serve or drain, and those that left or died and still own something, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The owner of each shard, by its number; `None` as long as nobody has ever owned it.
    pub owners: Vec<Option<NodeId>>,
    /// Shards that an operator wants at the node of this name while one serves; all of them stand in `owners`, too.
    pub pins: BTreeMap<ShardId, String>,
    /// Whoever has less is not let in.
    pub floor: Floor,
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

    /// A node that lives and does not know this feature.
    #[must_use]
    pub fn without_feature(&self, feature: u32) -> Option<&Node> {
        self.nodes
            .iter()
            .find(|node| node.lives() && node.said.features < feature)
    }

    /// Returns the living node of the newest release, if that is newer than the release of `than`.
    #[must_use]
    pub fn newer(&self, than: NodeId) -> Option<&Node> {
        let app = self.node(than)?.said.app;
        let living = self.nodes.iter().filter(|node| node.lives());
        living
            .max_by_key(|node| node.said.app)
            .filter(|node| node.said.app > app)
    }

    /// Says why a node cannot go with those that live.
    ///
    /// # Errors
    /// [`Error::Refused`]: one of them has another lease, or has kinds that this node's program lacks and is of no older release.
    pub fn refuse(&self, join: &Join) -> Result<(), Error> {
        let living = self.nodes.iter().filter(|node| node.lives() && !node.is_disconnected);
        for said in living.map(|node| &node.said) {
            if ![join.lease, Duration::ZERO].contains(&said.lease) && !join.lease.is_zero() {
                return Err(Error::Refused(format!(
                    "this node has a lease of {:?}, and node {:?} has one of {:?}: give all nodes the same --cluster-lease; to change it, stop \
                     them all",
                    join.lease, said.name, said.lease
                )));
            }
            let lacks = said.kinds.iter().filter(|kind| !join.kinds.contains(kind));
            let lacks: Vec<&str> = lacks.map(String::as_str).collect();
            if !lacks.is_empty() && join.app <= said.app {
                return Err(Error::Refused(format!(
                    "this program ({}) lacks kinds that node {:?} ({}) has: {}; start the program of this service, or name its own --journal; a \
                     release that has given them up needs a --app-number above {}",
                    join.program,
                    said.name,
                    said.program,
                    lacks.join(", "),
                    said.app
                )));
            }
        }
        Ok(())
    }

    /// Says why these shards cannot be [pinned](Directory::pin) so.
    ///
    /// # Errors
    /// [`Error::Refused`] in a sentence.
    pub fn refuse_pins(&self, shards: &ShardSet, to: Option<&str>) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Refused(why));
        if shards.is_empty() {
            return refuse("no shard is named".into());
        }
        let all = ShardSet::first(u16::try_from(self.owners.len()).unwrap_or(u16::MAX));
        let unknown = shards.without(&all);
        if all.is_empty() {
            return refuse(
                "no node of a cluster has ever joined on this journal: there are no shards to be moved".into(),
            );
        }
        if !unknown.is_empty() {
            return refuse(format!("there are no shards {unknown}: this service has {all}"));
        }
        let Some(name) = to else { return Ok(()) };
        let mut living = self.nodes.iter().filter(|node| node.lives());
        let Some(node) = living.find(|node| node.said.name == name) else {
            return refuse(format!(
                "there is no node {name:?} that lives; `cluster status` shows those that do"
            ));
        };
        if !node.wants_drain && node.state == NodeState::Draining {
            return refuse(format!(
                "the node {name:?} may own no shards now: it ends, or others do not reach it; `cluster status` says which"
            ));
        }
        if node.wants_drain {
            return refuse(format!(
                "the node {name:?} gives away its shards: have it own some again with `cluster undrain {name}` first"
            ));
        }
        match self.without_feature(features::ERASES) {
            None => Ok(()),
            Some(old) => refuse(format!(
                "the node {:?} runs an older program ({}), which knows of no shards that are moved by hand: upgrade it first",
                old.said.name, old.said.program
            )),
        }
    }
}

/// The place where the nodes of a cluster meet. Each method is atomic.
pub trait Directory: Send + Sync {
    /// Joins: from now on others see this node. It owns nothing yet, and drains until a [beat](Self::beat) of it says that it serves. A drain that the
    /// last node of its name was [asked](Self::ask_drain) for holds for this one.
    ///
    /// # Errors
    /// The name is a living node's; the program or the release is below the [floor](Floor); the service has another number of shards; a node that
    /// is none of a cluster lives on this journal; one that lives does not [go with it](View::refuse).
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>>;

    /// Says that a node lives, and what it is at: it [serves or drains](NodeState::said_by_a_beat).
    ///
    /// # Errors
    /// [`Error::Gone`]: it was declared dead, or has left. [`Error::RolledBack`]: who owns what is not what was answered before, so
    /// the node owns nothing any more and has to join again. Another state.
    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>>;

    /// Says which nodes a node is connected to, itself among them.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>>;

    /// Has a node drain that serves and [gives way](View::gives_way), until a beat of it says that it drains. `false`: it does not any more.
    ///
    /// # Errors
    /// [`Error::Gone`]: the one that asks is dead itself.
    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>>;

    /// Returns the view that all nodes see now, for callers that are no node.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn view(&self) -> Later<'_, Result<View, Error>>;

    /// The name of the node of a newer release than this one's that has left or died last, and for how long it is gone: for who has begun since, and
    /// never saw it. A directory that does not know says nothing.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses.
    fn newer_gone(&self, than: NodeId) -> Later<'_, Result<Option<(String, Duration)>, Error>> {
        let _ = than;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Which server of the database answers here: another one has another name, also where it is a copy. A directory that does not know says nothing.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    fn server(&self) -> Later<'_, Result<Option<String>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

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
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>>;

    /// Asks a node, by its name, to give away all it owns, or no longer to: [`wants_drain`](Self::wants_drain). `false`: no node of this
    /// name lives.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>>;

    /// Returns true if a node is asked to give away all it owns.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>>;

    /// Pins shards to the node of this name: while it serves, their owners give them to it, and nobody takes them from it for the sake of
    /// balance. Without a name: to none any more. It holds until it is said otherwise, whatever becomes of nodes.
    ///
    /// # Errors
    /// [`Error::Refused`], and nothing was changed: no node of that name lives, or it gives away its shards, or one lives whose program
    /// does not go by it; there is no such shard.
    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>>;

    /// Raises the floor to the least that the nodes that live have, so that none joins any more that has less; what it was, and what it is.
    ///
    /// # Errors
    /// [`Error::Refused`]: no node lives.
    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>>;

    /// Resolves when something has changed since this was called, as far as that is told, at the latest after this long.
    fn changed(&self, at_most: Duration) -> Later<'_, ()>;
}
