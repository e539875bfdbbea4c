//! The queue of wake-ups for the task that serves connections: sockets that are ready, the commit that is durable.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
};

/// The key of the commit, among those of connections.
pub(super) const COMMIT: usize = usize::MAX;
/// The key of the next batch: the loop has looked at its sockets.
pub(super) const BATCH: usize = usize::MAX - 1;

/// The keys that were woken, and the waker of the task.
#[derive(Default)]
pub(super) struct Calls(Mutex<Called>);

#[derive(Default)]
struct Called {
    keys: Vec<usize>,
    task: Option<Waker>,
}

impl Calls {
    fn called(&self) -> MutexGuard<'_, Called> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        if let Some(task) = &self.called().task {
            task.wake_by_ref();
        }
    }

    pub(super) fn call(&self, key: usize) {
        let mut called = self.called();
        let is_first = called.keys.is_empty();
        called.keys.push(key);
        if is_first && let Some(task) = &called.task {
            task.wake_by_ref();
        }
    }

    /// Swaps in the keys that were woken since the last look, in order, and keeps the task's waker.
    pub(super) fn take(&self, keys: &mut Vec<usize>, task: &Waker) {
        let mut called = self.called();
        std::mem::swap(&mut called.keys, keys);
        if !called.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            called.task = Some(task.clone());
        }
    }

    /// Returns a waker for a connection, the commit or the next batch.
    pub(super) fn waker(self: &Arc<Self>, key: usize) -> Waker {
        Waker::from(Arc::new(Call {
            key,
            calls: self.clone(),
        }))
    }
}

struct Call {
    key: usize,
    calls: Arc<Calls>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.calls.call(self.key);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.calls.call(self.key);
    }
}
