//! The options of a log.

use crate::files::{Disk, Files, ToRead};
use std::{path::Path, sync::Arc, time::Duration};
use throng_journal::{Durability, Position};

/// The options of a log; `Options::default()` is right for a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The failures that an acknowledged commit survives. Default: power loss. [`Durability::Memory`] is kept as [`Durability::Os`] here.
    pub durability: Durability,
    /// Largest segment in bytes; the first of a writer is 4 MiB at most, so that a start is quick. Default 64 MiB.
    pub segment_bytes: u64,
    /// Room kept on the disk for the end, in bytes: with it the log is sealed, the store makes its checkpoint and the next start
    /// begins when the disk is full. Zero: none. Default 16 MiB.
    pub reserve_bytes: u64,
    /// Added to every sync: a slow disk for tests and measurements. Default none.
    pub sync_delay: Duration,
    /// The file system. Default [`Disk`].
    pub files: Arc<dyn Files>,
    /// A proved loss that is accepted, named by the commit the store covers: see [`Loss`](throng_journal::Loss). Any other
    /// loss is refused. Default none.
    pub accept_loss: Option<Position>,
    /// Memory for the store's pages, in bytes. Default 64 MiB.
    pub store_cache_bytes: usize,
    /// The store's file is compacted by itself, beside everything else, once it takes so many bytes of the disk and four times what its
    /// rows have; `u64::MAX`: never by itself. Default 64 MiB.
    pub store_compact_bytes: u64,
}

/// A segment is no smaller for a disk budget's sake.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

impl Options {
    /// Options for a directory that is only read, also where nothing can be written: a read-only medium, or another user's files. What opening
    /// it would write there stays in memory, and no lock is taken where none can be had.
    #[must_use]
    pub fn to_read(&self, dir: &Path) -> Self {
        Self {
            files: Arc::new(ToRead::new(self.files.clone(), dir)),
            ..self.clone()
        }
    }

    /// Sets smaller files where all together are to take at most this much of the disk: half of these bytes at most are taken by what is
    /// made ready or kept for the end.
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
