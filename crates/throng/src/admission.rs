//! Who is let in. Work between entities is never refused; work from outside is, before it is decided, when too much waits.

use crate::{engine::Inner, life::Life};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng_core::model::Error;

/// Counts itself out again, also when the asker goes away.
struct Held<'a>(&'a Inner);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Lets work from outside in, after the commit that is too full now; or refuses it.
    pub(crate) async fn admit<R>(self: &Arc<Self>, life: &Arc<Life>, until: u64) -> Result<(), Error<R>> {
        if self.is_stopping() {
            self.metrics.unavailable.inc();
            return Err(Error::Unavailable {
                reason: "the engine is stopping".into(),
            });
        }
        if life.staged_bytes.load(Ordering::Relaxed) < self.options.commit_bytes_max {
            return self.within_bounds(life);
        }
        Box::pin(self.hold(life, until)).await
    }

    async fn hold<R>(self: &Arc<Self>, life: &Arc<Life>, until: u64) -> Result<(), Error<R>> {
        self.held.fetch_add(1, Ordering::Relaxed);
        let _held = Held(self);
        while life.staged_bytes.load(Ordering::Relaxed) >= self.options.commit_bytes_max {
            self.within_bounds::<R>(life)?;
            // Everything held goes into the next commit, and that waits for the one in flight.
            let wait = Duration::from_micros(life.commit_micros.load(Ordering::Relaxed)).saturating_mul(2);
            if wait > self.options.wait_max {
                return self.overloaded(wait);
            }
            let number = life.open.number();
            self.kick();
            self.durable(life, number, until).await.map_err(|error| match error {
                Error::OutcomeUnknown => Error::Expired,
                other => other,
            })?;
        }
        Ok(())
    }

    /// Whether work from outside is let in at once.
    pub(crate) fn has_room(&self, life: &Life) -> bool {
        life.staged_bytes.load(Ordering::Relaxed) < self.options.commit_bytes_max && self.bounds(life).is_ok()
    }

    /// How long to come back after, if there is too much that cannot be given away.
    fn bounds(&self, life: &Life) -> Result<(), Duration> {
        let budget = i64::try_from(self.options.memory_bytes_max).unwrap_or(i64::MAX);
        if life.books.pending_bytes.load(Ordering::Relaxed) > budget / 2 {
            self.checkpoint.wake();
            return Err(Duration::from_secs(1));
        }
        if life.is_outbox_full.load(Ordering::Relaxed) {
            return Err(Duration::from_millis(200));
        }
        Ok(())
    }

    fn within_bounds<R>(&self, life: &Life) -> Result<(), Error<R>> {
        self.bounds(life).or_else(|wait| self.overloaded(wait))
    }

    pub(crate) fn overloaded<R>(&self, retry_after: Duration) -> Result<(), Error<R>> {
        self.metrics.overloaded.inc();
        Err(Error::Overloaded { retry_after })
    }
}
