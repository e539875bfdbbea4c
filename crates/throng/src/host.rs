//! The engine's access to clocks, entropy and tasks. The simulator has its own.

use crate::model::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::{self, Poll, Waker},
    time::Duration,
};

/// A background task of the engine.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Clocks, entropy and tasks.
pub trait Host: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
    /// Returns microseconds of a monotonic clock, from any origin.
    fn elapsed_micros(&self) -> u64;
    /// Returns the microseconds of CPU that this thread has used, if known. Work that took long without using CPU was waiting.
    fn thread_cpu_micros(&self) -> Option<u64> {
        None
    }
    /// Returns a number that nobody can guess.
    fn entropy(&self) -> u128;
    /// Runs a task in the background.
    fn spawn(&self, task: Task);
    /// Runs user code that calls outside providers, so that it delays neither the engine's tasks nor another worker's.
    fn spawn_outside(&self, _worker: &'static str, task: Task) {
        self.spawn(task);
    }
    /// Resolves after this long.
    fn sleep(&self, duration: Duration) -> Task;
    /// Wakes the task that is polled once its loop has looked at its sockets again, and not just after the tasks that are ready now.
    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        context.waker().wake_by_ref();
    }
    /// Ends the tasks: the engine is gone.
    fn close(&self) {}
}

/// The lead over the monotonic clock by which the time of day must grow to count as set forward. The machine may also have slept.
const JUMP_MICROS: i64 = 100_000;
/// The time of day that may pass after a look at the other clock before both are read again.
const MOMENT_MICROS: i64 = 1_000;
/// The part by which each look approaches a time of day that was set back. A timer is late by a hundredth at most.
const SLEW_MICROS: i64 = 1_000;

/// A host whose time of day never goes back. If the clock is set back, its time goes on from where it was until the clock has caught up,
/// so that a timer set for two seconds from now fires in two seconds.
pub(crate) struct SteadyHost {
    host: Arc<dyn Host>,
    /// The lead of the time of day over the monotonic clock. Each caller that sees a greater one raises it; only [`look`](Self::look)
    /// lowers it.
    ahead_micros: AtomicI64,
    /// The lead that the clock had at the last look. Written by [`look`](Self::look) alone.
    seen_micros: AtomicI64,
}

impl SteadyHost {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        let steady = Self {
            host,
            ahead_micros: AtomicI64::new(i64::MIN),
            seen_micros: AtomicI64::new(i64::MAX),
        };
        steady.look();
        steady
    }

    /// Compares the clocks, ten times a second; returns true if the time of day was set forward since the last look.
    pub(crate) fn look(&self) -> bool {
        let ahead = self.clocks().0;
        let seen = self.seen_micros.swap(ahead, Ordering::Relaxed);
        let before = self.ahead_micros.fetch_max(ahead, Ordering::AcqRel);
        if before > ahead {
            let lowered = ahead.max(before.saturating_sub(SLEW_MICROS));
            // Another caller may have raised it meanwhile.
            let _ = self
                .ahead_micros
                .compare_exchange(before, lowered, Ordering::AcqRel, Ordering::Relaxed);
        }
        ahead.saturating_sub(seen) > JUMP_MICROS
    }

    /// Returns the lead of the time of day, and the monotonic clock. A caller that is suspended between the two reads sees too small a
    /// lead.
    fn clocks(&self) -> (i64, i64) {
        let day = self.host.now().micros;
        let elapsed = i64::try_from(self.host.elapsed_micros()).unwrap_or(i64::MAX);
        (day.saturating_sub(elapsed), elapsed)
    }
}

impl SteadyHost {
    /// Returns [`now`](Host::now) right after the monotonic clock was read, without reading that clock again.
    pub(crate) fn just_after(&self, elapsed_micros: u64) -> Timestamp {
        let elapsed = i64::try_from(elapsed_micros).unwrap_or(i64::MAX);
        let known = self.ahead_micros.load(Ordering::Acquire).saturating_add(elapsed);
        match self.host.now().micros.saturating_sub(known) <= MOMENT_MICROS {
            true => Timestamp { micros: known },
            // The time of day was set forward, or this caller was suspended.
            false => self.now(),
        }
    }
}

impl Host for SteadyHost {
    fn now(&self) -> Timestamp {
        let (ahead, elapsed) = self.clocks();
        let most = self.ahead_micros.load(Ordering::Acquire);
        if ahead > most {
            self.ahead_micros.fetch_max(ahead, Ordering::AcqRel);
        }
        Timestamp {
            micros: ahead.max(most).saturating_add(elapsed),
        }
    }

    fn elapsed_micros(&self) -> u64 {
        self.host.elapsed_micros()
    }

    fn thread_cpu_micros(&self) -> Option<u64> {
        self.host.thread_cpu_micros()
    }

    fn entropy(&self) -> u128 {
        self.host.entropy()
    }

    fn spawn(&self, task: Task) {
        self.host.spawn(task);
    }

    fn spawn_outside(&self, worker: &'static str, task: Task) {
        self.host.spawn_outside(worker, task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.host.sleep(duration)
    }

    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        self.host.wake_behind_arrivals(context);
    }

    fn close(&self) {
        self.host.close();
    }
}

