//! A loop: one thread, one single-threaded runtime, all of its connections.
//!
//! A turn: the sockets that are ready are read, their requests pass the [gate](crate::gate) and execute in place; the
//! engine's committer, woken by the first record of the turn, runs behind all of them and makes one commit of what they
//! recorded; then the answers go out.

mod accept;
mod connection;
mod date;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod linger;
mod looks;
mod serve;
mod socket;
mod stream;
mod ticks;
mod waits;

pub(crate) use connection::{Connection, InFlight, Verdict};
pub(crate) use serve::{PREFACE, end, serve};
pub(crate) use stream::{Received, Stream, is_passing};
pub(crate) use waits::{Coming, Going};

use crate::{
    Limits,
    access::{Entrance, Recent},
    access_log::Sampler,
    clients::Counted,
    gate::{Gate, Pass},
    lane::{self, Buffers, Door},
    metrics::{Limit, Metrics},
    problem::Problem,
    shared::{Shared, Taken},
};
use date::Date;
use looks::Looks;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use ticks::{Bounds, Ticks};
use tokio::{runtime, sync::watch};

/// Where a gateway is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// It takes no connections any more, and finishes what is in flight.
    Draining,
    /// Its loops end.
    Over,
}

/// When a client that found no place for a live stream may come back.
const LIVE_RETRY: Duration = Duration::from_secs(5);

/// When a client whose body found no room may come back.
const BODIES_RETRY: Duration = Duration::from_secs(1);

/// What a loop's tasks share.
pub(crate) struct Local {
    shared: Arc<Shared>,
    pub(crate) gate: Gate,
    /// The app's routes, as this loop's own.
    pub(crate) router: Option<RefCell<axum::Router>>,
    /// What a response's `Date` says.
    pub(crate) date: Date,
    pub(crate) buffers: Buffers,
    /// Who was seen lately.
    pub(crate) recent: RefCell<Recent>,
    sampler: Sampler,
    /// To the connections that are direct.
    pub(crate) door: Door,
    connections: Connections,
    protocols: serve::Protocols,
    refusals: accept::Refusals,
    stage: watch::Receiver<Stage>,
}

impl Local {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Whether the access log has a line for the next request; asked once a request.
    pub(crate) fn logs_next(&self) -> bool {
        self.sampler.takes_next(self.shared.access_log.as_ref())
    }

    /// A place for a live stream or subscription.
    pub(crate) fn live_place(&self) -> Result<Taken, Box<Problem>> {
        let most = self.limits().live_max;
        self.shared.live.take().ok_or_else(|| {
            let detail = format!(
                "There are {most} live streams and subscriptions already. Try again later, or read the history page by page."
            );
            Problem::overloaded(detail, LIVE_RETRY).boxed()
        })
    }

    /// Room for so many bytes of a body among those in flight, with what it has taken of it.
    pub(crate) fn takes_body(&self, taken: Option<Taken>, bytes: usize) -> Result<Taken, Box<Problem>> {
        let bodies = &self.shared.bodies;
        let mut taken = taken.unwrap_or_else(|| bodies.none());
        if bodies.take_up_to(&mut taken, bytes) {
            return Ok(taken);
        }
        self.metrics().limited(Limit::Bodies);
        let detail = format!(
            "The bodies of requests that are on their way may take {} bytes together, and do. Nothing was done; try again later.",
            bodies.most()
        );
        Err(Problem::overloaded(detail, BODIES_RETRY).boxed())
    }

    /// A body that has not come in time.
    pub(crate) fn late_body(&self) -> Box<Problem> {
        self.metrics().limited(Limit::BodyWait);
        Problem::request_timeout(self.limits()).boxed()
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// Resolves once the loop drains.
    pub(crate) async fn drains(&self) {
        reaches(self.stage.clone(), Stage::Draining).await;
    }
}

async fn reaches(mut stage: watch::Receiver<Stage>, wanted: Stage) {
    // An error means that the gateway is gone: that is over, too.
    let _ = stage.wait_for(|stage| *stage >= wanted).await;
}

/// A connection of a loop, until this is dropped.
pub(crate) struct Guest {
    /// No other connection of the loop has or had it.
    pub(crate) number: u64,
    pub(crate) connection: Rc<Connection>,
    local: Rc<Local>,
    _places: Held,
}

/// What a connection takes of those there may be, and of its address's; nothing of either if it is beyond them.
type Held = (Option<Taken>, Option<Counted>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.local.connections.remove(self.number);
    }
}

/// The connections of a loop.
struct Connections {
    ticks: Rc<Ticks>,
    looks: Rc<Looks>,
    open: RefCell<HashMap<u64, Rc<Connection>>>,
    next: Cell<u64>,
    emptied: tokio::sync::Notify,
}

impl Connections {
    fn new() -> Self {
        Self {
            ticks: Rc::default(),
            looks: Rc::default(),
            open: RefCell::default(),
            next: Cell::new(0),
            emptied: tokio::sync::Notify::new(),
        }
    }

