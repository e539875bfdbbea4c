//! Setting an engine up.

#[cfg(feature = "projections")]
use crate::projection::{self, Projection, ProjectionConsumer, Projections, Sink, SinkConsumer};
use crate::{
    Metrics, Options,
    budget::Budget,
    context::{Context, LastCount, NewerReleases, OpenContext, Signals},
    disk::DiskBudget,
    engine::{Core, Engine},
    epoch::{Epochs, disk, tasks},
    error::StartError,
    feed::{self, SharedFeed},
    host::{Host, SteadyHost, TokioHost},
    operator::unresolved,
    remote::Peers,
    retention::{self, Retention},
    spans::Tracer,
};
#[cfg(feature = "services")]
use crate::{
    actors::{Services, Starting},
    context::Topics,
    outside::{GivenWorker, Link, MakesCalls, Owned, Pools},
};
use std::sync::{Arc, atomic::AtomicBool};
#[cfg(feature = "services")]
use throng_core::model::{Actor, Call, OnCallOutcome, Outside};
use throng_core::{
    model::{Entity, OnOutcome, Query},
    shard::{CommandObserver, Registry},
};
#[cfg(feature = "projections")]
use throng_journal::Views;
use throng_journal::{Journal, Store};

/// Lets a pool ask the calls of its worker.
#[cfg(feature = "services")]
type Connect = fn(&Arc<Core>) -> Link;

#[cfg(feature = "services")]
fn connect<W: Outside>(core: &Arc<Core>) -> Link {
    let core = Arc::downgrade(core);
    let core = move || core.upgrade().filter(|core| !core.epochs.has_stopped());
    let owner = core.clone();
    Link {
        ask: Box::new(move |call, command| {
            let core = core();
            Box::pin(async move {
                let engine = Engine { core: core? };
                Some(engine.entity::<Call<W>>(call).ask(command).await)
            })
        }),
        owned: Box::new(move || match owner() {
            None => Owned::Ended,
            Some(core) => match core.epochs.running().filter(|epoch| !epoch.group_commit.is_closing()) {
                Some(epoch) => Owned::Shards(epoch.group_commit.shards.clone()),
                None => Owned::Down,
            },
        }),
    }
}

/// Gathers the kinds of an engine and its settings.
#[derive(Default)]
pub struct Builder {
    registry: Registry,
    #[cfg(feature = "services")]
    actors: Vec<Starting>,
    #[cfg(feature = "services")]
    workers: Vec<(GivenWorker, Connect)>,
    options: Options,
    host: Option<Arc<dyn Host>>,
    peers: Option<Arc<dyn Peers>>,
    tracer: Option<Arc<Tracer>>,
    #[cfg(feature = "projections")]
    consumers: Vec<Box<dyn projection::Consumer>>,
    #[cfg(feature = "projections")]
    views: Option<Arc<dyn Views>>,
}

impl Engine {
    /// Begins an engine: give it kinds, then a journal and a store.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Adds a kind of entity.
    ///
    /// # Panics
    /// The kind's name is not valid (1 to 64 of `[a-z0-9-]`), or is taken.
    #[must_use]
    pub fn with<E: Entity>(mut self) -> Self {
        #[cfg(feature = "services")]
        {
            let taken = self.actors.iter().any(|actor| actor.name == E::KIND);
            assert!(!taken, "the kind {:?} is an actor's", E::KIND);
        }
        self.registry.add::<E>();
        self
    }

    #[cfg(feature = "services")]
    /// Adds a kind of actor.
    ///
    /// # Panics
    /// The kind's name is not valid (1 to 64 of `[a-z0-9-]`), or is taken.
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

    /// Adds a query of a kind. The kind must have been added before.
    ///
    /// # Panics
    /// The kind was not added before, or has a query of this name.
    #[must_use]
    pub fn query<E: Entity, Q: Query<E>>(mut self) -> Self {
        self.registry.add_query::<E, Q>();
        self
    }

