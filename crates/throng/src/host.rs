//! What the engine needs of the world: clocks, entropy, tasks. The simulator brings its own.

use crate::model::Timestamp;
use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{self, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
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
    /// Resolves after this long.
    fn sleep(&self, duration: Duration) -> Task;
    /// Wakes the task that is polled once its loop has looked at its sockets again: not only behind what is ready by now.
    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        context.waker().wake_by_ref();
    }
    /// Ends the tasks; the engine is gone.
    fn close(&self) {}
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

/// The real world: an engine's is two threads of a tokio runtime of its own, so that a slow checkpoint stalls neither a gateway's loop nor
/// a caller's runtime.
pub struct TokioHost {
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
    start: Instant,
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
            start: Instant::now(),
        })
    }

    /// A host on somebody else's runtime, which has a clock: its tasks end with that.
    #[must_use]
    pub fn on(handle: tokio::runtime::Handle) -> Self {
        Self {
            handle,
            runtime: Mutex::new(None),
            start: Instant::now(),
        }
    }
}

impl Host for TokioHost {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp {
            micros: i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        }
    }

    fn elapsed_micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn thread_cpu_micros(&self) -> Option<u64> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Some(time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000)
    }

    fn entropy(&self) -> u128 {
        rand::random()
    }

    fn spawn(&self, task: Task) {
        self.handle.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        // Of the engine's own clock: the caller need not be on a runtime, nor on one that has a clock.
        let _clock = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn wake_behind_arrivals(&self, context: &mut task::Context<'_>) {
        // Its first poll has the waker woken after the runtime's next look at its sockets.
        let _ = std::pin::pin!(tokio::task::yield_now()).poll(context);
    }

    fn close(&self) {
        if let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TokioHost {
    fn drop(&mut self) {
        self.close();
    }
}
