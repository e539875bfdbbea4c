//! A lock with an inbox.

use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, fence, lock, lock_patiently, try_lock};
use std::collections::VecDeque;

/// Work that waits for the lock.
pub type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// The outcome of work brought to a [`QueuedLock`].
#[derive(Debug, PartialEq, Eq)]
pub enum Entered<R, S> {
    /// The work was done on this thread.
    Ran(R),
    /// Another thread holds the lock; the holder will run the job.
    Queued,
    /// The inbox is full; the work is returned.
    Full(S),
}

/// A value behind a lock, with an inbox for work that finds the lock taken. Never blocks.
pub struct QueuedLock<T> {
    value: Mutex<T>,
    inbox: Mutex<VecDeque<Job<T>>>,
    /// The number of jobs in the inbox; read without its lock. `enter` raises it under the lock of `inbox`, after it has pushed a job;
    /// `drain` lowers it after it has taken one, before the job runs.
    waiting: AtomicUsize,
    inbox_max: usize,
}

impl<T> QueuedLock<T> {
    /// Returns a lock around a value, with an inbox of at most `inbox_max` jobs.
    pub fn new(value: T, inbox_max: usize) -> Self {
        Self {
            value: Mutex::new(value),
            inbox: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            inbox_max,
        }
    }

    /// Runs work on the value, after all jobs in the inbox. While another thread holds the lock, the work becomes a job for it.
    //= promise 1: one command at a time
    pub fn enter<S, R>(
        &self,
        state: S,
        run: impl FnOnce(&mut T, S) -> R,
        queue: impl FnOnce(S) -> Job<T>,
    ) -> Entered<R, S> {
        if let Some(mut value) = try_lock(&self.value) {
            self.drain(&mut value);
            let result = run(&mut value, state);
            drop(value);
            self.look_again();
            return Entered::Ran(result);
        }
        let mut inbox = lock(&self.inbox);
        if inbox.len() >= self.inbox_max {
            return Entered::Full(state);
        }
        inbox.push_back(queue(state));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(inbox);
        self.look_again();
        Entered::Queued
    }

    /// Runs work on the value, after all jobs in the inbox. Returns `None`, and does nothing, while another thread holds the lock.
    pub fn try_enter<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut value = try_lock(&self.value)?;
        self.drain(&mut value);
        let result = run(&mut value);
        drop(value);
        self.look_again();
        Some(result)
    }

    /// Blocks until the lock is free: for recovery, checkpoints and tests, never on a loop.
    pub fn wait<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        let mut value = lock_patiently(&self.value);
        self.drain(&mut value);
        let result = run(&mut value);
        drop(value);
        self.look_again();
        result
    }

    /// Returns the number of jobs in the inbox.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn drain(&self, value: &mut MutexGuard<'_, T>) {
        while self.waiting.load(Ordering::SeqCst) > 0 {
            let Some(job) = lock(&self.inbox).pop_front() else {
                return;
            };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            job(value);
        }
    }

    /// Runs jobs that came while the lock was held. Hazard: without the fences a job could stay in the inbox for ever. With both, either
    /// this thread sees the job, or the thread that queued it sees the lock free.
    fn look_again(&self) {
        fence(Ordering::SeqCst);
        while self.waiting.load(Ordering::SeqCst) > 0 {
            let Some(mut value) = try_lock(&self.value) else { return };
            self.drain(&mut value);
            drop(value);
            fence(Ordering::SeqCst);
        }
    }
}
