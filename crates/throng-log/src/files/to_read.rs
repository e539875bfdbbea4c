//! A directory that is only read, even if it cannot be written.

use super::{File, Files, storage_full};
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most bytes written to memory for one file.
const WRITTEN_BYTES_MAX: usize = 64 << 20;
const PAGE_BYTES: usize = 4 << 10;

/// A file system with a directory that is only read. If its medium or mode forbids writing, changes to its files stay in memory, because
/// opening a database writes to it.
#[derive(Debug)]
pub(crate) struct ToRead {
    files: Arc<dyn Files>,
    dir: PathBuf,
}

impl ToRead {
    pub(crate) fn new(files: Arc<dyn Files>, dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self { files, dir }
    }

    fn is_denied(&self, path: &Path, error: &io::Error) -> bool {
        let is_denied = matches!(
            error.kind(),
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
        );
        is_denied && path.parent() == Some(&*self.dir)
    }
}

impl Files for ToRead {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        match self.files.lock(path) {
            Err(error) if self.is_denied(path, &error) => self.files.lock_to_read(path),
            locked => locked,
        }
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.files.lock_to_read(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let denied = match self.files.open(path, create) {
            Err(error) if self.is_denied(path, &error) => error,
            opened => return opened,
        };
        match self.files.open_to_read(path) {
            Ok(file) => Ok(Arc::new(InMemory::over(Some(file))?)),
            Err(error) if error.kind() == ErrorKind::NotFound && create => Ok(Arc::new(InMemory::over(None)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
            Err(_) => Err(denied),
        }
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.files.open_to_read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.files.free_bytes(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }
}

/// A file with changes that stay in memory.
#[derive(Debug)]
struct InMemory {
    file: Option<Arc<dyn File>>,
    state: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    length: u64,
    /// The bytes of the file that were not truncated.
    kept: u64,
    /// The pages written in memory, by their numbers.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl InMemory {
    fn over(file: Option<Arc<dyn File>>) -> io::Result<Self> {
        let length = file.as_ref().map_or(Ok(0), |file| file.length())?;
        let written = Written {
            length,
            kept: length,
            pages: BTreeMap::new(),
        };
        Ok(Self {
            file,
            state: Mutex::new(written),
        })
    }

    fn state(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what no page in memory has; zeros after it.
    fn read_file(&self, into: &mut [u8], offset: u64, kept: u64) -> io::Result<()> {
        let there = usize::try_from(kept.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (from_file, zeros) = into.split_at_mut(there.min(into.len()));
        zeros.fill(0);
        match &self.file {
            Some(file) if !from_file.is_empty() => super::read_exact_at(&**file, from_file, offset),
            _ => Ok(()),
        }
    }
}

/// Returns the parts of a range, each within one page: the page, the offset in it, and the length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let begin = (at % PAGE_BYTES as u64) as usize;
        let part = Part {
            page: at / PAGE_BYTES as u64,
            begin,
            length: (PAGE_BYTES - begin).min(length - done),
            done,
        };
        done += part.length;
        (part.length > 0).then_some(part)
    })
}

struct Part {
    page: u64,
    begin: usize,
    length: usize,
    /// The bytes of the range before it.
    done: usize,
}

impl File for InMemory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state().length)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state();
        let there = usize::try_from(state.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = there.min(into.len());
        let into = &mut into[..length];
        if state.pages.is_empty() {
            self.read_file(into, offset, state.kept)?;
            return Ok(length);
        }
        for part in parts(offset, length) {
            let into = &mut into[part.done..part.done + part.length];
            match state.pages.get(&part.page) {
                Some(page) => into.copy_from_slice(&page[part.begin..part.begin + part.length]),
                None => self.read_file(into, offset + part.done as u64, state.kept)?,
            }
        }
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        for part in parts(offset, bytes.len()) {
            if !state.pages.contains_key(&part.page) {
                if state.pages.len() >= WRITTEN_BYTES_MAX / PAGE_BYTES {
                    return Err(storage_full());
                }
                let mut page = vec![0; PAGE_BYTES];
                self.read_file(&mut page, part.page * PAGE_BYTES as u64, state.kept)?;
                state.pages.insert(part.page, page);
            }
            if let Some(page) = state.pages.get_mut(&part.page) {
                page[part.begin..part.begin + part.length].copy_from_slice(&bytes[part.done..part.done + part.length]);
            }
        }
        state.length = state.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.length = state.length.max(length);
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.kept = state.kept.min(length);
        state.length = length;
        state.pages.retain(|page, _| page * (PAGE_BYTES as u64) < length);
        let last = length / PAGE_BYTES as u64;
        if let Some(page) = state.pages.get_mut(&last) {
            page[(length % PAGE_BYTES as u64) as usize..].fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::files::Disk;

    #[test]
    fn changes_in_memory_read_as_those_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let file = Disk.open(&dir.path().join(name), true).unwrap();
            file.write_at(&[7; 10_000], 0).unwrap();
            file
        };
        let (file, read) = (open("a"), open("b"));
        let memory = InMemory::over(Some(read.clone())).unwrap();
        let mut random = 1_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        for step in 0..300_u64 {
            let at = next(30_000);
            if next(5) == 0 {
                file.set_length(at).unwrap();
                memory.set_length(at).unwrap();
            } else {
                let bytes = vec![step as u8; next(9_000) as usize];
                file.write_at(&bytes, at).unwrap();
                memory.write_at(&bytes, at).unwrap();
            }
            let (mut one, mut other) = (vec![1; 50_000], vec![1; 50_000]);
            let from = next(20_000);
            let lengths = [file.read_at(&mut one, from), memory.read_at(&mut other, from)].map(Result::unwrap);
            assert_eq!(lengths[0], lengths[1], "step {step}");
            assert!(one == other, "step {step}");
        }
        assert_eq!(read.length().unwrap(), 10_000);
    }
}
