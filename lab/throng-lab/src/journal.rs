//! The embedded log against a bare write-and-sync loop with the same block size.

use clap::Args;
use serde::Serialize;
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};
use throng::journal::{Address, CommitBuilder, CommitNo, Journal, RecordKind, ShardId, Stamp, WriterId};
use throng_log::{Log, Options};
use yardsticks::disk::{self, Mode};

use super::{Common, median, table::Table};
use crate::cpu::cpu_time;

/// The measurement of the journal.
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
    /// The MB (10⁶ bytes) of a round as a recorder of events, for events of 100 B, 1 KiB and 10 KiB.
    #[arg(long, value_name = "MB", num_args = 0..=1, default_missing_value = "400",
          conflicts_with_all = ["commits", "event_bytes"], value_parser = clap::value_parser!(u32).range(1..=4_000))]
    mb: Option<u32>,
}

/// The medians of the rounds.
#[derive(Debug, Serialize)]
struct Figures {
    event_bytes: u32,
    block_bytes: usize,
    events_per_s: f64,
    log_megabytes_per_s: f64,
    commit_mean_us: f64,
    commit_p50_us: f64,
    commit_p99_us: f64,
    /// The CPU of a commit, including the log's threads.
    cpu_us: f64,
    /// The rate of blocks written over synced zeros. Writing the zeros is not counted.
    loop_megabytes_per_s: f64,
    ratio: f64,
    /// The rate of blocks that extend their file.
    growing_megabytes_per_s: f64,
    growing_ratio: f64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &JournalArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let sizes = match arguments.mb {
        Some(_) => vec![100, 1 << 10, 10 << 10],
        None => vec![arguments.event_bytes],
    };
    let mut rows = Vec::new();
    for event_bytes in sizes {
        rows.push(measure(&scratch.0, event_bytes, arguments)?);
    }
    arguments.common.print(&serde_json::json!({ "journal": rows }), || {
        let mut table = Table::new([
            "event bytes",
            "block bytes",
            "events/s",
            "log MB/s",
            "mean µs",
            "p50 µs",
            "p99 µs",
            "CPU µs",
            "in place MB/s",
            "ratio",
            "growing MB/s",
            "ratio",
        ]);
        for row in &rows {
            table.row([
                row.event_bytes.to_string(),
                row.block_bytes.to_string(),
                format!("{:.0}", row.events_per_s),
                format!("{:.0}", row.log_megabytes_per_s),
                format!("{:.0}", row.commit_mean_us),
                format!("{:.0}", row.commit_p50_us),
                format!("{:.0}", row.commit_p99_us),
                format!("{:.0}", row.cpu_us),
                format!("{:.0}", row.loop_megabytes_per_s),
                format!("{:.2}", row.ratio),
                format!("{:.0}", row.growing_megabytes_per_s),
                format!("{:.2}", row.growing_ratio),
            ]);
        }
        table.text()
    });
    Ok(ExitCode::SUCCESS)
}

/// Measures the log and both loops in turn. Every other round has the reverse order.
fn measure(dir: &Path, event_bytes: u32, arguments: &JournalArguments) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let log_dir = dir.join(format!("log-{event_bytes}"));
    let log = Log::open(&log_dir, Options::default())?;
    let writer = runtime.block_on(log.open("bench"))?.writer;
    let mut writing = Writing {
        log: &log,
        writer,
        number: 0,
        builder: CommitBuilder::default(),
    };
    let block_bytes = runtime
        .block_on(writing.commits(1, event_bytes, arguments.events))?
        .bytes;
    let commits = arguments.mb.map_or(arguments.commits, |mb| {
        (u64::from(mb) * 1_000_000).div_ceil(block_bytes as u64) as u32
    });
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds {
        let bare = |mode| disk::measure(dir, block_bytes, commits as usize, mode).map(|figures| figures.bytes_per_s);
        let mut append = || runtime.block_on(writing.commits(commits, event_bytes, arguments.events));
        rounds.push(if round % 2 == 0 {
            let run = append()?;
            (run, bare(Mode::PreZeroed)?, bare(Mode::Growing)?)
        } else {
            let (growing, in_place) = (bare(Mode::Growing)?, bare(Mode::PreZeroed)?);
            (append()?, in_place, growing)
        });
    }
    let of = |figure: &dyn Fn(&Run, f64, f64) -> f64| {
        median(
            rounds
                .iter()
                .map(|(run, in_place, growing)| figure(run, *in_place, *growing)),
        )
    };
    let figures = Figures {
        event_bytes,
        block_bytes,
        events_per_s: of(&|run, _, _| run.rate() / block_bytes as f64 * f64::from(arguments.events)),
        log_megabytes_per_s: of(&|run, _, _| run.rate() / 1e6),
        commit_mean_us: of(&|run, _, _| block_bytes as f64 / run.rate() * 1e6),
        commit_p50_us: of(&|run, _, _| run.percentile_us(50)),
        commit_p99_us: of(&|run, _, _| run.percentile_us(99)),
        cpu_us: of(&|run, _, _| run.cpu.as_secs_f64() * 1e6 / run.times.len() as f64),
        loop_megabytes_per_s: of(&|_, in_place, _| in_place / 1e6),
        ratio: of(&|run, in_place, _| run.rate() / in_place),
        growing_megabytes_per_s: of(&|_, _, growing| growing / 1e6),
        growing_ratio: of(&|run, _, growing| run.rate() / growing),
    };
    drop(log);
    std::fs::remove_dir_all(log_dir)?;
    Ok(figures)
}

/// The figures of a round of the log.
struct Run {
    bytes: usize,
    /// The time of each commit, sorted.
    times: Vec<Duration>,
    cpu: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.times.iter().sum::<Duration>().as_secs_f64()
    }

    fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times
            .get(rank - 1)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}

struct Writing<'log> {
    log: &'log Log,
    writer: WriterId,
    number: u64,
    builder: CommitBuilder,
}

impl Writing<'_> {
    /// Builds and appends this many commits, one after the other. It times finishing (with the checksum) and appending. Gathering the records is the
    /// engine's work, not the log's.
    async fn commits(&mut self, count: u32, event_bytes: u32, events: u32) -> anyhow::Result<Run> {
        let address = Address::new("section", "C S 142-1");
        let body = vec![b'x'; event_bytes as usize];
        let (mut bytes, mut times, mut cpu) = (0, Vec::with_capacity(count as usize), Duration::ZERO);
        for _ in 0..count {
            for event in 0..events {
                let seq = u64::from(event);
                self.builder
                    .push(RecordKind::Event, ShardId(7), &address, seq, "Added", 1, &body);
            }
            let (begun, cpu_begun) = (Instant::now(), cpu_time());
            self.number += 1;
            let commit = self
                .builder
                .finish(Stamp::after_synced(self.writer, CommitNo(self.number), 0));
            bytes += commit.bytes().len();
            let appended = self.log.append(commit).landed().await;
            times.push(begun.elapsed());
            cpu += cpu_time().saturating_sub(cpu_begun);
            appended.result?;
            self.builder.recycle(appended.buffer);
        }
        times.sort_unstable();
        Ok(Run { bytes, times, cpu })
    }
}
