//! When the loop last woke from waiting for its sockets.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A wait shorter than this was none: what it found may have come at any time since the last look.
const WAITED: Duration = Duration::from_micros(100);

/// Written by the hooks of a loop's runtime and read by its gate, all on one thread; others look how long it has waited.
pub(crate) struct Pass {
    epoch: Instant,
    /// 0 while it does not wait.
    parked_nanos: AtomicU64,
    /// All waits that are over.
    waited_nanos: AtomicU64,
    /// 0 if it did not really wait.
    woken_nanos: AtomicU64,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            parked_nanos: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
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
        self.parked_nanos.store(self.nanos().max(1), Ordering::Relaxed);
    }

    /// It goes on.
    pub(crate) fn wakes(&self) {
        let now = self.nanos();
        let waited = now.saturating_sub(self.parked_nanos.load(Ordering::Relaxed));
        let before = self.waited_nanos.load(Ordering::Relaxed);
        self.waited_nanos.store(before + waited, Ordering::Relaxed);
        self.parked_nanos.store(0, Ordering::Relaxed);
        if u128::from(waited) >= WAITED.as_nanos() {
            self.woken_nanos.store(now, Ordering::Relaxed);
        }
    }

    /// How long it has waited for its sockets so far. Other threads may see a wait twice or not at all while it ends.
    pub(crate) fn waited(&self) -> Duration {
        let parked = self.parked_nanos.load(Ordering::Relaxed);
        let waits = if parked == 0 {
            0
        } else {
            self.nanos().saturating_sub(parked)
        };
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed) + waits)
    }

    /// The last time it went on after it had really waited: what it read then had just come.
    pub(crate) fn woken(&self) -> Option<Instant> {
        let nanos = self.woken_nanos.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.epoch + Duration::from_nanos(nanos))
    }
}
