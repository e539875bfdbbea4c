//! An engine's projections and sinks, with their requests and reports.

use super::{
    EventOffset, Progress, ProjectionState, SkipError, consumer::Consumer, metrics::Gauges, place::ProjectionPosition,
    report::Report, skip::Skip,
};
use crate::{
    OperatorDecision,
    epoch::{Ends, Epochs, Status},
    host::Signal,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use throng_journal::{MemoryViews, Positions, Views};
use tokio::sync::watch;

/// All projections and sinks of an engine.
pub(crate) struct Projections {
    pub(super) epochs: Arc<Epochs>,
    pub(super) all: Vec<Arc<Projector>>,
    pub(super) views: Arc<dyn Views>,
    /// The number of running runners. The start sets it, each runner decrements it when dropped, and a stopping engine
    /// waits for 0.
    pub(super) running: AtomicUsize,
}

/// A projection or sink: its consumer, the requests to its runner, and what the runner reports.
pub(crate) struct Projector {
    pub(super) consumer: Box<dyn Consumer>,
    pub(super) wake: Signal,
    requests: Mutex<Requests>,
    pub(super) report: watch::Sender<Report>,
    pub(super) gauges: Mutex<Option<Gauges>>,
}

/// The requests to the runner of a projection or sink.
#[derive(Default)]
pub(super) struct Requests {
    /// The number of requests so far, of all sorts.
    pub(super) asked: u64,
    /// The number of rebuild requests so far.
    pub(super) rebuilds: u64,
    /// A request to try again the event at which it has stopped.
    pub(super) resume: bool,
    /// A request to skip the event at which it has stopped.
    pub(super) skip: Option<Skip>,
}

impl Projections {
    pub(crate) fn new(epochs: Arc<Epochs>, consumers: Vec<Box<dyn Consumer>>, views: Option<Arc<dyn Views>>) -> Self {
        Self {
            epochs,
            all: consumers
                .into_iter()
                .map(|consumer| Arc::new(Projector::new(consumer)))
                .collect(),
            views: views.unwrap_or_else(|| Arc::new(MemoryViews::new())),
            running: AtomicUsize::new(0),
        }
    }

    /// Finds a projection or sink by its name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Projector>> {
        self.all.iter().find(|projector| projector.consumer.name() == name)
    }

    /// Waits until all have ended; the engine stops.
    pub(crate) async fn ended(&self, until_micros: u64) {
        let host = &self.epochs.context.host;
        while self.running.load(Ordering::Acquire) > 0 && host.elapsed_micros() < until_micros {
            self.all.iter().for_each(|projector| projector.wake.wake());
            host.sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns the progress of each projection and sink.
    pub(crate) fn progress(&self) -> Vec<Progress> {
        let all = self.all.iter();
        all.map(|projector| projector.progress(&self.epochs)).collect()
    }

    /// Has a projection rebuilt from the first event; `false` if none has this name.
    pub(crate) fn rebuild(&self, name: &str) -> bool {
        let projector = self.find(name);
        projector
            .inspect(|projector| projector.request(|requests| requests.rebuilds += 1))
            .is_some()
    }

    /// Has a projection retry the event at which it stopped; `false` if none has this name.
    pub(crate) fn resume(&self, name: &str) -> bool {
        let projector = self.find(name);
        projector
            .inspect(|projector| projector.request(|requests| requests.resume = true))
            .is_some()
    }

    /// Has a projection skip the event at which it stopped.
    pub(crate) async fn skip(&self, name: &str, event: EventOffset, by: OperatorDecision<'_>) -> Result<(), SkipError> {
        let projector = self.find(name).ok_or(SkipError::Unknown)?;
        match &projector.report.borrow().state {
            ProjectionState::Stopped { at: Some(at), .. } if *at == event => {}
            ProjectionState::Stopped { at: Some(at), .. } => return Err(SkipError::Other(*at)),
            ProjectionState::Stopped { at: None, reason } => return Err(SkipError::NoEvent(reason.clone())),
            ProjectionState::Remote => return Err(SkipError::Remote),
            ProjectionState::Running | ProjectionState::Retrying { .. } => return Err(SkipError::Running),
        }
        let (skip, mut answered) = Skip::new(event, &by);
        projector.request(|requests| requests.skip = Some(skip));
        let context = &self.epochs.context;
        let mut sleep = context.host.sleep(context.options.deadline);
        let answer = std::future::poll_fn(|task| match Pin::new(&mut answered).poll(task) {
            Poll::Ready(answer) => Poll::Ready(answer.ok()),
            Poll::Pending => sleep.as_mut().poll(task).map(|()| None),
        });
        let unknown = || Err(SkipError::Unavailable("the projection does not answer".into()));
        answer.await.unwrap_or_else(unknown)
    }

    /// Returns what each projection has taken according to its rows, whichever node runs it. Rows of another version count as nothing,
    /// because
    /// they are rebuilt.
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

    /// Sets the metrics to the present values.
    pub(crate) fn refresh(&self) {
        for projector in &self.all {
            let progress = projector.progress(&self.epochs);
            let gauges = projector.gauges.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(gauges) = &*gauges {
                gauges.show(&progress, &projector.report.borrow());
            }
        }
    }
}

impl Projector {
    fn new(consumer: Box<dyn Consumer>) -> Self {
        Self {
            consumer,
            wake: Signal::default(),
            requests: Mutex::default(),
            report: watch::Sender::new(Report::new()),
            gauges: Mutex::default(),
        }
    }

    pub(super) fn progress(&self, epochs: &Epochs) -> Progress {
        let report = self.report.borrow().clone();
        let lag_commits = match &*epochs.status() {
            Status::Running(_) if epochs.member().is_some() => report.untold,
            Status::Running(epoch) => {
                let told = report.told.unwrap_or_default();
                told.untold(&Ends::of(epoch).streams(told.first()))
            }
            Status::Down(_) => 0,
        };
        let age_micros = epochs.context.host.now().micros.saturating_sub(report.at_micros);
        let now = epochs.context.host.elapsed_micros();
        let behind_micros = match lag_commits {
            0 => 0,
            _ => now.saturating_sub(report.complete_micros),
        };
        // No commit is known if it stopped before it read anything.
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

    /// Returns the number of requests so far, of all sorts.
    pub(super) fn asked(&self) -> u64 {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// Returns the requests. A request to resume or to skip is returned once.
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
