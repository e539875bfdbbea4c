//! A journal in memory that can be made to wait, and counts what is read.

use super::{section, wait};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use throng::{
    Engine, Options,
    journal::{
        Append, Commit, CommitNo, Durability, Error, Journal, Later, Maybe, MemoryJournal, MemoryStore, Opened, Place,
        Position, ShardId, Taken, WriterId,
    },
};
use throng_http::{Gateway, Limits, Running};
use tokio::sync::watch;

/// A gateway whose commits wait while `true` was sent.
pub(crate) fn held(limits: Limits) -> (Running, watch::Sender<bool>) {
    held_with(Options::default(), |gateway| gateway.limits(limits))
}

/// The same, set otherwise.
pub(crate) fn held_with(options: Options, set: impl FnOnce(Gateway) -> Gateway) -> (Running, watch::Sender<bool>) {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (journal, hold) = Held::new(journal);
    let engine = wait(
        Engine::builder()
            .options(options)
            .with::<section::Section>()
            .query::<section::Section, section::View>()
            .start(Box::new(journal) as Box<dyn Journal>, store),
    )
    .unwrap();
    (set(Gateway::builder(engine)).start().unwrap(), hold)
}

/// Commits wait while it is held.
pub(crate) struct Held {
    inner: Arc<MemoryJournal>,
    held: watch::Receiver<bool>,
    /// Commits that were read.
    pub(crate) read: Arc<AtomicUsize>,
}

impl Held {
    /// Over another; `true` is sent to hold it, `false` to let go.
    pub(crate) fn new(inner: MemoryJournal) -> (Self, watch::Sender<bool>) {
        let (hold, held) = watch::channel(false);
        let inner = Arc::new(inner);
        let read = Arc::default();
        (Self { inner, held, read }, hold)
    }
}

impl Journal for Held {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        self.inner.open(node)
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        self.inner.take(by, shards)
    }

    fn append(&self, commit: Commit) -> Append {
        let (inner, mut held) = (self.inner.clone(), self.held.clone());
        if !*held.borrow() {
            return inner.append(commit);
        }
        Append::Later(Box::pin(async move {
            held.wait_for(|held| !held).await.unwrap();
            match inner.append(commit) {
                Append::Done(appended) => appended,
                Append::Later(append) => append.await,
            }
        }))
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        self.inner.seal(writer)
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        let read = self.inner.read(after, bytes_max);
        Box::pin(async move {
            let read = read.await?;
            self.read.fetch_add(read.len(), SeqCst);
            Ok(read)
        })
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        self.inner.read_at(places)
    }

    fn forget(&self, upto: Position) {
        self.inner.forget(upto);
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
