//! Setting an engine up.

use crate::{
    Metrics, Options,
    actors::{Services, Starting},
    checkpoint, commit, deliver,
    engine::{Engine, Inner, Status, Wake},
    host::{Host, TokioHost},
    projection::{self, Projections},
    publish::Topics,
    tail::{self, Tail},
    timers, watch,
};
use std::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};
use throng_core::{
    model::{Actor, Entity, Hears, Query},
    shard::Registry,
};
use throng_journal::{Journal, Store, Views};
use throng_services::stats::PrometheusCollector;

/// Gathers the kinds of an engine and its settings.
#[derive(Default)]
pub struct Builder {
    registry: Registry,
    actors: Vec<Starting>,
    options: Options,
    host: Option<Arc<dyn Host>>,
    consumers: Vec<Box<dyn projection::Consumer>>,
    views: Option<Arc<dyn Views>>,
}

/// An engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal or the store.
    #[error(transparent)]
    Journal(#[from] throng_journal::Error),
    /// The system gives no threads.
    #[error("the engine's threads cannot be started: {0}")]
    Threads(std::io::Error),
}

impl Builder {
    /// Gives it a kind.
    ///
    /// # Panics
    /// When the kind's name is not one (1 to 64 of `[a-z0-9-]`), or is taken.
    #[must_use]
    pub fn with<E: Entity>(mut self) -> Self {
        let taken = self.actors.iter().any(|actor| actor.name == E::KIND);
        assert!(!taken, "the kind {:?} is an actor's", E::KIND);
        self.registry.add::<E>();
        self
    }

    /// Gives it a kind of actor.
    ///
    /// # Panics
    /// When the kind's name is not one (1 to 64 of `[a-z0-9-]`), or is taken.
    #[must_use]
    pub fn actor<A: Actor>(mut self) -> Self {
        let name = A::KIND;
        assert!(
            throng_core::limits::is_kind(name),
            "{name:?} is not a kind: 1 to 64 of [a-z0-9-]"
        );
        assert!(
            self.registry.find(name).is_none() && self.actors.iter().all(|actor| actor.name != name),
            "the kind {name:?} is given twice"
        );
        self.actors.push(Starting::of::<A>());
        self
    }

    /// Gives a kind a query. The kind comes first.
    ///
    /// # Panics
    /// When the kind was not given before, or has a query of this name.
    #[must_use]
    pub fn query<E: Entity, Q: Query<E>>(mut self) -> Self {
        self.registry.add_query::<E, Q>();
        self
    }

    /// Lets a kind hear the outcome of its requests to another. The kind comes first.
    ///
    /// # Panics
    /// When the kind was not given before.
    #[must_use]
    pub fn hears<E: Hears<T>, T: Entity>(mut self) -> Self {
        self.registry.add_hears::<E, T>();
        self
    }

    pub(crate) fn consumer(mut self, consumer: Box<dyn projection::Consumer>) -> Self {
        let (name, kind) = (consumer.name(), consumer.kind());
        assert!(
            throng_core::limits::is_kind(name),
            "{name:?} is not a projection's name: 1 to 64 of [a-z0-9-]"
        );
        assert!(
            self.consumers.iter().all(|other| other.name() != name),
            "the projection {name:?} is given twice"
        );
        assert!(
            self.registry.find(kind).is_some(),
            "the kind {kind:?} must be given before its projections"
        );
        self.consumers.push(consumer);
        self
    }

    /// Where the projections' rows and offsets live. Without it they are kept in memory, and every start rebuilds them from
    /// the first event.
    #[must_use]
    pub fn views(mut self, views: Arc<dyn Views>) -> Self {
        self.views = Some(views);
        self
    }

    /// Sets limits and intervals.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The number of shards, 256 unless said otherwise: it may not change once there is a journal.
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.registry.set_shards(shards);
        self
    }

    /// Runs it in another world: the simulator's.
    #[must_use]
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(host);
        self
    }

    /// Starts it from what the journal and the store hold.
    ///
    /// # Errors
    /// They are in use, of another version, damaged, or not reachable.
    pub async fn start(
        self,
        journal: impl Into<Box<dyn Journal>>,
        store: impl Into<Box<dyn Store>>,
    ) -> Result<Engine, StartError> {
        self.start_shared(Arc::from(journal.into()), Arc::from(store.into()))
            .await
    }

    /// As [`start`](Self::start), on a journal and a store others hold too.
    ///
    /// # Errors
    /// They are in use, of another version, damaged, or not reachable.
    pub async fn start_shared(self, journal: Arc<dyn Journal>, store: Arc<dyn Store>) -> Result<Engine, StartError> {
        let host = match self.host {
            Some(host) => host,
            None => Arc::new(TokioHost::new().map_err(StartError::Threads)?),
        };
        let mut services = Services::default();
        for actor in self.actors {
            let kind = (actor.start)(&host, &services.stats).map_err(StartError::Threads)?;
            services.kinds.push(kind);
        }
        let metrics = Metrics::default();
        let collector = Box::new(PrometheusCollector::new(&services.stats));
        metrics.register(|registry| registry.register_collector(collector));
        let consumers = if self.options.projections {
            self.consumers
        } else {
            Vec::new()
        };
        let inner = Arc::new(Inner {
            tail: Arc::new(Tail::new(journal.clone(), host.clone(), &self.registry)),
            registry: Arc::new(self.registry),
            projections: Projections::new(consumers, self.views),
            options: self.options,
            host,
            journal,
            store,
            metrics,
            services,
            topics: Topics::default(),
            status: RwLock::new(Status::Down("the engine is starting".into())),
            stopping: AtomicBool::new(false),
            foreign: Wake::default(),
            pump: Wake::default(),
            alarm: Wake::default(),
            checkpoint: Wake::default(),
            checkpoint_lock: tokio::sync::Mutex::new(()),
            checkpoints_awaited: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            slow_second: AtomicU64::new(0),
            slow_named: AtomicU64::new(0),
            watchers: Mutex::default(),
        });
        let life = inner.recover().await?;
        inner.set_status(Status::Running(life));
        let weak = || Arc::downgrade(&inner);
        inner.host.spawn(Box::pin(commit::foreign(weak())));
        inner.host.spawn(Box::pin(deliver::task(weak())));
        inner.host.spawn(Box::pin(timers::task(weak())));
        inner.host.spawn(Box::pin(timers::sweep(weak())));
        inner.host.spawn(Box::pin(watch::task(weak())));
        inner.host.spawn(Box::pin(checkpoint::task(weak())));
        inner.host.spawn(Box::pin(tail::task(weak())));
        projection::start(&inner);
        inner.pump.wake();
        Ok(Engine { inner })
    }
}
