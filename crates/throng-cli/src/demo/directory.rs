//! The demo's own directory, emptied for each run. A directory with other contents is refused.

use anyhow::{Context as _, bail};
use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// The file that marks a directory as a demo's. It is locked while a demo runs.
const MARK: &str = "throng-demo";

/// A directory that contains only this demo's files.
pub struct Directory {
    path: PathBuf,
    /// Held while the demo runs.
    _mark: File,
}

impl Directory {
    /// Makes the directory, and removes an earlier demo's files.
    ///
    /// # Errors
    /// The directory contains other files, or a demo runs in it.
    pub fn fresh(path: &Path) -> anyhow::Result<Self> {
        let mark = path.join(MARK);
        let is_empty = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error).with_context(|| format!("cannot read the directory {}", path.display())),
        };
        if !is_empty && !mark.is_file() {
            bail!(
                "{} holds files that are not of an earlier demo, and the demo begins with an empty one; choose another directory with --data",
                path.display()
            );
        }
        fs::create_dir_all(path).with_context(|| format!("cannot create the directory {}", path.display()))?;
        let file = File::create(&mark).with_context(|| format!("cannot write {}", mark.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another demo runs in {}; end it, or choose another directory with --data",
                    path.display()
                )
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", mark.display()));
            }
        }
        let directory = Self {
            path: path.to_owned(),
            _mark: file,
        };
        let old = directory.journal();
        match fs::remove_dir_all(&old) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", old.display()))
            }
            _ => Ok(directory),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of the journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_demo_is_replaced_once_it_has_ended() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("deep/demo");
        let first = Directory::fresh(&path).unwrap();
        fs::create_dir(first.journal()).unwrap();
        fs::write(first.journal().join("segment"), "old").unwrap();
        let said = Directory::fresh(&path).err().unwrap().to_string();
        assert!(said.starts_with("another demo runs in "), "{said}");
        assert!(first.journal().join("segment").exists());
        drop(first);
        let second = Directory::fresh(&path).unwrap();
        assert!(!second.journal().exists());
    }

    #[test]
    fn directories_of_others_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("thesis.tex"), "42").unwrap();
        let said = Directory::fresh(base.path()).err().unwrap().to_string();
        assert!(said.contains("choose another directory with --data"), "{said}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
    }
}
