//! Several loops on one engine against one loop, in alternating rounds: throughput, its distribution, the waits and the CPU.

mod http;
mod in_process;

use clap::{Args, ValueEnum};
use serde::Serialize;
use std::{process::ExitCode, time::Duration};

use super::{Common, median, table::Table};
use crate::{
    http_client::metric,
    units::{self, count},
};

/// The measurement of event loops.
///
/// Each loop in the process is a thread with its committer and its part of the clients. Each client sends its next command as soon as the last one is
/// answered, so no client takes a core from a loop. Over HTTP, the service is a process of its own, and the load generator takes a core in addition
/// to the loops.
///
/// The journal is the embedded log in the data directory. --sync-delay is added to each of its syncs. On a file system in memory (--data
/// /dev/shm/throng) a sync takes only the delay. A sync that takes more than 250 µs leaves the loop's thread, up to four at once.
#[derive(Debug, Args)]
pub(crate) struct LoopsArguments {
    #[command(flatten)]
    common: Common,
    /// Numbers of loops; the others are compared with the first.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=64))]
    loops: Vec<u16>,
    /// Numbers of clients of all loops together. Over HTTP each is a connection.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Vec<u32>,
    /// The time by which each sync is delayed.
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "0s,30us,100us,2ms", value_parser = units::duration)]
    sync_delay: Vec<Duration>,
    /// Alternating rounds; medians over them count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// The length of a round in process, for each number of loops.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration)]
    duration: Duration,
    /// Requests of a round over HTTP, for each number of loops.
    #[arg(long, default_value_t = 60_000)]
    requests: usize,
    /// Measure only one of the two ways.
    #[arg(long, value_enum)]
    only: Option<Way>,
}

/// The way in which clients reach the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Way {
    InProcess,
    Http,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in process",
            Self::Http => "HTTP",
        }
    }
}

/// The figures of a round with one number of loops.
#[derive(Debug, Default)]
struct Round {
    answered_per_s: f64,
    /// The figure of each loop: commands answered a second in process, CPU over HTTP.
    by_loop: Vec<f64>,
    p50_us: f64,
    p99_us: f64,
    worst_us: f64,
    cpu_us: f64,
    commits_per_s: f64,
    /// The mean time of a commit's append and sync.
    commit_us: f64,
}

impl Round {
    /// Returns the minimum of the loops divided by the maximum.
    fn split(&self) -> f64 {
        let of = |which: fn(f64, f64) -> f64| self.by_loop.iter().copied().reduce(which).unwrap_or(f64::NAN);
        of(f64::min) / of(f64::max)
    }
}

/// Medians for a number of loops.
#[derive(Debug, Serialize)]
struct Line {
    way: Way,
    sync_delay_us: f64,
    clients: u32,
    loops: u16,
    answered_per_s: f64,
    /// The answered commands, relative to those of the first number of loops in the same round.
    answered_ratio: f64,
    /// The least of the loops relative to the greatest: of commands answered in process, of CPU over HTTP.
    split: f64,
    p50_us: f64,
    p99_us: f64,
    /// The longest wait of all rounds.
    worst_us: f64,
    /// The longest wait of a round relative to that of the first number of loops, the median of the rounds.
    worst_ratio: f64,
    cpu_us: f64,
    commits_per_s: f64,
    commit_us: f64,
}

