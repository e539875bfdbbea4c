//! The embedded log against a bare write-and-sync loop at the same block size.

use clap::Args;
use serde::Serialize;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use throng::journal::{
    Address, Append, Appended, CommitBuilder, CommitNo, Journal, RecordKind, ShardId, Stamp, WriterId,
};
use throng_log::{Log, Options};
use yardsticks::disk::{self, Mode};

use super::{Common, median, table::Table};

/// How to measure.
#[derive(Debug, Args)]
pub(super) struct JournalArguments {
    #[command(flatten)]
    common: Common,
    /// Alternating rounds; the median of their ratios counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Commits a round.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    commits: u32,
    /// Events a commit.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    events: u32,
    /// Bytes of an event's content.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    event_bytes: u32,
}

#[derive(Debug, Serialize)]
struct Figures {
    block_bytes: usize,
    log_megabytes_per_s: f64,
    loop_megabytes_per_s: f64,
    ratio: f64,
}

/// Measures and prints.
pub(super) fn run(arguments: &JournalArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let log = Log::open(scratch.0.join("log"), Options::default())?;
    let writer = runtime.block_on(log.open("bench"))?.writer;
    let mut writing = Writing {
        log: &log,
        writer,
        number: 0,
        builder: CommitBuilder::default(),
    };
    let (block_bytes, _) = runtime.block_on(writing.commits(1, arguments))?;
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let (bytes, appending) = runtime.block_on(writing.commits(arguments.commits, arguments))?;
        let log_rate = bytes as f64 / appending.as_secs_f64();
        let bare = disk::measure(&scratch.0, block_bytes, arguments.commits as usize, Mode::PreZeroed)?.bytes_per_s;
        rounds.push((log_rate, bare));
    }
    let figures = Figures {
        block_bytes,
        log_megabytes_per_s: median(rounds.iter().map(|(log, _)| log / 1e6)),
        loop_megabytes_per_s: median(rounds.iter().map(|(_, bare)| bare / 1e6)),
        ratio: median(rounds.iter().map(|(log, bare)| log / bare)),
    };
    arguments.common.print(&serde_json::json!({ "journal": figures }), || {
        let mut table = Table::new(["block bytes", "log MB/s", "bare loop MB/s", "ratio"]);
        table.row([
            figures.block_bytes.to_string(),
            format!("{:.0}", figures.log_megabytes_per_s),
            format!("{:.0}", figures.loop_megabytes_per_s),
            format!("{:.2}", figures.ratio),
        ]);
        table.text()
    });
    Ok(ExitCode::SUCCESS)
}

struct Writing<'log> {
    log: &'log Log,
    writer: WriterId,
    number: u64,
    builder: CommitBuilder,
}

impl Writing<'_> {
    /// Builds and appends so many commits, one after the other; how many bytes they have, and how long finishing (with
    /// the checksum) and appending them took. Gathering the records is the engine's work, not the log's.
    async fn commits(&mut self, count: u32, arguments: &JournalArguments) -> anyhow::Result<(usize, Duration)> {
        let address = Address::new("section", "C S 142-1");
        let body = vec![b'x'; arguments.event_bytes as usize];
        let (mut bytes, mut appending) = (0, Duration::ZERO);
        for _ in 0..count {
            for event in 0..arguments.events {
                self.builder.push(
                    RecordKind::Event,
                    ShardId(7),
                    &address,
                    u64::from(event),
                    "Added",
                    1,
                    &body,
                );
            }
            let begun = Instant::now();
            self.number += 1;
            let commit = self.builder.finish(Stamp {
                writer: self.writer,
                number: CommitNo(self.number),
                synced: CommitNo(self.number - 1),
                at_micros: 0,
            });
            bytes += commit.bytes().len();
            let appended = landed(self.log.append(commit)).await;
            appending += begun.elapsed();
            appended.result?;
            self.builder.recycle(appended.buffer);
        }
        Ok((bytes, appending))
    }
}

async fn landed(append: Append) -> Appended {
    match append {
        Append::Done(appended) => appended,
        Append::Later(later) => later.await,
    }
}
