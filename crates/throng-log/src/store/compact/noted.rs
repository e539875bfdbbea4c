//! The changes that checkpoints make while a compaction copies.

use crate::store::database::Of;
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use throng_journal::Error;

pub(super) const DOING: &str = "compacting the store";
/// The most bytes of keys that checkpoints may change meanwhile, each counted with [`NOTED_KEY_BYTES`].
pub(super) const NOTED_BYTES_MAX: usize = 32 << 20;
pub(super) const NOTED_KEY_BYTES: usize = 64;

pub(super) fn given_up(why: &str) -> Error {
    Error::backend(DOING, format!("{why}; it was given up, and the store is as it was"))
}

/// A compaction under way, as seen by checkpoints that change rows meanwhile.
pub(in super::super) struct Compaction {
    noted: Mutex<Noted>,
    noted_bytes_max: usize,
    /// True once the file it copies is no longer the store. [`give_up`](Self::give_up) sets it, once; the copying thread reads it.
    is_over: AtomicBool,
}

/// Rows, by their tables and keys.
pub(super) type Keys = BTreeSet<(Of, Box<[u8]>)>;

#[derive(Default)]
struct Noted {
    keys: Keys,
    bytes: usize,
    /// True once more keys have changed than may be noted.
    is_full: bool,
}

impl Compaction {
    pub(super) fn new(noted_bytes_max: usize) -> Self {
        Self {
            noted: Mutex::default(),
            noted_bytes_max,
            is_over: AtomicBool::new(false),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row is about to change.
    pub(in super::super) fn note(&self, of: Of, key: &[u8]) {
        let mut noted = self.noted();
        if noted.is_full || !noted.keys.insert((of, key.into())) {
            return;
        }
        noted.bytes += key.len() + NOTED_KEY_BYTES;
        if noted.bytes > self.noted_bytes_max {
            noted.keys.clear();
            noted.is_full = true;
        }
    }

    /// Ends the compaction, because the file it copies is no longer the store.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Takes the changes since the last call.
    pub(super) fn take(&self) -> Result<Keys, Error> {
        self.check()?;
        let mut noted = self.noted();
        noted.bytes = 0;
        Ok(std::mem::take(&mut noted.keys))
    }

    /// Returns an error if the compaction can no longer succeed.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_over.load(Ordering::Acquire) {
            return Err(given_up("the store was closed or begun anew meanwhile"));
        }
        if self.noted().is_full {
            return Err(given_up(
                "checkpoints changed more meanwhile than can be noted; it is worth another attempt when there is less to do",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn keys_are_noted_up_to_a_bound_and_then_it_is_given_up() {
        let compaction = Compaction::new(3 * (NOTED_KEY_BYTES + 1));
        for key in [b"a", b"b", b"c", b"a"] {
            compaction.note(Of::System, key);
        }
        assert_eq!(compaction.take().unwrap().len(), 3);
        for key in [b"a", b"b", b"c", b"d"] {
            compaction.note(Of::System, key);
        }
        let error = compaction.take().unwrap_err().to_string();
        assert!(
            error.contains("more meanwhile than can be noted") && error.contains("given up"),
            "{error}"
        );
        assert!(compaction.noted().keys.is_empty(), "nothing more is held");
    }
}
