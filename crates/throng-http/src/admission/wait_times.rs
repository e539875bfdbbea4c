//! When the loop last woke from waiting for its sockets.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The shortest wait that counts: after a shorter one, arrivals may date from any time since the last look.
const WAITED: Duration = Duration::from_micros(100);

/// The times for which a loop waits for its sockets. The hooks of its runtime write them, and its admission writes and reads them, all on
/// one thread. Other threads read only the total wait.
pub(crate) struct WaitTimes {
    epoch: Instant,
    /// The start of the current wait; 0 while the loop does not wait.
    parked_nanos: AtomicU64,
    /// The total of all waits that are over.
    waited_nanos: AtomicU64,
    /// The end of the last wait, however short.
    looked_nanos: AtomicU64,
    /// The earliest possible arrival of what is ready now. It never decreases.
    since_nanos: AtomicU64,
}

impl Default for WaitTimes {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            parked_nanos: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
            looked_nanos: AtomicU64::new(0),
            since_nanos: AtomicU64::new(0),
        }
    }
}

impl WaitTimes {
    fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The loop begins to wait for its sockets.
    pub(crate) fn parks(&self, now: Instant) {
        self.parked_nanos.store(self.nanos(now).max(1), Ordering::Relaxed);
    }

    /// Notes that the loop continues.
    pub(crate) fn wakes(&self, now: Instant) {
        let now = self.nanos(now);
        let waited = now.saturating_sub(self.parked_nanos.load(Ordering::Relaxed));
        let before = self.waited_nanos.load(Ordering::Relaxed);
        self.waited_nanos.store(before + waited, Ordering::Relaxed);
        self.parked_nanos.store(0, Ordering::Relaxed);
        let looked = self.looked_nanos.load(Ordering::Relaxed);
        let has_waited = u128::from(waited) >= WAITED.as_nanos();
        self.not_before(if has_waited { now } else { looked });
        self.looked_nanos.store(now, Ordering::Relaxed);
    }

    /// Notes when the loop has looked at its sockets.
    pub(crate) fn looked(&self, then: Instant) {
        self.not_before(self.nanos(then));
    }

    fn not_before(&self, nanos: u64) {
        let since = self.since_nanos.load(Ordering::Relaxed);
        self.since_nanos.store(since.max(nanos), Ordering::Relaxed);
    }

    /// Returns the total time for which the loop has waited for its sockets. Other threads may see a wait twice or not at all while it
    /// ends.
    pub(crate) fn waited(&self) -> Duration {
        let parked = self.parked_nanos.load(Ordering::Relaxed);
        let waits = if parked == 0 {
            0
        } else {
            self.nanos(Instant::now()).saturating_sub(parked)
        };
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed) + waits)
    }

    /// Returns the earliest possible arrival of what is ready now: the end of the last wait that counts, or a later look.
    pub(crate) fn since(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.since_nanos.load(Ordering::Relaxed))
    }
}
