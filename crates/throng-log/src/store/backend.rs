//! The store's file, through the log's [`Files`](crate::files::Files), so that its calls can be made to fail as well.

use crate::files::{File, read_exact_at};
use std::{io, sync::Arc};

#[derive(Debug)]
pub(super) struct Backend(pub Arc<dyn File>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(&*self.0, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_length(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}
