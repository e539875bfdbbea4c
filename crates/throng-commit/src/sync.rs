//! Concurrency primitives from one place, so that the model checker can be switched in.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};

use std::{
    cell::Cell,
    sync::{PoisonError, TryLockError},
};

fn next_thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(feature = "loom")]
loom::thread_local! {
    static THREAD: u64 = next_thread();
}
#[cfg(not(feature = "loom"))]
thread_local! {
    static THREAD: u64 = next_thread();
}

/// Returns a number of this thread, cheaper than its `ThreadId`.
pub(crate) fn thread_number() -> u64 {
    THREAD.with(|number| *number)
}

/// Locks, ignoring poison: in the engine a panic while a lock is held ends the process, and in a test the value is still sound.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

thread_local! {
    // Each thread sets its own, with `instead_of_blocking`.
    static INSTEAD_OF_BLOCKING: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Sets the function that this thread calls repeatedly instead of blocking on a busy [`QueuedLock`](crate::QueuedLock). It is for a
/// simulation that runs threads one at a time; `None`: it blocks.
pub fn instead_of_blocking(run: Option<fn()>) {
    INSTEAD_OF_BLOCKING.set(run);
}

/// Locks like [`lock`], for locks that may be held for long.
pub(crate) fn lock_patiently<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while let Some(run) = INSTEAD_OF_BLOCKING.get() {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        run();
    }
    lock(mutex)
}
