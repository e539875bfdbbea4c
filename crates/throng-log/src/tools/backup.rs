//! Copying a log and its store into another directory, and checking the copy.

use super::{LiveBackup, Verification, verify};
use crate::{
    EmbeddedStore, Log, Options,
    directory::STORE_NAME,
    files::{File, Files},
    place,
    recovery::segment_path,
    unfinished::{Unfinished, refuse_swap, refuse_unfinished, require_no_log},
};
use std::{fmt, path::Path, sync::Arc};
use throng_journal::Error;

/// Copied at once.
const PIECE_BYTES: u64 = 4 << 20;

/// The result of a backup.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BackedUp {
    /// Segments in the copy.
    pub segments: u64,
    /// The bytes copied by this call.
    pub bytes: u64,
    /// The last commit in the copy, written `writer.commit`.
    pub upto: String,
    /// The check of the copy.
    pub verification: Verification,
}

impl fmt::Display for BackedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            segments,
            bytes,
            upto,
            verification,
        } = self;
        writeln!(
            f,
            "copied {bytes} bytes; the copy has {segments} segments and reaches commit {upto}"
        )?;
        write!(f, "{verification}")
    }
}

/// Copies the log of a directory, and its store if no engine is using it, and checks the copy. A target with an earlier copy of the same
/// log gets what has been written since.
///
/// # Errors
/// [`Error::InUse`]: the target is in use. [`Error::Backend`]: there is no log to copy, or the target holds another history.
/// [`Error::Damaged`]: the log is damaged. [`Error::Io`] of the file system.
pub fn backup(options: &Options, dir: &Path, to: &Path) -> Result<BackedUp, Error> {
    let options = &options.to_read(dir);
    refuse_swap(&*options.files, dir, to)?;
    super::require_log(options, dir)?;
    if require_no_log(options, to).is_err() && refuse_unfinished(&*options.files, to).is_ok() {
        return add(options, dir, to);
    }
    let log = match Log::open(dir, options.clone()) {
        Ok(log) => Arc::new(log),
        Err(Error::InUse { .. }) => return add(options, dir, to),
        Err(error) => return Err(error),
    };
    let names = options.files.list(dir).unwrap_or_default();
    let store = match names.iter().any(|name| name == STORE_NAME) {
        true => Some(EmbeddedStore::open(Arc::clone(&log))?),
        false => None,
    };
    backup_live(&log, store.as_ref(), to)
}

fn add(options: &Options, dir: &Path, to: &Path) -> Result<BackedUp, Error> {
    let mut copy = LiveBackup::begin(options, dir, to)?;
    let added = copy.catch_up()?;
    drop(copy);
    let verification = verify(options, to)?;
    Ok(BackedUp {
        segments: verification.segments.unwrap_or_default(),
        bytes: added.bytes,
        upto: added.upto.to_string(),
        verification,
    })
}

/// Copies an open log, with its store if one is given, while the engine goes on. The copy ends at a commit that was durable when it began,
/// and the store in it covers no more than that.
///
/// # Errors
/// [`Error::InUse`] or [`Error::Backend`]: the target holds a log. [`Error::Io`] of the file system.
pub fn backup_live(log: &Log, store: Option<&EmbeddedStore>, to: &Path) -> Result<BackedUp, Error> {
    let options = log.options();
    let files = &options.files;
    let (unfinished, lock) = Unfinished::begin(options, to)?;
    place::mark_copy(&**files, to, "backed up from", log.dir())?;
    if let Some(store) = store {
        store.copy_to(&to.join(STORE_NAME))?;
    }
    let pieces = log.durable_pieces()?;
    let mut bytes = 0;
    for (segment, length) in &pieces.segments {
        let (from, to) = (segment_path(log.dir(), *segment), segment_path(to, *segment));
        bytes += copy(&**files, &from, &to, *length)?;
    }
    drop(lock);
    unfinished.finish()?;
    Ok(BackedUp {
        segments: pieces.segments.len() as u64,
        bytes,
        upto: pieces.upto.to_string(),
        verification: verify(options, to)?,
    })
}

/// Copies the first bytes of a file.
fn copy(files: &dyn Files, from: &Path, to: &Path, length: Option<u64>) -> Result<u64, Error> {
    let doing = format!("copying {} to {}", from.display(), to.display());
    let source = files.open(from, false).map_err(Error::io(doing.clone()))?;
    let target = files.open(to, true).map_err(Error::io(doing.clone()))?;
    copy_bytes(&*source, &*target, length).map_err(Error::io(doing))
}

fn copy_bytes(source: &dyn File, target: &dyn File, length: Option<u64>) -> std::io::Result<u64> {
    let length = length.unwrap_or(u64::MAX).min(source.length()?);
    let mut piece = vec![0; usize::try_from(length.min(PIECE_BYTES)).unwrap_or(0)];
    let mut at = 0;
    while at < length {
        let wanted = usize::try_from((length - at).min(PIECE_BYTES)).unwrap_or(0);
        let read = source.read_at(&mut piece[..wanted], at)?;
        if read == 0 {
            break;
        }
        target.write_at(&piece[..read], at)?;
        at += read as u64;
    }
    target.sync_data()?;
    Ok(at)
}
