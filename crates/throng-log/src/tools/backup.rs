//! Copying a log and its store into another directory, and checking the copy.

use super::{Verification, unfinished::Unfinished, verify};
use crate::{
    EmbeddedStore, Log, Options,
    files::{File, Files},
    recovery::segment_path,
    store,
};
use std::{fmt, path::Path, sync::Arc};
use throng_journal::Error;

/// Copied at once.
const PIECE_BYTES: u64 = 4 << 20;

/// What was copied.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BackedUp {
    /// Segments copied.
    pub segments: u64,
    /// Their bytes.
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
        writeln!(f, "copied {segments} segments, {bytes} bytes, up to commit {upto}")?;
        write!(f, "{verification}")
    }
}

/// Copies the log and the store of a directory that no engine is using, and checks the copy.
///
/// # Errors
/// [`Error::InUse`]; the target holds a log; damage that stops the log from being opened; the file system's.
pub fn backup(options: &Options, dir: &Path, to: &Path) -> Result<BackedUp, Error> {
    super::require_log(options, dir)?;
    let log = Arc::new(Log::open(dir, options.clone())?);
    let names = options.files.list(dir).unwrap_or_default();
    let store = match names.iter().any(|name| name == store::STORE_NAME) {
        true => Some(EmbeddedStore::open(Arc::clone(&log))?),
        false => None,
    };
    backup_live(&log, store.as_ref(), to)
}

/// Copies a log that is open, with its store if one is given, while the engine goes on: the copy ends at a commit that
/// was durable when it began, and the store in it covers no more than that.
///
/// # Errors
/// The target holds a log; the file system's.
pub fn backup_live(log: &Log, store: Option<&EmbeddedStore>, to: &Path) -> Result<BackedUp, Error> {
    let options = log.options();
    let files = &options.files;
    let (unfinished, lock) = Unfinished::begin(options, to)?;
    if let Some(store) = store {
        store.copy_to(&to.join(store::STORE_NAME))?;
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
