//! A long run: entities end, history is removed, and memory, descriptors and disk are checked for growth.

mod load;
pub(crate) mod tickets;
mod watch;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use servers::{Postgres, PostgresOptions};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use self::{
    load::{CommandOutcomes, Sample},
    watch::{Disk, Look, Watch, Watched},
};
use super::{
    Common,
    service::{Launch, Service},
    table::Table,
};
use crate::units::{self, count};

/// The options of a long run.
#[derive(Debug, Args)]
pub(super) struct LongArguments {
    #[command(flatten)]
    common: Common,
    /// The time on each journal.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = time)]
    lasts: Duration,
    /// The journals: embedded, on the disk of --data, and postgres, on a private server.
    #[arg(long, value_delimiter = ',', default_value = "embedded,postgres", value_parser = ["embedded", "postgres"])]
    journal: Vec<String>,
    /// Commands a second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// Connections, and tickets in use.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Seconds between checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint: u32,
}

/// Parses `30m`, or a duration in another unit.
fn time(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('m').and_then(|minutes| minutes.parse().ok()) {
        Some(minutes) => Ok(Duration::from_mins(minutes)),
        None => units::duration(text),
    }
}

/// The most rows of the table.
const WINDOWS: u32 = 30;
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// The divisor of the run's time for which the events of an ended ticket are kept.
const KEEP_PART: u32 = 6;
/// The growth that counts as flat: the last third of the run may need at most this factor of the middle one.
const GROWTH_MAX: f64 = 1.25;
const DESCRIPTORS_MORE: u64 = 16;
/// The most by which a checkpoint may multiply the time of commands.
const CHECKPOINT_COST_MAX: f64 = 2.0;

/// A part of the run.
#[derive(Debug, Serialize)]
struct Window {
    until_s: f64,
    commands: u64,
    refused: u64,
    p50_ms: f64,
    p99_ms: f64,
    resident_mb: f64,
    descriptors: u64,
    disk_mb: f64,
    pruned: u64,
}

/// The verdicts on the whole run.
#[derive(Debug, Serialize)]
struct Verdicts {
    is_memory_flat: bool,
    are_descriptors_flat: bool,
    is_disk_flat: bool,
    p99_beside_checkpoints_ms: f64,
    p99_otherwise_ms: f64,
    do_checkpoints_cost_little: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    journal: String,
    commands: u64,
    refused: u64,
    checkpoints: usize,
    windows: Vec<Window>,
    verdicts: Verdicts,
}

/// Runs the load and prints the figures.
pub(super) fn run(arguments: &LongArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let mut all = Vec::new();
    for journal in &arguments.journal {
        let directory = scratch.0.join(journal);
        std::fs::create_dir_all(&directory)?;
        let figures = match &**journal {
            "postgres" => {
                let server = Postgres::start(PostgresOptions::default())?;
                let url = server.url("postgres");
                let disk = Disk::Schema {
                    url: &url,
                    schema: "throng",
                };
                measure(arguments, journal, &directory, url.clone(), disk)?
            }
            _ => {
                let data = directory.join("data");
                measure(
                    arguments,
                    journal,
                    &directory,
                    format!("file:{}", data.display()),
                    Disk::Directory(&data),
                )?
            }
        };
        all.push(figures);
    }
    let text = || all.iter().map(Figures::text).collect::<String>();
    arguments.common.print(&serde_json::json!({ "long": all }), text);
    Ok(ExitCode::SUCCESS)
}

fn measure(
    arguments: &LongArguments,
    journal: &str,
    directory: &Path,
    place: String,
    disk: Disk,
) -> anyhow::Result<Figures> {
    let keep = (arguments.lasts / KEEP_PART).as_secs().max(1);
    let launch = Launch {
        app: "long",
        place,
        arguments: vec![
            "--checkpoint".into(),
            arguments.checkpoint.to_string(),
            "--keep".into(),
            format!("ticket={keep}s"),
        ],
        environment: Vec::new(),
        log: directory.join("service.log"),
        within: None,
    };
    let service = launch.start()?;
    let window = (arguments.lasts / WINDOWS).max(WINDOW_MIN);
    let watch = Watch {
        process: service.id(),
        admin: admin(&launch.log)?,
        disk,
        every: window,
        begun: Instant::now(),
    };
    let (seen, watched) = load_and_watch(arguments, &service, &watch)?;
    service.end()?;
    Ok(Figures::new(journal, &seen, &watched, window))
}

