//! The file system as a trait, so that a test can make each call fail.

mod disk;
mod to_read;

pub use disk::Disk;
pub(crate) use disk::FILE_MODE;
pub(crate) use to_read::ToRead;

use std::{fmt, io, path::Path, sync::Arc};

/// The block size of disks and file systems, in bytes. Whole blocks need no page of the cache.
pub const BLOCK_BYTES: u64 = 4096;
/// The length from which on writes are optimized for the disk's bandwidth, in bytes, and not for its latency.
pub const LARGE_BYTES: u64 = 64 << 10;

/// A file system.
pub trait Files: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents; nothing to do if it is there.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes a lock that lasts until the guard is dropped or the process ends. `None`: another process holds it.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Takes a lock where no file can be written. Succeeds without one if none can be had.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.lock(path)
    }

    /// Opens a file for reading and writing, creating it if requested. Every call makes a new open file description, because the system
    /// reports a failed write-back once for each of them.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading only.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, false)
    }

    /// Returns the names of the files in a directory, in any order.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Renames a file, replacing another one of that name.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the bytes that can still be written below a directory, as far as the file system says.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file.
pub trait File: fmt::Debug + Send + Sync {
    /// Returns its length in bytes.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn length(&self) -> io::Result<u64>;

    /// Returns the bytes it takes of the disk: fewer than its length if it has holes.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    /// Reads into `into` from `offset` on; fewer bytes only at the file's end.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// The system's [`io::Error`]; some of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes written bytes durable, with the metadata that is needed to read them.
    ///
    /// # Errors
    /// The system's [`io::Error`]; bytes written since the last success are then in doubt for good.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves room up to this length; the file is then that long and reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is not enough room.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn set_length(&self, length: u64) -> io::Result<()>;
}

/// Returns the system's error for a full disk.
pub(crate) fn storage_full() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

/// Reads exactly `into.len()` bytes.
///
/// # Errors
/// The system's [`io::Error`], and [`io::ErrorKind::UnexpectedEof`] at the file's end.
pub(crate) fn read_exact_at(file: &dyn File, into: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(into, offset)? < into.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file ends before offset {}", offset + into.len() as u64),
        ));
    }
    Ok(())
}
