//! A running app: its engine on a journal, behind a gateway on a port.

use anyhow::{Context as _, bail};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use throng::{
    Engine, Options,
    journal::{Journal, Position},
    services::health::{Check, Reason, Status},
};
use throng_http::{Limits, Running};

#[cfg(feature = "postgres")]
use crate::cluster::{ClusterControl, ClusterSettings, Statuses, await_serving, not_shared, register};
use crate::{
    AccessLogArguments, App, End, SecurityArguments, TraceArguments,
    limits::LimitArguments,
    place::{Acting, Durability, JournalLocation, OnLoss, OpenCalls, Opened, Opening},
};

/// The settings of a running service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The location of the journal. A service without entities stores nothing.
    pub place: JournalLocation,
    /// The failures that an acknowledged command survives.
    pub durability: Durability,
    /// Added to every sync of the embedded journal: a slow disk, for tests.
    pub sync_delay: Duration,
    /// A loss of durable commits that is accepted.
    pub accept_loss: Option<Position>,
    /// True if a restored or copied journal is served in place of its original.
    pub as_primary: bool,
    /// The fate of open calls outside. `None`: those of a restored journal end with the outcome `Unknown`.
    pub calls: Option<OpenCalls>,
    /// The behaviour if acknowledged commits are lost while it runs: on PostgreSQL.
    pub on_loss: OnLoss,
    /// The directory to which the embedded journal copies its segments before history is removed from them.
    pub archive: Option<PathBuf>,
    /// The number of threads that serve connections. `None`: one, and more under load.
    pub loops: Option<usize>,
    /// The gateway's limits that differ from the defaults.
    pub limits: LimitArguments,
    /// The callers that may use it, and the listener for administration.
    pub security: SecurityArguments,
    /// The requests that are logged.
    pub access_log: AccessLogArguments,
    /// The requests that are traced, and the collector.
    pub traces: TraceArguments,
    /// The settings as a node of a cluster.
    #[cfg(feature = "postgres")]
    pub cluster: Option<ClusterSettings>,
    /// The service's release: on PostgreSQL.
    pub release: u64,
    /// The time between the request to end and the end. Meanwhile the service answers, but reports that it is not ready.
    pub drain_grace: Duration,
    /// The engine's limits and intervals.
    pub engine: Options,
}

/// The divisor of the memory that bodies in flight may take.
const BODIES_PART: usize = 8;

/// The longest wait for the tasks of a stopped engine to release the journal.
const RELEASE: Duration = Duration::from_secs(10);

/// The longest wait for the last spans to be sent.
#[cfg(feature = "otlp")]
const FLUSH: Duration = Duration::from_secs(2);

/// A service that runs.
pub struct Service {
    /// The engine behind the gateway, to be asked from Rust.
    pub engine: Engine,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The time from opening the journal until the engine took commands.
    pub recovery: Duration,
    #[cfg(feature = "postgres")]
    begun: Instant,
    running: Running,
    /// True once the port for clients is open.
    is_open: bool,
    #[cfg(feature = "postgres")]
    node: Option<throng_cluster::Node>,
    /// Functions that end the tasks beside the gateway.
    beside: Vec<End>,
    journal: Arc<dyn Journal>,
    is_ending: Arc<AtomicBool>,
    drain_grace: Duration,
    /// The exporter of spans to a collector.
    #[cfg(feature = "otlp")]
    exporter: Option<Arc<throng_otlp::Exporter>>,
}

/// Reports the service as not ready while it ends.
fn ending(is_ending: &AtomicBool) -> Option<Check> {
    is_ending.load(Ordering::Acquire).then(|| Check {
        name: "service".into(),
        status: Status::Fail,
        reason: Reason::Other("it was told to end, and takes requests until --drain-grace is over".into()),
    })
}

impl Service {
    /// Opens the journal, starts the engine from it, and listens. A node of a cluster listens only once it can serve, however long that
    /// takes.
    ///
    /// # Errors
    /// The journal cannot be opened, or the address cannot be listened on.
    ///
    /// # Panics
    /// On a thread of an async runtime.
    pub fn start(app: App, settings: &Settings) -> anyhow::Result<Self> {
        Self::begin(app, settings)?.open_when_serving(|_| false)
    }

