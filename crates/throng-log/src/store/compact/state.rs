//! The state of a store's compactions.

use super::noted::Compaction;
use std::sync::{Arc, Mutex, atomic::AtomicBool};

/// The most room that a new file takes, as a multiple of its rows' bytes. One to one and a half was measured.
pub(super) const ROOM: u64 = 2;
/// The multiple of its rows' bytes from which on the file is compacted automatically.
const WORTH: u64 = 2 * ROOM;

/// The compaction under way, and the result of the last one.
#[derive(Default)]
pub(in crate::store) struct Compactions {
    pub(super) under_way: Mutex<Option<Arc<Compaction>>>,
    pub(super) before: Mutex<Before>,
    /// True if the new file has the name, but the directory is not synced yet. A compaction sets it after the rename; `settle_name` clears
    /// it after it has synced the directory.
    pub(super) is_name_unsynced: AtomicBool,
    /// True if no compaction may begin. `close_compactions` sets it, once.
    pub(super) is_closing: AtomicBool,
}

/// The result of the last compaction.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    /// The advance at which it is next checked whether a compaction is due.
    pub(super) look_at: u64,
    /// The sizes of the file and its rows after it; zeros before the first.
    pub(super) file_bytes: u64,
    pub(super) row_bytes: u64,
}

impl Before {
    /// True if a compaction would give back much of a file whose rows have this many bytes.
    pub(super) fn is_due(&self, file_bytes: u64, row_bytes: u64) -> bool {
        let is_large = file_bytes / WORTH >= row_bytes;
        // What the last one did not give back, this one would not either.
        let is_changed = file_bytes / 2 >= self.file_bytes || row_bytes <= self.row_bytes / 2;
        is_large && is_changed
    }
}
