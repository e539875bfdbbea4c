//! The environment of a journal: tasks, clocks and randomness. A simulation replaces it.

use std::time::Duration;
use throng_journal::Later;

/// The environment of a journal.
pub trait Host: Send + Sync + 'static {
    /// Spawns a task, which runs to its end.
    fn spawn(&self, task: Later<'static, ()>);

    /// Resolves after this time.
    fn pause(&self, time: Duration) -> Later<'static, ()>;

    /// Reads a monotonic clock that keeps running while the machine sleeps. It times the leases.
    fn boot_clock(&self) -> Duration;

    /// Reads the time of day, in microseconds since 1970-01-01 UTC. It is only shown to people.
    fn wall_micros(&self) -> i64;

    /// Draws a random number that never repeats, not even after a fork or in a copy of the machine's memory.
    fn random(&self) -> u128;
}

/// The pauses between repeated requests. Each is twice as long as the one before.
pub(crate) struct Pauses {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(5);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// Waits for half to all of the next pause, so that callers that failed together do not return together.
    pub(crate) async fn pause(&mut self, host: &dyn Host) {
        let part = (host.random() % 512) as u32;
        let time = self.next / 2 + self.next / 1024 * part;
        self.next = (self.next * 2).min(LONGEST);
        host.pause(time).await;
    }
}
