//! The directory: nodes and owners, stored in the root. Each change of the directory, beats included, is a change of the root.

use crate::{
    journal::Inner,
    members::{Life, Member},
    root::{Change, Owner, Root},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use throng_journal::{Directory, Error, Floor, Join, Later, NodeId, NodeState, ShardSet, View, WriterId};

/// The interval of checks for a change: object storage sends no notifications.
const LOOK: Duration = Duration::from_millis(500);

/// The directory of the cluster on a [`ConditionalJournal`](crate::ConditionalJournal).
#[derive(Clone)]
pub struct ConditionalDirectory {
    inner: Arc<Inner>,
}

fn refused<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}

/// Marks the streams of these owners as ending, and returns their writers, whose streams must be sealed.
fn end_streams(root: &mut Root, is_over: impl Fn(&Owner) -> bool) -> Vec<WriterId> {
    let open = root
        .writers
        .iter_mut()
        .filter(|writer| writer.last.is_none() && is_over(&writer.owner));
    open.map(|writer| {
        writer.is_ending = true;
        writer.id()
    })
    .collect()
}

impl ConditionalDirectory {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    async fn seal_all(&self, writers: Vec<WriterId>) -> Result<(), Error> {
        for writer in writers {
            self.inner.seal(writer).await?;
        }
        Ok(())
    }

    async fn joined(&self, join: Join) -> Result<NodeId, Error> {
        let nonce = format!("{:032x}", self.inner.host().random());
        let change = self.inner.roots.change(|root| {
            if let Some((id, _)) = root.members.nodes.iter().find(|(_, node)| node.nonce == nonce) {
                let id = NodeId(*id);
                return Ok(Change::Leave((
                    id,
                    end_streams(root, |owner| matches!(owner, Owner::Alone(_))),
                )));
            }
            let members = &mut root.members;
            members.floor().refuse(&join)?;
            members.view(&root.journal).refuse(&join)?;
            if members
                .nodes
                .values()
                .any(|node| node.lives() && node.name == join.name)
            {
                return refused(format!(
                    "a node of the name {:?} lives: stop it, or give this one another name",
                    join.name
                ));
            }
            let shards = usize::from(join.shards);
            if !members.owners.is_empty() && members.owners.len() != shards {
                let found = members.owners.len();
                return refused(format!("the cluster has {found} shards, this service has {shards}"));
            }
            members.owners.resize(shards, None);
            let before = members.nodes.values().rfind(|node| node.name == join.name);
            let wants_drain = before.is_some_and(|node| node.wants_drain);
            let owners = members.owners.clone();
            // The last node of a name says if its next one is to drain.
            members
                .nodes
                .retain(|id, node| node.lives() || node.name != join.name || owners.contains(&Some(*id)));
            members.last_node += 1;
            let id = members.last_node;
            members.nodes.insert(id, Member::new(&join, wants_drain, nonce.clone()));
            members.version += 1;
            let alone = end_streams(root, |owner| matches!(owner, Owner::Alone(_)));
            Ok(Change::Write((NodeId(id), alone)))
        });
        let (id, alone) = change.await?;
        self.seal_all(alone).await?;
        Ok(id)
    }

    async fn beaten(&self, node: NodeId, state: NodeState) -> Result<View, Error> {
        state.said_by_a_beat(node)?;
        let sent = self.inner.host().boot_clock();
        let change = self.inner.roots.change(|root| {
            root.members.lives(node)?;
            let Some(member) = root.members.nodes.get_mut(&node.0) else {
                return Err(Error::Gone(node));
            };
            member.beat += 1;
            member.is_cut_off &= state == NodeState::Serving;
            if member.life != state.into() {
                member.life = state.into();
                root.members.version += 1;
            }
            Ok(Change::Write(root.members.view(&root.journal)))
        });
        let view = change.await?;
        self.inner.beaten(node, sent);
        Ok(view)
    }

