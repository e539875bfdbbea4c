//! The directory in memory.

use super::MemoryJournal;
use crate::{Directory, Error, Floor, Join, Later, Node, NodeId, NodeState, ShardId, ShardSet, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::{self, Future},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// The directory of a cluster in memory: for engines of one process on one [`MemoryJournal`], in tests.
#[derive(Clone, Debug)]
pub struct MemoryDirectory {
    journal: MemoryJournal,
    waiting: Arc<Mutex<Vec<Waker>>>,
}

/// Nodes, and what they own.
#[derive(Debug, Default)]
pub(super) struct Members {
    version: u64,
    nodes: BTreeMap<NodeId, Node>,
    owners: Vec<Option<NodeId>>,
    pins: BTreeMap<ShardId, String>,
    floor: Floor,
}

impl Members {
    /// The name of a node that lives.
    pub(super) fn living(&self) -> Option<&str> {
        let living = self.nodes.values().find(|node| node.lives());
        living.map(|node| &*node.said.name)
    }

    /// Says why a node does not own all of these.
    pub(super) fn owns(&self, node: NodeId, shards: &ShardSet) -> Result<(), Error> {
        self.lives(node)?;
        let others = shards.iter().filter(|shard| self.owner(*shard) != Some(node));
        let others: ShardSet = others.collect();
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::Refused(format!("node {node} does not own the shards {others}"))),
        }
    }

    fn lives(&self, node: NodeId) -> Result<(), Error> {
        match self.nodes.get(&node) {
            Some(member) if member.lives() => Ok(()),
            _ => Err(Error::Gone(node)),
        }
    }

    fn owner(&self, shard: ShardId) -> Option<NodeId> {
        self.owners.get(usize::from(shard.0)).copied().flatten()
    }

    fn view(&self) -> View {
        let owns = |id: &NodeId| self.owners.contains(&Some(*id));
        let nodes = self.nodes.iter().filter(|(id, node)| node.lives() || owns(id));
        View {
            cluster: "memory".into(),
            version: self.version,
            nodes: nodes.map(|(_, node)| node.clone()).collect(),
            owners: self.owners.clone(),
            pins: self.pins.clone(),
            floor: self.floor,
        }
    }
}

impl MemoryDirectory {
    pub(super) fn new(journal: MemoryJournal) -> Self {
        Self {
            journal,
            waiting: Arc::default(),
        }
    }

