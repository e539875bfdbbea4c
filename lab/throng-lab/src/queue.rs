//! The batching queue against other channels, and against the same work without a hand-off.

use anyhow::Context as _;
use clap::Args;
use queues::{Candidate, Level, Outcome, Surge, Task, level, surge};
use serde::Serialize;
use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};
use throng_load::report::html;

use super::{median, table::Table};

/// The measurement of queues.
#[derive(Debug, Args)]
pub(super) struct QueueArguments {
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// Write a page with charts here.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A small run to check that everything works. Its figures say little.
    #[arg(long)]
    quick: bool,
    /// Alternating repetitions; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    repeats: u16,
    /// Run a single measurement in this process, with JSON as input and output.
    #[arg(long, hide = true, value_name = "JSON")]
    task: Option<String>,
}

/// The trades a second of all senders together, from a low rate on.
const LEVELS: [f64; 6] = [1e3, 1e4, 1e5, 1e6, 1e7, 5e7];

/// The number of senders at a level.
const LEVEL_THREADS: u32 = 6;

/// The figures of a way at full speed.
#[derive(Debug, Serialize)]
struct SurgeRow {
    way: String,
    items: u64,
    millions_per_s: f64,
    /// The throughput relative to the same work without a hand-off, in the same repetition.
    of_ceiling: f64,
    /// The throughput with trades passed in one call.
    at_once_millions_per_s: f64,
    at_once_of_ceiling: f64,
    cpu_nanos: f64,
    peak_megabytes: f64,
}

/// The figures of a way at a level.
#[derive(Debug, Serialize)]
struct LevelRow {
    way: String,
    wanted_per_s: f64,
    reached_per_s: f64,
    p50_micros: f64,
    p99_micros: f64,
    batch_items: f64,
    cpu_nanos: f64,
}