    /// Has a kind take the outcomes of its requests to another. The kind must have been added before.
    ///
    /// # Panics
    /// The kind was not added before.
    #[must_use]
    pub fn on_outcome<E: OnOutcome<T>, T: Entity>(mut self) -> Self {
        self.registry.add_hears::<E, T>();
        self
    }

    #[cfg(feature = "services")]
    /// Has a kind call an outside provider by this worker. The kind must have been added before. If several kinds call it, the worker added
    /// last makes all calls.
    ///
    /// # Panics
    /// The kind was not added before, the worker's name is not valid (1 to 59 of `[a-z0-9-]`), or another worker has it.
    #[must_use]
    pub fn outside<E: OnCallOutcome<W>, W: Outside>(mut self, worker: impl MakesCalls<W>) -> Self {
        self.registry.add_outside::<E, W>();
        self.workers.retain(|(given, _)| given.name != W::NAME);
        self.workers
            .push((GivenWorker::of::<W>(Arc::new(worker)), connect::<W>));
        self
    }

    /// True if it has a kind of entity, whose history has to be stored.
    #[must_use]
    pub fn has_entities(&self) -> bool {
        !self.registry.kinds().is_empty()
    }

    #[cfg(feature = "projections")]
    /// True if it has a projection or a sink, whose rows and offsets have to be stored.
    #[must_use]
    pub fn has_projections(&self) -> bool {
        !self.consumers.is_empty()
    }

    #[cfg(feature = "projections")]
    fn consumer(mut self, consumer: Box<dyn projection::Consumer>) -> Self {
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

    #[cfg(feature = "projections")]
    /// Adds a projection. Its kind must have been added before.
    ///
    /// # Panics
    /// The name is not valid (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not added before.
    #[must_use]
    pub fn projection<P: Projection>(self, projection: P) -> Self {
        self.consumer(Box::new(ProjectionConsumer(projection)))
    }

    #[cfg(feature = "projections")]
    /// Adds a sink. Its kind must have been added before.
    ///
    /// # Panics
    /// The name is not valid (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not added before.
    #[must_use]
    pub fn sink<S: Sink>(self, sink: S) -> Self {
        self.consumer(Box::new(SinkConsumer(sink)))
    }

    /// The number of shards it will have.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.registry.shards()
    }

    pub(crate) fn into_registry(self) -> Registry {
        self.registry
    }

    #[cfg(feature = "projections")]
    pub(crate) fn take_consumers(&mut self) -> Vec<Box<dyn projection::Consumer>> {
        std::mem::take(&mut self.consumers)
    }

    #[cfg(feature = "projections")]
    /// Sets the store of the projections' rows and offsets. Without it they are in memory, and every start rebuilds them from the
    /// first event.
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

