//! Running projections: behind the journal, on the engine's own threads.

use super::{
    Health, Projection, ReadModel, Sink, State,
    health::Gauges,
    rows::Known,
    source,
    work::{Handled, OfProjection, OfSink, Work},
};
use crate::{
    Engine,
    context::Signal,
    engine::Core,
    host::{Host, Task},
    life::{Life, Status},
    tail::Ends,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use throng_journal::{Applied, MemoryViews, Position, ViewBatch, ViewOffset, Views};
use tokio::sync::watch;

/// A projection that has caught up looks again after this long at the earliest, so that it takes what has gathered at once.
const PAUSE: Duration = Duration::from_millis(100);
/// With nothing new, it looks this often whether its rows were cleared by somebody else.
const IDLE: Duration = Duration::from_secs(10);
/// The first pause after a failure; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Rows kept at hand between batches, in bytes.
const KNOWN_BYTES_MAX: usize = 8 << 20;
/// The offset is written after so many bytes of commits without an event for it.
const SKIPPED_BYTES_MAX: usize = 16 << 20;

/// All projections and sinks of an engine.
pub(crate) struct Projections {
    pub(super) all: Vec<Arc<Projector>>,
    pub(super) views: Arc<dyn Views>,
    running: AtomicUsize,
}

/// One projection or sink.
pub(crate) struct Projector {
    work: Box<dyn Work>,
    pub(super) wake: Signal,
    orders: Mutex<Orders>,
    pub(super) report: watch::Sender<Report>,
    gauges: Mutex<Option<Gauges>>,
}

#[derive(Default)]
struct Orders {
    /// How often it was told to begin anew.
    rebuilds: u64,
    resume: bool,
}

/// What a projection says of itself.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) state: State,
    /// How many of the orders to begin anew it has followed.
    pub(super) rebuilds: u64,
    pub(super) reached: Option<Position>,
    pub(super) at_micros: i64,
    pub(super) events: u64,
    pub(super) batches: u64,
    pub(super) retries: u64,
    pub(super) ended: bool,
}

