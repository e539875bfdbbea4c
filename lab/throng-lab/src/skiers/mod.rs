//! Lift rides over HTTP. The three-phase client runs until the read models hold every answered ride, also with several limits for the contents of a
//! commit.

mod arrangement;
mod queues;
mod read_models;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};
use throng_load::{
    Options, Report, Target,
    plan::Plan,
    report::{Samples, Summary},
};

use super::{
    Common, median,
    plot::{self, Picture, Series},
    table::Table,
};
use crate::units;
use arrangement::{Arrangement, Processes};
use read_models::ReadModels;

/// The bytes of a commit for each ride: its two events, and the message between them, sent and received.
const RIDE_BYTES: usize = 600;
/// The position of "adaptive" in the picture.
const ADAPTIVE_AT: f64 = 10_000.0;

/// The measurement of skiers.
#[derive(Debug, Args)]
pub(super) struct SkiersArguments {
    #[command(flatten)]
    common: Common,
    /// The parts between a ride and the read models. RabbitMQ and Redis are private servers and must be installed.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "embedded")]
    arrangements: Vec<Arrangement>,
    /// Clients: the threads of the three-phase client.
    #[arg(long, value_delimiter = ',', default_value = "128,256")]
    clients: Vec<u32>,
    /// Skiers; the rides are about 8 times as many.
    #[arg(long, default_value_t = 20_000)]
    skiers: u32,
    /// The approximate limit of rides in a commit; `adaptive` has only the engine's own limit.
    #[arg(long, value_delimiter = ',', default_value = "adaptive", value_parser = limit)]
    limits: Vec<Limit>,
    /// Runs of each, each on a new journal. The one with the median throughput is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Write pictures as SVG: throughput over the limits to FILE, and p99 over the limits to FILE with -p99 in its name. With a broker also the
    /// messages that wait in its queue (-queue) and its messages a second (-messages) over time. Its management API then runs, too.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The most rides of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Rides(usize),
    Adaptive,
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "adaptive" => Ok(Limit::Adaptive),
        number => match number.parse() {
            Ok(0) | Err(_) => Err("write a number from 1, or `adaptive`".into()),
            Ok(rides) => Ok(Limit::Rides(rides)),
        },
    }
}

impl Limit {
    fn text(self) -> String {
        match self {
            Self::Rides(rides) => rides.to_string(),
            Self::Adaptive => "adaptive".into(),
        }
    }

