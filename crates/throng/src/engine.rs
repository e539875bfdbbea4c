//! The engine, as its users hold it.

#[cfg(feature = "services")]
use crate::actors::Services;
#[cfg(feature = "projections")]
use crate::projection::Projections;
use crate::{
    Metrics, Options, Unresolved,
    builder::Builder,
    context::{Context, QUIET},
    door::{Attempt, Work},
    handle::Handle,
    life::{Down, Lives, Status},
    tail::Tail,
    travel::Remembered,
};
use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
#[cfg(feature = "services")]
use throng_core::model::Topic;
use throng_core::{
    model::Entity,
    shard::{Outcome, Registry},
};
use throng_journal::{Durability, Position};
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
    pub(crate) lives: Arc<Lives>,
    #[cfg(feature = "services")]
    pub(crate) services: Services,
    #[cfg(feature = "projections")]
    pub(crate) projections: Projections,
    /// One removal of history at a time.
    pub(crate) pruning: tokio::sync::Mutex<crate::retention::CutOff>,
    /// Those that do not run here, and so do not say how far they have come.
    #[cfg(feature = "projections")]
    pub(crate) idle_projections: Vec<&'static str>,
    /// The projections that kept the last removal of history from going further.
    pub(crate) held_by: Mutex<Vec<String>>,
    /// How far projections of a cluster are to come.
    #[cfg(feature = "projections")]
    pub(crate) goals: crate::retention::Goals,
    /// Erasures may have been begun that are not done.
    pub(crate) is_erasing: AtomicBool,
    /// States that were met on the way to earlier ones.
    pub(crate) remembered: Remembered,
    /// The end of the log, decoded once for all who follow it.
    pub(crate) tail: Arc<Tail>,
}

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Commands are taken.
    pub ready: bool,
    /// Why not; neither files nor addresses are named.
    pub reason: Option<String>,
    /// What the journal or the store said, with files and addresses: for operators.
    pub detail: Option<String>,
    /// What an acknowledged command survives.
    pub durability: Durability,
    /// What is durable.
    pub position: Option<Position>,
    /// Entities in memory.
    pub entities: u64,
    /// Another engine has taken over; this one takes back when that one ends.
    pub stands_by: bool,
    /// The journal has no room for more: commands are refused, reads are answered.
    pub storage_full: bool,
    /// What does not go as it should though commands are taken: checkpoints that fail, projections that are behind.
    pub troubles: Vec<String>,
    /// Work that waits for an operator: dead messages and quarantined entities, as they were counted last.
    pub unresolved: Vec<Unresolved>,
    /// Bytes of the journal's history, where it knows them.
    pub journal_bytes: Option<u64>,
    /// How often an entity was quarantined since the start.
    pub quarantines: u64,
}

impl Engine {
    /// Begins an engine: give it kinds, then a journal and a store.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// An entity, to ask it.
    pub fn entity<E: Entity>(&self, id: impl Into<E::Id>) -> Handle<E> {
        Handle::new(self.clone(), &id.into())
    }

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

    /// What it counts.
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

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        let context = &self.core.context;
        let (down, position, entities) = match &*self.core.lives.status() {
            Status::Running(life) => {
                let entities = life.door.books.entities.load(Ordering::Relaxed);
                let entities = entities.max(0).cast_unsigned();
                (self.core.lives.trouble(life), Some(life.ledger.durable()), entities)
            }
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
            stands_by: self.core.lives.stands_by(),
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
        if self.core.lives.has_failed_checkpoint() {
            troubles.push("the last checkpoint failed; it is tried again".to_owned());
        }
        let losses = self.core.context.journal.losses();
        troubles.extend(
            losses
                .iter()
                .map(|loss| format!("acknowledged commits are lost: {loss}")),
        );
        troubles.extend(self.core.context.disk.trouble());
        let held_by = self.core.held_by.lock().unwrap_or_else(PoisonError::into_inner);
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
        let lives = Arc::downgrade(&self.core.lives);
        std::future::poll_fn(move |context| match lives.upgrade() {
            None => Poll::Ready(false),
            Some(lives) if lives.has_stopped() => Poll::Ready(false),
            Some(lives) => {
                lives.context.signals.watch(context.waker());
                match lives.stands_by() {
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

    /// Takes nothing new, lets what is in flight land, makes a last checkpoint, and ends. Each of the two is bounded by
    /// [`Options::drain`](crate::Options), the checkpoint by five seconds if that is less; what does not make it by then is in
    /// the journal all the same.
    pub async fn stop(&self) {
        let core = &self.core;
        #[cfg(feature = "projections")]
        let ended = async |until| core.projections.ended(&*core.context.host, until).await;
        #[cfg(not(feature = "projections"))]
        let ended = async |_| ();
        core.lives.stop(ended).await;
    }

    /// What the journal's history stands in: writers, and segments or tables, of each the first `limit`.
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
        let Some(life) = self.core.lives.running() else {
            return Ok(());
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let lives = Arc::clone(&self.core.lives);
        // On a thread of the engine's own: it may take long, and the caller's may be a loop.
        self.core.context.host.spawn(Box::pin(async move {
            let _ = tell.send(lives.checkpoint_now(&life).await);
        }));
        told.await.unwrap_or_else(|_| {
            Err(throng_journal::Error::Backend {
                doing: "making a checkpoint".into(),
                why: "the engine has ended".into(),
            })
        })
    }
}

impl Core {
    /// Counts what was executed.
    pub(crate) fn count(&self, attempt: &Attempt<'_>, outcome: Outcome) {
        let metrics = &self.context.metrics;
        match (&attempt.work, outcome) {
            (Work::Query { .. } | Work::Look(_), _) => metrics.queries.inc(),
            (Work::Drop(..) | Work::CancelTimer(..) | Work::Quarantine(_) | Work::Release(_), _) => 0,
            (Work::Retry(_), outcome) => {
                metrics.messages.inc();
                if outcome == Outcome::Failed {
                    metrics.dead.inc()
                } else {
                    0
                }
            }
            (_, Outcome::Done) => metrics.done.inc(),
            (_, Outcome::Refused) => metrics.refused.inc(),
            (_, Outcome::Failed) => metrics.failed.inc(),
        };
    }

    fn refresh_metrics(&self) {
        #[cfg(feature = "projections")]
        self.projections.refresh(self);
        let metrics = &self.context.metrics;
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        metrics.has_room.set(i64::from(self.context.has_room()));
        if let Some(life) = self.lives.running() {
            let books = &life.door.books;
            metrics.entities.set(books.entities.load(Ordering::Relaxed));
            metrics.entity_bytes.set(books.bytes.load(Ordering::Relaxed));
            metrics.pending_bytes.set(books.pending_bytes.load(Ordering::Relaxed));
            metrics.outbox.set(gauge(life.door.outbox.len()));
            metrics.waiting.set(gauge(life.ledger.waiting()));
            metrics.in_flight.set(gauge(life.ledger.in_flight()));
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.context.host.close();
    }
}
