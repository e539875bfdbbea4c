//! Tools on directories without write permission, and on files that are not logs.

use crate::kit::{append, open_writer};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};
use throng_journal::{CommitNo, Error, Position, ViewBatch, ViewOffset, Views as _, WriterId, conformance::block_on};
use throng_log::{
    EmbeddedViews, Log, Options,
    files::{Disk, File, Files},
    open_embedded,
    tools::{self, ExportOptions, InspectOptions, LiveBackup, Until},
};

const READ_ONLY_FILE_SYSTEM: i32 = 30;
const PERMISSION_DENIED: i32 = 13;

/// A disk with a directory that refuses writes for this reason.
#[derive(Debug)]
struct ReadOnly {
    dir: PathBuf,
    errno: i32,
}

impl ReadOnly {
    fn refuse(&self, path: &Path) -> io::Result<()> {
        match path.starts_with(&self.dir) {
            true => Err(io::Error::from_raw_os_error(self.errno)),
            false => Ok(()),
        }
    }
}

impl Files for ReadOnly {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        Disk.create_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.refuse(path)?;
        Disk.lock(path)
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Disk.lock_to_read(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        self.refuse(path)?;
        Disk.open(path, create)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Disk.open_to_read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse(to)?;
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.refuse(path)?;
        Disk.remove(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        Disk.free_bytes(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Disk.sync_dir(dir)
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        ..Options::default()
    }
}

/// Creates a log of 20 commits with a store and a read model, and removes its lock file.
fn filled(dir: &Path) {
    let (log, store) = open_embedded(dir, options()).unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=20 {
        append(&log, writer, number, 100).unwrap();
    }
    let views = EmbeddedViews::open(log.clone()).unwrap();
    let offset = ViewOffset {
        position: Position::new(WriterId(1), CommitNo(20)),
        ..ViewOffset::default()
    };
    let batch = ViewBatch {
        expected: None,
        offset,
        changes: vec![(b"key".to_vec(), Some(b"value".to_vec()))],
    };
    block_on(views.apply("lines", batch)).unwrap();
    drop((views, store, log));
    fs::remove_file(dir.join("lock")).unwrap();
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = paths.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn tools_read_directories_that_cannot_be_written() {
    let parent = tempfile::tempdir().unwrap();
    let (log, copy) = (parent.path().join("log"), parent.path().join("copy"));
    filled(&log);
    tools::backup(&options(), &log, &copy).unwrap();
    for (dir, errno) in [(&log, READ_ONLY_FILE_SYSTEM), (&copy, PERMISSION_DENIED)] {
        let before = contents(dir);
        let files = ReadOnly {
            dir: dir.clone(),
            errno,
        };
        let options = Options {
            files: Arc::new(files),
            ..options()
        };
        let verified = tools::verify(&options, dir).unwrap();
        assert!(verified.is_sound() && verified.store.starts_with("sound"), "{verified}");
        let inspected = tools::inspect(&options, dir, &InspectOptions::default()).unwrap();
        assert_eq!(inspected.contents.commits, 20);
        let mut lines = Vec::new();
        let exported = tools::export(&options, dir, &mut lines, ExportOptions::default()).unwrap();
        assert_eq!(exported.commits, 20);
        let mut commits = 0;
        let mut count = |_: &_| {
            commits += 1;
            Ok(())
        };
        tools::for_each_commit(&options, dir, &mut count).unwrap();
        assert_eq!(commits, 20);
        drop(tools::hold(&options, dir).unwrap());
        let to = |what: &str| parent.path().join(format!("{what}-{errno}"));
        let restored = tools::restore(&options, (dir, None), &to("restored"), Until::End).unwrap();
        assert_eq!(restored.commits, 20);
        assert!(
            tools::backup(&options, dir, &to("backup"))
                .unwrap()
                .verification
                .is_sound()
        );
        let added = LiveBackup::begin(&options, dir, &to("live"))
            .unwrap()
            .catch_up()
            .unwrap();
        assert!(added.bytes > 0);
        let followed = tools::inspect(&options, &to("live"), &InspectOptions::default()).unwrap();
        assert_eq!(followed.contents.commits, 20);
        // A service that would write there is still refused.
        let refused = Log::open(dir, options.clone()).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
        let views = EmbeddedViews::open(Arc::new(Log::open(dir, options.to_read(dir)).unwrap())).unwrap();
        let names = block_on(views.names()).unwrap();
        assert_eq!(names, if dir == &log { vec!["lines".to_owned()] } else { vec![] });
        drop(views);
        assert!(contents(dir) == before, "{} was changed", dir.display());
    }
}

#[test]
fn directory_in_use_is_told_to_readers_too() {
    let dir = tempfile::tempdir().unwrap();
    let files = ReadOnly {
        dir: dir.path().to_owned(),
        errno: PERMISSION_DENIED,
    };
    let to_read = Options {
        files: Arc::new(files),
        ..options()
    };
    filled(dir.path());
    let lock = Disk.lock(&dir.path().join("lock")).unwrap().unwrap();
    // This process holds the lock, whatever id the file names.
    fs::write(dir.path().join("lock"), "1").unwrap();
    let refused = tools::hold(&to_read, dir.path()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop(lock);
    drop(tools::hold(&to_read, dir.path()).unwrap());
}

#[test]
fn a_file_that_is_no_segment_is_named_by_each_tool() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("00000001.log"), "hello, world\n").unwrap();
    let restored = tools::restore(&options(), (&dir, None), &parent.path().join("new"), Until::End);
    let exported = tools::export(&options(), &dir, &mut Vec::new(), ExportOptions::default());
    for refused in [restored.unwrap_err(), exported.unwrap_err()].map(|error| error.to_string()) {
        assert!(
            refused.contains("00000001.log") && refused.contains("no segment of a log: 13 bytes where a header stands"),
            "{refused}"
        );
    }
    assert!(!tools::verify(&options(), &dir).unwrap().is_sound());
}
