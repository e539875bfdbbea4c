//! The surroundings: tasks, clocks and randomness, which a simulation replaces.

use std::time::Duration;
use throng_journal::Later;

/// The surroundings of a journal.
pub trait Host: Send + Sync + 'static {
    /// Runs a task beside its caller, to its end.
    fn spawn(&self, task: Later<'static, ()>);

    /// Resolves after this long.
    fn pause(&self, time: Duration) -> Later<'static, ()>;

    /// Reads a clock that never goes back, and goes on while the machine sleeps. Leases are counted by it.
    fn boot_clock(&self) -> Duration;

    /// Reads the time of day, microseconds since 1970-01-01 UTC. It is only shown to people.
    fn wall_micros(&self) -> i64;

    /// Draws a random number, never the same again: not after a fork, nor in a copy of the machine's memory.
    fn random(&self) -> u128;
}

/// The pauses between requests that are repeated: each is twice as long as the one before.
pub(crate) struct Pauses {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(5);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// Waits between the half and the whole of the next pause, so that callers that failed together do not come back together.
    pub(crate) async fn pause(&mut self, host: &dyn Host) {
        let part = (host.random() % 512) as u32;
        let time = self.next / 2 + self.next / 1024 * part;
        self.next = (self.next * 2).min(LONGEST);
        host.pause(time).await;
    }
}
