//! An engine's projections and sinks: what others ask them and have them do.

use super::{
    EventOffset, Progress, Projection, ReadModel, Sink, SkipError, Skipped, State,
    consumer::{Consumer, ProjectionConsumer, SinkConsumer},
    metrics::{Families, Gauges},
    place::ProjectionPosition,
    runner,
    skip::Skip,
};
use crate::{
    Builder, ByHand, Engine,
    engine::Core,
    host::{Host, Signal},
    life::Status,
    tail::Ends,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use throng_journal::{MemoryViews, Position, Positions, Views};
use tokio::sync::watch;

/// All projections and sinks of an engine.
pub(crate) struct Projections {
    all: Vec<Arc<Projector>>,
    pub(super) views: Arc<dyn Views>,
    /// Those that have not ended.
    running: AtomicUsize,
}

/// One projection or sink.
pub(crate) struct Projector {
    pub(super) consumer: Box<dyn Consumer>,
    pub(super) wake: Signal,
    requests: Mutex<Requests>,
    pub(super) report: watch::Sender<Report>,
    gauges: Mutex<Option<Gauges>>,
}

/// What its runner was asked for.
#[derive(Default)]
pub(super) struct Requests {
    /// The number of requests so far, of all sorts.
    pub(super) asked: u64,
    /// How often it was asked to begin anew.
    pub(super) rebuilds: u64,
    /// It was asked to try again the event it has stopped at.
    pub(super) resume: bool,
    /// It was asked to go past the event it has stopped at, if it is this one.
    pub(super) skip: Option<Skip>,
}

/// What its runner says.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) state: State,
    /// The number of requests it has followed, of all sorts, and of those to begin anew.
    pub(super) followed: u64,
    pub(super) rebuilds: u64,
    pub(super) reached: Option<Position>,
    /// All that it has taken.
    pub(super) told: Option<Positions>,
    /// Its rows are being built from the first event.
    pub(super) is_rebuilding: bool,
    /// How many commits it had not taken when it looked last.
    pub(super) untold: u64,
    /// It began before this, up to where history of its kind was removed.
    pub(super) missed_upto: Option<Position>,
    /// When it had last read all there was, by the host's clock.
    pub(super) complete_micros: u64,
    /// When the last commit it has taken was made, or the first one it has read and not taken.
    pub(super) at_micros: i64,
    pub(super) events: u64,
    pub(super) batches: u64,
    pub(super) retries: u64,
    /// How many events it has gone past since the engine started.
    pub(super) skips: u64,
    /// Those that it has gone past since its rows began, the newest.
    pub(super) skipped: Vec<Skipped>,
    pub(super) ended: bool,
}

