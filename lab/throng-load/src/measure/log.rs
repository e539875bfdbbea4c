use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Doing as _, Result};
use crate::{ErrorKind, Outcome};

const BUFFER_BYTES: usize = 64 * 1024;

/// A log with a line for each request, as CSV: `start_ns,latency_ns,service_ns,status,error,class`.
///
/// Each worker fills a buffer of its own. A full buffer is written as a whole, so lines of different workers mix only at the ends of buffers.
#[derive(Debug)]
pub(crate) struct RequestLog {
    file: Arc<Mutex<File>>,
    buffer: Vec<u8>,
    classes: Arc<[String]>,
}

impl RequestLog {
    /// Creates the file with its header line.
    pub(crate) fn create(path: &Path, classes: &[String]) -> Result<RequestLog> {
        let mut file = File::create(path).doing(|| format!("create {}", path.display()))?;
        file.write_all(b"start_ns,latency_ns,service_ns,status,error,class\n")
            .doing(|| format!("write {}", path.display()))?;
        let classes = classes.iter().map(|name| crate::report::csv_field(name)).collect();
        Ok(RequestLog {
            file: Arc::new(Mutex::new(file)),
            buffer: Vec::with_capacity(BUFFER_BYTES + 256),
            classes,
        })
    }

    /// Returns a log of the same file for another worker.
    pub(crate) fn another(&self) -> RequestLog {
        RequestLog {
            file: self.file.clone(),
            buffer: Vec::with_capacity(BUFFER_BYTES + 256),
            classes: self.classes.clone(),
        }
    }

    /// Writes the line of a request. `error` is the kind of its failure, if it failed.
    pub(crate) fn write(&mut self, class: usize, outcome: &Outcome<'_>, error: Option<ErrorKind>) {
        let error = error.map_or("", ErrorKind::name);
        let name = self.classes.get(class).map_or("", String::as_str);
        let _ = writeln!(
            self.buffer,
            "{},{},{},{},{error},{name}",
            outcome.intended_nanos,
            outcome.response_nanos(),
            outcome.service_nanos(),
            outcome.status(),
        );
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the buffered lines. A full disk loses lines but does not fail the run.
    pub(crate) fn flush(&mut self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(&self.buffer);
        self.buffer.clear();
    }
}
