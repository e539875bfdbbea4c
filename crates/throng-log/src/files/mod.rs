//! The file system as the log needs it: a trait, so that a test can make every single call fail.

mod disk;
mod to_read;

pub use disk::Disk;
pub(crate) use disk::FILE_MODE;
pub(crate) use to_read::ToRead;

use std::{fmt, io, path::Path, sync::Arc};

/// The block that disks and file systems take whole, in bytes: whole blocks need no page of the cache.
pub const BLOCK_BYTES: u64 = 4096;
/// Writes from this length on are for the disk's bandwidth, in bytes; shorter ones for its latency.
pub const LARGE_BYTES: u64 = 64 << 10;

/// A file system.
pub trait Files: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents; nothing to do if it is there.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes a lock that dies with the process, for as long as the guard lives. `None`: somebody else holds it.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Takes a lock where no file can be written. Without one where none can be had.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.lock(path)
    }

    /// Opens a file for reading and writing; creates it first if asked to and it is not there. Every call makes a new
    /// open file description: write-back errors are reported once for each of them.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading alone.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, false)
    }

    /// The names of the files in a directory, in any order.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Gives a file another name, replacing what has it.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Bytes that could still be written below a directory, as far as the file system says.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Makes the directory's names durable.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file.
pub trait File: fmt::Debug + Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's [`io::Error`].
    fn length(&self) -> io::Result<u64>;

    /// Bytes it takes of the disk: fewer than it is long where it has holes.
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
    /// The system's [`io::Error`]; some of the bytes may then stand in the file.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written durable, with what is needed to find it again.
    ///
    /// # Errors
    /// The system's [`io::Error`]; bytes written since the last success are then in doubt for good.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves room up to this length; the file is then that long and reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is not so much.
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
/// The system's, and [`io::ErrorKind::UnexpectedEof`] at the file's end.
pub(crate) fn read_exact_at(file: &dyn File, into: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(into, offset)? < into.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file ends before offset {}", offset + into.len() as u64),
        ));
    }
    Ok(())
}
