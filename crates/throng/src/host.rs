//! The engine's needs of the world: clocks, entropy, tasks. The simulator brings its own.

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
    /// Microseconds of a clock that never goes back, from any origin.
    fn elapsed_micros(&self) -> u64;
    /// Microseconds of CPU this thread has used, where that is known: what took long without it was not at work.
    fn thread_cpu_micros(&self) -> Option<u64> {
        None
    }
    /// A number nobody can guess.
    fn entropy(&self) -> u128;
    /// Runs a task beside the callers.
    fn spawn(&self, task: Task);
    /// Runs code of others that calls the world outside, where it holds up no task of the engine, and none of another worker.
    fn spawn_outside(&self, _worker: &'static str, task: Task) {
        self.spawn(task);
    }
    /// Resolves after this long.
    fn sleep(&self, duration: Duration) -> Task;
    /// Wakes the task that is polled once its loop has looked at its sockets again: not only behind what is ready by now.
    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        context.waker().wake_by_ref();
    }
    /// Ends the tasks; the engine is gone.
    fn close(&self) {}
}

/// A time of day that grows by so much more than the clock that never goes back was set forward, or the machine slept.
const JUMP_MICROS: i64 = 100_000;
/// Time of day that may have passed since a look at the other clock before both are looked at anew.
const MOMENT_MICROS: i64 = 1_000;
/// The part by which each look approaches a time of day that was set back: a timer is late by a hundredth at most.
const SLEW_MICROS: i64 = 1_000;

/// A host whose time of day goes on where it is set back, from where it was, until the clock has caught up: a timer that is set for two seconds
/// from now fires in two seconds.
pub(crate) struct SteadyHost {
    host: Arc<dyn Host>,
    /// The lead of the time of day over the clock that never goes back. Each caller that sees more raises it; only [`look`](Self::look) lowers it.
    ahead_micros: AtomicI64,
    /// The same as the clock had it at the last look.
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

    /// Looks at the time of day, ten times a second; `true`: it was set forward since the last look.
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

    /// The lead of the time of day, and the clock that never goes back. A caller that does not run between the two sees less than there is.
    fn clocks(&self) -> (i64, i64) {
        let day = self.host.now().micros;
        let elapsed = i64::try_from(self.host.elapsed_micros()).unwrap_or(i64::MAX);
        (day.saturating_sub(elapsed), elapsed)
    }
}

impl SteadyHost {
    /// The time of day a moment after the clock that never goes back was read: [`now`](Host::now), without reading that clock again.
    pub(crate) fn just_after(&self, elapsed_micros: u64) -> Timestamp {
        let elapsed = i64::try_from(elapsed_micros).unwrap_or(i64::MAX);
        let known = self.ahead_micros.load(Ordering::Acquire).saturating_add(elapsed);
        match self.host.now().micros.saturating_sub(known) <= MOMENT_MICROS {
            true => Timestamp { micros: known },
            // The time of day was set forward, or the moment was a long one.
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

/// Closes the host with the last part of an engine that holds this.
pub(crate) struct OpenHost(pub(crate) Arc<dyn Host>);

impl Drop for OpenHost {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Wakes one task. A signal that comes while the task is busy is kept for its next look.
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

    /// Takes the signal if there was one since the last look; otherwise the next one wakes this waker.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.0) {
            return true;
        }
        state.1 = Some(waker.clone());
        false
    }

    /// Has the next signal wake this waker, whatever came before: for a task that looks by itself whether there is something to do, and looks only
    /// then, so that nothing comes unseen between the two.
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

/// Lets others of this thread run: a task that always has more to do would starve them.
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

/// Microseconds that a task of the engine works before others of its thread run: those that it has woken, above all the committer, wait for it.
const SLICE_MICROS: u64 = 500;

/// The work of a task that has much to do, since others of its thread have run.
pub(crate) struct Slice<'a> {
    host: &'a dyn Host,
    /// Written by the task alone, also where several futures of it share the slice.
    begun: AtomicU64,
}

impl<'a> Slice<'a> {
    pub(crate) fn new(host: &'a dyn Host) -> Self {
        let begun = AtomicU64::new(host.elapsed_micros());
        Self { host, begun }
    }

    /// Tells whether the task has worked long enough at this time of the host's clock.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.begun.load(Ordering::Relaxed)) >= SLICE_MICROS
    }

    /// Lets others run once the slice is over. Of several futures that share it, the first begins the next one, and the others go on in that.
    pub(crate) async fn pause(&self) {
        while self.is_over(self.host.elapsed_micros()) {
            let begun = self.begun.load(Ordering::Relaxed);
            yield_now().await;
            let now = self.host.elapsed_micros();
            // Others may have begun it, and worked in it for long.
            let _ = self
                .begun
                .compare_exchange(begun, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The real world: an engine's is two threads of a tokio runtime of its own, so that a slow checkpoint stalls neither a gateway's loop nor
/// a caller's runtime.
pub struct TokioHost {
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
    /// Runtimes of the workers of calls, each begun by its first call, on a host with a runtime of its own.
    outside: Mutex<HashMap<&'static str, tokio::runtime::Runtime>>,
    start_micros: u64,
}

impl TokioHost {
    /// Starts the runtime.
    ///
    /// # Errors
    /// The system gives no threads.
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

    /// A host on somebody else's runtime, which has a clock: its tasks end with that.
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

/// Returns the microseconds that a clock shows. It is called several times for each command, and skips the checks of [`std::time`], which
/// cost as much as reading the clock.
fn micros_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Only a time of day that was set wrongly is before its origin.
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
        // On somebody else's runtime there is only that.
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
        // The sleep uses the timer of the engine's runtime: the caller may be on no runtime, or on one without a timer.
        let _clock = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        // Its first poll has the waker woken after the runtime's next look at its sockets.
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
