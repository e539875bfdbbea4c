//! Opening and ending streams.

use super::{
    Inner,
    append::{End, Own},
};
use crate::root::{Change, Owner, Root, Writer};
use std::{fmt, sync::Arc};
use throng_journal::{CommitNo, Error, NodeId, Opened, Position, ShardSet, WriterId};

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone(node) => node.fmt(f),
            Self::Node(node) => node.fmt(f),
        }
    }
}

/// A check that a root allows an opening.
type Check<'a> = &'a (dyn Fn(&Root) -> Result<(), Error> + Send + Sync);

/// The owner's open streams, and those whose engines may still answer from memory.
fn earlier_of(root: &Root, owner: &Owner, shards: Option<&ShardSet>) -> Vec<Writer> {
    let is_earlier = |writer: &&Writer| {
        let is_own = writer.owner == *owner;
        // A node is declared dead, or leaves, only after it has stopped answering.
        let may_answer = !writer.is_released && matches!(writer.owner, Owner::Alone(_));
        let overlaps = is_own || shards.is_some_and(|shards| writer.may_hold(shards));
        is_own && writer.last.is_none() || overlaps && may_answer
    };
    root.writers.iter().filter(is_earlier).cloned().collect()
}

impl Inner {
    pub(super) async fn open_alone(self: &Arc<Self>, node: &str) -> Result<Opened, Error> {
        let check = |root: &Root| match root.members.living() {
            Some(name) => Err(Error::Refused(format!(
                "the node {name:?} of a cluster serves this journal: start this one with --cluster, or stop the nodes first"
            ))),
            None => Ok(()),
        };
        self.begin(Owner::Alone(node.to_owned()), None, &check).await
    }

    pub(super) async fn open_shards(self: &Arc<Self>, node: NodeId, shards: &ShardSet) -> Result<Opened, Error> {
        let check = |root: &Root| {
            root.members.owns(node, shards)?;
            match root.open_stream(shards, Some(node)) {
                None => Ok(()),
                Some(writer) => Err(Error::Refused(format!(
                    "the stream of writer {writer} has not ended and may hold records of the shards {shards}"
                ))),
            }
        };
        self.begin(Owner::Node(node.0), Some(shards), &check).await
    }

    /// Ends the owner's earlier streams, waits until no engine answers from their contents, and begins the next stream.
    async fn begin(
        self: &Arc<Self>,
        owner: Owner,
        shards: Option<&ShardSet>,
        check: Check<'_>,
    ) -> Result<Opened, Error> {
        let stream = self.host().random();
        let name = format!("{stream:032x}");
        loop {
            let earlier = self.end_earlier(&owner, shards, check).await?;
            for writer in earlier.iter().filter(|writer| writer.last.is_none()) {
                self.seal(writer.id()).await?;
            }
            let others = earlier.iter().filter(|writer| !self.own().contains_key(&writer.id()));
            if others.count() > 0 {
                self.host().pause(self.options.lease * 5 / 4).await;
            }
            let sent = self.host().boot_clock();
            let opened = self.roots.change(|root| {
                if let Some(begun) = root.writers.iter().find(|writer| writer.name == name) {
                    return Ok(Change::Leave(Some(begun.id())));
                }
                check(root)?;
                // Another engine may have opened a stream meanwhile, and may be over already.
                let now = earlier_of(root, &owner, shards);
                let was_waited = |id| earlier.iter().any(|waited| waited.id() == id);
                if now
                    .iter()
                    .any(|writer| writer.last.is_none() || !was_waited(writer.id()))
                {
                    return Ok(Change::Leave(None));
                }
                for waited in &earlier {
                    if let Some(writer) = root.writer_mut(waited.id()) {
                        writer.is_released = true;
                    }
                }
                let writer = root.next_writer();
                root.writers.push(Writer {
                    writer,
                    name: name.clone(),
                    owner: owner.clone(),
                    shards: shards.map(|shards| shards.bytes().to_vec()),
                    depth: self.options.depth as u64,
                    is_ending: false,
                    last: None,
                    is_released: false,
                    covered: 0,
                    begun_micros: self.host().wall_micros(),
                    ended_micros: None,
                    segments: Vec::new(),
                });
                Ok(Change::Write(Some(WriterId(writer))))
            });
            if let Some(writer) = opened.await? {
                let (node, lease) = match &owner {
                    Owner::Alone(_) => (None, self.options.lease),
                    Owner::Node(node) => (Some(NodeId(*node)), self.roots.known().await?.members.lease_of(*node)),
                };
                self.own().insert(writer, Own::new(stream, node, lease, sent));
                self.look_after(writer);
                return Ok(Opened { writer });
            }
        }
    }

    /// Marks the owner's open streams as ending. Returns them, and other streams to wait for.
    async fn end_earlier(
        &self,
        owner: &Owner,
        shards: Option<&ShardSet>,
        check: Check<'_>,
    ) -> Result<Vec<Writer>, Error> {
        let change = self.roots.change(|root| {
            check(root)?;
            let earlier = earlier_of(root, owner, shards);
            let mut is_changed = false;
            for writer in &earlier {
                let writer = root.writer_mut(writer.id()).filter(|writer| !writer.is_ending);
                is_changed |= writer.is_some();
                writer.into_iter().for_each(|writer| writer.is_ending = true);
            }
            Ok(if is_changed {
                Change::Write(earlier)
            } else {
                Change::Leave(earlier)
            })
        });
        let earlier = change.await?;
        for writer in &earlier {
            self.end_own(writer.id(), End::Sealed);
        }
        Ok(earlier)
    }

    /// Ends a stream. Returns its last commit.
    pub(crate) async fn seal(&self, writer: WriterId) -> Result<u64, Error> {
        let is_own = self.own().contains_key(&writer);
        self.end_own(writer, End::Sealed);
        let unknown = || Error::NoCommit(Position::new(writer, CommitNo(0)));
        let mark = self.roots.change(|root| {
            let entry = root.writer_mut(writer).ok_or_else(unknown)?;
            if entry.is_ending {
                return Ok(Change::Leave(entry.clone()));
            }
            entry.is_ending = true;
            Ok(Change::Write(entry.clone()))
        });
        let entry = mark.await?;
        if let Some(last) = entry.last {
            return Ok(last);
        }
        let last = self.streams.seal(&entry, self.known(&entry)).await?;
        let ended_micros = Some(self.host().wall_micros());
        let end = self.roots.change(|root| {
            let entry = root.writer_mut(writer).ok_or_else(unknown)?;
            match entry.last {
                Some(found) if found == last => return Ok(Change::Leave(())),
                Some(found) => {
                    return Err(Error::RolledBack(format!(
                        "writer {writer} was sealed after commit {found}, and ends with commit {last}: the store has broken its word"
                    )));
                }
                None => {}
            }
            (entry.last, entry.ended_micros) = (Some(last), ended_micros);
            entry.is_released |= is_own;
            Ok(Change::Write(()))
        });
        end.await?;
        Ok(last)
    }

    /// Returns the last commit known to have landed, without a request.
    pub(super) fn known(&self, entry: &Writer) -> u64 {
        let acked = self.own().get(&entry.id()).map_or(0, |own| own.acked);
        let known = entry.segmented().max(entry.covered).max(acked);
        entry.last.unwrap_or(known)
    }
}
