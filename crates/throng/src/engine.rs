//! The engine, as its users hold it.

use crate::{
    Erased, Metrics, Options, PruneReport, Unresolved,
    context::{Context, QUIET},
    epoch::{Down, Epochs, Status},
    feed::SharedFeed,
    host::OpenHost,
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

/// An engine: cheap to clone, shared by all who ask. [`stop`](Self::stop) it before the process ends.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// The parts of an engine. What they need of each other they are handed; this only holds them.
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
    /// The end of the log, decoded once for all who follow it.
    pub(crate) feed: Arc<SharedFeed>,
    pub(crate) _open: Arc<OpenHost>,
}

/// The state of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Commands are taken.
    pub ready: bool,
    /// Why not; neither files nor addresses are named.
    pub reason: Option<String>,
    /// The error of the journal or the store, with files and addresses: for operators.
    pub detail: Option<String>,
    /// The failures that an acknowledged command survives.
    pub durability: Durability,
    /// The last durable commit; `None` while the engine is down.
    pub position: Option<Position>,
    /// Entities in memory.
    pub entities: u64,
    /// Another engine has taken over; this one takes back when that one ends.
    pub stands_by: bool,
    /// The journal has no room for more: commands are refused, reads are answered.
    pub storage_full: bool,
    /// Troubles that do not stop commands: checkpoints that fail, projections that are behind.
    pub troubles: Vec<String>,
    /// Work that waits for an operator: dead messages and quarantined entities, as they were counted last.
    pub unresolved: Vec<Unresolved>,
    /// Bytes of the journal's history, where it knows them.
    pub journal_bytes: Option<u64>,
    /// The number of quarantines of entities since the start.
    pub quarantines: u64,
}

impl Engine {
    /// The kinds it knows.
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
            // Balancers would take all nodes of a hand-off for gone at once, while each of them holds its requests.
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

    /// Resolves to `true` when another engine takes over, or has; to `false` when this one is gone. It does not keep the engine.
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
    /// A topic, to listen to what entities [publish](throng_core::model::Turn::publish) on it from now on.
    ///
    /// # Errors
    /// There is a topic of this name with values of another type.
    pub fn topic<T: Clone + Send + Sync + 'static>(&self, topic: &Topic<T>) -> Result<bus::Topic<T>, AnotherType> {
        self.core.context.topics.listen(topic)
    }

    /// Waits for the calls outside that are under way, takes nothing new, lets what is in flight land, makes a last checkpoint, and ends. Each of
    /// the three is bounded by [`Options::drain`](crate::Options), the checkpoint by five seconds if that is less; what does not make it by
    /// then is in the journal all the same.
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
    /// The journal cannot be read.
    pub async fn inventory(&self, limit: usize) -> Result<throng_journal::Inventory, throng_journal::Error> {
        self.core.context.journal.inventory(limit).await
    }

    /// Makes a checkpoint now: the next start reads the journal from here.
    ///
    /// # Errors
    /// The store or the journal failed.
    pub async fn checkpoint(&self) -> Result<(), throng_journal::Error> {
        let Some(epoch) = self.core.epochs.running() else {
            return Ok(());
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let epochs = Arc::clone(&self.core.epochs);
        // On a thread of the engine's own: it may take long, and the caller's may be a loop.
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

    /// Removes the history that is kept no longer, now; with `is_dry`, only says what would go. In a cluster all nodes do, each of what it owns,
    /// and the report is of them all.
    ///
    /// # Errors
    /// The journal's or the store's, or a node cannot be reached; what was removed by then is gone all the same, and the next pass goes on.
    pub async fn prune(&self, is_dry: bool) -> Result<PruneReport, throng_journal::Error> {
        self.core.retention.prune(is_dry).await
    }

    /// Gives back the room of the store's file that no row needs any more, while everything goes on; a store does so by itself, too, once
    /// there is much. `None`: this store needs it never.
    ///
    /// # Errors
    /// There is no room for a second file, one is under way already, or the store failed: it is as it was.
    pub async fn compact(&self) -> Result<Option<Compacted>, throng_journal::Error> {
        self.core.context.store.compact().await
    }

    /// Ends an entity and overwrites all that is recorded and stored of it: its events, state, timers, idempotency keys, the messages it
    /// sent and was sent. What is left is that an entity of this id was erased, and when. Once begun, it is carried to its end by
    /// itself, also where the journal or the store failed meanwhile, and after a crash.
    ///
    /// # Errors
    /// `Unknown` for an entity to which nothing has ever happened, or the engine's: the text says whether it has begun.
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
        ReadModel::new(self.core.projections.clone())
    }

    /// Has a projection or sink begin anew, from the first event; `false` if there is none of this name. The engine goes on serving;
    /// readers see the rows come back, and [`Progress::is_rebuilding`] says until when they are not complete.
    pub fn rebuild_projection(&self, name: &str) -> bool {
        self.core.projections.rebuild(name)
    }

    /// Lets a projection or sink that has stopped try the event it has stopped at again; `false` if there is none of this
    /// name.
    pub fn resume_projection(&self, name: &str) -> bool {
        self.core.projections.resume(name)
    }

    /// Has a projection or sink that has stopped go past the event it has stopped at, which the caller names
    /// ([`Stopped`](crate::projection::ProjectionState::Stopped)): the others of its commit are applied. The rows' offset moves past it in the
    /// batch that says who decided it and why, so that it counts as skipped only then ([`Progress::skipped`]). A rebuild comes to the
    /// event again.
    ///
    /// The decision is durable when this returns; the event is gone past behind. If the projection begins anew meanwhile, nothing is skipped.
    ///
    /// # Errors
    /// There is none of this name, it has not stopped at that event, or the decision could not be made durable in time.
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
