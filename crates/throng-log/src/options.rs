//! The options of a log.

use crate::files::{Disk, Files, ToRead};
use std::{path::Path, sync::Arc, time::Duration};
use throng_journal::{Durability, Position};

/// The options of a log; `Options::default()` is right for a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The failures that an acknowledged commit survives. Default: power loss. [`Durability::Memory`] is treated like [`Durability::Os`]
    /// here.
    pub durability: Durability,
    /// The largest segment in bytes. The first one of a writer has at most 4 MiB, so that a start is quick. Default 64 MiB.
    pub segment_bytes: u64,
    /// The room kept on the disk for the end, in bytes. It suffices to seal the log, for the store's checkpoint, and for the next start
    /// when the disk is full. Zero: none. Default 16 MiB.
    pub reserve_bytes: u64,
    /// Added to every sync: a slow disk for tests and measurements. Default none.
    pub sync_delay: Duration,
    /// The file system. Default [`Disk`].
    pub files: Arc<dyn Files>,
    /// An accepted loss, named by the commit that the store covers: see [`Loss`](throng_journal::Loss). Any other loss is refused. Default
    /// none.
    pub accept_loss: Option<Position>,
    /// Memory for the store's pages, in bytes. Default 64 MiB.
    pub store_cache_bytes: usize,
    /// The size of the store's file on the disk from which on it is compacted automatically, if it is also four times the size of its rows;
    /// `u64::MAX`: never. Default 64 MiB.
    pub store_compact_bytes: u64,
}

/// A segment is no smaller for a disk budget's sake.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

impl Options {
    /// Returns options for a directory that is only read, even if it cannot be written: a read-only medium, or another user's files. What
    /// opening would write stays in memory, and a lock is taken only if possible.
    #[must_use]
    pub fn to_read(&self, dir: &Path) -> Self {
        Self {
            files: Arc::new(ToRead::new(self.files.clone(), dir)),
            ..self.clone()
        }
    }

    /// Reduces the file sizes if all files together may take at most this much of the disk. At most half of it is used for prepared
    /// segments and the reserve.
    #[must_use]
    pub fn within(self, bytes_max: Option<u64>) -> Self {
        let Some(bytes_max) = bytes_max else { return self };
        Self {
            segment_bytes: self.segment_bytes.min((bytes_max / 16).max(SEGMENT_BYTES_MIN)),
            reserve_bytes: self.reserve_bytes.min(bytes_max / 16),
            store_compact_bytes: self.store_compact_bytes.min(bytes_max / 8),
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            reserve_bytes: 16 << 20,
            sync_delay: Duration::ZERO,
            files: Arc::new(Disk),
            accept_loss: None,
            store_cache_bytes: 64 << 20,
            store_compact_bytes: 64 << 20,
        }
    }
}
