//! The state of a store's compactions.

use super::noted::Compaction;
use std::sync::{Arc, Mutex, atomic::AtomicBool};

/// A new file takes so many times the bytes of its rows at most, about: one to one and a half times was seen.
pub(super) const ROOM: u64 = 2;
/// Compacted by itself once it takes so many times its rows.
const WORTH: u64 = 2 * ROOM;

/// The compaction under way, and what the last one came to.
#[derive(Default)]
pub(in crate::store) struct Compactions {
    pub(super) under_way: Mutex<Option<Arc<Compaction>>>,
    pub(super) before: Mutex<Before>,
    /// The new file has the name, and the directory may not say so after a power loss. A compaction sets it when it has renamed the file;
    /// `settle_name` clears it after it has synced the directory.
    pub(super) is_name_unsynced: AtomicBool,
    /// No compaction begins any more. `close_compactions` sets it, once.
    pub(super) is_closing: AtomicBool,
}

/// The result of the last compaction.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    /// The advance before which nobody looks whether it is time again.
    pub(super) look_at: u64,
    /// The file and its rows after it; zeros before the first.
    pub(super) file_bytes: u64,
    pub(super) row_bytes: u64,
}

impl Before {
    /// True if a compaction would give much back of a file whose rows have this many bytes.
    pub(super) fn is_due(&self, file_bytes: u64, row_bytes: u64) -> bool {
        let is_large = file_bytes / WORTH >= row_bytes;
        // What it did not give back then it would not now.
        let is_changed = file_bytes / 2 >= self.file_bytes || row_bytes <= self.row_bytes / 2;
        is_large && is_changed
    }
}
