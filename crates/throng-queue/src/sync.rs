//! Concurrency primitives from one place, so that the model checker can be switched in.

#[cfg(feature = "loom")]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
    thread::{Thread, current, park, yield_now},
};
#[cfg(not(feature = "loom"))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
    thread::{Thread, current, park, park_timeout, yield_now},
};

use std::{ops::Deref, sync::PoisonError};

/// Locks, ignoring poison. The only user code under a lock is a waker's `clone`, before anything is changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The model has no time: a wait with a limit is a wait.
#[cfg(feature = "loom")]
pub(crate) fn park_timeout(_limit: std::time::Duration) {
    park();
}

/// A value on cache lines of its own (two, since processors fetch them in pairs).
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