fn load_and_watch(
    arguments: &LongArguments,
    service: &Service,
    watch: &Watch,
) -> anyhow::Result<(CommandOutcomes, Watched)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch.run(&is_over));
        let connections = usize::from(arguments.connections);
        let seen = load::drive(service.address, arguments.rate, connections, arguments.lasts);
        is_over.store(true, Ordering::Relaxed);
        match watching.join() {
            Ok(watched) => Ok((seen?, watched?)),
            Err(_) => bail!("watching the service ended in a panic"),
        }
    })
}

/// Returns the address of the service's administration from its log.
fn admin(log: &PathBuf) -> anyhow::Result<std::net::SocketAddr> {
    let text = std::fs::read_to_string(log)?;
    let (_, after) = text
        .split_once("administration and metrics on http://")
        .context("the service does not say where it is administrated")?;
    let address = after.lines().next().unwrap_or_default();
    address
        .trim()
        .parse()
        .with_context(|| format!("{address} is no address"))
}

impl Figures {
    fn new(journal: &str, seen: &CommandOutcomes, watched: &Watched, window: Duration) -> Self {
        let windows = watched
            .looks
            .iter()
            .map(|look| Window::new(look, seen, window))
            .collect();
        Self {
            journal: journal.into(),
            commands: seen.samples.len() as u64,
            refused: seen.refused_ms.len() as u64,
            checkpoints: watched.checkpoints.len(),
            windows,
            verdicts: Verdicts::new(seen, watched),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::new([
            "until s",
            "commands",
            "refused",
            "p50 ms",
            "p99 ms",
            "memory MB",
            "descriptors",
            "disk MB",
            "removed",
        ]);
        for window in &self.windows {
            table.row([
                format!("{:.0}", window.until_s),
                count(window.commands),
                count(window.refused),
                format!("{:.2}", window.p50_ms),
                format!("{:.1}", window.p99_ms),
                format!("{:.0}", window.resident_mb),
                window.descriptors.to_string(),
                format!("{:.0}", window.disk_mb),
                count(window.pruned),
            ]);
        }
        let verdicts = &self.verdicts;
        let is = |holds: bool| if holds { "flat" } else { "NOT FLAT" };
        format!(
            "\n  {}: {} commands, {} refused, {} checkpoints{}\n  memory {}, descriptors {}, disk {}; p99 beside checkpoints {:.1} ms, otherwise {:.1} ms{}\n",
            self.journal,
            count(self.commands),
            count(self.refused),
            self.checkpoints,
            table.text(),
            is(verdicts.is_memory_flat),
            is(verdicts.are_descriptors_flat),
            is(verdicts.is_disk_flat),
            verdicts.p99_beside_checkpoints_ms,
            verdicts.p99_otherwise_ms,
            if verdicts.do_checkpoints_cost_little {
                ""
            } else {
                ": MORE THAN TWICE"
            },
        )
    }
}

impl Window {
    fn new(look: &Look, seen: &CommandOutcomes, window: Duration) -> Self {
        let until = look.at.as_millis() as u32;
        let range = until.saturating_sub(window.as_millis() as u32)..until;
        let samples = seen.samples.iter().filter(|sample| range.contains(&sample.sent_ms));
        let mut took: Vec<u32> = samples.map(|sample| sample.response_us).collect();
        took.sort_unstable();
        Self {
            until_s: look.at.as_secs_f64(),
            commands: took.len() as u64,
            refused: seen.refused_ms.iter().filter(|sent| range.contains(sent)).count() as u64,
            p50_ms: part_ms(&took, 0.5),
            p99_ms: part_ms(&took, 0.99),
            resident_mb: look.resident_bytes as f64 / 1e6,
            descriptors: look.descriptors,
            disk_mb: look.disk_bytes as f64 / 1e6,
            pruned: look.pruned,
        }
    }
}

/// Returns a quantile of sorted microseconds in milliseconds, or 0 if there are none.
fn part_ms(sorted: &[u32], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted
        .get((last * part).round() as usize)
        .map_or(0.0, |us| f64::from(*us) / 1e3)
}

impl Verdicts {
    fn new(seen: &CommandOutcomes, watched: &Watched) -> Self {
        let third = watched.looks.len() / 3;
        let (middle, last) = (&watched.looks[third..2 * third], &watched.looks[2 * third..]);
        let most = |looks: &[Look], of: fn(&Look) -> u64| looks.iter().map(of).max().unwrap_or(0);
        let is_flat = |of: fn(&Look) -> u64| most(last, of) as f64 <= most(middle, of) as f64 * GROWTH_MAX;
        let descriptors = |looks: &[Look]| most(looks, |look| look.descriptors);
        let is_beside = |sample: &&Sample| watched.checkpoints.iter().any(|made| made.contains(&sample.sent_ms));
        let p99 = |samples: Vec<&Sample>| {
            let mut took: Vec<u32> = samples.iter().map(|sample| sample.response_us).collect();
            took.sort_unstable();
            part_ms(&took, 0.99)
        };
        let (beside, otherwise) = seen.samples.iter().partition(is_beside);
        let (beside, otherwise) = (p99(beside), p99(otherwise));
        Self {
            is_memory_flat: is_flat(|look| look.resident_bytes),
            are_descriptors_flat: descriptors(last) <= descriptors(middle) + DESCRIPTORS_MORE,
            is_disk_flat: is_flat(|look| look.disk_bytes),
            p99_beside_checkpoints_ms: beside,
            p99_otherwise_ms: otherwise,
            do_checkpoints_cost_little: beside <= otherwise * CHECKPOINT_COST_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(disk: &[u64]) -> Watched {
        let look = |(at, disk_bytes): (usize, &u64)| Look {
            at: Duration::from_secs(at as u64 + 1),
            resident_bytes: 100,
            descriptors: 20,
            disk_bytes: *disk_bytes,
            pruned: 0,
        };
        Watched {
            looks: disk.iter().enumerate().map(look).collect(),
            checkpoints: std::iter::once(1_000..2_000).collect(),
        }
    }

    fn seen(beside_us: u32) -> CommandOutcomes {
        let sample = |sent_ms| Sample {
            sent_ms,
            response_us: if (1_000..2_000).contains(&sent_ms) {
                beside_us
            } else {
                500
            },
        };
        CommandOutcomes {
            samples: (0..6_000).map(sample).collect(),
            refused_ms: Vec::new(),
        }
    }

    #[test]
    fn a_run_is_judged_by_its_thirds_and_its_checkpoints() {
        let good = Verdicts::new(&seen(900), &watched(&[10, 50, 90, 100, 90, 110]));
        assert!(
            good.is_disk_flat && good.is_memory_flat && good.are_descriptors_flat && good.do_checkpoints_cost_little
        );
        let bad = Verdicts::new(&seen(1_100), &watched(&[10, 20, 30, 40, 50, 60]));
        assert!(!bad.is_disk_flat && !bad.do_checkpoints_cost_little);
        assert_eq!((bad.p99_beside_checkpoints_ms, bad.p99_otherwise_ms), (1.1, 0.5));
    }

    #[test]
    fn a_window_counts_the_requests_sent_in_it() {
        let watched = watched(&[10]);
        let window = Window::new(&watched.looks[0], &seen(900), Duration::from_secs(1));
        assert_eq!((window.commands, window.p50_ms), (1_000, 0.5));
    }
}
