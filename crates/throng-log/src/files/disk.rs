//! The real file system.

use super::{File, Files};
use std::{
    fs::{self, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// How long a log of this very process may take to end before its directory counts as in use.
const OWN_END: Duration = Duration::from_millis(500);

/// Does this process hold the lock?
fn is_own(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|holder| holder.trim() == std::process::id().to_string())
}

impl Files for Disk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // Our own earlier log may still be writing its clean end: its last owner let it go, its drop has not returned.
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if is_own(path) && begun.elapsed() < OWN_END => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
            }
        }
        // For the person who wonders who holds the directory; the lock itself is the kernel's.
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Some(Box::new(file)))
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

#[derive(Debug)]
struct DiskFile(fs::File);

impl File for DiskFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.0.read_at(&mut into[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        use rustix::{fs::FallocateFlags, io::Errno};
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            // A file system that cannot reserve: the file grows with its writes instead.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(()) => Ok(()),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}