    /// Sets the number of shards, by default 256. The first start records it; after that, [`start`](Self::start) with
    /// another number fails with [`StartError::Layout`].
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.registry.set_shards(shards);
        self
    }

    /// Passes every decided command to an observer, for example to a simulation that counts them. The kinds must have been added before.
    #[must_use]
    pub fn observe(mut self, observer: &CommandObserver) -> Self {
        self.registry.observe(observer);
        self
    }

    /// Returns the kinds that were added.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Runs it in another world: the simulator's.
    #[must_use]
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(host);
        self
    }

    /// Makes the engine a node of a cluster. It owns no shard until [`Driver::serve`](crate::driver::Driver::serve) gives it some, and
    /// sends requests for other shards to their owners.
    #[must_use]
    pub fn peers(mut self, peers: Arc<dyn Peers>) -> Self {
        self.peers = Some(peers);
        self
    }

    /// Traces requests, batches, commits, messages and projections. Not for simulations: their messages would differ from run to run.
    #[must_use]
    pub fn tracer(mut self, tracer: Arc<Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Starts the engine from the contents of the journal and the store.
    ///
    /// # Errors
    /// [`StartError`]: the journal or store is in use, of another version or layout, damaged, or unreachable.
    pub async fn start(
        self,
        journal: impl Into<Box<dyn Journal>>,
        store: impl Into<Box<dyn Store>>,
    ) -> Result<Engine, StartError> {
        self.start_shared(Arc::from(journal.into()), Arc::from(store.into()))
            .await
    }

    /// Works like [`start`](Self::start), on a journal and a store that the caller keeps a reference to.
    ///
    /// # Errors
    /// [`StartError`]: as for `start`; or the disk budget is too small to work with.
    pub async fn start_shared(
        mut self,
        journal: Arc<dyn Journal>,
        store: Arc<dyn Store>,
    ) -> Result<Engine, StartError> {
        self.registry.set_restored_at(self.options.restored_at);
        if let Some((asker, asked)) = self.registry.unheard() {
            return Err(StartError::Unheard { asker, asked });
        }
        let disk = DiskBudget::new(self.options.disk_bytes_max);
        disk.refuse_too_small(journal.disk_bytes_min())?;
        let host = match self.host {
            Some(host) => host,
            None => Arc::new(TokioHost::new().map_err(StartError::Threads)?),
        };
        let clock = Arc::new(SteadyHost::new(host));
        let host: Arc<dyn Host> = clock.clone();
        let metrics = Metrics::default();
        let last_count = Arc::new(LastCount::default());
        metrics.register(|registry| registry.register_collector(Box::new(last_count.clone())));
        #[cfg(feature = "services")]
        let services = Services::start(self.actors, &host, &metrics).map_err(StartError::Threads)?;
        #[cfg(feature = "projections")]
        let (consumers, idle): (Vec<_>, Vec<_>) = self
            .consumers
            .into_iter()
            // A sink acts outside the service, which a quiet engine must not do; a projection changes only its own rows.
            .partition(|consumer| self.options.projections && (consumer.is_projection() || !self.options.quiet));
        #[cfg(feature = "projections")]
        let idle = idle.iter().map(|consumer| consumer.name()).collect();
        let budget = Budget::new(self.options.memory_bytes_max);
        metrics.register(|registry| registry.register_collector(Box::new(budget.clone())));
        let context = Arc::new(Context {
            registry: Arc::new(self.registry),
            disk,
            options: self.options,
            host,
            clock,
            journal,
            store,
            peers: self.peers,
            newer_releases: NewerReleases::default(),
            tracer: self.tracer,
            metrics,
            #[cfg(feature = "services")]
            stats: services.stats.clone(),
            #[cfg(feature = "services")]
            topics: Topics::default(),
            signals: Signals::default(),
            unresolved: last_count,
            stopping: AtomicBool::new(false),
            budget,
        });
        #[cfg(feature = "services")]
        let (workers, connects): (Vec<_>, Vec<_>) = self.workers.into_iter().unzip();
        #[cfg(feature = "services")]
        let pools = Pools::start(workers.into_iter(), &context);
        let epochs = Arc::new(Epochs::new(context.clone()));
        if context.peers.is_none() {
            epochs.begin(epochs.recover().await?);
        }
        tasks::start(&epochs);
        unresolved::start(&epochs);
        #[cfg(feature = "projections")]
        let projections = Arc::new(Projections::new(epochs.clone(), consumers, self.views));
        let retention = Retention::new(
            epochs.clone(),
            #[cfg(feature = "projections")]
            projections.clone(),
            #[cfg(feature = "projections")]
            idle,
        );
        let core = Arc::new(Core {
            feed: Arc::new(SharedFeed::new(epochs.clone())),
            #[cfg(feature = "projections")]
            projections,
            retention: Arc::new(retention),
            open: Arc::new(OpenContext(context.clone())),
            context,
            epochs,
            #[cfg(feature = "services")]
            services,
            #[cfg(feature = "services")]
            pools,
        });
        core.context
            .host
            .spawn(Box::pin(feed::task(Arc::downgrade(&core.feed))));
        #[cfg(feature = "projections")]
        projection::start(&core.projections);
        retention::start(&core.retention);
        disk::start(&core.epochs);
        #[cfg(feature = "services")]
        core.pools.begin(connects.into_iter().map(|connect| connect(&core)));
        Ok(Engine { core })
    }
}