    /// Opens the journal, starts the engine from it, and joins the cluster. A node's port for clients is closed until it is
    /// [opened](Self::open_when_serving).
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub(crate) fn begin(mut app: App, settings: &Settings) -> anyhow::Result<Self> {
        // Checked first, before a directory is created.
        #[cfg(feature = "postgres")]
        if settings.cluster.is_some() && !matches!(settings.place, JournalLocation::Postgres(_)) {
            return Err(not_shared(&settings.place));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let begun = Instant::now();
        let (builder, starting) = (app.take_builder(), app.take_beside());
        let keeps = builder.has_entities();
        #[cfg(feature = "postgres")]
        let lease = settings.cluster.as_ref().map(ClusterSettings::lease);
        #[cfg(not(feature = "postgres"))]
        let lease = None;
        let Opened {
            journal,
            store,
            views,
            restored_at,
            directory,
        } = match keeps {
            true => settings.place.open(&Opening {
                durability: settings.durability,
                sync_delay: settings.sync_delay,
                accept_loss: settings.accept_loss,
                on_loss: settings.on_loss,
                archive: settings.archive.clone(),
                disk_bytes_max: settings.engine.disk_bytes_max,
                has_projections: builder.has_projections(),
                acting: match (settings.engine.quiet, settings.as_primary) {
                    (true, _) => Acting::Quiet,
                    (false, true) => Acting::AsPrimary,
                    (false, false) => Acting::UnlessCopied,
                },
                calls: settings.calls,
                lease,
                release: settings.release,
            })?,
            false => Opened::in_memory(),
        };
        let held = Arc::clone(&journal);
        let options = throng::Options {
            restored_at,
            ..settings.engine.clone()
        };
        let builder = builder.options(options).views(views);
        #[cfg(feature = "otlp")]
        let exporter = settings.traces.start(app.name())?;
        #[cfg(feature = "otlp")]
        let builder = match &exporter {
            Some(exporter) => builder.tracer(settings.traces.tracer(exporter)),
            None => builder,
        };
        #[cfg(feature = "postgres")]
        let (builder, joining) = match &settings.cluster {
            None => (builder, None),
            Some(cluster) => {
                let directory = directory.ok_or_else(|| not_shared(&settings.place))?;
                let links = cluster.links(builder.shard_count());
                (
                    builder.peers(Arc::new(links.clone())),
                    Some((cluster, directory, links)),
                )
            }
        };
        #[cfg(not(feature = "postgres"))]
        drop(directory);
        let engine = runtime.block_on(builder.start_shared(journal, store))?;
        #[cfg(feature = "otlp")]
        if let Some(exporter) = &exporter {
            engine.metrics().register(|registry| exporter.register(registry));
        }
        if let Some(kind) = settings.engine.keep.keys().find(|kind| engine.kind(kind).is_none()) {
            runtime.block_on(engine.stop());
            bail!("--keep names the kind {kind:?}, which this service does not have");
        }
        let recovery = begun.elapsed();
        #[cfg(feature = "postgres")]
        let program = format!("{} {}", app.name(), app.version_text());
        let mut gateway = app.into_gateway(engine.clone()).bind(settings.listen);
        gateway = gateway.adjust_limits(|limits| {
            // A limit that the program sets itself stays.
            if limits.bodies_bytes_max == Limits::default().bodies_bytes_max {
                limits.bodies_bytes_max = settings.engine.memory_bytes_max / BODIES_PART;
            }
            settings.limits.apply(limits);
        });
        if let Some(loops) = settings.loops {
            gateway = gateway.loops(loops);
        }
        if keeps && settings.durability != Durability::Memory {
            gateway = gateway.journal_place(settings.place.medium(), settings.place.to_string());
        }
        let is_ending = Arc::new(AtomicBool::new(false));
        gateway = gateway.health({
            let is_ending = Arc::clone(&is_ending);
            move || ending(&is_ending).into_iter().collect()
        });
        // The node publishes its address before it joins, but listens there only once it can serve.
        #[cfg(feature = "postgres")]
        let statuses = Statuses::default();
        #[cfg(feature = "postgres")]
        if let Some((cluster, directory, links)) = &joining {
            gateway = cluster.tell(gateway, &statuses).cluster(ClusterControl {
                directory: Arc::clone(directory),
                links: links.clone(),
                statuses: Arc::clone(&statuses),
            });
            engine.metrics().register(|registry| register(registry, &statuses));
        }
        gateway = settings.access_log.set(settings.security.set(gateway));
        let mut beside: Vec<End> = Vec::new();
        let starting = starting.into_iter().filter(|_| !settings.engine.quiet);
        let started = starting.into_iter().try_for_each(|start| {
            beside.push(start(&engine)?);
            Ok(())
        });
        let running = started.and_then(|()| Ok(gateway.start()?));
        let running = match running {
            Ok(running) => running,
            Err(error) => {
                beside.into_iter().for_each(|end| end());
                runtime.block_on(engine.stop());
                return Err(error);
            }
        };
        #[cfg(feature = "postgres")]
        let node = match joining {
            None => None,
            Some((cluster, directory, links)) => match cluster.start(directory, &engine, links, program, &running) {
                Ok(node) => {
                    // Nothing else sets it.
                    let _ = statuses.set(node.statuses());
                    Some(node)
                }
                Err(error) => {
                    beside.into_iter().for_each(|end| end());
                    running.stop_blocking();
                    return Err(error);
                }
            },
        };
        Ok(Self {
            address: running.address(),
            engine,
            recovery,
            #[cfg(feature = "postgres")]
            begun,
            running,
            is_open: false,
            #[cfg(feature = "postgres")]
            node,
            beside,
            journal: held,
            is_ending,
            drain_grace: settings.drain_grace,
            #[cfg(feature = "otlp")]
            exporter,
        })
    }

    /// Opens the port for clients once the service can serve. Until then `is_over` is called with the reason for the wait. If it returns
    /// true, the service is returned [closed](Self::is_open), to be [stopped](Self::stop).
    ///
    /// # Errors
    /// Another program has taken the port meanwhile. The service has been stopped.
    pub(crate) fn open_when_serving(mut self, is_over: impl FnMut(&str) -> bool) -> anyhow::Result<Self> {
        #[cfg(not(feature = "postgres"))]
        drop(is_over);
        #[cfg(feature = "postgres")]
        if let Some(node) = &self.node {
            if !await_serving(node, is_over) {
                return Ok(self);
            }
            self.recovery = self.begun.elapsed();
        }
        match self.running.open() {
            Ok(()) => {
                self.is_open = true;
                Ok(self)
            }
            Err(error) => {
                self.stop();
                Err(error.into())
            }
        }
    }

    /// Returns true if clients are let in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the URL of the service.
    #[must_use]
    pub fn url(&self) -> String {
        self.running.url()
    }

    /// Returns the address of the listener for administration, if there is one.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.running.admin_address()
    }

