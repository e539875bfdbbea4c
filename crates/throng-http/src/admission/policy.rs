//! The limit of waiting requests: as many as can be answered within `wait_max`.
//!
//! The limit depends on the rate at which full batches admit waiting requests, and on nothing that refusals could worsen. Time spent on
//! refusals is excluded and bounded. The loop's CPU time bounds a batch, but never this estimate: a neighbour that takes half the CPU
//! halves the rate, since everything then waits twice as long. A pause of the process, or one slow request, is an event and not a rate: it
//! counts as a few batches at most.
//!
//! The rate is known only while requests wait. Nothing is refused before a few full batches were measured, because an idle loop's time for
//! a request (perhaps with its own commit) says nothing about a saturated loop.

use std::time::Duration;

/// The full batches measured before anything is refused, and their total time, in batches.
const WARM_UP: (u32, u32) = (4, 8);
/// The window of the average: a new batch replaces one part in this many.
const WINDOW_BATCHES: f64 = 32.0;
/// A long batch counts as at most this many usual ones.
const LONGER_MAX: f64 = 4.0;
/// The batches between the estimated end of a wait and the answer: the request's own, and the commit after it.
const MARGIN_BATCHES: u32 = 2;

/// Decides how many requests may wait. It has no clock, socket or task.
pub(super) struct Policy {
    batch_nanos: f64,
    /// The wait that is aimed at.
    target_nanos: f64,
    /// Sums over the full batches since requests began to wait, weighted less for older ones.
    batches: f64,
    nanos: f64,
    admitted: f64,
    /// The same without weights: all full batches.
    seen: u32,
    seen_nanos: f64,
}

impl Policy {
    pub(super) fn new(wait_max: Duration, batch: Duration) -> Self {
        let target = wait_max.saturating_sub(batch * MARGIN_BATCHES).max(wait_max / 2);
        Self {
            batch_nanos: batch.as_nanos() as f64,
            target_nanos: target.as_nanos() as f64,
            batches: 0.0,
            nanos: 0.0,
            admitted: 0.0,
            seen: 0,
            seen_nanos: 0.0,
        }
    }

    /// Counts a full batch: its time without refusals, and the connections and tasks it admitted.
    pub(super) fn observe(&mut self, took: Duration, admitted: u32) {
        let usual = if self.batches > 0.0 {
            self.nanos / self.batches
        } else {
            self.batch_nanos
        };
        let nanos = (took.as_nanos() as f64).min(LONGER_MAX * usual.max(self.batch_nanos));
        let keep = 1.0 - 1.0 / WINDOW_BATCHES;
        self.batches = self.batches * keep + 1.0;
        self.nanos = self.nanos * keep + nanos;
        self.admitted = self.admitted * keep + f64::from(admitted);
        self.seen = self.seen.saturating_add(1);
        self.seen_nanos += nanos;
    }

    /// Notes that nothing waits any more. The rate is measured again when something does; the known rate counts as one batch.
    pub(super) fn forget(&mut self) {
        if self.batches > 1.0 {
            (self.nanos, self.admitted) = (self.nanos / self.batches, self.admitted / self.batches);
            self.batches = 1.0;
        }
        (self.seen, self.seen_nanos) = (0, 0.0);
    }

    /// Returns how many requests may wait.
    pub(super) fn room(&self) -> usize {
        let is_known = self.seen >= WARM_UP.0 && self.seen_nanos >= f64::from(WARM_UP.1) * self.batch_nanos;
        if !is_known || self.nanos <= 0.0 {
            return usize::MAX;
        }
        ((self.target_nanos * self.admitted / self.nanos).round() as usize).max(1)
    }

    /// True if a request that has waited this long will be answered in time after this many others.
    pub(super) fn is_in_time(&self, waited: Duration, waiting: usize) -> bool {
        let wait = waited + self.wait(waiting).unwrap_or_default();
        wait.as_nanos() as f64 <= self.target_nanos
    }

    /// Returns the expected wait after this many requests, once it is known.
    pub(super) fn wait(&self, waiting: usize) -> Option<Duration> {
        (self.admitted > 0.0)
            .then(|| Duration::from_nanos((waiting as f64 * self.nanos / self.admitted).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Duration = Duration::from_millis(5);
    const WAIT_MAX: Duration = Duration::from_millis(500);
    const TARGET_MS: usize = 490;

    /// Returns the policy after this many full batches of ten requests, half a millisecond each.
    fn after(batches: usize) -> Policy {
        let mut policy = Policy::new(WAIT_MAX, BATCH);
        (0..batches).for_each(|_| policy.observe(BATCH, 10));
        policy
    }

    #[test]
    fn as_many_may_wait_as_are_answered_in_time() {
        let mut policy = after(100);
        assert_eq!(policy.room(), TARGET_MS * 2);
        assert_eq!(policy.wait(20), Some(BATCH * 2));
        (0..1_000).for_each(|_| policy.observe(BATCH, 1));
        assert_eq!(policy.room(), TARGET_MS / 5);
    }

    #[test]
    fn a_neighbour_that_takes_half_the_cpu_halves_the_room() {
        let mut policy = after(100);
        (0..1_000).for_each(|_| policy.observe(BATCH * 2, 10));
        assert_eq!(policy.room(), TARGET_MS);
    }

    #[test]
    fn a_pause_of_the_process_or_a_long_request_changes_little() {
        for admitted in [10, 1] {
            let mut policy = after(100);
            policy.observe(Duration::from_millis(605), admitted);
            let room = policy.room();
            assert!(room * 10 > TARGET_MS * 2 * 8, "{room}");
        }
    }

    #[test]
    fn many_long_requests_are_estimated_as_long() {
        let mut policy = Policy::new(WAIT_MAX, BATCH);
        (0..100).for_each(|_| policy.observe(Duration::from_millis(98), 1));
        assert_eq!(policy.room(), 5);
        (0..500).for_each(|_| policy.observe(WAIT_MAX * 3, 1));
        assert_eq!(policy.room(), 1, "one may always wait");
    }

    #[test]
    fn no_refusal_before_a_few_full_turns_or_after_an_idle_one() {
        assert_eq!(after(7).room(), usize::MAX);
        let mut policy = after(8);
        assert!(policy.room() < usize::MAX);
        policy.forget();
        assert_eq!((policy.room(), policy.wait(10)), (usize::MAX, Some(BATCH)));
        policy.observe(WAIT_MAX, 1);
        assert_eq!(policy.room(), usize::MAX, "one batch says nothing, however long it was");
    }
}