    /// Changes the living node of this name.
    async fn change_named(&self, name: &str, change: impl Fn(&mut Member) + Send + Sync) -> Result<bool, Error> {
        let change = self.inner.roots.change(|root| {
            let mut nodes = root.members.nodes.values_mut();
            let Some(member) = nodes.find(|node| node.lives() && node.name == name) else {
                return Ok(Change::Leave(false));
            };
            change(member);
            root.members.version += 1;
            Ok(Change::Write(true))
        });
        change.await
    }

    async fn declared_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Result<bool, Error> {
        let judgement = format!("{:032x}", self.inner.host().random());
        let change = self.inner.roots.change(|root| {
            root.members.lives(by)?;
            let Some(member) = root.members.nodes.get_mut(&dead.0) else {
                return Ok(Change::Leave((false, Vec::new())));
            };
            let is_silent = member.lives() && member.beat == beat;
            let is_done = member.judgement.as_ref() == Some(&judgement);
            if !is_silent && !is_done {
                return Ok(Change::Leave((false, Vec::new())));
            }
            member.life = Life::Dead;
            member.judgement = Some(judgement.clone());
            let open = end_streams(root, |owner| *owner == Owner::Node(dead.0));
            if is_done {
                return Ok(Change::Leave((true, open)));
            }
            root.members.version += 1;
            Ok(Change::Write((true, open)))
        });
        let (is_dead, open) = change.await?;
        self.seal_all(open).await?;
        Ok(is_dead)
    }

    async fn taken(&self, by: NodeId, shards: &ShardSet) -> Result<ShardSet, Error> {
        // The node that declared another one dead may have died before it sealed the other's streams.
        let root = self.inner.roots.read().await?;
        let is_over = |owner: &Owner| match owner {
            Owner::Node(node) => root.members.lives(NodeId(*node)).is_err(),
            Owner::Alone(_) => false,
        };
        let open = root
            .writers
            .iter()
            .filter(|writer| writer.last.is_none() && is_over(&writer.owner));
        let open = open
            .filter(|writer| writer.may_hold(shards))
            .map(|writer| writer.id())
            .collect();
        self.seal_all(open).await?;
        let mut tried = ShardSet::default();
        let change = self.inner.roots.change(|root| {
            root.members.lives(by)?;
            let members = &root.members;
            let may_take = |owner: Option<u64>, shard| match owner {
                None => true,
                Some(owner) if owner == by.0 => tried.contains(shard),
                Some(owner) => members.lives(NodeId(owner)).is_err(),
            };
            let owner = |shard: throng_journal::ShardId| members.owners.get(usize::from(shard.0));
            let taken = shards
                .iter()
                .filter(|shard| owner(*shard).is_some_and(|owner| may_take(*owner, *shard)));
            let taken: ShardSet = taken.collect();
            let mut is_changed = false;
            for shard in taken.iter() {
                let owner = &mut root.members.owners[usize::from(shard.0)];
                is_changed |= owner.replace(by.0) != Some(by.0);
            }
            tried = taken.clone();
            root.members.version += u64::from(is_changed);
            Ok(if is_changed {
                Change::Write(taken)
            } else {
                Change::Leave(taken)
            })
        });
        change.await
    }

    async fn given(&self, from: NodeId, to: NodeId, shards: &ShardSet) -> Result<(), Error> {
        let mut is_tried = false;
        let change = self.inner.roots.change(|root| {
            if is_tried && root.members.owns(to, shards).is_ok() {
                return Ok(Change::Leave(()));
            }
            root.members.owns(from, shards)?;
            if root.members.nodes.get(&to.0).is_none_or(|node| !node.serves()) {
                return refused(format!("node {to} does not serve, and can be given nothing"));
            }
            if let Some(writer) = root.open_stream(shards, None) {
                return refused(format!(
                    "the stream of writer {writer} may hold records of the shards {shards}: it has to end first"
                ));
            }
            for shard in shards.iter() {
                root.members.owners[usize::from(shard.0)] = Some(to.0);
            }
            root.members.version += 1;
            is_tried = true;
            Ok(Change::Write(()))
        });
        change.await
    }

