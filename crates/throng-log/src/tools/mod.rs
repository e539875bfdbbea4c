//! Offline tools for a data directory: what `throng journal …` runs. Each is a function from options to a result that
//! can be printed and serialised.
//!
//! [`inspect`], [`verify`] and [`export`] only read. They also work beside a running engine, where they see what has been written so far,
//! and on read-only media. [`import`] and [`compact`] take the directory's lock. [`backup`] copies an unused directory, [`backup_live`] a
//! log that is open in this process, [`LiveBackup`] one that another process writes. [`restore`] begins a directory with a history up to
//! some moment.

mod backup;
mod commits;
mod compact;
mod export;
mod import;
mod inspect;
mod line;
mod live;
mod restore;
mod verify;
mod walk;

pub use backup::{BackedUp, backup, backup_live};
pub use commits::for_each_commit;
pub use compact::{Compacted, compact};
pub use export::{ExportLines, ExportOptions, Exported, export};
pub use import::{ImportOptions, ImportTarget, Imported, import, import_into};
pub use inspect::{Inspection, SegmentLine, inspect};
pub use live::{Added, LiveBackup};
pub use restore::{Until, restore};
pub use throng_journal::tools::{Contents, Finding, HistoryLine, InspectOptions, Verification, WriterLine};
pub use verify::verify;

use crate::{
    directory::{self, Lock},
    recovery,
    unfinished::{refuse_unfinished, settle_unused},
};
use std::path::Path;
use throng_journal::Error;

/// Locks a directory until the guard is dropped, so that no other process writes to it.
///
/// # Errors
/// [`Error::InUse`]; [`Error::Backend`]: there is no log in it; [`Error::Io`] of the file system.
pub fn hold(options: &crate::Options, dir: &Path) -> Result<Lock, Error> {
    let options = options.to_read(dir);
    require_log(&options, dir)?;
    directory::lock(&options, dir)
}

/// Returns the numbers of a directory's segments; an error if it holds no log.
fn require_log(options: &crate::Options, dir: &Path) -> Result<Vec<u64>, Error> {
    refuse_unfinished(&*options.files, dir)?;
    settle_unused(options, dir)?;
    let segments = recovery::list(&*options.files, dir)?;
    if segments.is_empty() {
        return Err(Error::backend(
            format!("reading {}", dir.display()),
            "there is no log in this directory (no file like 00000001.log)",
        ));
    }
    Ok(segments)
}
