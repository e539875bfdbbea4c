//! When the loop last woke from waiting for its sockets.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A wait shorter than this was none: what it found may have come at any time since the last look.
const WAITED: Duration = Duration::from_micros(100);

/// Written by the hooks of a loop's runtime, read by its gate; all on one thread.
pub(crate) struct Pass {
    epoch: Instant,
    parked_nanos: AtomicU64,
    /// 0 if it did not really wait.
    woken_nanos: AtomicU64,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            parked_nanos: AtomicU64::new(0),
            woken_nanos: AtomicU64::new(0),
        }
    }
}

impl Pass {
    fn nanos(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The loop begins to wait for its sockets.
    pub(crate) fn parks(&self) {
        self.parked_nanos.store(self.nanos(), Ordering::Relaxed);
    }

    /// It goes on.
    pub(crate) fn wakes(&self) {
        let now = self.nanos();
        let waited = now.saturating_sub(self.parked_nanos.load(Ordering::Relaxed));
        if u128::from(waited) >= WAITED.as_nanos() {
            self.woken_nanos.store(now, Ordering::Relaxed);
        }
    }

    /// The last time it went on after it had really waited: what it read then had just come.
    pub(crate) fn woken(&self) -> Option<Instant> {
        let nanos = self.woken_nanos.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.epoch + Duration::from_nanos(nanos))
    }
}
