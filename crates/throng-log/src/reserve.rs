//! Room on the disk that is kept for the end: with it a log can be sealed, a store makes its checkpoint, and the next start begins
//! when nothing else is free.
//!
//! It is a file that holds nothing. Whoever finds the disk full removes it and tries again. From then on the log says that it has no
//! room ([`Journal::has_room`](throng_journal::Journal::has_room)), and the engine takes no commands, until the file can be made
//! again.

use crate::files::{Files, storage_full};
use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The file's name.
const RESERVE_NAME: &str = "reserve";

/// The room that is kept.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    dir: PathBuf,
    /// Zero: none is kept.
    bytes: u64,
    /// The file is there, with all its room. Written under the lock of `changes`; read without it.
    is_held: AtomicBool,
    /// Somebody writes: without the reserve there is no room. Written under the lock of `changes`; read without it.
    is_wanted: AtomicBool,
    changes: Mutex<()>,
}

impl Reserve {
    pub(crate) fn new(files: Arc<dyn Files>, dir: &Path, bytes: u64) -> Self {
        Self {
            files,
            dir: dir.to_owned(),
            bytes,
            is_held: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            changes: Mutex::default(),
        }
    }

    /// True if there is room for more than the end of what was begun.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes == 0 || self.is_held.load(Ordering::Acquire) || !self.is_wanted.load(Ordering::Acquire)
    }

    /// The most that one who has taken it may use at once, so that something is left for others.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.bytes / 4
    }

    /// Makes it, or makes it again; `false` while there is not so much room.
    pub(crate) fn keep(&self) -> bool {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let was_missing = self.is_wanted.swap(true, Ordering::AcqRel);
        if self.bytes == 0 || self.is_held.load(Ordering::Acquire) {
            return true;
        }
        let made = self.make();
        match &made {
            Ok(()) if was_missing => {
                tracing::info!(dir = %self.dir.display(), "there is room on the disk again: commands are taken");
            }
            Err(error) if !was_missing => self.warn(error),
            _ => {}
        }
        self.is_held.store(made.is_ok(), Ordering::Release);
        made.is_ok()
    }

    /// Gives it up for whoever found the disk full; `false`: there is none to give.
    pub(crate) fn give(&self) -> bool {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_held.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.warn(&storage_full());
        let removed = self.files.remove(&self.path());
        removed.is_ok()
    }

    /// Does what may find the disk full, once more with the reserve given up.
    pub(crate) fn with<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::StorageFull && self.give() => attempt(),
            result => result,
        }
    }

    fn warn(&self, error: &io::Error) {
        tracing::warn!(dir = %self.dir.display(), %error, bytes = self.bytes, "the disk is full but for what is kept for the end: no \
            commands are taken until there is room");
    }

    fn path(&self) -> PathBuf {
        self.dir.join(RESERVE_NAME)
    }

    fn make(&self) -> io::Result<()> {
        let path = self.path();
        let there = self.files.open(&path, false).and_then(|file| file.length());
        let missing = self.bytes.saturating_sub(there.unwrap_or(0));
        // An attempt that fails takes, for a moment, what others need.
        if self.files.free_bytes(&self.dir).is_ok_and(|free| free < missing) {
            return Err(storage_full());
        }
        let file = self.files.open(&path, true)?;
        let made = file.allocate(self.bytes).and_then(|()| self.files.sync_dir(&self.dir));
        if made.is_err() {
            // A part of it is of no use to anybody.
            let _ = self.files.remove(&path);
        }
        made
    }
}