/// A service that is measured with several numbers of loops in turn.
trait Subject {
    fn round(&mut self, loops: u16, clients: u32) -> anyhow::Result<Round>;
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &LoopsArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let mut lines = Vec::new();
    for way in [Way::InProcess, Way::Http] {
        if arguments.only.is_some_and(|only| only != way) {
            continue;
        }
        for (number, &delay) in arguments.sync_delay.iter().enumerate() {
            let data = scratch.0.join(format!("{}-{number}", way.name().replace(' ', "-")));
            let mut subject: Box<dyn Subject> = match way {
                Way::InProcess => Box::new(in_process::InProcess::start(&data, delay, arguments.duration)?),
                Way::Http => Box::new(http::Services::start(&data, delay, arguments)?),
            };
            for &clients in &arguments.clients {
                lines.extend(measure(arguments, way, delay, clients, &mut *subject)?);
            }
        }
    }
    arguments
        .common
        .print(&serde_json::json!({ "loops": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

/// Measures the numbers of loops in turn. Every other round has the reverse order.
fn measure(
    arguments: &LoopsArguments,
    way: Way,
    delay: Duration,
    clients: u32,
    subject: &mut dyn Subject,
) -> anyhow::Result<Vec<Line>> {
    let mut rounds: Vec<Vec<Round>> = Vec::new();
    for number in 0..arguments.rounds {
        let mut of_loops: Vec<Round> = arguments.loops.iter().map(|_| Round::default()).collect();
        let mut order: Vec<usize> = (0..of_loops.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for at in order {
            of_loops[at] = subject.round(arguments.loops[at], clients)?;
        }
        rounds.push(of_loops);
    }
    let lines = arguments.loops.iter().enumerate().map(|(at, &loops)| {
        let of =
            |figure: &dyn Fn(&Round, &Round) -> f64| median(rounds.iter().map(|round| figure(&round[at], &round[0])));
        Line {
            way,
            sync_delay_us: delay.as_secs_f64() * 1e6,
            clients,
            loops,
            answered_per_s: of(&|round, _| round.answered_per_s),
            answered_ratio: of(&|round, first| round.answered_per_s / first.answered_per_s),
            split: of(&|round, _| round.split()),
            p50_us: of(&|round, _| round.p50_us),
            p99_us: of(&|round, _| round.p99_us),
            worst_us: rounds.iter().map(|round| round[at].worst_us).fold(0.0, f64::max),
            worst_ratio: of(&|round, first| round.worst_us / first.worst_us),
            cpu_us: of(&|round, _| round.cpu_us),
            commits_per_s: of(&|round, _| round.commits_per_s),
            commit_us: of(&|round, _| round.commit_us),
        }
    });
    Ok(lines.collect())
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "clients are",
        "delay µs",
        "clients",
        "loops",
        "answered/s",
        "ratio",
        "split",
        "p50 µs",
        "p99 µs",
        "worst µs",
        "ratio",
        "CPU µs",
        "commits/s",
        "commit µs",
    ]);
    for line in lines {
        table.row([
            line.way.name().to_owned(),
            format!("{:.0}", line.sync_delay_us),
            line.clients.to_string(),
            line.loops.to_string(),
            count(line.answered_per_s as u64),
            format!("{:.2}", line.answered_ratio),
            format!("{:.2}", line.split),
            format!("{:.0}", line.p50_us),
            format!("{:.0}", line.p99_us),
            format!("{:.0}", line.worst_us),
            format!("{:.2}", line.worst_ratio),
            format!("{:.2}", line.cpu_us),
            count(line.commits_per_s as u64),
            format!("{:.0}", line.commit_us),
        ]);
    }
    table.text()
        + "\n  ratio: by the first number of loops in the same round; split: the loop with the least by that with the most, of commands \
           \n  answered in process, of CPU over HTTP; CPU: of the process that serves, a command (in process with its clients)\n"
}

/// The commits of the engine so far.
#[derive(Clone, Copy)]
struct Commits {
    count: f64,
    seconds: f64,
}

impl Commits {
    fn read(metrics: &str) -> Self {
        Self {
            count: metric(metrics, "throng_commit_seconds_count"),
            seconds: metric(metrics, "throng_commit_seconds_sum"),
        }
    }

    /// Returns the growth since `before`: commits a second, and the mean microseconds of a commit.
    fn since(self, before: Self, elapsed_s: f64) -> (f64, f64) {
        let count = self.count - before.count;
        (count / elapsed_s, (self.seconds - before.seconds) / count * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::{Commits, Round};

    #[test]
    fn commits_are_read_from_the_metrics() {
        let text = |count, sum| {
            format!("# TYPE x counter\nthrong_commit_seconds_sum {sum}\nthrong_commit_seconds_count {count}\n")
        };
        let (before, after) = (Commits::read(&text(10, 0.5)), Commits::read(&text(30, 0.7)));
        let (per_s, micros) = after.since(before, 2.0);
        assert_eq!((per_s, micros.round()), (10.0, 10_000.0));
    }

    #[test]
    fn the_split_is_the_least_by_the_most() {
        let of = |by_loop: &[f64]| Round {
            by_loop: by_loop.to_vec(),
            ..Round::default()
        };
        assert_eq!(of(&[3.0, 1.0, 4.0]).split(), 0.25);
        assert_eq!(of(&[3.0]).split(), 1.0);
    }
}