    async fn left(&self, node: NodeId) -> Result<(), Error> {
        let change = self.inner.roots.change(|root| {
            let open = end_streams(root, |owner| *owner == Owner::Node(node.0));
            let member = root.members.nodes.get_mut(&node.0).filter(|member| member.lives());
            let Some(member) = member else {
                return Ok(if open.is_empty() {
                    Change::Leave(open)
                } else {
                    Change::Write(open)
                });
            };
            member.life = Life::Left;
            root.members.version += 1;
            Ok(Change::Write(open))
        });
        let open = change.await?;
        self.seal_all(open).await
    }

    async fn pinned(&self, shards: &ShardSet, to: Option<&str>) -> Result<(), Error> {
        let change = self.inner.roots.change(|root| {
            root.members.view(&root.journal).refuse_pins(shards, to)?;
            for shard in shards.iter() {
                match to {
                    Some(name) => root.members.pins.insert(shard.0, name.to_owned()),
                    None => root.members.pins.remove(&shard.0),
                };
            }
            root.members.version += 1;
            Ok(Change::Write(()))
        });
        change.await
    }

    async fn finalized(&self) -> Result<(Floor, Floor), Error> {
        let change = self.inner.roots.change(|root| {
            let members = &mut root.members;
            let before = members.floor();
            let living = || members.nodes.values().filter(|node| node.lives());
            let least = (
                living().map(|node| node.features).min(),
                living().map(|node| node.app).min(),
            );
            let (Some(features), Some(app)) = least else {
                return refused("no node lives: there is nothing to go by");
            };
            (members.floor_features, members.floor_app) = (features.max(before.features), app.max(before.app));
            members.version += 1;
            Ok(Change::Write((before, members.floor())))
        });
        change.await
    }
}

impl Directory for ConditionalDirectory {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        Box::pin(self.joined(join))
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        Box::pin(self.beaten(node, state))
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        Box::pin(self.inner.roots.change(move |root| {
            let Some(member) = root.members.nodes.get_mut(&node.0) else {
                return Ok(Change::Leave(()));
            };
            let reaches: BTreeSet<u64> = reaches.iter().map(|node| node.0).collect();
            if member.reaches == reaches {
                return Ok(Change::Leave(()));
            }
            member.reaches = reaches;
            root.members.version += 1;
            Ok(Change::Write(()))
        }))
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        Box::pin(self.inner.roots.change(move |root| {
            root.members.lives(by)?;
            let gives_way = root.members.view(&root.journal).gives_way() == Some(node);
            let Some(member) = root.members.nodes.get_mut(&node.0).filter(|_| gives_way) else {
                return Ok(Change::Leave(gives_way));
            };
            member.is_cut_off = true;
            root.members.version += 1;
            Ok(Change::Write(true))
        }))
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        Box::pin(async move {
            let root = self.inner.roots.read().await?;
            Ok(root.members.view(&root.journal))
        })
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        Box::pin(self.declared_dead(by, dead, beat))
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        Box::pin(self.taken(by, shards))
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        Box::pin(self.given(from, to, shards))
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        Box::pin(self.left(node))
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        Box::pin(self.change_named(name, move |node| node.wants_drain = drain))
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        Box::pin(async move {
            let root = self.inner.roots.read().await?;
            Ok(root.members.nodes.get(&node.0).is_some_and(|node| node.wants_drain))
        })
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        Box::pin(self.pinned(shards, to))
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        Box::pin(self.finalized())
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        Box::pin(async move {
            let begun = self.inner.host().boot_clock();
            let Ok(seen) = self.inner.roots.known().await.map(|root| root.members.version) else {
                return self.inner.host().pause(at_most).await;
            };
            loop {
                // If the store does not answer, the next beat reports it.
                let now = self.inner.roots.read().await.map(|root| root.members.version);
                let passed = self.inner.host().boot_clock().saturating_sub(begun);
                if now.is_ok_and(|now| now != seen) || passed >= at_most {
                    return;
                }
                self.inner.host().pause(LOOK.min(at_most - passed)).await;
            }
        })
    }
}
