//! The engine, as its users hold it.

use crate::{
    Metrics, Options, actors::Services, ask::Handle, builder::Builder, host::Host, life::Life, projection::Projections,
    publish::Topics, tail::Tail,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    task::Waker,
};
use throng_core::{
    model::{Entity, Error},
    shard::Registry,
};
use throng_journal::{Durability, Journal, Position, Store};

/// An engine: cheap to clone, shared by all who ask. [`stop`](Self::stop) it before the process ends.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) options: Options,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Metrics,
    pub(crate) services: Services,
    pub(crate) topics: Topics,
    pub(crate) projections: Projections,
    pub(crate) tail: Arc<Tail>,
    pub(crate) status: RwLock<Status>,
    pub(crate) stopping: AtomicBool,
    /// Wakes the committer that serves callers outside a gateway's loops.
    pub(crate) foreign: Wake,
    /// Wakes the task that delivers messages.
    pub(crate) pump: Wake,
    /// Wakes the task that fires timers.
    pub(crate) alarm: Wake,
    /// Wakes the task that makes checkpoints.
    pub(crate) checkpoint: Wake,
    pub(crate) checkpoint_lock: tokio::sync::Mutex<()>,
    /// Those who wait for one.
    pub(crate) checkpoints_awaited: AtomicUsize,
    /// Work from outside that waits for the next commit.
    pub(crate) held: AtomicUsize,
    /// The second in which slow commands were named last, and how many.
    pub(crate) slow_second: AtomicU64,
    pub(crate) slow_named: AtomicU64,
    /// Who wants to know when something became durable.
    pub(crate) watchers: Mutex<Vec<Waker>>,
}

/// Why an engine that runs answers nothing.
const NOT_HELD: &str = "the journal does not answer, or another engine has taken over";

/// Whether there is somebody to ask.
pub(crate) enum Status {
    Running(Arc<Life>),
    Down(String),
}

/// A waker that is told even before anybody sleeps.
#[derive(Default)]
pub(crate) struct Wake {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Wake {
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            drop(state);
            waker.wake();
        }
    }

    /// Was it woken since the last look? If not, this waker is next.
    pub(crate) fn look(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.0) {
            return true;
        }
        state.1 = Some(waker.clone());
        false
    }
}

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Commands are taken.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
    /// What an acknowledged command survives.
    pub durability: Durability,
    /// What is durable.
    pub position: Option<Position>,
    /// Entities in memory.
    pub entities: u64,
    /// Bytes of the journal's history, where it knows them.
    pub journal_bytes: Option<u64>,
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
        &self.inner.registry
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        self.inner.refresh_metrics();
        &self.inner.metrics
    }

    /// Its limits and intervals.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        let (ready, reason, position, entities) = match &*self.inner.status() {
            Status::Running(life) => {
                let entities = life.books.entities.load(std::sync::atomic::Ordering::Relaxed);
                let not_held = (!self.inner.journal.holds(life.writer)).then(|| NOT_HELD.to_owned());
                let entities = entities.max(0).cast_unsigned();
                (not_held.is_none(), not_held, Some(life.durable()), entities)
            }
            Status::Down(reason) => (false, Some(reason.clone()), None, 0),
        };
        let stopping = self.inner.is_stopping();
        Health {
            ready: ready && !stopping,
            reason: reason.or_else(|| stopping.then(|| "the engine is stopping".into())),
            durability: self.inner.journal.durability(),
            position,
            entities,
            journal_bytes: self.inner.journal.bytes(),
        }
    }

    /// The newest durable commit; `None` while no writer is open. Another writer is another position: a recovery is a change even
    /// before anything happens in the new life.
    #[must_use]
    pub fn durable(&self) -> Option<Position> {
        self.inner.durable_position()
    }

    /// Waits until the newest durable commit is not this one any more, and returns it. Returns at once while the engine stops.
    pub async fn changed(&self, seen: Option<Position>) -> Option<Position> {
        std::future::poll_fn(|context| {
            let is_over = |durable| durable != seen || self.inner.is_stopping();
            let durable = self.durable();
            if is_over(durable) {
                return std::task::Poll::Ready(durable);
            }
            self.inner.watch(context.waker());
            let durable = self.durable();
            if is_over(durable) {
                std::task::Poll::Ready(durable)
            } else {
                std::task::Poll::Pending
            }
        })
        .await
    }
}

impl Inner {
    pub(crate) fn status(&self) -> std::sync::RwLockReadGuard<'_, Status> {
        self.status.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest durable commit; `None` while no writer is open.
    pub(crate) fn durable_position(&self) -> Option<Position> {
        match &*self.status() {
            Status::Running(life) => Some(life.durable()),
            Status::Down(_) => None,
        }
    }

    pub(crate) fn set_status(&self, status: Status) {
        *self.status.write().unwrap_or_else(PoisonError::into_inner) = status;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Whoever is asked now, or why nobody is.
    pub(crate) fn life<R>(&self) -> Result<Arc<Life>, Error<R>> {
        match &*self.status() {
            // What is in memory may be another engine's to change by now.
            Status::Running(life) if !self.journal.holds(life.writer) => {
                self.metrics.unavailable.inc();
                Err(Error::Unavailable {
                    reason: NOT_HELD.into(),
                })
            }
            Status::Running(life) => Ok(life.clone()),
            Status::Down(reason) => {
                self.metrics.unavailable.inc();
                Err(Error::Unavailable { reason: reason.clone() })
            }
        }
    }

    /// Wakes this one with the next durable commit, and when the engine's status changes.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        // Polled again and again while nothing becomes durable, one task stands here once.
        if !watchers.iter().any(|own| own.will_wake(waker)) {
            watchers.push(waker.clone());
        }
    }

    pub(crate) fn wake_watchers(&self) {
        let watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        watchers.into_iter().for_each(Waker::wake);
    }

    fn refresh_metrics(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.projections.refresh(self);
        let metrics = &self.metrics;
        if let Status::Running(life) = &*self.status() {
            metrics.entities.set(life.books.entities.load(Relaxed));
            metrics.entity_bytes.set(life.books.bytes.load(Relaxed));
            metrics.pending_bytes.set(life.books.pending_bytes.load(Relaxed));
            metrics
                .outbox
                .set(i64::try_from(life.outbox().len()).unwrap_or(i64::MAX));
            metrics
                .waiting
                .set(i64::try_from(life.open.waiting()).unwrap_or(i64::MAX));
            metrics
                .in_flight
                .set(i64::try_from(life.open.in_flight()).unwrap_or(i64::MAX));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.host.close();
    }
}