    fn across(self) -> f64 {
        match self {
            Self::Rides(rides) => rides as f64,
            Self::Adaptive => ADAPTIVE_AT,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
struct Line {
    arrangement: &'static str,
    clients: u32,
    limit: String,
    #[serde(skip)]
    across: f64,
    rides: u64,
    failures: u64,
    /// The rides a second until the last 201.
    rides_per_s: f64,
    /// The rides a second until the read models held every ride.
    end_to_end_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// The longest time from the last 201 to the first check that found every ride in the read models.
    behind_ms: f64,
    rides_a_commit: f64,
    /// The CPU of the service for a ride.
    server_cpu_us: f64,
    /// The depths and rates of the broker's queues.
    #[serde(skip)]
    queues: Vec<Samples>,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &SkiersArguments) -> anyhow::Result<ExitCode> {
    ensure!(arguments.rounds > 0, "nothing is measured in no rounds");
    let mut lines = Vec::new();
    let (clients, limits) = (&arguments.clients, &arguments.limits);
    let of_arrangement = |arrangement| clients.iter().map(move |clients| (arrangement, *clients));
    for (arrangement, clients) in arguments.arrangements.iter().copied().flat_map(of_arrangement) {
        for &limit in limits {
            let mut runs = Vec::new();
            for _ in 0..arguments.rounds {
                runs.push(measure(arguments, arrangement, clients, limit)?);
            }
            let middle = median(runs.iter().map(|line| line.end_to_end_per_s));
            lines.extend(runs.into_iter().find(|line| line.end_to_end_per_s == middle));
        }
    }
    if let Some(file) = &arguments.plot {
        draw(file, &lines)?;
        queues::draw(file, &lines)?;
    }
    arguments
        .common
        .print(&serde_json::json!({ "skiers": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

/// Runs the client against a service on a new journal.
fn measure(arguments: &SkiersArguments, arrangement: Arrangement, clients: u32, limit: Limit) -> anyhow::Result<Line> {
    let scratch = arguments.common.scratch()?;
    let commit_bytes_max = match limit {
        // The ride that exceeds the limit is the last one of a commit.
        Limit::Rides(rides) => Some((rides - 1) * RIDE_BYTES + 1),
        Limit::Adaptive => None,
    };
    let service = Processes::start(arrangement, &scratch.0, commit_bytes_max, arguments.plot.is_some())?;
    let mut models = ReadModels::of(service.back())?;
    let cpu_before = service.cpu_time()?;
    let sampler = queues::watch(service.management().as_deref())?;
    let begun = Instant::now();
    let report = drive(arguments, clients, service.front())?;
    let answered = begun + Duration::from_nanos(report.elapsed_nanos);
    let successes = report.counters.successes;
    ensure!(successes > 0, "no ride was answered, so there is nothing to measure");
    let behind = models.wait_for(successes)?.saturating_duration_since(answered);
    let cpu = service.cpu_time()? - cpu_before;
    let (queues, _) = sampler.finish();
    let summary = Summary::of(&report.response);
    let seconds = report.elapsed().as_secs_f64();
    Ok(Line {
        arrangement: arrangement.text(),
        clients,
        limit: limit.text(),
        across: limit.across(),
        rides: successes,
        failures: report.counters.failures,
        rides_per_s: successes as f64 / seconds,
        end_to_end_per_s: successes as f64 / (seconds + behind.as_secs_f64()),
        p50_ms: units::milliseconds(summary.p50),
        p99_ms: units::milliseconds(summary.p99),
        max_ms: units::milliseconds(summary.max),
        behind_ms: behind.as_secs_f64() * 1e3,
        rides_a_commit: successes as f64 / models.commits()?.max(1.0),
        server_cpu_us: cpu.as_secs_f64() * 1e6 / successes as f64,
        queues,
    })
}

fn drive(arguments: &SkiersArguments, clients: u32, address: std::net::SocketAddr) -> anyhow::Result<Report> {
    let mut plan = Plan::open("skiers")?;
    plan.set("threads", f64::from(clients))?;
    plan.set("skiers", f64::from(arguments.skiers))?;
    let options = Options::new(Target::resolve(&format!("http://{address}"), false)?);
    Ok(plan.run(options, None, 1, |_| {})?)
}

fn draw(file: &Path, lines: &[Line]) -> anyhow::Result<()> {
    let series = |value: fn(&Line) -> f64| {
        let mut all: Vec<Series> = Vec::new();
        for line in lines {
            let name = format!("{}, {} clients", line.arrangement, line.clients);
            let point = (line.across, value(line));
            match all.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => all.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
        for series in &mut all {
            series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        all
    };
    let most = |series: &[Series]| {
        let points = series.iter().flat_map(|series| &series.points);
        points.map(|point| point.1).fold(0.0, f64::max)
    };
    let across_text = |limit: f64| match limit {
        ADAPTIVE_AT => "adaptive".into(),
        limit => format!("{limit}"),
    };
    let p99_file = beside(file, "p99");
    let (rides, p99) = (series(|line| line.end_to_end_per_s), series(|line| line.p99_ms));
    let pictures = [
        (
            file.to_owned(),
            Picture {
                title: "Durable rides a second, end to end",
                across: "rides one commit may hold",
                across_text,
                across_step: None,
                up_text: |rides| units::count(rides as u64),
                up_step: step(most(&rides)),
                series: &rides,
            },
        ),
        (
            p99_file,
            Picture {
                title: "99 of 100 rides are answered within",
                across: "rides one commit may hold",
                across_text,
                across_step: None,
                up_text: |millis| format!("{millis} ms"),
                up_step: step(most(&p99)),
                series: &p99,
            },
        ),
    ];
    for (file, picture) in pictures {
        fs::write(&file, plot::svg(&picture))
            .with_context(|| format!("cannot write the picture {}", file.display()))?;
    }
    Ok(())
}

/// Returns the file's path with a word added to its name.
fn beside(file: &Path, word: &str) -> PathBuf {
    file.with_file_name(match file.file_stem() {
        Some(stem) => format!("{}-{word}.svg", stem.to_string_lossy()),
        None => format!("{word}.svg"),
    })
}

/// Returns 1, 2 or 5 times a power of ten, so that a grid up to this value has 3 to 10 lines.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most.max(1e-9) / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(steps[3])
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "arrangement",
        "clients",
        "limit",
        "rides",
        "failures",
        "rides/s",
        "end to end/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "behind ms",
        "rides a commit",
        "server µs",
    ]);
    for line in lines {
        table.row([
            line.arrangement.to_owned(),
            line.clients.to_string(),
            line.limit.clone(),
            units::count(line.rides),
            line.failures.to_string(),
            format!("{:.0}", line.rides_per_s),
            format!("{:.0}", line.end_to_end_per_s),
            format!("{:.2}", line.p50_ms),
            format!("{:.2}", line.p99_ms),
            format!("{:.1}", line.max_ms),
            format!("{:.1}", line.behind_ms),
            format!("{:.1}", line.rides_a_commit),
            format!("{:.1}", line.server_cpu_us),
        ]);
    }
    table.text()
        + "\n  end to end: until the days of the resort were seen to hold every ride that was answered; behind: how long after \
           the last answer, at most\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_few_lines_at_round_values() {
        for (most, expected) in [(61_234.0, 20_000.0), (0.9, 0.2), (5.0, 1.0), (12.0, 2.0), (100.0, 20.0)] {
            let found = step(most);
            assert!((found / expected - 1.0).abs() < 1e-9, "{most}: {found}");
        }
    }
}
