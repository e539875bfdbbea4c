//! Writes the lines of the access log.

use super::entry::LoggedFields;
use prometheus_client::metrics::counter::Counter;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::PathBuf,
    sync::mpsc::Receiver,
};

/// The approximate bytes up to which lines are written together.
const TOGETHER_BYTES: usize = 64 << 10;

/// The destination of the lines.
pub(super) enum Sink {
    Stdout,
    File {
        path: PathBuf,
        file: File,
    },
    #[cfg(test)]
    Other(Box<dyn Write + Send>),
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Sink {
    pub(super) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        Ok(match path {
            None => Self::Stdout,
            Some(path) => Self::File {
                file: open(&path)?,
                path,
            },
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::File { path, file } => {
                // A log rotation has moved the file, without a signal.
                let is_there = std::fs::metadata(&*path).is_ok_and(|there| {
                    file.metadata()
                        .is_ok_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()))
                });
                if !is_there {
                    *file = open(path)?;
                }
                file.write_all(lines)
            }
            #[cfg(test)]
            Self::Other(other) => other.write_all(lines),
        }
    }
}

pub(super) struct Writer {
    sink: Sink,
    dropped: Counter,
    /// True if the last attempt failed, perhaps in the middle of a line.
    is_failing: bool,
    lines: Vec<u8>,
    count: u64,
}

impl Writer {
    pub(super) fn new(sink: Sink, dropped: Counter) -> Self {
        Self {
            sink,
            dropped,
            is_failing: false,
            lines: Vec::new(),
            count: 0,
        }
    }

    /// Writes lines until nothing can send them any more.
    pub(super) fn run(&mut self, given: &Receiver<LoggedFields>) {
        while let Ok(first) = given.recv() {
            let mut next = Some(first);
            while let Some(one) = next {
                match one {
                    LoggedFields::Entry(entry) => {
                        if serde_json::to_writer(&mut self.lines, &entry).is_ok() {
                            self.lines.push(b'\n');
                            self.count += 1;
                        }
                    }
                    LoggedFields::Flush(done) => {
                        self.write();
                        // The waiter may have gone.
                        let _ = done.try_send(());
                    }
                }
                next = match self.lines.len() < TOGETHER_BYTES {
                    true => given.try_recv().ok(),
                    false => None,
                };
            }
            self.write();
        }
    }

    fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        if self.is_failing {
            self.lines.insert(0, b'\n');
        }
        match self.sink.write(&self.lines) {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(
                        "the access log cannot be written, and its lines are dropped until it can: {error}"
                    );
                }
                self.is_failing = true;
                self.dropped.inc_by(self.count);
            }
        }
        self.lines.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let mut sink = Sink::open(Some(path.clone())).unwrap();
        sink.write(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        sink.write(b"two\n").unwrap();
        sink.write(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(moved).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\nthree\n");
        assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o600);
    }
}
