//! The store's file, accessed through the log's [`Files`](crate::files::Files), so that tests can make its calls fail, too.

use crate::{
    files::{File, read_exact_at},
    reserve::Reserve,
};
use std::{io, sync::Arc};

#[derive(Debug)]
pub(super) struct Backend {
    pub file: Arc<dyn File>,
    /// The reserve, which is deleted before a full disk becomes an error.
    pub reserve: Option<Arc<Reserve>>,
}

impl Backend {
    fn with_reserve(&self, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        match &self.reserve {
            Some(reserve) => reserve.with(attempt),
            None => attempt(),
        }
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(&*self.file, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_reserve(|| self.file.set_length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_reserve(|| self.file.write_at(data, offset))
    }
}