impl Projections {
    pub(crate) fn new(work: Vec<Box<dyn Work>>, views: Option<Arc<dyn Views>>) -> Self {
        let projector = |work| {
            let report = Report {
                state: State::Running,
                rebuilds: 0,
                reached: None,
                at_micros: 0,
                events: 0,
                batches: 0,
                retries: 0,
                ended: false,
            };
            Arc::new(Projector {
                work,
                wake: Signal::default(),
                orders: Mutex::default(),
                report: watch::Sender::new(report),
                gauges: Mutex::default(),
            })
        };
        Self {
            all: work.into_iter().map(projector).collect(),
            views: views.unwrap_or_else(|| Arc::new(MemoryViews::new())),
            running: AtomicUsize::new(0),
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Projector>> {
        self.all.iter().find(|projector| projector.work.name() == name)
    }

    /// Waits until all have ended; the engine stops.
    pub(crate) async fn ended(&self, host: &dyn Host, until_micros: u64) {
        while self.running.load(Ordering::Acquire) > 0 && host.elapsed_micros() < until_micros {
            self.all.iter().for_each(|projector| projector.wake.wake());
            host.sleep(Duration::from_millis(2)).await;
        }
    }

    /// Metrics of now.
    pub(crate) fn refresh(&self, inner: &Core) {
        for projector in &self.all {
            let health = projector.health(inner);
            let gauges = projector.gauges.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(gauges) = &*gauges {
                gauges.show(&health, &projector.report.borrow());
            }
        }
    }
}

/// Starts them all.
pub(crate) fn start(inner: &Arc<Core>) {
    let projections = &inner.projections;
    if projections.all.is_empty() {
        return;
    }
    inner.context.metrics.register(|registry| {
        let families = super::health::Families::register(registry);
        for projector in &projections.all {
            let gauges = families.of(projector.work.name());
            *projector.gauges.lock().unwrap_or_else(PoisonError::into_inner) = Some(gauges);
        }
    });
    projections.running.store(projections.all.len(), Ordering::Release);
    for projector in &projections.all {
        let running = Running {
            inner: Arc::downgrade(inner),
            projector: projector.clone(),
        };
        inner.context.host.spawn(Box::pin(run(running)));
    }
}

/// Counts itself out, whatever ends it.
struct Running {
    inner: Weak<Core>,
    projector: Arc<Projector>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.projector.report.send_modify(|report| report.ended = true);
        if let Some(inner) = self.inner.upgrade() {
            inner.projections.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Projector {
    pub(super) fn health(&self, inner: &Core) -> Health {
        let report = self.report.borrow().clone();
        let lag_commits = match &*inner.lives.status() {
            Status::Running(life) => {
                let ends = Ends::of(life);
                ends.commits_after(report.reached.unwrap_or_else(|| ends.start()))
            }
            Status::Down(_) => 0,
        };
        let micros = inner.context.host.now().micros.saturating_sub(report.at_micros).max(0);
        let is_behind = lag_commits > 0 && report.at_micros > 0;
        Health {
            name: self.work.name(),
            kind: self.work.kind(),
            state: report.state,
            reached: report.reached,
            lag_commits,
            lag_seconds: if is_behind { micros as f64 / 1e6 } else { 0.0 },
            events: report.events,
        }
    }

    /// How often it was told to begin anew.
    pub(super) fn rebuilds(&self) -> u64 {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).rebuilds
    }

    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.wake();
    }
}

impl Engine {
    /// How its projections and sinks are, in the order they were given.
    #[must_use]
    pub fn projections(&self) -> Vec<Health> {
        let all = &self.core.projections.all;
        all.iter().map(|projector| projector.health(&self.core)).collect()
    }

    /// A projection's rows, to be read.
    #[must_use]
    pub fn read_model<P: Projection>(&self) -> ReadModel<P> {
        ReadModel::new(self.clone(), self.core.projections.find(P::NAME).cloned())
    }

    /// Has a projection or sink begin anew, from the first event; `false` if there is none of this name. It goes on behind,
    /// while the engine serves: readers see the rows come back.
    pub fn rebuild_projection(&self, name: &str) -> bool {
        let projector = self.core.projections.find(name);
        projector
            .inspect(|projector| projector.order(|orders| orders.rebuilds += 1))
            .is_some()
    }

    /// Lets a projection or sink that has stopped try the event it has stopped at again; `false` if there is none of this
    /// name.
    pub fn resume_projection(&self, name: &str) -> bool {
        let projector = self.core.projections.find(name);
        projector
            .inspect(|projector| projector.order(|orders| orders.resume = true))
            .is_some()
    }
}

/// What it does next.
enum Next {
    /// Goes on at once, behind what else is ready.
    Go,
    /// Waits this long.
    Pause(Duration),
    /// Waits for something new after this.
    New(Option<Position>),
    /// Waits for an order.
    Order,
    End,
}

/// Where a runner stands.
struct Stand {
    /// The offset that is stored; `None`: it has to be read first.
    stored: Option<Option<ViewOffset>>,
    /// How far it has read.
    at: ViewOffset,
    /// The life in which `at` was found to be of this history.
    fits: Weak<Life>,
    known: Known,
    /// Bytes read since the offset was stored, without an event.
    skipped_bytes: usize,
    failures: u32,
    stopped: bool,
    /// There was nothing new when it looked last.
    idle: bool,
}

async fn run(running: Running) {
    let projector = running.projector.clone();
    let mut stand = Stand {
        stored: None,
        at: ViewOffset::default(),
        fits: Weak::new(),
        known: Known::default(),
        skipped_bytes: 0,
        failures: 0,
        stopped: false,
        idle: false,
    };
    loop {
        let Some(inner) = running.inner.upgrade() else { return };
        let next = stand.step(&inner, &projector).await;
        let sleep = |duration| Some(inner.context.host.sleep(duration));
        let (sleep, seen) = match next {
            Next::End => return,
            Next::Go => {
                drop(inner);
                yielded().await;
                continue;
            }
            Next::Pause(duration) => (sleep(duration), None),
            Next::New(seen) => (sleep(IDLE), Some(seen)),
            Next::Order => (None, None),
        };
        drop(inner);
        woken(&running.inner, &projector, sleep, seen).await;
    }
}

/// Lets others go first.
async fn yielded() {
    let mut is_second = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sleeps until the time is over, something is new, an order comes, or the engine stops.
async fn woken(inner: &Weak<Core>, projector: &Projector, mut sleep: Option<Task>, seen: Option<Option<Position>>) {
    std::future::poll_fn(|context| {
        let Some(inner) = inner.upgrade() else {
            return Poll::Ready(());
        };
        let slept = sleep
            .as_mut()
            .is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        if slept || projector.wake.poll(context.waker()) || inner.context.is_stopping() {
            return Poll::Ready(());
        }
        if let Some(seen) = seen {
            let is_new = || inner.lives.durable() != seen;
            if is_new() {
                return Poll::Ready(());
            }
            inner.context.signals.watch(context.waker());
            if is_new() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

impl Stand {
    async fn step(&mut self, inner: &Arc<Core>, projector: &Projector) -> Next {
        if inner.context.is_stopping() {
            self.note(inner, projector).await;
            return Next::End;
        }
        match self.attempt(inner, projector).await {
            Ok(next) => next,
            Err(reason) => {
                // What is stored may be newer than this runner knows: the answer may have been lost.
                self.stored = None;
                let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_LAST);
                self.failures += 1;
                let name = projector.work.name();
                tracing::warn!("projection {name} tries again in {pause:?}: {reason}");
                projector.report.send_modify(|report| {
                    report.retries += 1;
                    report.state = State::Retrying { reason };
                });
                Next::Pause(pause)
            }
        }
    }

    /// One batch at most. An error is worth another attempt.
    async fn attempt(&mut self, inner: &Arc<Core>, projector: &Projector) -> Result<Next, String> {
        let work = &*projector.work;
        let views = &*inner.projections.views;
        self.obey(views, projector).await?;
        if self.stopped {
            return Ok(Next::Order);
        }
        let life = match &*inner.lives.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => return Ok(Next::New(None)),
        };
        if self.stored.is_none() {
            self.look(views, &life, work).await?;
        }
        if !std::ptr::eq(self.fits.as_ptr(), Arc::as_ptr(&life)) {
            let misfit = source::misfit(inner, &life, self.at).await;
            if let Some(reason) = misfit.map_err(|error| error.to_string())? {
                return Ok(self.stop(projector, reason));
            }
            self.fits = Arc::downgrade(&life);
        }
        let durable = life.ledger.durable();
        let commits = source::next(inner, &life, self.at.position).await;
        let commits = commits.map_err(|error| error.to_string())?;
        if life.ledger.is_over() {
            // The next life says what of this one counts.
            return Ok(Next::Go);
        }
        let Some(last) = commits.last() else {
            if std::mem::replace(&mut self.idle, true) && self.was_moved(views, work.name()).await? {
                return Ok(Next::Go);
            }
            self.succeeded(projector, durable);
            return Ok(Next::New(Some(durable)));
        };
        self.idle = false;
        let reached = last.position();
        let handled = work.handle(&commits, &mut self.known, views).await?;
        let Handled {
            commits: counted,
            events,
            poison,
        } = handled;
        if let Some(last) = counted.checked_sub(1).and_then(|last| commits.get(last)) {
            let offset = ViewOffset {
                position: last.position(),
                checksum: last.checksum_sealed(),
                version: work.version(),
            };
            let bytes: usize = commits[..counted].iter().map(|commit| commit.bytes().len()).sum();
            self.skipped_bytes += bytes;
            self.at = offset;
            if (events > 0 || self.skipped_bytes > SKIPPED_BYTES_MAX || poison.is_some())
                && !self.store(views, work.name()).await?
            {
                return Ok(Next::Go);
            }
            projector.report.send_modify(|report| {
                report.events += events as u64;
                report.batches += 1;
                report.at_micros = last.stamp().at_micros;
            });
            self.succeeded(projector, offset.position);
        }
        if let Some(reason) = poison {
            return Ok(self.stop(projector, reason));
        }
        self.known.shrink(KNOWN_BYTES_MAX);
        Ok(if reached >= durable {
            Next::Pause(PAUSE)
        } else {
            Next::Go
        })
    }

    /// Does what it was told to.
    async fn obey(&mut self, views: &dyn Views, projector: &Projector) -> Result<(), String> {
        let (rebuilds, resume) = {
            let mut orders = projector.orders.lock().unwrap_or_else(PoisonError::into_inner);
            (orders.rebuilds, std::mem::take(&mut orders.resume))
        };
        let rebuild = rebuilds > projector.report.borrow().rebuilds;
        if rebuild {
            self.clear(views, projector.work.name()).await?;
            projector.report.send_modify(|report| {
                // At once: who waits for it takes a stop it still shows for one of after the order.
                report.rebuilds = rebuilds;
                report.reached = None;
                report.state = State::Running;
            });
        } else if resume && self.stopped {
            projector.report.send_modify(|report| report.state = State::Running);
        }
        if rebuild || resume && self.stopped {
            self.stopped = false;
            self.stored = None;
        }
        Ok(())
    }

    async fn clear(&mut self, views: &dyn Views, name: &str) -> Result<(), String> {
        self.known.clear();
        self.stored = None;
        tracing::info!("projection {name} is rebuilt from the first event");
        let cleared = views.clear(name).await;
        cleared.map_err(|error| format!("it cannot be cleared: {error}"))
    }

    /// Reads how far the rows are.
    async fn look(&mut self, views: &dyn Views, life: &Life, work: &dyn Work) -> Result<(), String> {
        let read = views.offset(work.name()).await;
        let mut found = read.map_err(|error| format!("its offset cannot be read: {error}"))?;
        if let Some(other) = found.filter(|found| found.version != work.version()) {
            let (name, now, version) = (work.name(), work.version(), other.version);
            tracing::info!("projection {name} was written by version {version}, this is version {now}");
            self.clear(views, work.name()).await?;
            found = None;
        }
        self.known.clear();
        self.skipped_bytes = 0;
        self.stored = Some(found);
        self.fits = Weak::new();
        self.at = found.unwrap_or_else(|| ViewOffset {
            position: Ends::of(life).start(),
            checksum: 0,
            version: work.version(),
        });
        Ok(())
    }

    /// Stores what has changed and how far it has come; `false`: somebody else has written, it begins from there.
    async fn store(&mut self, views: &dyn Views, name: &str) -> Result<bool, String> {
        let batch = ViewBatch {
            expected: self.stored.flatten(),
            offset: self.at,
            changes: self.known.changes(),
        };
        let applied = views.apply(name, batch).await;
        match applied.map_err(|error| format!("its rows cannot be written: {error}"))? {
            Applied::Done => {
                self.stored = Some(Some(self.at));
                self.skipped_bytes = 0;
                Ok(true)
            }
            Applied::Moved(found) => {
                let found = found.map_or_else(|| "cleared".to_owned(), |found| found.position.to_string());
                tracing::info!("projection {name} was moved by somebody else ({found}); it goes on from there");
                self.known.clear();
                self.stored = None;
                Ok(false)
            }
        }
    }

    /// With nothing to do: whether somebody else has cleared or written the rows. It begins from there then.
    async fn was_moved(&mut self, views: &dyn Views, name: &str) -> Result<bool, String> {
        let found = views.offset(name).await;
        let found = found.map_err(|error| format!("its offset cannot be read: {error}"))?;
        let moved = self.stored != Some(found);
        if moved {
            tracing::info!("projection {name} was moved by somebody else; it goes on from there");
            self.known.clear();
            self.stored = None;
        }
        Ok(moved)
    }

    /// Before the end: what was read without an event need not be read again.
    async fn note(&mut self, inner: &Core, projector: &Projector) {
        if self.stopped || self.skipped_bytes == 0 || self.stored.is_none() {
            return;
        }
        if let Err(reason) = self.store(&*inner.projections.views, projector.work.name()).await {
            let name = projector.work.name();
            tracing::warn!("projection {name} reads a part of the journal again at the next start: {reason}");
        }
    }

    fn succeeded(&mut self, projector: &Projector, reached: Position) {
        self.failures = 0;
        projector.report.send_if_modified(|report| {
            let is_new = report.reached != Some(reached) || report.state != State::Running;
            report.reached = Some(reached);
            report.state = State::Running;
            is_new
        });
    }

    fn stop(&mut self, projector: &Projector, reason: String) -> Next {
        let name = projector.work.name();
        tracing::error!("projection {name} has stopped: {reason}");
        self.stopped = true;
        self.known.clear();
        projector
            .report
            .send_modify(|report| report.state = State::Stopped { reason });
        Next::Order
    }
}

/// What projections are given with.
impl crate::Builder {
    /// Gives it a projection. Its kind comes first.
    ///
    /// # Panics
    /// When its name is not one (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not given before.
    #[must_use]
    pub fn projection<P: Projection>(self, projection: P) -> Self {
        self.work(Box::new(OfProjection(projection)))
    }

    /// Gives it a sink. Its kind comes first.
    ///
    /// # Panics
    /// When its name is not one (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not given before.
    #[must_use]
    pub fn sink<S: Sink>(self, sink: S) -> Self {
        self.work(Box::new(OfSink(sink)))
    }
}
