//! Observes a service during the run: its memory, its descriptors, its disk, and its checkpoints.

use anyhow::Context as _;
use std::{
    fs,
    net::SocketAddr,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use throng_load::sample::Usage;

use crate::http_client::{self, Connection, metric, metrics, told};

const LOOK_EVERY: Duration = Duration::from_millis(100);
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The disk space of a journal.
pub(super) enum Disk<'a> {
    Directory(&'a Path),
    /// A schema of a database.
    Schema {
        url: &'a str,
        schema: &'a str,
    },
}

/// The usage of the process and its disk at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: Duration,
    pub(super) resident_bytes: u64,
    pub(super) descriptors: u64,
    pub(super) disk_bytes: u64,
    /// The records removed so far.
    pub(super) pruned: u64,
}

/// The observations of a long run, in the order of time.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) looks: Vec<Look>,
    /// The times of checkpoints, in milliseconds.
    pub(super) checkpoints: Vec<Range<u32>>,
}

pub(super) struct Watch<'a> {
    pub(super) process: u32,
    pub(super) admin: SocketAddr,
    pub(super) disk: Disk<'a>,
    /// The time between two looks. History is removed at each.
    pub(super) every: Duration,
    pub(super) begun: Instant,
}

impl Watch<'_> {
    /// Observes the service until the run is over.
    pub(super) fn run(&self, is_over: &AtomicBool) -> anyhow::Result<Watched> {
        let mut watched = Watched::default();
        let mut connection = Connection::open(self.admin, ANSWER_WAIT)?;
        let (mut made, mut seconds) = (0.0, 0.0);
        let mut due = self.begun + self.every;
        while !is_over.load(Ordering::Relaxed) {
            let text = metrics(&mut connection)?;
            let now = (
                metric(&text, "throng_checkpoints_total"),
                metric(&text, "throng_checkpoint_seconds_sum"),
            );
            if now.0 > made {
                let end = self.begun.elapsed().as_millis() as u32;
                let took = ((now.1 - seconds) * 1_000.0) as u32 + LOOK_EVERY.as_millis() as u32;
                watched.checkpoints.push(end.saturating_sub(took)..end);
                (made, seconds) = now;
            }
            if Instant::now() >= due {
                due += self.every;
                watched.looks.push(self.look(&text)?);
                // History is removed more often than by the engine itself, so that a short run sees it, too.
                told(&mut connection, &http_client::post("/admin/prune", None, "{}"))?;
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(watched)
    }

    fn look(&self, metrics: &str) -> anyhow::Result<Look> {
        let usage = Usage::of(self.process).map_err(anyhow::Error::msg)?;
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.process))
            .context("the service runs")?
            .count();
        Ok(Look {
            at: self.begun.elapsed(),
            resident_bytes: usage.resident_bytes,
            descriptors: descriptors as u64,
            disk_bytes: self.disk.bytes()?,
            pruned: metric(metrics, "throng_pruned_records_total") as u64,
        })
    }
}

impl Disk<'_> {
    /// Returns the bytes in use, including those reserved ahead.
    fn bytes(&self) -> anyhow::Result<u64> {
        match self {
            Self::Directory(directory) => bytes_in(directory),
            Self::Schema { url, schema } => bytes_of(url, schema),
        }
    }
}

fn bytes_in(directory: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        // A file that was just removed needs no space.
        let Ok(metadata) = entry?.metadata() else { continue };
        bytes += metadata.blocks() * 512;
    }
    Ok(bytes)
}

fn bytes_of(url: &str, schema: &str) -> anyhow::Result<u64> {
    const SQL: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(connection);
        let row = client.query_one(SQL, &[&schema]).await;
        driver.abort();
        let bytes: i64 = row.context("asking for the size of the tables failed")?.get(0);
        Ok(bytes.cast_unsigned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# TYPE a counter\na_total 3\na_total_more 9\na_sum 1.5\n";
        assert_eq!(
            (metric(text, "a_total"), metric(text, "a_sum"), metric(text, "b")),
            (3.0, 1.5, 0.0)
        );
    }
}
