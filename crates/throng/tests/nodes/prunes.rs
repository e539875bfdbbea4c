//! A node's journal that notes where its erasures begin, and can be made to fail at them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use throng::journal::{
    Append, Commit, CommitNo, Durability, Error, Journal, Later, Maybe, MemoryJournal, NodeId, Opened, Place, Position,
    Prune, PruneHow, Pruned, ShardId, ShardSet, Stream, Taken, WriterId,
};

/// Clones share what they note.
#[derive(Clone)]
pub(crate) struct Prunes {
    journal: MemoryJournal,
    begun: Arc<Mutex<Vec<Position>>>,
    fails_from: Arc<AtomicU64>,
}

impl Prunes {
    pub(crate) fn new(journal: &MemoryJournal) -> Self {
        Self {
            journal: journal.clone(),
            begun: Arc::default(),
            fails_from: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// Nothing is removed from this stream on.
    pub(crate) fn fail_from(&self, writer: WriterId) {
        self.fails_from.store(writer.0, SeqCst);
    }

    /// After which commits erasures have looked.
    pub(crate) fn begun(&self) -> Vec<Position> {
        self.begun.lock().unwrap().clone()
    }
}

impl Journal for Prunes {
    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        if prune.how == PruneHow::Erase {
            self.begun.lock().unwrap().push(prune.after);
        }
        if prune.after.writer.0 < self.fails_from.load(SeqCst) {
            return self.journal.prune(prune);
        }
        let failed = Error::Backend {
            doing: "removing history".into(),
            why: "the database is away".into(),
        };
        Box::pin(std::future::ready(Err(failed)))
    }

    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let node = node.to_owned();
        Box::pin(async move { self.journal.open(&node).await })
    }

    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        self.journal.open_shards(node, shards)
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        self.journal.take(by, shards)
    }

    fn streams(&self, from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        self.journal.streams(from)
    }

    fn append(&self, commit: Commit) -> Append {
        self.journal.append(commit)
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        self.journal.seal(writer)
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        self.journal.read(after, bytes_max)
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        self.journal.read_at(places)
    }

    fn forget(&self, upto: Position) {
        self.journal.forget(upto);
    }

    fn depth(&self) -> usize {
        self.journal.depth()
    }

    fn durability(&self) -> Durability {
        self.journal.durability()
    }
}
