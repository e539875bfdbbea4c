//! The engine's host in the simulated world.

use crate::world::{Group, RunsOn, World};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use throng::{
    host::{Host, Task},
    model::Timestamp,
};

/// Clocks, entropy and tasks of a simulated process.
pub(crate) struct SimHost {
    pub(crate) world: Arc<World>,
    pub(crate) group: Group,
    /// The thread on which its tasks run.
    pub(crate) runs_on: RunsOn,
    /// The difference between its time of day and the world's. The test changes it while the process runs.
    pub(crate) day_micros: Arc<AtomicI64>,
}

/// The time a loop takes to poll its sockets.
const LOOK: Duration = Duration::from_micros(5);

impl Host for SimHost {
    fn now(&self) -> Timestamp {
        Timestamp {
            micros: self.world.now_micros() + self.day_micros.load(Ordering::Relaxed),
        }
    }

    fn elapsed_micros(&self) -> u64 {
        self.world.elapsed_micros()
    }

    fn entropy(&self) -> u128 {
        self.world.dice(|rng| rng.u128(..))
    }

    fn spawn(&self, task: Task) {
        self.world.spawn(self.group, self.runs_on, task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(self.world.sleep(duration))
    }

    fn wake_behind_arrivals(&self, context: &mut std::task::Context<'_>) {
        let (look, waker) = (self.world.sleep(LOOK), context.waker().clone());
        self.spawn(Box::pin(async move {
            look.await;
            waker.wake();
        }));
    }

    fn close(&self) {
        self.world.kill(self.group);
    }
}
