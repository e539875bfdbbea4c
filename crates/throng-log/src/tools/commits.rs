//! Reading all commits of a directory, even while a service writes to it.

use super::walk::{HistoryPart, walk};
use crate::Options;
use std::path::Path;
use throng_journal::{Commit, Error};

/// Calls `visit` with every commit, in the order of history.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Io`] of the file system, or the visitor's error.
pub fn for_each_commit(
    options: &Options,
    dir: &Path,
    visit: &mut dyn FnMut(&Commit) -> Result<(), Error>,
) -> Result<(), Error> {
    walk(options, dir, &mut |seen| match seen {
        HistoryPart::Commit { commit } => visit(commit),
        HistoryPart::Damage { position, place, why } => Err(Error::Damaged { position, place, why }),
        HistoryPart::Segment { .. } | HistoryPart::Note { .. } => Ok(()),
    })
}