impl Projections {
    pub(crate) fn new(consumers: Vec<Box<dyn Consumer>>, views: Option<Arc<dyn Views>>) -> Self {
        Self {
            all: consumers
                .into_iter()
                .map(|consumer| Arc::new(Projector::new(consumer)))
                .collect(),
            views: views.unwrap_or_else(|| Arc::new(MemoryViews::new())),
            running: AtomicUsize::new(0),
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Projector>> {
        self.all.iter().find(|projector| projector.consumer.name() == name)
    }

    /// Waits until all have ended; the engine stops.
    pub(crate) async fn ended(&self, host: &dyn Host, until_micros: u64) {
        while self.running.load(Ordering::Acquire) > 0 && host.elapsed_micros() < until_micros {
            self.all.iter().for_each(|projector| projector.wake.wake());
            host.sleep(Duration::from_millis(2)).await;
        }
    }

    /// How far they have come.
    pub(crate) fn progress(&self, inner: &Core) -> Vec<super::Progress> {
        self.all.iter().map(|projector| projector.progress(inner)).collect()
    }

    /// What each of them has taken, as its rows say, also of one that another node runs. One of another version begins anew.
    pub(crate) async fn stored(&self) -> Result<Vec<(&'static str, Positions)>, String> {
        let mut all = Vec::with_capacity(self.all.len());
        for projector in &self.all {
            let (name, version) = (projector.consumer.name(), projector.consumer.version());
            let stored = ProjectionPosition::stored(&*self.views, name).await?;
            let own = stored.filter(|(position, _)| position.last.version == version);
            all.push((name, own.map_or_else(Positions::default, |(position, _)| position.told)));
        }
        Ok(all)
    }

    /// Sets the metrics to what is now.
    pub(crate) fn refresh(&self, inner: &Core) {
        for projector in &self.all {
            let progress = projector.progress(inner);
            let gauges = projector.gauges.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(gauges) = &*gauges {
                gauges.show(&progress, &projector.report.borrow());
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
        let families = Families::register(registry);
        for projector in &projections.all {
            let gauges = families.of(projector.consumer.name());
            *projector.gauges.lock().unwrap_or_else(PoisonError::into_inner) = Some(gauges);
        }
    });
    projections.running.store(projections.all.len(), Ordering::Release);
    for projector in &projections.all {
        let running = Running {
            inner: Arc::downgrade(inner),
            projector: projector.clone(),
        };
        inner.context.host.spawn(Box::pin(runner::run(running)));
    }
}

/// A runner counts itself out when it is dropped, whatever ends it.
pub(super) struct Running {
    pub(super) inner: Weak<Core>,
    pub(super) projector: Arc<Projector>,
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
    fn new(consumer: Box<dyn Consumer>) -> Self {
        let report = Report {
            state: State::Running,
            followed: 0,
            rebuilds: 0,
            reached: None,
            told: None,
            is_rebuilding: false,
            untold: 0,
            missed_upto: None,
            complete_micros: 0,
            at_micros: 0,
            events: 0,
            batches: 0,
            retries: 0,
            skips: 0,
            skipped: Vec::new(),
            ended: false,
        };
        Self {
            consumer,
            wake: Signal::default(),
            requests: Mutex::default(),
            report: watch::Sender::new(report),
            gauges: Mutex::default(),
        }
    }

    pub(super) fn progress(&self, inner: &Core) -> Progress {
        let report = self.report.borrow().clone();
        let lag_commits = match &*inner.lives.status() {
            Status::Running(_) if inner.lives.member().is_some() => report.untold,
            Status::Running(life) => {
                let told = report.told.unwrap_or_default();
                told.untold(&Ends::of(life).streams(told.first()))
            }
            Status::Down(_) => 0,
        };
        let age_micros = inner.context.host.now().micros.saturating_sub(report.at_micros);
        let now = inner.context.host.elapsed_micros();
        let behind_micros = match lag_commits {
            0 => 0,
            _ => now.saturating_sub(report.complete_micros),
        };
        // Of one that has stopped before it read anything no commit is known.
        let lag_micros = match (lag_commits, report.at_micros) {
            (0, _) => 0,
            (_, 0) => behind_micros,
            (_, _) => age_micros.max(0).cast_unsigned(),
        };
        Progress {
            name: self.consumer.name(),
            kind: self.consumer.kind(),
            is_sink: !self.consumer.is_projection(),
            state: report.state,
            is_rebuilding: report.is_rebuilding,
            reached: report.reached,
            missed_upto: report.missed_upto,
            lag_commits,
            lag_seconds: lag_micros as f64 / 1e6,
            behind_seconds: behind_micros as f64 / 1e6,
            events: report.events,
            skipped: report.skipped,
        }
    }

    /// The number of requests so far, of all sorts.
    pub(super) fn asked(&self) -> u64 {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// What it was asked for; a request to resume, or to skip, is given out once.
    pub(super) fn take_requests(&self) -> Requests {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        Requests {
            asked: requests.asked,
            rebuilds: requests.rebuilds,
            resume: std::mem::take(&mut requests.resume),
            skip: requests.skip.take(),
        }
    }

    fn request(&self, request: impl FnOnce(&mut Requests)) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.asked += 1;
        request(&mut requests);
        drop(requests);
        self.wake.wake();
    }
}

impl Engine {
    /// How far its projections and sinks have come, in the order they were given.
    #[must_use]
    pub fn projections(&self) -> Vec<Progress> {
        let all = &self.core.projections.all;
        all.iter().map(|projector| projector.progress(&self.core)).collect()
    }

    /// A projection's rows, to be read.
    #[must_use]
    pub fn read_model<P: Projection>(&self) -> ReadModel<P> {
        ReadModel::new(self.clone(), self.core.projections.find(P::NAME).cloned())
    }

    /// Has a projection or sink begin anew, from the first event; `false` if there is none of this name. The engine goes on serving;
    /// readers see the rows come back, and [`Progress::is_rebuilding`] says until when they are not complete.
    pub fn rebuild_projection(&self, name: &str) -> bool {
        let projector = self.core.projections.find(name);
        projector
            .inspect(|projector| projector.request(|requests| requests.rebuilds += 1))
            .is_some()
    }

    /// Lets a projection or sink that has stopped try the event it has stopped at again; `false` if there is none of this
    /// name.
    pub fn resume_projection(&self, name: &str) -> bool {
        let projector = self.core.projections.find(name);
        projector
            .inspect(|projector| projector.request(|requests| requests.resume = true))
            .is_some()
    }

    /// Has a projection or sink that has stopped go past the event it has stopped at, which the caller names ([`State::Stopped`]): the
    /// others of its commit are applied. The rows' offset moves past it in the batch that says who decided it and why, so that it
    /// counts as skipped only then ([`Progress::skipped`]). A rebuild comes to the event again.
    ///
    /// The decision is durable when this returns; the event is gone past behind. If the projection begins anew meanwhile, nothing is skipped.
    ///
    /// # Errors
    /// There is none of this name, it has not stopped at that event, or the decision could not be made durable in time.
    pub async fn skip_event(&self, name: &str, event: EventOffset, by: ByHand<'_>) -> Result<(), SkipError> {
        let projector = self.core.projections.find(name).ok_or(SkipError::Unknown)?;
        match &projector.report.borrow().state {
            State::Stopped { at: Some(at), .. } if *at == event => {}
            State::Stopped { at: Some(at), .. } => return Err(SkipError::Other(*at)),
            State::Stopped { at: None, reason } => return Err(SkipError::NoEvent(reason.clone())),
            State::Elsewhere => return Err(SkipError::Elsewhere),
            State::Running | State::Retrying { .. } => return Err(SkipError::Running),
        }
        let (skip, mut answered) = Skip::new(event, &by);
        projector.request(|requests| requests.skip = Some(skip));
        let context = &self.core.context;
        let mut sleep = context.host.sleep(context.options.deadline);
        let answer = std::future::poll_fn(|task| match Pin::new(&mut answered).poll(task) {
            Poll::Ready(answer) => Poll::Ready(answer.ok()),
            Poll::Pending => sleep.as_mut().poll(task).map(|()| None),
        });
        let unknown = || Err(SkipError::Unavailable("the projection does not answer".into()));
        answer.await.unwrap_or_else(unknown)
    }
}

impl Builder {
    /// Gives it a projection. Its kind comes first.
    ///
    /// # Panics
    /// When its name is not one (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not given before.
    #[must_use]
    pub fn projection<P: Projection>(self, projection: P) -> Self {
        self.consumer(Box::new(ProjectionConsumer(projection)))
    }

    /// Gives it a sink. Its kind comes first.
    ///
    /// # Panics
    /// When its name is not one (1 to 64 of `[a-z0-9-]`), is taken, or its kind was not given before.
    #[must_use]
    pub fn sink<S: Sink>(self, sink: S) -> Self {
        self.consumer(Box::new(SinkConsumer(sink)))
    }
}
