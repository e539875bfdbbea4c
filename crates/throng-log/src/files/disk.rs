//! The real file system.

use super::{BLOCK_BYTES, File, Files, LARGE_BYTES};
use std::{
    fs::{self, DirBuilder, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    },
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// The time that an earlier log of this process gets to end before its directory counts as in use.
const OWN_END: Duration = Duration::from_millis(500);

/// Does this process hold the lock?
fn is_own(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|holder| holder.trim() == std::process::id().to_string())
}

/// `false`: another process holds it.
fn try_lock(file: &fs::File, path: &Path) -> io::Result<bool> {
    // An earlier log of this process may still be writing its clean end: its last reference is gone, but its drop has not returned.
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if is_own(path) && begun.elapsed() < OWN_END => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
        }
    }
}

/// Accepts a file system that cannot lock directories, such as NFS: the lock file must suffice.
fn without_lock(error: io::Error) -> io::Result<bool> {
    tracing::debug!(%error, "the data directory itself cannot be locked");
    Ok(true)
}

/// Locks the directory itself, because the lock file stays after every end, and a person may delete it as a leftover.
fn lock_dir(path: &Path) -> io::Result<Option<Option<fs::File>>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(match parent.map(fs::File::open).transpose()? {
        Some(dir) if !try_lock(&dir, path).or_else(without_lock)? => None,
        dir => Some(dir),
    })
}

/// The mode of all files: they hold the whole history, so only the service's own user may read them.
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

impl Files for Disk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let Some(dir) = lock_dir(path)? else { return Ok(None) };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .mode(FILE_MODE)
            .truncate(false)
            .open(path)?;
        if !try_lock(&file, path)? {
            return Ok(None);
        }
        // The id is for people; the lock itself is the kernel's.
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Some(Box::new((dir, file))))
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let Some(dir) = lock_dir(path)? else { return Ok(None) };
        // The file does not exist yet, or only its owner may read it.
        let file = fs::File::open(path).ok();
        if let Some(file) = &file
            && !try_lock(file, path).or_else(without_lock)?
        {
            return Ok(None);
        }
        Ok(Some(Box::new((dir, file))))
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .mode(FILE_MODE)
            .truncate(false)
            .open(path)?;
        Ok(Arc::new(DiskFile::of(file)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(DiskFile::of(fs::File::open(path)?)))
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

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

#[derive(Debug)]
struct DiskFile {
    file: fs::File,
    /// The same file, opened to write past the page cache; `None` if that is not possible.
    direct: OnceLock<Option<fs::File>>,
}

/// The alignment in memory of a write past the page cache: a sector.
const MEMORY_ALIGNMENT: usize = 512;

impl DiskFile {
    fn of(file: fs::File) -> Self {
        let direct = OnceLock::new();
        Self { file, direct }
    }

    fn direct(&self) -> Option<&fs::File> {
        let open = || {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
            OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Writes the whole blocks of a large write directly from memory, past the page cache: copying them into the cache takes longer than
    /// the disk does. `false`: nothing was written, and the caller uses the normal way.
    fn write_direct(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let begins = offset.next_multiple_of(BLOCK_BYTES);
        let Some((head, rest)) = bytes.split_at_checked((begins - offset) as usize) else {
            return Ok(false);
        };
        let (blocks, tail) = rest.split_at(rest.len() - rest.len() % BLOCK_BYTES as usize);
        let aligned = blocks.as_ptr().addr().is_multiple_of(MEMORY_ALIGNMENT);
        if !aligned || (blocks.len() as u64) < LARGE_BYTES / 2 {
            return Ok(false);
        }
        let Some(direct) = self.direct() else { return Ok(false) };
        match direct.write_all_at(blocks, begins) {
            // The disk or the file system wants another alignment, or none of it.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => return Ok(false),
            result => result?,
        }
        self.file.write_all_at(head, offset)?;
        self.file.write_all_at(tail, begins + blocks.len() as u64)?;
        Ok(true)
    }
}

impl File for DiskFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocated(&self) -> io::Result<u64> {
        // The system counts blocks of 512 bytes.
        Ok(std::os::unix::fs::MetadataExt::blocks(&self.file.metadata()?) * 512)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.file.read_at(&mut into[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.len() as u64 >= LARGE_BYTES && self.write_direct(bytes, offset)? {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        use rustix::{fs::FallocateFlags, io::Errno};
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            // A file system that cannot reserve: the file grows with its writes instead.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(()) => Ok(()),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use throng_journal::commit::Buffer;

    /// Consecutive writes of all lengths, into reserved space and over zeros. The file must hold them all.
    #[test]
    fn large_and_small_writes_stand_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        for zeros in [false, true] {
            let path = dir.path().join(format!("zeros-{zeros}"));
            let file = Disk.open(&path, true).unwrap();
            file.allocate(4 << 20).unwrap();
            if zeros {
                file.write_at(&vec![0; 4 << 20], 0).unwrap();
            }
            let mut expected = Vec::new();
            for (number, sectors) in [2_usize, 128, 1, 300, 301, 200, 7, 8, 640, 131, 1, 2048, 3, 129]
                .iter()
                .enumerate()
            {
                let mut buffer = Buffer::default();
                buffer.resize(sectors * 512);
                buffer.fill(number as u8 + 1);
                file.write_at(&buffer, expected.len() as u64).unwrap();
                expected.extend_from_slice(&buffer);
                if number % 3 == 0 {
                    file.sync_data().unwrap();
                }
                // Reads through another open file, as a reader does.
                let mut read = vec![0; expected.len()];
                Disk.open(&path, false).unwrap().read_at(&mut read, 0).unwrap();
                assert!(read == expected, "after write {number}, zeros: {zeros}");
            }
            let there = fs::read(&path).unwrap();
            assert!(there[..expected.len()] == expected && there[expected.len()..].iter().all(|byte| *byte == 0));
            assert_eq!(there.len(), 4 << 20);
        }
    }
}
