//! Giving back unused room.

use crate::{
    Log, Options,
    directory::STORE_NAME,
    header::Fault,
    recovery::{self, segment_path},
    store,
};
use std::{fmt, path::Path, sync::Arc};
use throng_journal::Error;

/// The space that was given back.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Compacted {
    /// The store's file, by its length.
    #[serde(flatten)]
    pub store: throng_journal::Compacted,
    /// The number of prepared segments that were deleted.
    pub segments_removed: u64,
    /// The bytes of the deleted segments.
    pub segments_removed_bytes: u64,
}

impl fmt::Display for Compacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {} unused segments of {} bytes were removed; history is as it was",
            self.store, self.segments_removed, self.segments_removed_bytes
        )
    }
}

/// Rewrites the store's file without its free pages, and deletes prepared segments. No history is removed.
///
/// # Errors
/// [`Error::InUse`], [`Error::Damaged`], or [`Error::Io`] of the file system.
pub fn compact(options: &Options, dir: &Path) -> Result<Compacted, Error> {
    let segments = super::require_log(options, dir)?;
    let log = Arc::new(Log::open(dir, options.clone())?);
    let mut compacted = Compacted::default();
    for number in segments {
        if recovery::open_segment(&*options.files, dir, number)?.err() != Some(Fault::Empty) {
            continue;
        }
        let path = segment_path(dir, number);
        let removing = || format!("removing {}", path.display());
        let file = options.files.open(&path, false).map_err(Error::io(removing()))?;
        compacted.segments_removed_bytes += file.length().map_err(Error::io(removing()))?;
        options.files.remove(&path).map_err(Error::io(removing()))?;
        compacted.segments_removed += 1;
    }
    let names = options.files.list(dir).unwrap_or_default();
    if names.iter().any(|name| name == STORE_NAME) {
        compacted.store = store::compact(&log, &dir.join(STORE_NAME))?;
    }
    options
        .files
        .sync_dir(dir)
        .map_err(Error::io(format!("syncing the directory {}", dir.display())))?;
    Ok(compacted)
}
