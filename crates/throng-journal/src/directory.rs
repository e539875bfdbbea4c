//! Membership and ownership: the directory that the nodes of a cluster share.
//!
//! A **node** is one run of one process. It **owns** shards, and opens a stream that may hold records of exactly these
//! ([`Journal::open_shards`](crate::Journal::open_shards)). The shards of a stream never change: a node that gains or loses shards ends its
//! stream and opens the next one. So a shard's history consists of the streams that may hold its records, in the order of their writers'
//! numbers, and a node whose stream is sealed can write nothing for any of its shards.
//!
//! Every operation is one conditional change of rows. No node decides for another one that is alive.

mod reach;

pub use reach::Apart;

use crate::{Error, Later, ShardId, ShardSet, features};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// The number of a node, from its start to its end. It is never reused.
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
    /// The newest feature that it understands: a number that programs raise with each request or rule that earlier programs do not know. 0:
    /// the program did not report it.
    pub features: u32,
    /// The number of shards of the service.
    pub shards: u16,
    /// The lease of its cluster, the same on all nodes. Zero: the program did not report it.
    pub lease: Duration,
    /// The kinds of entities that its program has.
    pub kinds: Vec<String>,
}

/// The least release and features of a node that may join: those at which the cluster was [finalized](Directory::finalize).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The least [`Join::features`].
    pub features: u32,
    /// The oldest [`Join::app`].
    pub app: u64,
}

impl Floor {
    /// Refuses a node of an older program or release.
    ///
    /// # Errors
    /// [`Error::Refused`] with a sentence.
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
    /// The node has given away its shards and gone.
    Left,
    /// Other nodes have declared it dead. It can own nothing and open no stream.
    Dead,
}

impl NodeState {
    /// Checks a state that a node reports with a [beat](Directory::beat). A beat cannot end a node: it has to [leave](Directory::leave),
    /// which also ends its streams.
    ///
    /// # Errors
    /// [`Error::Refused`]: a living node cannot have this state.
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
    /// The number of its signs of life. A node whose number stays the same is silent; clocks are not compared.
    pub beat: u64,
    /// True if its connections to the database are gone, so that it is gone or cut off.
    pub is_disconnected: bool,
    /// True if an operator asked it to give away all its shards.
    pub wants_drain: bool,
    /// The nodes whose ports it is connected to, including itself, as it last [reported](Directory::reach).
    pub reaches: BTreeSet<NodeId>,
    /// True if other nodes have [reported](Directory::cut_off) that they cannot reach it, and it has not begun to drain yet.
    pub is_cut_off: bool,
    /// True if the node has ended, but its engine may still answer reads from memory, so that no other node can serve its shards yet.
    pub may_answer: bool,
}

impl Node {
    /// Returns a node that has not beaten yet.
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

    /// True if it may own shards.
    #[must_use]
    pub fn lives(&self) -> bool {
        matches!(self.state, NodeState::Serving | NodeState::Draining)
    }

    /// True if it may be given shards.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.state == NodeState::Serving && !self.is_cut_off
    }
}

/// The answer to a beat: all nodes that have not ended, and the owners of the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The unique id of the cluster.
    pub cluster: String,
    /// Raised by every change of owners or of nodes' states.
    pub version: u64,
    /// The nodes that serve or drain, and those that left or died and still own shards, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The owner of each shard, by its number; `None` if it never had one.
    pub owners: Vec<Option<NodeId>>,
    /// The shards that are pinned to the node of this name while one serves. All of them are in `owners`, too.
    pub pins: BTreeMap<ShardId, String>,
    /// The least release and features of a node that may join.
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

    /// Returns a living node that does not know this feature.
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

    /// Refuses a node that is incompatible with a living one.
    ///
    /// # Errors
    /// [`Error::Refused`]: a living node has another lease, or is of no older release and has kinds that this node's program lacks.
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

    /// Refuses to [pin](Directory::pin) these shards in this way, if necessary.
    ///
    /// # Errors
    /// [`Error::Refused`] with a sentence.
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

/// The directory that the nodes of a cluster share. Each method is atomic.
pub trait Directory: Send + Sync {
    /// Joins the cluster: other nodes see this node from now on. It owns nothing yet, and drains until a [beat](Self::beat) reports that it
    /// serves. If an operator [asked](Self::ask_drain) the last node of its name to drain, that holds for this one.
    ///
    /// # Errors
    /// [`Error::Refused`]: a living node has the name, the program or release is below the [floor](Floor), the number of shards differs, an
    /// engine outside the cluster uses this journal, or a living node is [incompatible](View::refuse).
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>>;

    /// Reports that a node lives, and that it [serves or drains](NodeState::said_by_a_beat).
    ///
    /// # Errors
    /// [`Error::Gone`]: it was declared dead, or has left. [`Error::RolledBack`]: the owners differ from an earlier answer, so the node
    /// owns nothing any more and has to join again. [`Error::Refused`]: the state is not possible.
    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>>;

    /// Reports the nodes that a node is connected to, including itself.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses.
    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>>;

    /// Has a serving node drain that should [give way](View::gives_way), until its beat reports that it drains. `false`: it no longer
    /// should.
    ///
    /// # Errors
    /// [`Error::Gone`]: the node that asks is dead itself.
    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>>;

    /// Returns the present view, for callers that are no node.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn view(&self) -> Later<'_, Result<View, Error>>;

    /// Returns the name of the last node of a newer release that has left or died, and the time since then: for a node that began later and
    /// never saw it. A directory without that information returns `None`.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses.
    fn newer_gone(&self, than: NodeId) -> Later<'_, Result<Option<(String, Duration)>, Error>> {
        let _ = than;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns an identifier of the database server that answers, which differs between a server and its copy. A directory without that
    /// information returns `None`.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses.
    fn server(&self) -> Later<'_, Result<Option<String>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Declares a node dead that has not beaten since, and seals all its streams, so that none of its appends can land. `false`: it has
    /// beaten, or was not alive. The node that asks must itself be alive.
    ///
    /// # Errors
    /// [`Error::Gone`]: the node that asks is dead itself.
    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>>;

    /// Makes a node the owner of those of these shards that have no owner, or whose owner is dead or has left. Returns them.
    ///
    /// # Errors
    /// [`Error::Gone`]: the node is dead itself.
    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>>;

    /// Makes another serving node the owner of shards that this one owns. None of its unsealed streams may hold these shards.
    ///
    /// # Errors
    /// [`Error::Gone`]: the giving node is dead. [`Error::Refused`] with the reason otherwise; then nothing is changed.
    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>>;

    /// Ends a node: its streams are sealed, and its shards are free to be [taken](Self::take).
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>>;

    /// Asks the node of this name to give away all its shards, or no longer to: [`wants_drain`](Self::wants_drain). `false`: no node of
    /// this name is alive.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>>;

    /// Returns true if a node is asked to give away all it owns.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>>;

    /// Pins shards to the node of this name: while it serves, their owners give them to it, and balancing does not take them away. Without
    /// a name they are unpinned. It holds until the next call, whatever happens to nodes.
    ///
    /// # Errors
    /// [`Error::Refused`], and nothing was changed: no node of that name is alive, it gives away its shards, a living node's program does
    /// not know pins, or there is no such shard.
    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>>;

    /// Raises the floor to the least that all living nodes have, so that older nodes can no longer join. Returns the former floor and the
    /// new one.
    ///
    /// # Errors
    /// [`Error::Refused`]: no node is alive.
    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>>;

    /// Resolves after a change since this call, as far as changes are signalled, and at the latest after this time.
    fn changed(&self, at_most: Duration) -> Later<'_, ()>;
}
