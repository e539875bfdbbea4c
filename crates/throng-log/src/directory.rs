//! The data directory: the names of files in it, and its lock.

use crate::Options;
use std::path::Path;
use throng_journal::Error;

/// A lock on a directory, held until it is dropped.
pub(crate) type Lock = Box<dyn Send + Sync>;

/// The name of the directory's lock file.
const LOCK_NAME: &str = "lock";
/// The store's file.
pub(crate) const STORE_NAME: &str = "store.redb";

/// Takes the directory for this process.
pub(crate) fn lock(options: &Options, dir: &Path) -> Result<Lock, Error> {
    let path = dir.join(LOCK_NAME);
    let locking = Error::io(format!("locking {}", path.display()));
    options.files.lock(&path).map_err(locking)?.ok_or_else(|| {
        let holder = holder(options, &path).map_or(String::new(), |process| format!(" (process {process})"));
        Error::InUse {
            what: format!("the data directory {}{holder}", dir.display()),
        }
    })
}

/// Returns the process that the lock file names as its holder, for the error's text.
fn holder(options: &Options, path: &Path) -> Option<u32> {
    let mut bytes = [0; 16];
    let read = options.files.open(path, false).ok()?.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..read]).ok()?.trim().parse().ok()
}