#[derive(Debug, Serialize)]
struct Figures {
    surges: Vec<SurgeRow>,
    levels: Vec<LevelRow>,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &QueueArguments) -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    if let Some(task) = &arguments.task {
        let task: Task = serde_json::from_str(task).context("--task is one measurement as JSON")?;
        writeln!(out, "{}", serde_json::to_string(&task.run())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let figures = Figures {
        surges: surges(arguments)?,
        levels: levels(arguments)?,
    };
    if let Some(file) = &arguments.html {
        let page = html::figures("The batching queue", &figures, include_str!("queue.js"));
        fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let text = match arguments.json {
        true => serde_json::to_string(&serde_json::json!({ "queue": figures }))? + "\n",
        false => tables(&figures),
    };
    // A closed reader (`| head`) is not an error.
    let _ = out.write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Runs a task in a process of its own, so that the peak of memory is its own.
fn apart(task: &Task) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let output = Command::new(program)
        .args(["queue", "--task", &serde_json::to_string(task)?])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program anew for a measurement")?;
    anyhow::ensure!(
        output.status.success(),
        "the measurement {task:?} failed ({})",
        output.status
    );
    serde_json::from_slice(&output.stdout).context("a measurement answers with its figures")
}

fn surge_apart(task: &Task) -> anyhow::Result<surge::Figures> {
    match apart(task)? {
        Outcome::Surge(figures) => Ok(figures),
        Outcome::Level(_) => anyhow::bail!("a surge was asked for, a level was measured"),
    }
}

fn level_apart(task: &Task) -> anyhow::Result<level::Figures> {
    match apart(task)? {
        Outcome::Level(figures) => Ok(figures),
        Outcome::Surge(_) => anyhow::bail!("a level was asked for, a surge was measured"),
    }
}

fn surges(arguments: &QueueArguments) -> anyhow::Result<Vec<SurgeRow>> {
    let mut surge = Surge::default();
    if arguments.quick {
        (surge.rounds, surge.trades) = (2, 5_000);
    }
    let [single, at_once] = [false, true].map(|at_once| Surge {
        at_once,
        ..surge.clone()
    });
    // `None` is the ceiling.
    let ways: Vec<Option<Candidate>> = [None]
        .into_iter()
        .chain(Candidate::all().into_iter().map(Some))
        .collect();
    let task = |way: Option<Candidate>, surge: &Surge| match way {
        None => Task::Ceiling(surge.clone()),
        Some(candidate) => Task::Surge(candidate, surge.clone()),
    };
    let mut measured: Vec<Vec<[surge::Figures; 2]>> = Vec::new();
    for _ in 0..arguments.repeats {
        let round: anyhow::Result<Vec<_>> = ways
            .iter()
            .map(|way| Ok([surge_apart(&task(*way, &single))?, surge_apart(&task(*way, &at_once))?]))
            .collect();
        measured.push(round?);
    }
    let row = |(place, way): (usize, &Option<Candidate>)| {
        let of = |figure: &dyn Fn(&[surge::Figures; 2], &[surge::Figures; 2]) -> f64| {
            let rounds = measured
                .iter()
                .filter_map(|round| Some((round.get(place)?, round.first()?)));
            median(rounds.map(|(figures, ceiling)| figure(figures, ceiling)))
        };
        SurgeRow {
            way: way.map_or_else(|| "no hand-off, one thread".to_owned(), |way| way.to_string()),
            items: measured
                .first()
                .and_then(|round| round.get(place))
                .map_or(0, |[single, _]| single.items),
            millions_per_s: of(&|[single, _], _| single.rate() / 1e6),
            of_ceiling: of(&|[single, _], [ceiling, _]| single.rate() / ceiling.rate()),
            at_once_millions_per_s: of(&|[_, at_once], _| at_once.rate() / 1e6),
            at_once_of_ceiling: of(&|[_, at_once], [_, ceiling]| at_once.rate() / ceiling.rate()),
            cpu_nanos: of(&|[single, _], _| single.cpu_nanos()),
            peak_megabytes: of(&|[single, _], _| single.peak_bytes as f64 / 1e6),
        }
    };
    Ok(ways.iter().enumerate().map(row).collect())
}

fn levels(arguments: &QueueArguments) -> anyhow::Result<Vec<LevelRow>> {
    let (wanted, lasts, threads) = match arguments.quick {
        true => (&LEVELS[..2], Duration::from_millis(20), 2),
        false => (&LEVELS[..], Duration::from_millis(400), LEVEL_THREADS),
    };
    let mut rows = Vec::new();
    for rate in wanted {
        let level = Level {
            rate: *rate,
            threads,
            lasts,
        };
        let ways = Candidate::all();
        let mut measured = Vec::new();
        for _ in 0..arguments.repeats {
            let round: anyhow::Result<Vec<_>> = ways
                .iter()
                .map(|way| level_apart(&Task::Level(*way, level.clone())))
                .collect();
            measured.push(round?);
        }
        rows.extend(ways.iter().enumerate().map(|(place, way)| {
            let of = |figure: &dyn Fn(&level::Figures) -> f64| {
                median(measured.iter().filter_map(|round| round.get(place)).map(figure))
            };
            LevelRow {
                way: way.to_string(),
                wanted_per_s: *rate,
                reached_per_s: of(&|figures| figures.rate),
                p50_micros: of(&|figures| figures.p50_nanos as f64 / 1e3),
                p99_micros: of(&|figures| figures.p99_nanos as f64 / 1e3),
                batch_items: of(&|figures| figures.batch_items),
                cpu_nanos: of(&|figures| figures.cpu_nanos),
            }
        }));
    }
    Ok(rows)
}

fn tables(figures: &Figures) -> String {
    let mut surges = Table::new([
        "surge: a call a trade, or one call",
        "trades",
        "M/s",
        "of ceiling",
        "one call M/s",
        "of ceiling",
        "CPU ns each",
        "peak MB",
    ]);
    for row in &figures.surges {
        surges.row([
            row.way.clone(),
            crate::units::count(row.items),
            format!("{:.1}", row.millions_per_s),
            format!("{:.2}", row.of_ceiling),
            format!("{:.1}", row.at_once_millions_per_s),
            format!("{:.2}", row.at_once_of_ceiling),
            format!("{:.1}", row.cpu_nanos),
            format!("{:.1}", row.peak_megabytes),
        ]);
    }
    let mut levels = Table::new([
        "on time",
        "wanted/s",
        "reached",
        "p50 µs",
        "p99 µs",
        "batch",
        "CPU ns each",
    ]);
    for row in &figures.levels {
        levels.row([
            row.way.clone(),
            crate::units::count(row.wanted_per_s as u64),
            format!("{:.2}", row.reached_per_s / row.wanted_per_s),
            format!("{:.1}", row.p50_micros),
            format!("{:.1}", row.p99_micros),
            format!("{:.1}", row.batch_items),
            format!("{:.0}", row.cpu_nanos),
        ]);
    }
    surges.text() + &levels.text()
}
