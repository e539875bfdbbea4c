//! A running service: batches and the time go in, its hooks are called, panics are caught. It knows no thread and no queue.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{Context, OnPanic, Service};
use crate::stats::{Counter, Level, Stats, Timing};

/// The most timers fired before the next look at the queue.
const FIRED_MAX: usize = 1_024;

pub(crate) struct Runner<S: Service> {
    factory: Box<dyn FnMut() -> S + Send>,
    /// The service; `None` before the start and after the end.
    service: Option<S>,
    context: Context<S::Message>,
    limit_items: usize,
    since_limit: usize,
    on_panic: OnPanic,
    counts: Arc<Counted>,
    recorder: Option<Recorder>,
}

/// The numbers behind [`Counts`](super::Counts). Only the runner adds to them, on the thread that has the service; any thread reads them.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) received: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) restarts: AtomicU64,
}

/// The statistics that every service records of itself.
struct Recorder {
    received: Counter,
    batches: Counter,
    panics: Counter,
    batch_items: Level,
    queue_items: Level,
    batch_seconds: Timing,
}

impl Recorder {
    fn new(stats: &Stats, name: &str) -> Self {
        Self {
            received: stats.counter(&format!("{name}.received")),
            batches: stats.counter(&format!("{name}.batches")),
            panics: stats.counter(&format!("{name}.panics")),
            batch_items: stats.level(&format!("{name}.batch_items")),
            queue_items: stats.level(&format!("{name}.queue_items")),
            batch_seconds: stats.timing(&format!("{name}.batch_seconds")),
        }
    }
}

impl<S: Service> Runner<S> {
    pub(crate) fn new(
        factory: Box<dyn FnMut() -> S + Send>,
        (limit_items, on_panic): (usize, OnPanic),
        stats: Option<(&Stats, &str)>,
    ) -> Self {
        Self {
            factory,
            service: None,
            context: Context::new(Instant::now()),
            limit_items,
            since_limit: 0,
            on_panic,
            counts: Arc::default(),
            recorder: stats.map(|(stats, name)| Recorder::new(stats, name)),
        }
    }

    pub(crate) fn counts(&self) -> Arc<Counted> {
        Arc::clone(&self.counts)
    }

    /// Sets the function that is called when there is work other than a message.
    pub(crate) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.context.outcomes.wake_by(wake);
    }

    /// Makes the service. If that or its `started` panics, there is none.
    pub(crate) fn start(&mut self, now: Instant) {
        self.context.now = now;
        self.context.timers.clear();
        let Self { factory, context, .. } = self;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut service = factory();
            service.started(context);
            service
        }));
        match made {
            Ok(service) => self.service = Some(service),
            Err(_) => self.count_panic(),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.service.is_some()
    }

    /// The service wants to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.context.is_stopping
    }

    pub(crate) fn next_timer_at(&self) -> Option<Instant> {
        self.context.timers.next_at()
    }

    /// Receives a batch of this many items, while others wait.
    pub(crate) fn batch(
        &mut self,
        mut messages: impl Iterator<Item = S::Message>,
        items: usize,
        waiting: usize,
        now: Instant,
    ) {
        self.context.now = now;
        self.guarded(|service, context| service.start_of_batch(items, context));
        loop {
            let (limit_items, since_limit) = (self.limit_items, &mut self.since_limit);
            let (Some(service), context) = (&mut self.service, &mut self.context) else {
                return;
            };
            let received = catch_unwind(AssertUnwindSafe(|| {
                for message in messages.by_ref() {
                    *since_limit += 1;
                    service.receive(message, context);
                    if *since_limit >= limit_items {
                        *since_limit = 0;
                        service.limit(context);
                    }
                }
            }));
            match received {
                Ok(()) => break,
                Err(_) => self.panicked(),
            }
        }
        self.counts.received.fetch_add(items as u64, Ordering::Relaxed);
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.received.add(items as u64);
            recorder.batches.add(1);
            recorder.batch_items.set(items as f64);
            recorder.queue_items.set(waiting as f64);
            recorder.batch_seconds.record(now.elapsed());
        }
    }

    /// Receives outcomes of requests, and due timers; returns true if there were any.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        self.context.now = now;
        let mut did = false;
        for (timer, message) in self.context.outcomes.take() {
            did = true;
            self.context.timers.cancel(timer);
            self.guarded(|service, context| service.receive(message(), context));
        }
        for _ in 0..FIRED_MAX {
            let fired = catch_unwind(AssertUnwindSafe(|| self.context.timers.fire(now)));
            match fired {
                Ok(None) => break,
                Ok(Some(message)) => self.guarded(|service, context| service.receive(message, context)),
                Err(_) => self.panicked(),
            }
            did = true;
        }
        did
    }

    /// Runs the service's hook for an empty queue.
    pub(crate) fn empty(&mut self, now: Instant) {
        self.context.now = now;
        self.guarded(Service::empty);
    }

    /// Runs the service's hook for an idle time.
    pub(crate) fn idle(&mut self, now: Instant) {
        self.context.now = now;
        self.guarded(Service::idle);
    }

    pub(crate) fn stop(&mut self) {
        let Some(mut service) = self.service.take() else {
            return;
        };
        let stopped = catch_unwind(AssertUnwindSafe(move || service.stopped()));
        if stopped.is_err() {
            self.count_panic();
        }
    }

    fn guarded(&mut self, work: impl FnOnce(&mut S, &mut Context<S::Message>)) {
        let (Some(service), context) = (&mut self.service, &mut self.context) else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| work(service, context))).is_err() {
            self.panicked();
        }
    }

    fn panicked(&mut self) {
        self.count_panic();
        if self.on_panic == OnPanic::Restart {
            let broken = self.service.take();
            // A broken service may panic again while it is dropped.
            drop(catch_unwind(AssertUnwindSafe(|| drop(broken))));
            self.since_limit = 0;
            self.start(self.context.now);
            if self.is_alive() {
                self.counts.restarts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn count_panic(&self) {
        self.counts.panics.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.panics.add(1);
        }
    }
}
