//! The journal in memory.

use super::directory::{Members, MemoryDirectory};
use crate::{
    Append, AppendError, Appended, Commit, CommitNo, Durability, Error, Inventory, Journal, Later, Maybe, NodeId,
    Opened, Place, Position, Prune, Pruned, ShardId, ShardSet, Taken, WriterEntry, WriterId, commit,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A journal in memory. Clones share their history, so that an engine can be stopped and started on it.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    history: Arc<Mutex<History>>,
}

/// All streams and the nodes that write them. One lock covers both, so that their changes are consistent.
#[derive(Debug, Default)]
pub(super) struct History {
    streams: BTreeMap<WriterId, Stream>,
    pub(super) members: Members,
}

#[derive(Debug, Default)]
struct Stream {
    owner: Owner,
    /// The shards whose records it may hold; `None`: all.
    shards: Option<ShardSet>,
    commits: Vec<Commit>,
    sealed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// An engine that is alone.
    Alone(String),
    Node(NodeId),
}

impl Default for Owner {
    fn default() -> Self {
        Self::Node(NodeId(0))
    }
}

impl Stream {
    fn may_hold(&self, shards: &ShardSet) -> bool {
        self.shards.as_ref().is_none_or(|own| own.overlaps(shards))
    }
}

impl History {
    fn begin(&mut self, owner: Owner, shards: Option<ShardSet>) -> WriterId {
        for stream in self.streams.values_mut().filter(|stream| stream.owner == owner) {
            stream.sealed = true;
        }
        let writer = WriterId(self.streams.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        let stream = Stream {
            owner,
            shards,
            ..Stream::default()
        };
        self.streams.insert(writer, stream);
        writer
    }

    /// Ends all streams of a node.
    pub(super) fn seal_node(&mut self, node: NodeId) {
        let own = Owner::Node(node);
        for stream in self.streams.values_mut().filter(|stream| stream.owner == own) {
            stream.sealed = true;
        }
    }

    /// Returns an unsealed stream that may hold records of these shards and does not belong to this node.
    pub(super) fn open_stream(&self, shards: &ShardSet, but: Option<NodeId>) -> Option<WriterId> {
        let but = but.map(Owner::Node);
        let is_open =
            |stream: &Stream| !stream.sealed && stream.may_hold(shards) && Some(&stream.owner) != but.as_ref();
        let mut open = self.streams.iter().filter(|(_, stream)| is_open(stream));
        open.next().map(|(writer, _)| *writer)
    }

    /// Ends the streams of engines outside a cluster.
    pub(super) fn seal_alone(&mut self) {
        let alone = |stream: &&mut Stream| matches!(stream.owner, Owner::Alone(_));
        for stream in self.streams.values_mut().filter(alone) {
            stream.sealed = true;
        }
    }
}

impl MemoryJournal {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the directory of the cluster on this journal.
    #[must_use]
    pub fn directory(&self) -> MemoryDirectory {
        MemoryDirectory::new(self.clone())
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a checkpoint of these shards by a node's stream if another node owns them, or will.
    pub(super) fn refuse_checkpoint(&self, writer: WriterId, shards: &ShardSet) -> Result<(), Error> {
        let history = self.history();
        let Some((stream, own)) = history
            .streams
            .get(&writer)
            .and_then(|stream| Some((stream, stream.shards.as_ref()?)))
        else {
            return Ok(());
        };
        if stream.sealed {
            return Err(Error::Sealed(writer));
        }
        own.refuse_beyond(writer, shards)
    }

    /// Returns the commits after a position in its writer's stream, for the store.
    pub(super) fn after(&self, after: Position, bytes_max: usize) -> Vec<Commit> {
        let streams = &self.history().streams;
        let Some(stream) = streams.get(&after.writer) else {
            return Vec::new();
        };
        let mut bytes = 0;
        let from = usize::try_from(after.commit.0)
            .unwrap_or(usize::MAX)
            .min(stream.commits.len());
        stream.commits[from..]
            .iter()
            .take_while(|commit| {
                let first = bytes == 0;
                bytes += commit.bytes().len();
                first || bytes <= bytes_max
            })
            .cloned()
            .collect()
    }

    /// True if a stream reaches this position, for the store.
    pub(super) fn reaches(&self, position: Position) -> bool {
        let streams = &self.history().streams;
        let stream = streams.get(&position.writer);
        stream.is_some_and(|stream| stream.commits.len() as u64 >= position.commit.0)
    }

    fn prune_now(&self, prune: &Prune) -> Pruned {
        let streams = &mut self.history().streams;
        let commits = streams.get_mut(&prune.after.writer).map(|stream| &mut stream.commits);
        prune.in_memory(commits.into_iter().flatten(), || false)
    }

    /// Returns a record's body, for the store.
    pub(super) fn body(&self, place: Place) -> Option<Vec<u8>> {
        let streams = &self.history().streams;
        let stream = streams.get(&place.position.writer)?;
        let commit = stream
            .commits
            .get(usize::try_from(place.position.commit.0.checked_sub(1)?).ok()?)?;
        let from = place.offset as usize;
        commit.bytes().get(from..from + place.len as usize).map(<[u8]>::to_vec)
    }
}

impl Journal for MemoryJournal {
    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        let history = self.history();
        let writers = history
            .streams
            .iter()
            .rev()
            .take(limit)
            .map(|(writer, stream)| WriterEntry {
                writer: *writer,
                node: match &stream.owner {
                    Owner::Alone(node) => node.clone(),
                    Owner::Node(node) => node.to_string(),
                },
                last: CommitNo(stream.commits.len() as u64),
                is_open: !stream.sealed,
                begun_micros: stream.commits.first().map(|commit| commit.stamp().at_micros),
                ended_micros: None,
                segments: None,
            });
        let inventory = Inventory {
            writers: writers.collect(),
            writers_total: history.streams.len() as u64,
            ..Inventory::default()
        };
        Box::pin(std::future::ready(Ok(inventory)))
    }

    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let mut history = self.history();
        let opened = match history.members.living() {
            Some(name) => Err(Error::Refused(format!(
                "the node {name:?} of a cluster serves this journal: start this one with --cluster, or stop the nodes first"
            ))),
            None => Ok(Opened {
                writer: history.begin(Owner::Alone(node.to_owned()), None),
            }),
        };
        Box::pin(std::future::ready(opened))
    }

    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        let mut history = self.history();
        let mut open = || {
            history.members.owns(node, shards)?;
            if let Some(writer) = history.open_stream(shards, Some(node)) {
                return Err(Error::Refused(format!(
                    "the stream of writer {writer} has not ended and may hold records of the shards {shards}"
                )));
            }
            Ok(Opened {
                writer: history.begin(Owner::Node(node), Some(shards.clone())),
            })
        };
        Box::pin(std::future::ready(open()))
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        let streams = &self.history().streams;
        if streams.get(&by).is_none_or(|stream| stream.sealed) {
            return Box::pin(std::future::ready(Err(Error::Sealed(by))));
        }
        let shards: ShardSet = shards.iter().copied().collect();
        let taken = streams
            .iter()
            .filter(|(writer, stream)| **writer < by && stream.sealed && stream.may_hold(&shards))
            .map(|(writer, stream)| Taken {
                writer: *writer,
                last: CommitNo(stream.commits.len() as u64),
                shards: stream.shards.clone(),
            })
            .collect();
        Box::pin(std::future::ready(Ok(taken)))
    }

    fn streams(&self, from: WriterId) -> Later<'_, Result<Vec<crate::Stream>, Error>> {
        let history = self.history();
        let streams = history.streams.range(from..);
        let streams = streams.map(|(writer, stream)| crate::Stream {
            writer: *writer,
            shards: stream.shards.clone(),
            last: CommitNo(stream.commits.len() as u64),
            is_sealed: stream.sealed,
        });
        Box::pin(std::future::ready(Ok(streams.collect())))
    }

    fn append(&self, mut commit: Commit) -> Append {
        let stamp = commit.stamp();
        commit.seal(&[]);
        let streams = &mut self.history().streams;
        let result = match streams.get_mut(&stamp.writer) {
            None => Err(AppendError::InDoubt(format!(
                "writer {} was never opened",
                stamp.writer
            ))),
            Some(stream) if stream.sealed => Err(AppendError::Sealed),
            Some(stream) if stamp.number.0 != stream.commits.len() as u64 + 1 => Err(AppendError::InDoubt(format!(
                "commit {} does not follow commit {}",
                stamp.number,
                stream.commits.len()
            ))),
            Some(stream) => {
                stream.commits.push(commit);
                Ok(())
            }
        };
        Append::Done(Appended {
            result,
            buffer: commit::Buffer::default(),
        })
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        let streams = &mut self.history().streams;
        let last = match streams.get_mut(&writer) {
            None => Err(Error::NoCommit(Position::new(writer, CommitNo(0)))),
            Some(stream) => {
                stream.sealed = true;
                Ok(CommitNo(stream.commits.len() as u64))
            }
        };
        Box::pin(std::future::ready(last))
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        Box::pin(std::future::ready(Ok(self.after(after, bytes_max))))
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        let body = |place: &Place| self.body(*place).ok_or(Error::NoCommit(place.position));
        Maybe::Ready(places.iter().map(body).collect())
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        Box::pin(std::future::ready(Ok(self.prune_now(&prune))))
    }

    fn forget(&self, _upto: Position) {}

    fn depth(&self) -> usize {
        1
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }
}

impl From<MemoryJournal> for Box<dyn Journal> {
    fn from(journal: MemoryJournal) -> Self {
        Box::new(journal)
    }
}
