//! The engine, as its users hold it.

use crate::{
    Erased, Metrics, Options, PruneReport, Unresolved,
    context::{Context, OpenContext, QUIET},
    epoch::{Down, Epochs, Status},
    feed::SharedFeed,
    retention::Retention,
};
#[cfg(feature = "projections")]
use crate::{
    OperatorDecision,
    projection::{EventOffset, Progress, Projection, Projections, ReadModel, SkipError},
};
#[cfg(feature = "services")]
use crate::{actors::Services, outside::Pools};
use std::{
    future::Future,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Poll,
};
#[cfg(feature = "services")]
use throng_core::model::Topic;
use throng_core::{
    model::{Error, Timestamp},
    shard::{JsonRejection, Registry},
};
use throng_journal::{Compacted, Durability, Position};
#[cfg(feature = "services")]
use throng_services::bus::{self, AnotherType};

/// A running engine. Clones share it. [`stop`](Self::stop) it before the process ends.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// The parts of an engine. Each part is handed what it needs of the others; this only holds them.
pub(crate) struct Core {
    pub(crate) context: Arc<Context>,
    pub(crate) epochs: Arc<Epochs>,
    #[cfg(feature = "services")]
    pub(crate) services: Services,
    #[cfg(feature = "services")]
    pub(crate) pools: Pools,
    #[cfg(feature = "projections")]
    pub(crate) projections: Arc<Projections>,
    pub(crate) retention: Arc<Retention>,
    /// The end of the log, decoded once for all followers.
    pub(crate) feed: Arc<SharedFeed>,
    /// Held by those who use the engine, not by its own tasks: one at work would keep it alive.
    #[cfg_attr(not(feature = "projections"), expect(dead_code, reason = "its drop ends the engine"))]
    pub(crate) open: Arc<OpenContext>,
}

/// The state of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Commands are taken.
    pub ready: bool,
    /// Why not; neither files nor addresses are named.
    pub reason: Option<String>,
    /// The error of the journal or store, with files and addresses: for operators only.
    pub detail: Option<String>,
    /// The failures that an acknowledged command survives.
    pub durability: Durability,
    /// The last durable commit; `None` while the engine is down.
    pub position: Option<Position>,
    /// Entities in memory.
    pub entities: u64,
    /// True if another engine has taken over. This one takes back when that one ends.
    pub stands_by: bool,
    /// The journal has no room for more: commands are refused, reads are answered.
    pub storage_full: bool,
    /// Troubles that do not stop commands: checkpoints that fail, projections that are behind.
    pub troubles: Vec<String>,
    /// Work that waits for an operator: dead messages and quarantined entities, as last counted.
    pub unresolved: Vec<Unresolved>,
    /// The size of the journal's history, if the journal knows it.
    pub journal_bytes: Option<u64>,
    /// The number of quarantines of entities since the start.
    pub quarantines: u64,
}

