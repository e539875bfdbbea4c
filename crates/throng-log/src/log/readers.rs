//! Segments that stay open for reading.

use crate::{
    files::{File, Files},
    recovery::segment_path,
};
use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// Files kept open for reading, at most.
const OPEN_MAX: usize = 32;

/// Segments open for reading.
#[derive(Debug)]
pub(super) struct Readers {
    files: Arc<dyn Files>,
    dir: PathBuf,
    open: Mutex<HashMap<u64, Arc<dyn File>>>,
}

impl Readers {
    pub(super) fn new(files: Arc<dyn Files>, dir: PathBuf) -> Self {
        Self {
            files,
            dir,
            open: Mutex::default(),
        }
    }

    pub(super) fn get(&self, segment: u64) -> io::Result<Arc<dyn File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&segment) {
            return Ok(Arc::clone(file));
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let file = self.files.open(&segment_path(&self.dir, segment), false)?;
        open.insert(segment, Arc::clone(&file));
        Ok(file)
    }

    pub(super) fn forget(&self, segment: u64) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&segment);
    }
}
