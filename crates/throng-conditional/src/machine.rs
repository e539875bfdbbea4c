//! The machine on which a journal runs, outside simulations.

use crate::Host;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};
use throng_journal::Later;
use tokio::runtime::Handle;

/// Tasks on a runtime, the clocks of this machine, and the randomness of its kernel.
#[derive(Clone, Debug)]
pub struct Machine {
    runtime: Handle,
}

impl Machine {
    /// Creates a machine whose tasks run on this runtime, which must have timers.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { runtime }
    }
}

impl Host for Machine {
    fn spawn(&self, task: Later<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn pause(&self, time: Duration) -> Later<'static, ()> {
        // The timer belongs to this runtime, whichever executor waits for it.
        let _entered = self.runtime.enter();
        Box::pin(tokio::time::sleep(time))
    }

    fn boot_clock(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    }

    fn wall_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
    }

    fn random(&self) -> u128 {
        let mut bytes = [0; 16];
        // The kernel has randomness at the latest soon after the machine's start.
        while SystemRandom::new().fill(&mut bytes).is_err() {}
        u128::from_ne_bytes(bytes)
    }
}
