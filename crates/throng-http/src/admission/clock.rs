//! The two clocks of a loop: the time, and its thread's CPU time.

use std::time::{Duration, Instant};

/// The wall clock, and the CPU time that this thread has used.
pub(crate) trait Clock {
    fn now(&self) -> Instant;
    fn cpu(&self) -> Duration;
}

/// The clocks of the calling thread.
pub(crate) struct ThreadClock;

impl Clock for ThreadClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Makes a system call, unlike [`now`](Self::now): admission asks a few times a batch, and only while requests wait.
    fn cpu(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}
