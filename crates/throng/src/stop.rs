//! A graceful end.

use crate::{
    engine::{Engine, Status},
    host::Task,
};
use std::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};
use throng_journal::Pace;

/// The last checkpoint has at least this long.
const CHECKPOINT_LEAST: Duration = Duration::from_secs(5);

/// `None`: the time was over first.
async fn within<T>(mut time: Task, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(move |context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => time.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Somebody waits for a checkpoint, also for the one under way.
struct Awaits<'a>(&'a AtomicUsize);

impl<'a> Awaits<'a> {
    fn new(awaited: &'a AtomicUsize) -> Self {
        awaited.fetch_add(1, Ordering::Relaxed);
        Self(awaited)
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Takes nothing new, lets what is in flight land, makes a last checkpoint, and ends. Each of the two is bounded by
    /// [`Options::drain`](crate::Options), the checkpoint by five seconds if that is less; what does not make it by then is in the journal all the same.
    pub async fn stop(&self) {
        let inner = &self.inner;
        if inner.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        let life = match &*inner.status() {
            Status::Running(life) => Some(life.clone()),
            Status::Down(_) => None,
        };
        if let Some(life) = life {
            let until =
                inner.host.elapsed_micros() + u64::try_from(inner.options.drain.as_micros()).unwrap_or(u64::MAX);
            while !(life.is_over() || life.open.is_idle() && life.outbox().is_empty())
                && inner.host.elapsed_micros() < until
            {
                inner.kick();
                inner.pump.wake();
                inner.host.sleep(Duration::from_millis(2)).await;
            }
            // A journal or a store that hangs does not hold up the end.
            let most = inner.options.drain.max(CHECKPOINT_LEAST);
            match within(inner.host.sleep(most), inner.make_checkpoint(&life, Pace::default())).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::error!("the last checkpoint failed; the next start reads more of the journal: {error}");
                }
                None => tracing::error!(
                    "the last checkpoint was not done within {most:?}; the next start reads more of the journal"
                ),
            }
            inner.projections.ended(&*inner.host, until).await;
            life.over.store(true, Ordering::Release);
            if life.open.is_idle() {
                life.open.end(life.open.durable());
            }
        }
        inner.set_status(Status::Down("the engine has stopped".into()));
        inner.kick();
        inner.wake_watchers();
    }

    /// Makes a checkpoint now: the next start reads the journal from here.
    ///
    /// # Errors
    /// The store or the journal failed.
    pub async fn checkpoint(&self) -> Result<(), throng_journal::Error> {
        let life = match &*self.inner.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => return Ok(()),
        };
        let _awaits = Awaits::new(&self.inner.checkpoints_awaited);
        self.inner.make_checkpoint(&life, Pace::default()).await
    }
}