impl Engine {
    /// Returns its kinds.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.core.context.registry
    }

    /// A kind's index by name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<usize> {
        self.core.context.registry.find(name)
    }

    /// Returns its metrics, refreshed.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        self.core.refresh_metrics();
        &self.core.context.metrics
    }

    /// Its limits and intervals.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.core.context.options
    }

    /// Returns the time of its clock, which never goes back while it runs.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.context.host.now()
    }

    /// Returns its state: whether commands are taken, and its troubles.
    #[must_use]
    pub fn health(&self) -> Health {
        let context = &self.core.context;
        let (down, position, entities) = match &*self.core.epochs.status() {
            Status::Running(epoch) => {
                let entities = epoch.executor.books.entities.load(Ordering::Relaxed);
                let entities = entities.max(0).cast_unsigned();
                (
                    self.core.epochs.trouble(epoch),
                    Some(epoch.group_commit.durable()),
                    entities,
                )
            }
            // During a hand-off each node holds its requests for a moment. A node that reported "down" would have balancers drop all of
            // them at once.
            Status::Down(down) if self.core.epochs.holds_for(down) => (None, None, 0),
            Status::Down(down) => (Some(down.clone()), None, 0),
        };
        let down = down.or_else(|| context.is_stopping().then(|| Down::new("the engine is stopping")));
        Health {
            ready: down.is_none(),
            reason: down.as_ref().map(|down| down.told.into()),
            detail: down.and_then(|down| down.detail),
            durability: context.journal.durability(),
            position,
            entities,
            stands_by: self.core.epochs.stands_by(),
            storage_full: !context.has_room(),
            troubles: self.troubles(),
            unresolved: context.unresolved.get(),
            journal_bytes: context.journal.bytes(),
            quarantines: context.metrics.quarantined.get(),
        }
    }

    fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if self.core.context.options.quiet {
            troubles.push(QUIET.to_owned());
        }
        if self.core.epochs.has_failed_checkpoint() {
            troubles.push("the last checkpoint failed; it is tried again".to_owned());
        }
        let losses = self.core.context.journal.losses();
        troubles.extend(
            losses
                .iter()
                .map(|loss| format!("acknowledged commits are lost: {loss}")),
        );
        troubles.extend(self.core.context.disk.trouble());
        let held_by = self
            .core
            .retention
            .held_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let holds = |name: &String| format!("history that is over stays, as the projection {name} has not read it");
        troubles.extend(held_by.iter().map(holds));
        #[cfg(feature = "projections")]
        for progress in self.projections() {
            troubles.extend(progress.trouble().into_iter().chain(progress.missed()));
        }
        troubles
    }

    /// Resolves to `true` once another engine takes over, or to `false` when this one is dropped. The future does not keep the engine
    /// alive.
    pub fn taken_over(&self) -> impl Future<Output = bool> + Send + use<> {
        let epochs = Arc::downgrade(&self.core.epochs);
        std::future::poll_fn(move |context| match epochs.upgrade() {
            None => Poll::Ready(false),
            Some(epochs) if epochs.has_stopped() => Poll::Ready(false),
            Some(epochs) => {
                epochs.context.signals.watch(context.waker());
                match epochs.stands_by() {
                    true => Poll::Ready(true),
                    false => Poll::Pending,
                }
            }
        })
    }

    #[cfg(feature = "services")]
    /// Returns a topic to listen to for what entities [publish](throng_core::model::Turn::publish) on it from now on.
    ///
    /// # Errors
    /// [`AnotherType`]: a topic of this name has values of another type.
    pub fn topic<T: Clone + Send + Sync + 'static>(&self, topic: &Topic<T>) -> Result<bus::Topic<T>, AnotherType> {
        self.core.context.topics.listen(topic)
    }

    /// Waits for calls outside that are under way, refuses new work, lets what is in flight land, makes a last checkpoint, and ends. Each
    /// of the three waits is bounded by [`Options::drain`](crate::Options), that for the checkpoint by five seconds if that is less.
    /// Whatever is not finished by then is in the journal.
    pub async fn stop(&self) {
        let core = &self.core;
        #[cfg(feature = "services")]
        core.pools.stop(&core.context).await;
        #[cfg(feature = "projections")]
        let ended = async |until| core.projections.ended(until).await;
        #[cfg(not(feature = "projections"))]
        let ended = async |_| ();
        core.epochs.stop(ended).await;
    }

    /// Returns the parts of the journal's history: writers, and segments or tables. Of each it returns the first `limit`.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: the journal cannot be read.
    pub async fn inventory(&self, limit: usize) -> Result<throng_journal::Inventory, throng_journal::Error> {
        self.core.context.journal.inventory(limit).await
    }

    /// Makes a checkpoint now. The next start then reads the journal from here.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: the store or the journal failed.
    pub async fn checkpoint(&self) -> Result<(), throng_journal::Error> {
        let Some(epoch) = self.core.epochs.running() else {
            return Ok(());
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let epochs = Arc::clone(&self.core.epochs);
        // Runs on a thread of the engine's: it may take long, and the caller's thread may be a loop.
        self.core.context.host.spawn(Box::pin(async move {
            let _ = tell.send(epochs.checkpoint_now(&epoch).await);
        }));
        told.await.unwrap_or_else(|_| {
            Err(throng_journal::Error::backend(
                "making a checkpoint",
                "the engine has ended",
            ))
        })
    }

    /// Removes the history whose retention is over; with `is_dry`, only reports it. In a cluster every node does so for its shards,
    /// and the report covers them all.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: the journal or store failed, or a node cannot be reached. What was removed by then stays removed, and the
    /// next pass continues.
    pub async fn prune(&self, is_dry: bool) -> Result<PruneReport, throng_journal::Error> {
        self.core.retention.prune(is_dry).await
    }

    /// Gives back unused room in the store's file, without interrupting service. A store with much unused room also does so by itself.
    /// `None`: this store never needs it.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: there is no room for a second file, a compaction is under way, or the store failed. The file is
    /// unchanged.
    pub async fn compact(&self) -> Result<Option<Compacted>, throng_journal::Error> {
        self.core.context.store.compact().await
    }

    /// Ends an entity and overwrites all recorded and stored data of it: its events, state, timers, idempotency keys, the messages it
    /// sent and was sent. Only the fact and time of the erasure remain. An erasure that has begun is always completed,
    /// also after a failure of the journal or store, or a crash.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an entity without history; otherwise the engine's error, whose text says whether the erasure has begun.
    pub async fn erase(&self, kind: &str, id: &str) -> Result<Erased, Error<JsonRejection>> {
        self.core.retention.erase(kind, id).await
    }
}

