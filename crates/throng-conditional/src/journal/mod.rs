//! A journal of streams on a store with conditional puts: each commit is an object under the next number of its stream.

mod append;
mod lease;
mod open;
mod prune;
mod read;

use crate::{
    ConditionalStore, Host,
    root::{Roots, Writer},
    streams::Streams,
};
use append::Own;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use throng_journal::{
    Append, AppendError, Commit, CommitNo, Durability, Error, Inventory, Journal, Later, Loss, Maybe, NodeId, Opened,
    Place, Position, Prune, Pruned, ShardId, ShardSet, Stream, Taken, WriterEntry, WriterId,
};

/// Settings of a journal.
#[derive(Clone, Debug)]
pub struct ConditionalOptions {
    /// The time for which an engine answers from memory after it last saw that its stream is not ending.
    pub lease: Duration,
    /// The number of puts that a writer may have in flight, 1 to 16. The engine that seals its stream reads it from the root.
    pub depth: usize,
}

/// The most puts in flight.
const DEPTH_MAX: usize = 16;

impl Default for ConditionalOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            depth: 2,
        }
    }
}

/// A journal on a store with conditional puts. Clones share their writers.
#[derive(Clone)]
pub struct ConditionalJournal {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) roots: Roots,
    pub(crate) streams: Streams,
    options: ConditionalOptions,
    /// The writers opened by this process.
    own: Mutex<BTreeMap<WriterId, Own>>,
    losses: Mutex<Vec<Loss>>,
    /// The last segment read.
    segment: tokio::sync::Mutex<Option<(String, Arc<[Commit]>)>>,
}

impl ConditionalJournal {
    pub(crate) fn new(store: Arc<dyn ConditionalStore>, host: Arc<dyn Host>, options: ConditionalOptions) -> Self {
        let inner = Inner {
            roots: Roots::new(Arc::clone(&store), Arc::clone(&host)),
            streams: Streams { store, host },
            options: ConditionalOptions {
                depth: options.depth.clamp(1, DEPTH_MAX),
                ..options
            },
            own: Mutex::default(),
            losses: Mutex::default(),
            segment: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Inner {
    fn own(&self) -> MutexGuard<'_, BTreeMap<WriterId, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.streams.host
    }

    /// Returns the writer's entry, from a root that is at least as new as the writer, or `NoCommit`.
    pub(crate) async fn entry(&self, writer: WriterId) -> Result<Writer, Error> {
        if let Some(entry) = self.roots.known().await?.writer(writer) {
            return Ok(entry.clone());
        }
        let root = self.roots.read().await?;
        let entry = root.writer(writer).cloned();
        entry.ok_or(Error::NoCommit(Position::new(writer, CommitNo(0))))
    }
}

impl Journal for ConditionalJournal {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let node = node.to_owned();
        Box::pin(async move { self.inner.open_alone(&node).await })
    }

    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        Box::pin(self.inner.open_shards(node, shards))
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        Box::pin(async move {
            let root = self.inner.roots.read().await?;
            if root.writer(by).is_none_or(|writer| writer.is_ending) {
                return Err(Error::Sealed(by));
            }
            let shards: ShardSet = shards.iter().copied().collect();
            let before = root
                .writers
                .iter()
                .filter(|writer| writer.id() < by && writer.may_hold(&shards));
            Ok(before
                .filter_map(|writer| {
                    Some(Taken {
                        writer: writer.id(),
                        last: CommitNo(writer.last?),
                        shards: writer.shard_set(),
                    })
                })
                .collect())
        })
    }

    fn streams(&self, from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        Box::pin(async move {
            let root = self.inner.roots.read().await?;
            let mut streams = Vec::new();
            for writer in root.writers.iter().filter(|writer| writer.id() >= from) {
                streams.push(Stream {
                    writer: writer.id(),
                    shards: writer.shard_set(),
                    last: CommitNo(self.inner.last(writer).await?),
                    is_sealed: writer.last.is_some(),
                });
            }
            Ok(streams)
        })
    }

    fn append(&self, commit: Commit) -> Append {
        self.inner.append(commit)
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        Box::pin(async move { Ok(CommitNo(self.inner.seal(writer).await?)) })
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        Box::pin(self.inner.read(after, bytes_max))
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        Maybe::Later(Box::pin(self.inner.read_at(places)))
    }

    fn forget(&self, _upto: Position) {}

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        Box::pin(self.inner.prune(prune))
    }

    fn depth(&self) -> usize {
        self.inner.options.depth
    }

    fn durability(&self) -> Durability {
        Durability::Fsync
    }

    fn holds(&self, writer: WriterId) -> bool {
        self.inner.holds(writer)
    }

    fn ended(&self, writer: WriterId) -> Option<AppendError> {
        self.inner.ended(writer)
    }

    fn losses(&self) -> Vec<Loss> {
        self.inner.losses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        Box::pin(async move {
            let root = self.inner.roots.read().await?;
            let mut writers = Vec::new();
            for writer in root.writers.iter().rev().take(limit) {
                writers.push(WriterEntry {
                    writer: writer.id(),
                    node: writer.owner.to_string(),
                    last: CommitNo(self.inner.last(writer).await?),
                    is_open: writer.last.is_none(),
                    begun_micros: Some(writer.begun_micros),
                    ended_micros: writer.ended_micros,
                    segments: None,
                });
            }
            Ok(Inventory {
                writers,
                writers_total: root.writers.len() as u64,
                ..Inventory::default()
            })
        })
    }
}

impl From<ConditionalJournal> for Box<dyn Journal> {
    fn from(journal: ConditionalJournal) -> Self {
        Box::new(journal)
    }
}