/// Wakes one task. A signal sent while the task is busy is kept until its next poll.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Signal {
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            drop(state);
            waker.wake();
        }
    }

    /// Takes the signal if there was one since the last poll; otherwise the next one wakes this waker.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.0) {
            return true;
        }
        state.1 = Some(waker.clone());
        false
    }

    /// Has the next signal wake this waker, whatever came before. A task should look for work only after this call: then no signal is
    /// missed in between.
    pub(crate) fn watch(&self, waker: &Waker) {
        while self.poll(waker) {}
    }

    /// Waits for the next signal, at most until the end of a sleep.
    pub(crate) async fn within(&self, mut sleep: Task) {
        std::future::poll_fn(|context| match self.poll(context.waker()) {
            true => Poll::Ready(()),
            false => sleep.as_mut().poll(context),
        })
        .await;
    }
}

/// Lets other tasks of this thread run. A task that always has more to do would starve them.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The microseconds for which a task of the engine works before others of its thread run. The committer above all waits for it.
const SLICE_MICROS: u64 = 500;

/// The time that a busy task has worked since others of its thread have run.
pub(crate) struct Slice<'a> {
    host: &'a dyn Host,
    /// Written only by the task's futures, on one thread at a time.
    begun: AtomicU64,
}

impl<'a> Slice<'a> {
    pub(crate) fn new(host: &'a dyn Host) -> Self {
        let begun = AtomicU64::new(host.elapsed_micros());
        Self { host, begun }
    }

    /// True if the task has worked long enough at this time of the host's clock.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.begun.load(Ordering::Relaxed)) >= SLICE_MICROS
    }

    /// Lets others run once the slice is over. Several futures may share a slice; the first that pauses begins the next one for all.
    pub(crate) async fn pause(&self) {
        while self.is_over(self.host.elapsed_micros()) {
            let begun = self.begun.load(Ordering::Relaxed);
            yield_now().await;
            let now = self.host.elapsed_micros();
            // Another future may have begun it, and worked in it for long.
            let _ = self
                .begun
                .compare_exchange(begun, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The real host. It has two threads with a tokio runtime of its own, so that a slow checkpoint blocks neither a gateway's loop nor the
/// caller's runtime.
pub struct TokioHost {
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
    /// The runtimes of the workers of calls, each started at its first call, if the host has its own runtime.
    outside: Mutex<HashMap<&'static str, tokio::runtime::Runtime>>,
    start_micros: u64,
}

impl TokioHost {
    /// Starts the runtime.
    ///
    /// # Errors
    /// [`std::io::Error`]: the system has no threads left.
    pub fn new() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("throng-engine")
            .enable_time()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            outside: Mutex::default(),
            start_micros: micros_of(ClockId::Monotonic),
        })
    }

    /// Returns a host on the caller's runtime, which must have a timer. Its tasks end with that runtime.
    #[must_use]
    pub fn on(handle: tokio::runtime::Handle) -> Self {
        Self {
            handle,
            runtime: Mutex::new(None),
            outside: Mutex::default(),
            start_micros: micros_of(ClockId::Monotonic),
        }
    }
}

/// Returns the microseconds of a clock. It is called several times for each command, and skips the checks of [`std::time`], which
/// cost as much as reading the clock.
fn micros_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Only a wrongly set time of day is before its origin.
    time.tv_sec.max(0).cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

impl Host for TokioHost {
    fn now(&self) -> Timestamp {
        let micros = micros_of(ClockId::Realtime).cast_signed();
        Timestamp { micros }
    }

    fn elapsed_micros(&self) -> u64 {
        micros_of(ClockId::Monotonic) - self.start_micros
    }

    fn thread_cpu_micros(&self) -> Option<u64> {
        Some(micros_of(ClockId::ThreadCPUTime))
    }

    fn entropy(&self) -> u128 {
        rand::random()
    }

    fn spawn(&self, task: Task) {
        self.handle.spawn(task);
    }

    fn spawn_outside(&self, worker: &'static str, task: Task) {
        // A host on the caller's runtime has no other.
        if lock(&self.runtime).is_none() {
            return self.spawn(task);
        }
        let mut outside = lock(&self.outside);
        if let Some(own) = outside.get(worker) {
            return drop(own.spawn(task));
        }
        let begun = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(format!("call-{worker}"))
            .enable_all()
            .build();
        match begun {
            Ok(begun) => drop(outside.entry(worker).or_insert(begun).spawn(task)),
            Err(why) => {
                tracing::error!("a call of {worker} is made on the engine's own threads: {why}");
                self.spawn(task);
            }
        }
    }

    fn sleep(&self, duration: Duration) -> Task {
        // The sleep needs the timer of the engine's runtime: the caller may be on no runtime, or on one without a timer.
        let _clock = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        // The first poll of `yield_now` has the waker woken after the runtime's next look at its sockets.
        let _ = std::pin::pin!(tokio::task::yield_now()).poll(context);
    }

    fn close(&self) {
        let outside = std::mem::take(&mut *lock(&self.outside)).into_values();
        for runtime in outside.chain(lock(&self.runtime).take()) {
            runtime.shutdown_background();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for TokioHost {
    fn drop(&mut self) {
        self.close();
    }
}