#[cfg(feature = "projections")]
impl Engine {
    /// Returns the progress of its projections and sinks, in the order they were given.
    #[must_use]
    pub fn projections(&self) -> Vec<Progress> {
        self.core.projections.progress()
    }

    /// A projection's rows, to be read.
    #[must_use]
    pub fn read_model<P: Projection>(&self) -> ReadModel<P> {
        ReadModel::new(self.core.open.clone(), self.core.projections.clone())
    }

    /// Restarts a projection or sink at the first event; `false` if none has this name. The engine goes on serving.
    /// Readers see the rows come back; until [`Progress::is_rebuilding`] is false they are incomplete.
    pub fn rebuild_projection(&self, name: &str) -> bool {
        self.core.projections.rebuild(name)
    }

    /// Has a stopped projection or sink retry the event at which it stopped; `false` if none has this
    /// name.
    pub fn resume_projection(&self, name: &str) -> bool {
        self.core.projections.resume(name)
    }

    /// Has a stopped projection or sink skip the event at which it stopped ([`Stopped`](crate::projection::ProjectionState::Stopped)),
    /// which the caller names. The other events of its commit are applied. The offset moves past the event in the same batch that records
    /// who decided this and why; [`Progress::skipped`] counts it from then on. A rebuild meets the event again.
    ///
    /// The decision is durable when this returns; the skip itself follows. If the projection is rebuilt meanwhile, nothing is skipped.
    ///
    /// # Errors
    /// None has this name, it has not stopped at that event, or the decision could not be made durable in time.
    pub async fn skip_event(&self, name: &str, event: EventOffset, by: OperatorDecision<'_>) -> Result<(), SkipError> {
        self.core.projections.skip(name, event, by).await
    }
}

impl Core {
    fn refresh_metrics(&self) {
        #[cfg(feature = "projections")]
        self.projections.refresh();
        let metrics = &self.context.metrics;
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        metrics.has_room.set(i64::from(self.context.has_room()));
        if let Some(epoch) = self.epochs.running() {
            let books = &epoch.executor.books;
            metrics.entities.set(books.entities.load(Ordering::Relaxed));
            metrics.entity_bytes.set(books.bytes.load(Ordering::Relaxed));
            metrics.pending_bytes.set(books.pending_bytes.load(Ordering::Relaxed));
            metrics.outbox.set(gauge(epoch.executor.outbox.len()));
            metrics.waiting.set(gauge(epoch.group_commit.waiting()));
            metrics.in_flight.set(gauge(epoch.group_commit.in_flight()));
        }
    }
}