    fn add(&self, local: &Rc<Local>, places: Held) -> Guest {
        let number = self.next.replace(self.next.get() + 1);
        let connection = Rc::new(Connection::new(self.ticks.clone(), self.looks.clone()));
        self.open.borrow_mut().insert(number, connection.clone());
        Guest {
            number,
            connection,
            local: local.clone(),
            _places: places,
        }
    }

    fn remove(&self, number: u64) {
        let mut open = self.open.borrow_mut();
        open.remove(&number);
        if open.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    fn condemn(&self, verdict: Verdict) {
        self.open
            .borrow()
            .values()
            .for_each(|connection| connection.condemn(verdict));
    }

    async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.open.borrow().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Looks for connections that wait too long for their clients, for ever.
    async fn sweep(&self, limits: &Limits, date: &Date, metrics: &Metrics) {
        let bounds = Bounds::new(limits);
        let mut every = tokio::time::interval(limits.sweep_every());
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.ticks.tick();
            date.look();
            let open = self.open.borrow();
            let limits = open.values().filter_map(|connection| connection.sweep(&bounds));
            limits.for_each(|limit| metrics.limited(limit));
        }
    }
}

/// What a loop is started with.
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Option<axum::Router>,
    pub(crate) listener: std::net::TcpListener,
    /// Where connections for administration come in, if this loop takes them.
    pub(crate) admin: Option<std::net::TcpListener>,
    pub(crate) stage: watch::Receiver<Stage>,
    /// Dropped when the loop has drained.
    pub(crate) drained: tokio::sync::mpsc::Sender<()>,
}

/// Builds a loop's runtime.
pub(crate) fn runtime(pass: &Arc<Pass>) -> std::io::Result<runtime::LocalRuntime> {
    let (parks, wakes) = (pass.clone(), pass.clone());
    runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || parks.parks())
        .on_thread_unpark(move || wakes.wakes())
        .build_local(runtime::LocalOptions::default())
}

fn entrance(listener: &tokio::net::TcpListener, is_admin: bool) -> std::io::Result<Entrance> {
    Ok(Entrance {
        is_admin,
        is_loopback: listener.local_addr()?.ip().is_loopback(),
    })
}

/// Nothing goes on without this task: if it panics, recovery is the safe path.
fn ends_the_process(task: tokio::task::JoinHandle<()>, name: &'static str) {
    tokio::task::spawn_local(async move {
        if task.await.is_err_and(|error| error.is_panic()) {
            tracing::error!("{name} panicked; the process ends here, and recovery is the safe path");
            std::process::abort();
        }
    });
}

/// Runs a loop until the gateway is over.
pub(crate) fn run(runtime: &runtime::LocalRuntime, pass: Arc<Pass>, start: Start) -> std::io::Result<()> {
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(start.listener)?;
        let admin = start.admin.map(tokio::net::TcpListener::from_std).transpose()?;
        let Start {
            shared,
            router,
            stage,
            drained,
            ..
        } = start;
        let local = Rc::new(Local {
            gate: Gate::new(&shared.limits, pass, shared.metrics.waiting.clone()),
            protocols: serve::Protocols::new(&shared.limits),
            router: router.map(RefCell::new),
            buffers: Buffers::default(),
            recent: RefCell::default(),
            sampler: Sampler::default(),
            door: Door::default(),
            date: Date::default(),
            connections: Connections::new(),
            refusals: accept::Refusals::default(),
            stage: stage.clone(),
            shared,
        });
        // First of all tasks, so that its waker is known before there is anything to commit.
        let committer = tokio::task::spawn_local(local.shared.driver.committer());
        ends_the_process(committer, "the engine's committer");
        ends_the_process(tokio::task::spawn_local(lane::run(local.clone())), "the gateway's loop");
        tokio::task::spawn_local({
            let local = local.clone();
            async move {
                local
                    .connections
                    .sweep(local.limits(), &local.date, local.metrics())
                    .await
            }
        });
        tokio::task::spawn_local({
            let local = local.clone();
            async move { local.connections.looks.watch(|| local.gate.looked()).await }
        });
        if let Some(admin) = admin {
            let entrance = entrance(&admin, true)?;
            tokio::task::spawn_local(accept::accept(local.clone(), admin, entrance));
        }
        let entrance = entrance(&listener, false)?;
        accept::accept(local.clone(), listener, entrance).await;
        local.connections.condemn(Verdict::Finish);
        let drain = local.limits().drain;
        if tokio::time::timeout(drain, local.connections.empty()).await.is_err() {
            tracing::warn!(
                "requests were still in flight {drain:?} after the stop began; their connections are closed"
            );
            local.connections.condemn(Verdict::Drop);
            local.connections.empty().await;
        }
        drop(drained);
        reaches(stage, Stage::Over).await;
        Ok(())
    })
}
