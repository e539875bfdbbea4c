//! The engine's counters, and how much it holds, as numbers for monitoring.

use crate::{engine::Engine, epoch::LastCheckpoint, histogram::Counts};
use std::sync::atomic::Ordering;

/// The counters of an engine since its start, and its present sizes.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Commands accepted since the start.
    pub done: u64,
    /// Commands that the entity rejected.
    pub refused: u64,
    /// Commands that the engine refused.
    pub failed: u64,
    /// Queries that were answered since the start.
    pub queries: u64,
    /// Messages between entities taken.
    pub messages: u64,
    /// Timers that were fired since the start.
    pub timers_fired: u64,
    /// Commands and queries refused because too much waits.
    pub overloaded: u64,
    /// Commands refused because the journal has no room.
    pub storage_full: u64,
    /// Commands and queries refused because the engine is not ready.
    pub unavailable: u64,
    /// Commands that waited behind others because their entity had used its share of the batch.
    pub deferred: u64,
    /// Commands that took over a millisecond of work.
    pub slow: u64,
    /// Entities brought back from the store.
    pub loads: u64,
    /// Commits that are durable since the start.
    pub commits: u64,
    /// Bytes of these commits.
    pub commit_bytes: u64,
    /// Records of each commit.
    pub batch: Counts,
    /// Seconds from the append of a commit until it is durable.
    pub commit_seconds: Counts,
    /// Entities whose state is in memory now.
    pub entities: u64,
    /// Bytes of entities, timers and idempotency keys in memory.
    pub entity_bytes: u64,
    /// Bytes on their way to the store.
    pub pending_bytes: u64,
    /// Bytes of the engine's memory that others than entities hold.
    pub outside_bytes: u64,
    /// Messages between entities waiting in memory.
    pub outbox: u64,
    /// Commands and queries waiting for a commit.
    pub waiting: u64,
    /// Commits that are on their way to the disk or the database now.
    pub in_flight: u64,
    /// Durable commits that the last checkpoint does not cover, of this writer.
    pub commits_behind: Option<u64>,
    /// The last checkpoint since the start.
    pub checkpoint: Option<LastCheckpoint>,
    /// True if the engine takes commands: it has recovered, is not sealed, and is not stopping.
    pub is_ready: bool,
    /// The journal has room for more.
    pub has_room: bool,
    /// The size of the journal's history, if the journal knows it.
    pub journal_bytes: Option<u64>,
}

impl Engine {
    /// Returns the bytes that the journal takes of the disk, with other files in the same place, if known.
    #[must_use]
    pub fn disk_bytes(&self) -> Option<u64> {
        self.core.context.journal.disk_bytes()
    }

    /// Returns the counters and present sizes. It reads some fifty numbers without blocking.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let context = &self.core.context;
        let metrics = &context.metrics;
        let mut statistics = Statistics {
            done: metrics.done.get(),
            refused: metrics.refused.get(),
            failed: metrics.failed.get(),
            queries: metrics.queries.get(),
            messages: metrics.messages.get(),
            timers_fired: metrics.timers_fired.get(),
            overloaded: metrics.overloaded.get(),
            storage_full: metrics.storage_full.get(),
            unavailable: metrics.unavailable.get(),
            deferred: metrics.deferred.get(),
            slow: metrics.slow.get(),
            loads: metrics.loads.get(),
            commits: metrics.commits.get(),
            commit_bytes: metrics.commit_bytes.get(),
            batch: metrics.batch.counts(),
            commit_seconds: metrics.commit_seconds.counts(),
            entities: 0,
            entity_bytes: 0,
            pending_bytes: 0,
            outside_bytes: context.budget.held() as u64,
            outbox: 0,
            waiting: 0,
            in_flight: 0,
            commits_behind: None,
            checkpoint: self.core.epochs.last_checkpoint(),
            is_ready: false,
            has_room: context.has_room(),
            journal_bytes: context.journal.bytes(),
        };
        if let Some(epoch) = self.core.epochs.running() {
            let level = |level: i64| level.max(0).cast_unsigned();
            let books = &epoch.executor.books;
            statistics.entities = level(books.entities.load(Ordering::Relaxed));
            statistics.entity_bytes = level(books.bytes.load(Ordering::Relaxed));
            statistics.pending_bytes = level(books.pending_bytes.load(Ordering::Relaxed));
            statistics.outbox = epoch.executor.outbox.len() as u64;
            statistics.waiting = epoch.group_commit.waiting() as u64;
            statistics.in_flight = epoch.group_commit.in_flight() as u64;
            let (durable, covers) = (epoch.group_commit.durable(), epoch.group_commit.covers());
            let covered = covers.filter(|covers| covers.writer == durable.writer);
            statistics.commits_behind = Some(durable.commit.0 - covered.map_or(0, |covers| covers.commit.0));
            statistics.is_ready = self.core.epochs.trouble(&epoch).is_none() && !context.is_stopping();
        }
        statistics
    }
}
