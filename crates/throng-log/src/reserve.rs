//! Room on the disk kept for the end. With it a log can be sealed, a store can make its checkpoint, and the next start can begin when
//! nothing else is free.
//!
//! The reserve is a file without content. An operation that finds the disk full deletes it and tries again. From then on the log reports
//! that it has no room ([`Journal::has_room`](throng_journal::Journal::has_room)), and the engine takes no commands, until the file can be
//! created again.

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
    /// True if the file exists with all its room. Written under the lock of `changes`; read without it.
    is_held: AtomicBool,
    /// True if there is a writer, so that a missing reserve means no room. Written under the lock of `changes`; read without it.
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

    /// True if there is room for more than finishing what was begun.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes == 0 || self.is_held.load(Ordering::Acquire) || !self.is_wanted.load(Ordering::Acquire)
    }

    /// Returns the most bytes that one user of the deleted reserve may take at once, so that something is left for others.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.bytes / 4
    }

    /// Creates the file, or creates it again; `false` while there is not enough room.
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

    /// Deletes the file after an operation found the disk full; `false`: there is none.
    pub(crate) fn give(&self) -> bool {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_held.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.warn(&storage_full());
        let removed = self.files.remove(&self.path());
        removed.is_ok()
    }

    /// Runs an operation; if it finds the disk full, deletes the reserve and runs it again.
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
        // A failing attempt would, for a moment, take room that others need.
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
