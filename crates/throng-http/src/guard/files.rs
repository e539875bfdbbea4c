//! Files that are read again when they change, while the service runs.

use super::expiry::{Expiry, first_expiry};
use crate::error::FileError;
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::watch;

/// The interval between two looks at the files.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The largest file of tokens, keys or certificates, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

type Read<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, Wrong> + Send + Sync>;

/// The fault of one of several files.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The place among the paths.
    pub(crate) file: usize,
    pub(crate) why: String,
}

/// A fault of the first file, or of all of them.
impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self { file: 0, why }
    }
}

/// A value read from some files, and read again when they change.
pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    read: Read<T>,
    value: RwLock<Arc<T>>,
    seen: Mutex<Seen>,
}

/// The last look at the files.
struct Seen {
    /// The files' stamps when they were last read successfully.
    read: Vec<Option<Stamp>>,
    /// The logged reason why they could not be read since.
    failed: Option<String>,
    /// The expiries of their certificates when they were last read successfully.
    expiries: Vec<Expiry>,
}

/// Attributes that change when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    pub(crate) fn new<W: Into<Wrong>>(
        paths: Vec<PathBuf>,
        read: impl Fn(&[Vec<u8>]) -> Result<T, W> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let stamps = paths.iter().map(|path| stamp(path)).collect();
        let read: Read<T> = Box::new(move |files| read(files).map_err(Into::into));
        let (value, expiries) = read_all(&paths, &read)?;
        Ok(Self {
            paths,
            read,
            value: RwLock::new(Arc::new(value)),
            seen: Mutex::new(Seen {
                read: stamps,
                failed: None,
                expiries,
            }),
        })
    }

    /// Returns the newest value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A value that is refreshed regularly.
pub(crate) trait Refresh: Send + Sync {
    /// Looks again; returns true if the value has changed.
    fn refresh(&self) -> bool;

    /// True if the last refresh failed, so that the value is the former one.
    fn has_failed(&self) -> bool;

    /// Returns the expiries of its certificates.
    fn expiries(&self) -> Vec<Expiry> {
        Vec::new()
    }
}

impl<T: Send + Sync> Refresh for Watched<T> {
    fn refresh(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the files are read, so that a change in between causes another reading.
        let stamps: Vec<_> = self.paths.iter().map(|path| stamp(path)).collect();
        if seen.read == stamps {
            // A file that was missing is back, unchanged.
            seen.failed = None;
            return false;
        }
        match read_all(&self.paths, &self.read) {
            Ok((value, expiries)) => {
                *seen = Seen {
                    read: stamps,
                    failed: None,
                    expiries,
                };
                *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!("read again: {}", self.names());
                true
            }
            // A revoked credential stays valid until they are read, so the next refresh tries again.
            Err(error) => {
                let why = error.to_string();
                if seen.failed.as_ref() != Some(&why) {
                    tracing::error!("what was read before goes on to hold, and is tried again each second: {why}");
                    seen.failed = Some(why);
                }
                false
            }
        }
    }

    fn has_failed(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.failed.is_some()
    }

    fn expiries(&self) -> Vec<Expiry> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.expiries.clone()
    }
}

impl<T> Watched<T> {
    fn names(&self) -> String {
        let names: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
        inode: metadata.ino(),
    })
}

/// Reads the files, and the expiries of their certificates.
fn read_all<T>(paths: &[PathBuf], read: &Read<T>) -> Result<(T, Vec<Expiry>), FileError> {
    let named = |path: &Path, why: String| FileError::new(&path.display().to_string(), why);
    let mut contents = Vec::new();
    for path in paths {
        contents.push(read_file(path).map_err(|why| named(path, why.to_string()))?);
    }
    let value = read(&contents)
        .map_err(|Wrong { file, why }| named(paths.get(file).map_or(Path::new(""), PathBuf::as_path), why))?;
    let expiry = |(path, pem): (&PathBuf, &Vec<u8>)| {
        let (file, at) = (path.display().to_string(), first_expiry(pem)?);
        Some(Expiry { file, at })
    };
    Ok((value, paths.iter().zip(&contents).filter_map(expiry).collect()))
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::metadata(path)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it has {bytes} bytes, at most {FILE_BYTES_MAX} are read"
        )));
    }
    fs::read(path)
}

/// Counts changes, so that results that depend on a former state are dropped.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// The count that every request compares.
    count: AtomicU64,
    /// Notifies waiters of the next change.
    changed: watch::Sender<u64>,
}

impl Version {
    pub(crate) fn get(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns a receiver of all further changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_again_unless_it_is_bad() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        fs::write(&path, "1").unwrap();
        let read = |contents: &[Vec<u8>]| {
            let text = String::from_utf8_lossy(&contents[0]);
            text.parse::<u32>().map_err(|why| why.to_string())
        };
        let watched = Watched::new(vec![path.clone()], read).unwrap();
        assert!(!watched.refresh(), "nothing has changed");
        fs::write(&path, "22").unwrap();
        assert!(watched.refresh() && *watched.get() == 22);
        fs::write(&path, "three").unwrap();
        assert!(!watched.refresh() && *watched.get() == 22);
        fs::remove_file(&path).unwrap();
        assert!(!watched.refresh() && *watched.get() == 22);
        fs::write(&path, "4444").unwrap();
        assert!(watched.refresh() && *watched.get() == 4_444);
        assert!(Watched::new(vec![dir.path().join("none")], read).is_err());
    }

    #[test]
    fn file_is_read_again_until_its_reading_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        fs::write(&path, "1").unwrap();
        let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let read = {
            let fails = fails.clone();
            move |contents: &[Vec<u8>]| match fails.load(Ordering::Relaxed) {
                true => Err("too many open files".to_owned()),
                false => Ok(contents[0].len()),
            }
        };
        let watched = Watched::new(vec![path.clone()], read).unwrap();
        fs::write(&path, "22").unwrap();
        fails.store(true, Ordering::Relaxed);
        assert!(!watched.refresh() && !watched.refresh());
        fails.store(false, Ordering::Relaxed);
        assert!(watched.refresh() && *watched.get() == 2);
        assert!(!watched.refresh(), "it was read");
    }
}
