//! A source and a target over files of lines, as a user writes them for any other system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind::NotFound, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use throng_connectors::{Batch, Message, Outcome, Received, Settled, SinkError, Source, Target, TargetPosition};

/// The lines of a file that grows. A position is the byte behind its line; the file `NAME.settled` holds the last settled one.
pub(crate) struct Lines {
    pub(crate) path: PathBuf,
    pub(crate) position: u64,
}

impl Source for Lines {
    type Position = u64;
    type Error = io::Error;

    fn name(&self) -> String {
        format!("lines of {}", self.path.display())
    }

    async fn open(&mut self, _bytes_max: usize) -> io::Result<()> {
        let settled = fs::read_to_string(self.path.with_extension("settled")).unwrap_or_default();
        self.position = settled.parse().unwrap_or(0);
        File::open(&self.path).map(drop)
    }

    async fn receive(&mut self) -> io::Result<Vec<Received<u64>>> {
        let mut file = BufReader::new(File::open(&self.path)?);
        file.seek(SeekFrom::Start(self.position))?;
        let (mut received, mut line) = (Vec::new(), Vec::new());
        while received.len() < 100 && file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            self.position += line.len() as u64;
            let id = format!("{}@{}", self.path.display(), self.position);
            let message = Message::new(id, std::mem::take(&mut line));
            received.push(Received::new(self.position, message));
        }
        if received.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Ok(received)
    }

    async fn settle(&mut self, settled: Vec<Settled<u64>>) -> io::Result<()> {
        let (dead_file, new) = (self.path.with_extension("dead"), self.path.with_extension("new"));
        let last = settled.last().map_or(0, |last| last.position);
        for Settled { position, outcome } in settled {
            if let Outcome::Dead(dead) = outcome {
                append(&dead_file, &format!("{position}: {}\n", dead.reason))?;
            }
        }
        fs::write(&new, last.to_string())?;
        fs::rename(new, self.path.with_extension("settled"))
    }
}

/// A file of lines. Each batch ends with a line `# POSITION`; a crash may leave a part of a batch behind the last one.
pub(crate) struct LineFile(pub(crate) PathBuf);

impl Target for LineFile {
    type Item = String;
    const STORES_POSITION: bool = true;

    async fn deliver(&mut self, batch: Batch<String>) -> Result<(), SinkError> {
        let lines = batch.items.iter().map(|line| format!("{} {}\n", line.id(), line.item));
        let text = lines.chain([format!("# {}\n", batch.position)]).collect::<String>();
        append(&self.0, &text).map_err(retry)
    }

    async fn position(&mut self) -> Result<Option<TargetPosition>, SinkError> {
        let bytes = match fs::read(&self.0) {
            Err(error) if error.kind() == NotFound => return Ok(None),
            bytes => bytes.map_err(retry)?,
        };
        let (text, mut end, mut last) = (String::from_utf8_lossy(&bytes), 0, None);
        for line in text.split_inclusive('\n') {
            end += line.len() as u64;
            let position = line.strip_prefix("# ").and_then(|rest| rest.strip_suffix('\n'));
            last = position.map(|position| (end, position)).or(last);
        }
        let Some((end, position)) = last else { return Ok(None) };
        let file = OpenOptions::new().write(true).open(&self.0);
        file.and_then(|file| file.set_len(end)).map_err(retry)?;
        Ok(Some(position.parse()?))
    }

    async fn clear(&mut self) -> Result<(), SinkError> {
        File::create(&self.0).map(drop).map_err(retry)
    }
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

fn retry(error: io::Error) -> SinkError {
    SinkError::Retry(error.to_string())
}
