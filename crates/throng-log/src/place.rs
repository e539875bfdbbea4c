//! The file `place` of a data directory: where its journal was last served, or how it was copied.
//!
//! A copy looks like its original, and a service started on it would act like the original. So the file names its own inode and the
//! machine. A copied file has another inode, and a file written by a restore or a backup names its origin.

use crate::files::{FILE_MODE, Files};
use std::{
    fs, io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};
use throng_journal::Error;

const PLACE_NAME: &str = "place";
/// The first word of a copy's line.
const COPY: &str = "copy";
/// The word for a copy that was served in place of its original, followed by the time since when.
const RESTORED: &str = "restored";
/// Linux stores the id of an installation here. Containers often lack it.
const MACHINE_ID: &str = "/etc/machine-id";

/// The place of a data directory's journal, according to its file.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    machine: Option<String>,
}

impl Place {
    /// The place of the journal in a directory.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let machine = fs::read_to_string(MACHINE_ID).unwrap_or_default();
        Self {
            path: dir.join(PLACE_NAME),
            machine: Some(machine.trim().to_owned()).filter(|id| !matches!(&**id, "" | "uninitialized")),
        }
    }

    /// Returns the reason why the journal counts as a copy, if it does. A directory without the file was last served by an earlier release,
    /// and does not count as a copy.
    ///
    /// # Errors
    /// [`Error::Io`]: the file exists and cannot be read.
    pub fn copied(&self) -> Result<Option<String>, Error> {
        let reading = || Error::io(format!("reading {}", self.path.display()));
        let text = match fs::read_to_string(&self.path) {
            // Opening the directory will report what is wrong with it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            text => text.map_err(reading())?,
        };
        let inode = fs::metadata(&self.path).map_err(reading())?.ino();
        let found = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if let Some(origin) = found(COPY) {
            return Ok(Some(origin.to_owned()));
        }
        if let Some(was) = found("inode").filter(|was| *was != inode.to_string()) {
            let file = self.path.display();
            return Ok(Some(format!(
                "{file} was written as inode {was} and is inode {inode} now"
            )));
        }
        let machine = found("machine").zip(self.machine.as_deref());
        Ok(machine
            .filter(|(was, is)| was != is)
            .map(|(was, is)| format!("it was served last on the machine {was}, and this is {is} ({MACHINE_ID})")))
    }

    /// Returns the [recorded](Self::record) time since when this copy is served in place of its original, in microseconds; `None` if the
    /// journal is no copy.
    ///
    /// # Errors
    /// [`Error::Io`]: the file exists and cannot be read.
    pub fn restored_micros(&self) -> Result<Option<i64>, Error> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            text => text.map_err(Error::io(format!("reading {}", self.path.display())))?,
        };
        let restored = text
            .lines()
            .find_map(|line| line.strip_prefix(RESTORED)?.strip_prefix(' '));
        Ok(restored.and_then(|micros| micros.parse().ok()))
    }

    /// Records that the journal is served here and, for a copy, since when in place of its original.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn record(&self, restored_micros: Option<i64>) -> Result<(), Error> {
        self.write(|inode| {
            let line = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}\n"));
            let lines = [
                line("inode", Some(inode.to_string())),
                line("machine", self.machine.clone()),
                line(RESTORED, restored_micros.map(|micros| micros.to_string())),
            ];
            lines.into_iter().flatten().collect()
        })
    }

    /// Writes the file in place. If it were renamed over an old one, it would have another inode than it names.
    fn write(&self, text: impl FnOnce(u64) -> String) -> Result<(), Error> {
        let writing = || Error::io(format!("writing {}", self.path.display()));
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(FILE_MODE);
        let file = options.open(&self.path).map_err(writing())?;
        let text = text(file.metadata().map_err(writing())?.ino());
        if fs::read_to_string(&self.path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        file.set_len(0).map_err(writing())?;
        file.write_all_at(text.as_bytes(), 0).map_err(writing())?;
        file.sync_all().map_err(writing())
    }
}

/// Marks a journal as a copy of another, until it is [served](Place::record).
pub(crate) fn mark_copy(files: &dyn Files, dir: &Path, how: &str, from: &Path) -> Result<(), Error> {
    let path = dir.join(PLACE_NAME);
    let writing = || Error::io(format!("writing {}", path.display()));
    let file = files.open(&path, true).map_err(writing())?;
    let text = format!("{COPY} it was {how} {}\n", from.display());
    file.set_length(0).map_err(writing())?;
    file.write_at(text.as_bytes(), 0).map_err(writing())?;
    file.sync_data().map_err(writing())
}

/// True if a journal is [marked](mark_copy) as a copy.
pub(crate) fn is_marked_copy(files: &dyn Files, dir: &Path) -> bool {
    let has_place = files
        .list(dir)
        .is_ok_and(|names| names.iter().any(|name| name == PLACE_NAME));
    let mut begin = [0; COPY.len()];
    has_place
        && files
            .open(&dir.join(PLACE_NAME), false)
            .and_then(|file| file.read_at(&mut begin, 0))
            .is_ok_and(|read| read == COPY.len() && begin == *COPY.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(dir: &Path) -> Option<String> {
        Place::of(dir).copied().unwrap()
    }

    #[test]
    fn time_of_a_restore_stays_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path());
        assert_eq!(place.restored_micros().unwrap(), None);
        place.record(Some(5)).unwrap();
        assert_eq!((place.restored_micros().unwrap(), copied(dir.path())), (Some(5), None));
        place.record(None).unwrap();
        assert_eq!(place.restored_micros().unwrap(), None);
    }

    #[test]
    fn copied_directory_is_told_from_a_moved_one() {
        let dir = tempfile::tempdir().unwrap();
        let (first, moved, copy) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        fs::create_dir(&first).unwrap();
        assert_eq!(copied(&first), None, "an earlier release has left no file");
        Place::of(&first).record(None).unwrap();
        assert_eq!(copied(&first), None);
        fs::rename(&first, &moved).unwrap();
        assert_eq!(copied(&moved), None);
        fs::create_dir(&copy).unwrap();
        fs::copy(moved.join(PLACE_NAME), copy.join(PLACE_NAME)).unwrap();
        assert!(copied(&copy).unwrap().contains("inode"));
        Place::of(&copy).record(None).unwrap();
        assert_eq!((copied(&copy), copied(&moved)), (None, None), "both are served now");
    }

    #[test]
    fn other_machine_counts_only_where_both_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let on = |machine: Option<&str>| Place {
            machine: machine.map(str::to_owned),
            ..Place::of(dir.path())
        };
        on(Some("one")).record(None).unwrap();
        assert_eq!(on(Some("one")).copied().unwrap(), None);
        assert_eq!(on(None).copied().unwrap(), None);
        assert!(on(Some("two")).copied().unwrap().unwrap().contains("machine one"));
    }

    #[test]
    fn marked_copy_names_its_origin_until_it_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path());
        let files = crate::files::Disk;
        mark_copy(&files, dir.path(), "restored from", Path::new("nightly")).unwrap();
        assert!(is_marked_copy(&files, dir.path()));
        assert_eq!(place.copied().unwrap().as_deref(), Some("it was restored from nightly"));
        place.record(None).unwrap();
        assert_eq!(place.copied().unwrap(), None);
        assert!(!is_marked_copy(&files, dir.path()));
    }
}
