//! A graceful end.

use crate::engine::{Engine, Status};
use std::{sync::atomic::Ordering, time::Duration};

impl Engine {
    /// Takes nothing new, lets what is in flight land, makes a last checkpoint, and ends. Bounded by
    /// [`Options::drain`](crate::Options); what does not make it by then is in the journal all the same.
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
            if let Err(error) = inner.make_checkpoint(&life).await {
                tracing::error!("the last checkpoint failed; the next start reads more of the journal: {error}");
            }
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
        self.inner.make_checkpoint(&life).await
    }
}
