//! A source and a target over files of lines, as a user may write them for any other system.
//!
//! `lines IN OUT JOURNAL` hits the counter that each line of the file `IN` names, and writes each hit to the file `OUT`. Lines may be appended to
//! `IN` while it runs. It may be killed at any time: each line counts once, and each hit is written once.
#![allow(unreachable_pub, missing_docs, reason = "a test runs it as a module")]

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};
use throng::{Engine, model::Entity as _, projection::Seen};
use throng_connectors::{
    Batch, Egress, EntityCommand, Ingress, IngressOptions, Message, Outbound, Outcome, Received, Settled, SinkError,
    Source, Target, TargetPosition,
};
use throng_testing::fixtures::{Counter, Hits};

/// The lines of a file that grows. A position is the byte behind its line; `FILE.settled` holds the last one that is settled.
struct Lines {
    path: PathBuf,
    file: Option<BufReader<File>>,
    position: u64,
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
        let mut file = BufReader::new(File::open(&self.path)?);
        file.seek(SeekFrom::Start(self.position))?;
        self.file = Some(file);
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<Vec<Received<u64>>> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let mut received = Vec::new();
            let mut body = Vec::new();
            while received.len() < 100 && file.read_until(b'\n', &mut body)? > 0 {
                if body.pop() != Some(b'\n') {
                    // Its writer is not done with it.
                    file.seek(SeekFrom::Start(self.position))?;
                    break;
                }
                self.position += body.len() as u64 + 1;
                let message = Message {
                    body: std::mem::take(&mut body),
                    id: Some(format!("{}@{}", self.path.display(), self.position)),
                    ..Message::default()
                };
                received.push(Received::new(self.position, message));
            }
            if !received.is_empty() {
                return Ok(received);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn settle(&mut self, settled: Vec<Settled<u64>>) -> io::Result<()> {
        let last = settled.last().map_or(0, |settled| settled.position);
        for settled in settled {
            if let Outcome::Dead(dead) = settled.outcome {
                let mut file = append(&self.path.with_extension("dead"))?;
                writeln!(file, "{}: {}", String::from_utf8_lossy(&dead.message.body), dead.reason)?;
                file.sync_data()?;
            }
        }
        // A crash leaves the old position or the new one.
        let new = self.path.with_extension("new");
        fs::write(&new, last.to_string())?;
        fs::rename(new, self.path.with_extension("settled"))
    }
}

/// A file of lines. A line that begins with [`MARK`] ends each batch with its position: what follows the last one was torn by a crash.
struct LineFile {
    path: PathBuf,
    stored: Option<TargetPosition>,
}

const MARK: &str = "# ";

impl LineFile {
    /// The position of the last whole batch. What follows it is cut off.
    fn recover(&self) -> io::Result<Option<TargetPosition>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let (mut end, mut last) = (0, None);
        for line in text.split_inclusive('\n') {
            end += line.len();
            let position = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix('\n'));
            last = position.map(|position| (end, position)).or(last);
        }
        let Some((end, position)) = last else { return Ok(None) };
        append(&self.path)?.set_len(end as u64)?;
        position.parse().map(Some).map_err(io::Error::other)
    }

    fn write(&mut self, text: &str, position: &TargetPosition) -> Result<(), SinkError> {
        self.stored = None;
        let written = append(&self.path).and_then(|mut file| {
            file.write_all(format!("{text}{MARK}{position}\n").as_bytes())?;
            file.sync_data()
        });
        written.map_err(retry)?;
        self.stored = Some(position.clone());
        Ok(())
    }
}

impl Target for LineFile {
    type Item = String;
    const STORES_POSITION: bool = true;

    async fn deliver(&mut self, batch: Batch<String>) -> Result<(), SinkError> {
        let lines: String = batch
            .items
            .iter()
            .map(|line| format!("{} {}\n", line.id(), line.item))
            .collect();
        self.write(&lines, &batch.position)
    }

    async fn position(&mut self) -> Result<Option<TargetPosition>, SinkError> {
        if self.stored.is_none() {
            self.stored = self.recover().map_err(retry)?;
        }
        Ok(self.stored.clone())
    }

    async fn clear(&mut self) -> Result<(), SinkError> {
        File::create(&self.path).map_err(retry)?;
        self.write("", &TargetPosition::default())
    }
}

fn retry(error: io::Error) -> SinkError {
    SinkError::Retry(error.to_string())
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Hits as lines.
struct HitLines;

impl Outbound for HitLines {
    const NAME: &'static str = "hits";
    type Of = Counter;
    type Item = String;

    fn map(&self, seen: &Seen<Counter>) -> Option<String> {
        Some(format!("{} {}", seen.id, seen.seq))
    }
}

fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
    let counter = String::from_utf8(message.body.clone()).map_err(|error| error.to_string())?;
    Ok(vec![EntityCommand::new(Counter::KIND, counter, "Hit", Vec::new())])
}

/// The service: an engine, and the source. It runs until the ingress is dropped.
pub async fn start(
    input: &Path,
    output: &Path,
    journal: &Path,
) -> Result<(Engine, Ingress), Box<dyn std::error::Error>> {
    let target = LineFile {
        path: output.to_owned(),
        stored: None,
    };
    let source = Lines {
        path: input.to_owned(),
        file: None,
        position: 0,
    };
    let (log, store) = throng_log::open_embedded(journal, throng_log::Options::default())?;
    let builder = Engine::builder().with::<Counter>().query::<Counter, Hits>();
    let builder = builder.sink(Egress::new(HitLines, target));
    let engine = builder.start_shared(log, store).await?;
    let ingress = Ingress::start(&engine, source, IngressOptions::default(), read)?;
    Ok((engine, ingress))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [input, output, journal] = &paths[..] else {
        return Err("usage: lines IN OUT JOURNAL".into());
    };
    let _service = start(input, output, journal).await?;
    std::future::pending().await
}
