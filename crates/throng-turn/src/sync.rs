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

use std::sync::{PoisonError, TryLockError};

/// A panic while a lock is held ends the process in the engine; in a test the value is still fit to look at.
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