    /// Returns the URL of its console: on the listener for administration, if there is one.
    #[must_use]
    pub fn console_url(&self) -> String {
        match self.running.admin_address() {
            Some(admin) => format!("http://{admin}/console"),
            None => format!("{}/console", self.url()),
        }
    }

    /// Reports itself as not ready for the grace time, finishes what is in flight, makes a last checkpoint, and ends. The data directory is
    /// free after that.
    pub fn stop(self) {
        self.is_ending.store(true, Ordering::Release);
        if self.is_open {
            thread::sleep(self.drain_grace);
        }
        self.beside.into_iter().for_each(|end| end());
        #[cfg(feature = "postgres")]
        if let Some(node) = &self.node {
            node.drain();
        }
        self.running.stop_blocking();
        #[cfg(feature = "postgres")]
        if let Some(node) = self.node {
            node.leave();
        }
        drop(self.engine);
        #[cfg(feature = "otlp")]
        if let Some(exporter) = &self.exporter {
            exporter.flush(FLUSH);
        }
        close_journal(self.journal);
    }
}

/// Closes the journal of a stopped engine once its last task has dropped it. Then the directory's lock is free, and the writer in the
/// database is sealed.
///
/// The caller must hold a reference until here. Otherwise the last task would close the journal, and the process might end
/// before that task is done.
pub fn close_journal(journal: Arc<dyn Journal>) {
    let begun = Instant::now();
    while Arc::strong_count(&journal) > 1 && begun.elapsed() < RELEASE {
        thread::sleep(Duration::from_millis(1));
    }
    drop(journal);
}
