//! Threads for computations that would block an event loop: a bounded number of the runtime's blocking threads.

use std::{sync::Arc, thread};
use throng_http::Problem;
use tokio::{sync::Semaphore, task};

/// The most computations that wait for a thread. More are refused.
const WAITING_MAX: usize = 256;

/// A pool that runs one computation per core.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    cores: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::of(cores, WAITING_MAX)
    }

    fn of(cores: usize, waiting_max: usize) -> Self {
        Self {
            cores: Arc::new(Semaphore::new(cores)),
            places: Arc::new(Semaphore::new(cores + waiting_max)),
        }
    }

    /// Computes on a separate thread once a core is free. Returns 503 if too many computations wait.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let Ok(_place) = self.places.clone().try_acquire_owned() else {
            return Err(busy());
        };
        // A client that disconnects while it waits gives its place back. A computation that has begun is finished.
        let Ok(core) = self.cores.clone().acquire_owned().await else {
            return Err(busy());
        };
        let done = task::spawn_blocking(move || {
            let _core = core;
            work()
        });
        done.await.map_err(|_| busy())
    }
}

fn busy() -> Problem {
    Problem::new(
        "busy",
        503,
        "Busy",
        "Too many long computations are waiting. Nothing was done; try again later, or ask for fewer primes.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn numbers_without_a_place_are_refused_and_the_rest_computed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let workers = Workers::of(1, 1);
            let (go, wait) = mpsc::channel::<()>();
            let first = tokio::spawn({
                let workers = workers.clone();
                async move { workers.run(move || wait.recv().is_ok()).await }
            });
            let second = tokio::spawn({
                let workers = workers.clone();
                async move { workers.run(|| 2).await }
            });
            while workers.places.available_permits() > 0 {
                task::yield_now().await;
            }
            assert!(workers.run(|| 3).await.is_err());
            go.send(()).unwrap();
            assert!(first.await.unwrap().unwrap());
            assert_eq!(second.await.unwrap().unwrap(), 2);
            assert_eq!(workers.run(|| 4).await.unwrap(), 4);
        });
    }
}