    fn tell(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}

fn now<T: Send + 'static>(value: T) -> Later<'static, T> {
    Box::pin(future::ready(value))
}

impl Directory for MemoryDirectory {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        let mut history = self.journal.history();
        let members = &mut history.members;
        if let Err(refused) = members.floor.refuse(&join) {
            return now(Err(refused));
        }
        if let Err(refused) = members.view().refuse(&join) {
            return now(Err(refused));
        }
        let has_name = |node: &Node| node.lives() && node.said.name == join.name;
        if members.nodes.values().any(has_name) {
            return now(Err(Error::Refused(format!(
                "a node of the name {:?} lives: stop it, or give this one another name",
                join.name
            ))));
        }
        let shards = usize::from(join.shards);
        if !members.owners.is_empty() && members.owners.len() != shards {
            return now(Err(Error::Refused(format!(
                "the cluster has {} shards, this service has {shards}",
                members.owners.len()
            ))));
        }
        members.owners.resize(shards, None);
        let id = NodeId(members.nodes.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        let before = members.nodes.values().rfind(|node| node.said.name == join.name);
        let wants_drain = before.is_some_and(|node| node.wants_drain);
        let node = Node {
            wants_drain,
            ..Node::new(id, join, NodeState::Draining)
        };
        members.nodes.insert(id, node);
        members.version += 1;
        history.seal_alone();
        self.tell();
        now(Ok(id))
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        if let Err(refused) = state.said_by_a_beat(node) {
            return now(Err(refused));
        }
        let members = &mut self.journal.history().members;
        if let Err(gone) = members.lives(node) {
            return now(Err(gone));
        }
        if let Some(member) = members.nodes.get_mut(&node) {
            member.beat += 1;
            member.is_cut_off &= state == NodeState::Serving;
            if member.state != state {
                member.state = state;
                members.version += 1;
                self.tell();
            }
        }
        now(Ok(members.view()))
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        let members = &mut self.journal.history().members;
        if let Some(member) = members.nodes.get_mut(&node) {
            reaches.clone_into(&mut member.reaches);
            members.version += 1;
            self.tell();
        }
        now(Ok(()))
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        let members = &mut self.journal.history().members;
        if let Err(gone) = members.lives(by) {
            return now(Err(gone));
        }
        let gives_way = members.view().gives_way() == Some(node);
        if let Some(member) = members.nodes.get_mut(&node).filter(|_| gives_way) {
            member.is_cut_off = true;
            members.version += 1;
            self.tell();
        }
        now(Ok(gives_way))
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        now(Ok(self.journal.history().members.view()))
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        let mut history = self.journal.history();
        if let Err(gone) = history.members.lives(by) {
            return now(Err(gone));
        }
        let found = history.members.nodes.get_mut(&dead);
        let Some(member) = found.filter(|member| member.lives() && member.beat == beat) else {
            return now(Ok(false));
        };
        member.state = NodeState::Dead;
        history.members.version += 1;
        history.seal_node(dead);
        self.tell();
        now(Ok(true))
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        let members = &mut self.journal.history().members;
        if let Err(gone) = members.lives(by) {
            return now(Err(gone));
        }
        let is_free = |shard: &ShardId| {
            let owner = members.owners.get(usize::from(shard.0));
            owner.is_some_and(|owner| owner.is_none_or(|owner| members.lives(owner).is_err()))
        };
        let taken: ShardSet = shards.iter().filter(is_free).collect();
        for shard in taken.iter() {
            if let Some(owner) = members.owners.get_mut(usize::from(shard.0)) {
                *owner = Some(by);
            }
        }
        if !taken.is_empty() {
            members.version += 1;
            self.tell();
        }
        now(Ok(taken))
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        let mut history = self.journal.history();
        let check = || {
            history.members.owns(from, shards)?;
            let receiver = history.members.nodes.get(&to);
            if receiver.is_none_or(|node| !node.serves()) {
                return Err(Error::Refused(format!(
                    "node {to} does not serve, and can be given nothing"
                )));
            }
            match history.open_stream(shards, None) {
                None => Ok(()),
                Some(writer) => Err(Error::Refused(format!(
                    "the stream of writer {writer} may hold records of the shards {shards}: it has to end first"
                ))),
            }
        };
        if let Err(refused) = check() {
            return now(Err(refused));
        }
        for shard in shards.iter() {
            history.members.owners[usize::from(shard.0)] = Some(to);
        }
        history.members.version += 1;
        self.tell();
        now(Ok(()))
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        let mut history = self.journal.history();
        history.seal_node(node);
        if let Some(member) = history.members.nodes.get_mut(&node).filter(|member| member.lives()) {
            member.state = NodeState::Left;
            history.members.version += 1;
            self.tell();
        }
        now(Ok(()))
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        let members = &mut self.journal.history().members;
        let found = members
            .nodes
            .values_mut()
            .find(|node| node.lives() && node.said.name == name);
        let is_there = found.is_some();
        if let Some(member) = found {
            member.wants_drain = drain;
            members.version += 1;
            self.tell();
        }
        now(Ok(is_there))
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        let members = &self.journal.history().members;
        now(Ok(members.nodes.get(&node).is_some_and(|node| node.wants_drain)))
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        let members = &mut self.journal.history().members;
        if let Err(refused) = members.view().refuse_pins(shards, to) {
            return now(Err(refused));
        }
        for shard in shards.iter() {
            match to {
                Some(name) => members.pins.insert(shard, name.to_owned()),
                None => members.pins.remove(&shard),
            };
        }
        members.version += 1;
        self.tell();
        now(Ok(()))
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        let members = &mut self.journal.history().members;
        let (before, view) = (members.floor, members.view());
        let living = || view.nodes.iter().filter(|node| node.lives()).map(|node| &node.said);
        let (Some(features), Some(app)) = (
            living().map(|said| said.features).min(),
            living().map(|said| said.app).min(),
        ) else {
            return now(Err(Error::Refused("no node lives: there is nothing to go by".into())));
        };
        members.floor = Floor {
            features: features.max(before.features),
            app: app.max(before.app),
        };
        members.version += 1;
        self.tell();
        now(Ok((before, members.floor)))
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        let seen = self.journal.history().members.version;
        let until = Instant::now() + at_most;
        Box::pin(Changed {
            directory: self.clone(),
            seen,
            until,
            is_timed: false,
        })
    }
}

struct Changed {
    directory: MemoryDirectory,
    seen: u64,
    until: Instant,
    /// A thread wakes it when the time is over.
    is_timed: bool,
}

impl Future for Changed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
        let waiting = self.directory.waiting.clone();
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(context.waker().clone());
        let left = self.until.saturating_duration_since(Instant::now());
        if self.directory.journal.history().members.version != self.seen || left.is_zero() {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_timed, true) {
            let waker = context.waker().clone();
            std::thread::spawn(move || {
                std::thread::sleep(left);
                waker.wake();
            });
        }
        Poll::Pending
    }
}
