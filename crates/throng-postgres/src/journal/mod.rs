//! The journal: one row a commit.

mod append;
mod keeper;
mod lease;
mod leases;
mod loss;
mod process;
mod prune;
mod read;
mod shared;
mod size;
mod writers;

use crate::{
    database::{Database, Threads},
    options::PostgresOptions,
};
use append::Appender;
use lease::Lease;
use shared::Shared;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use throng_journal::{
    Append, AppendError, Commit, CommitNo, Durability, Error, Inventory, Journal, Later, Loss, Maybe, NodeId, Opened,
    Place, Position, Prune, PruneHow, Pruned, ShardId, ShardSet, Stream, Taken, WriterId,
};

pub(crate) use process::may_answer;
pub(crate) use read::{damaged, page, read_bodies, read_commits};
pub(crate) use writers::TABLES;

/// The longest wait of a dropped journal until its writer is sealed.
const FAREWELL: Duration = Duration::from_secs(2);

/// The journal on PostgreSQL.
///
/// Appends use one connection, one after the other; everything else uses a pool. Dropping the journal seals its writer.
pub struct PostgresJournal {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for PostgresJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresJournal")
            .field("at", &self.options().place())
            .finish_non_exhaustive()
    }
}

impl PostgresJournal {
    pub(crate) fn new(database: Arc<Database>) -> Result<Self, Error> {
        let threads = Threads::start("throng-append", 1)?;
        let heard = Arc::new(AtomicU64::new(0));
        let appender = Appender::start(&threads, Arc::clone(&database), Arc::clone(&heard));
        let depth = database.options.depth.unwrap_or(1);
        let lease = Lease::new(database.options.lease);
        Ok(Self {
            shared: Arc::new(Shared {
                database,
                threads,
                appender,
                lease,
                own: AtomicU64::new(0),
                depth: AtomicUsize::new(depth),
                bytes: AtomicU64::new(0),
                is_kept: AtomicBool::new(false),
                heard,
                is_looking: AtomicBool::new(false),
                looking: tokio::sync::Mutex::default(),
            }),
        })
    }

    pub(crate) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.shared.database)
    }

    /// Returns the options of its connections.
    #[must_use]
    pub fn options(&self) -> &PostgresOptions {
        &self.shared.database.options
    }
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        let own = WriterId(self.shared.own.load(Ordering::Acquire));
        if own == WriterId(0) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let sealed = self
            .shared
            .database
            .threads
            .block(async move { shared.seal(own).await }, FAREWELL);
        if let Err(error) = sealed {
            tracing::warn!("writer {own} could not be sealed at the end; the next start does it: {error}");
        }
    }
}

impl Journal for PostgresJournal {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let (shared, node) = (Arc::clone(&self.shared), node.to_owned());
        self.shared
            .database
            .threads
            .run(async move { shared.open(&node).await })
    }

    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        let (shared, shards) = (Arc::clone(&self.shared), shards.clone());
        self.shared
            .database
            .threads
            .run(async move { shared.open_shards(node, &shards).await })
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        let (shared, shards) = (Arc::clone(&self.shared), shards.iter().copied().collect());
        self.shared
            .database
            .threads
            .run(async move { shared.take(by, &shards).await })
    }

    fn streams(&self, from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        let shared = Arc::clone(&self.shared);
        self.shared
            .database
            .threads
            .run(async move { shared.streams(from).await })
    }

    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        let shared = Arc::clone(&self.shared);
        self.shared
            .database
            .threads
            .run(async move { shared.inventory(limit).await })
    }

    fn append(&self, commit: Commit) -> Append {
        self.shared
            .bytes
            .fetch_add(commit.bytes().len() as u64 + size::ROW_BYTES, Ordering::AcqRel);
        self.shared.appender.append(commit)
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        let shared = Arc::clone(&self.shared);
        self.shared
            .database
            .threads
            .run(async move { shared.seal(writer).await })
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        let database = Arc::clone(&self.shared.database);
        self.shared.database.threads.run(async move {
            let client = database.client("reading the journal").await?;
            read_commits(&database, &client, after, bytes_max).await
        })
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        let (database, places) = (Arc::clone(&self.shared.database), places.to_vec());
        Maybe::Later(
            self.shared
                .database
                .threads
                .run(async move { read::read_at(&database, &places).await }),
        )
    }

    fn sync(&self) -> Later<'_, Result<(), Error>> {
        if self.durability() == Durability::Fsync {
            return Box::pin(std::future::ready(Ok(())));
        }
        let database = Arc::clone(&self.shared.database);
        self.shared
            .database
            .threads
            .run(async move { read::sync(&database).await })
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        let database = Arc::clone(&self.shared.database);
        let shared = Arc::clone(&self.shared);
        self.shared.database.threads.run(async move {
            let pruned = prune::prune(&database, &prune).await?;
            if prune.how != PruneHow::Dry
                && pruned.records > 0
                && let Err(error) = shared.look_at_size().await
            {
                tracing::debug!("what is left is counted later: {error}");
            }
            Ok(pruned)
        })
    }

    fn forget(&self, _upto: Position) {}

    fn depth(&self) -> usize {
        self.shared.depth.load(Ordering::Relaxed)
    }

    fn durability(&self) -> Durability {
        match self.options().durability {
            Durability::Fsync => Durability::Fsync,
            Durability::Os | Durability::Memory => Durability::Os,
        }
    }

    fn has_room(&self) -> bool {
        self.shared.appender.has_room()
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.shared.bytes.load(Ordering::Acquire))
    }

    fn holds(&self, writer: WriterId) -> bool {
        self.shared.lease.holds(writer) && !self.shared.database.acknowledged.is_over(writer)
    }

    fn ended(&self, writer: WriterId) -> Option<AppendError> {
        let rolled_back = self.shared.database.acknowledged.over(writer);
        rolled_back.or_else(|| self.shared.lease.is_taken_over(writer).then_some(AppendError::Sealed))
    }

    fn losses(&self) -> Vec<Loss> {
        self.shared.database.acknowledged.losses()
    }
}
