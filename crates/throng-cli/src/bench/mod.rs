//! `throng bench`: the engine against what the machine can do, ratios taken in one run.

mod cluster;
mod console;
mod entities;
mod faults;
mod fill;
mod followers;
mod http;
pub(crate) mod http_client;
mod journal;
mod krl;
mod long;
mod loops;
mod picos;
mod plot;
mod postgres;
mod preferences;
mod queue;
mod recovery;
mod requests;
mod serve;
pub(crate) mod service;
mod shows;
mod skiers;
mod start;
mod storm;
mod surge;
mod table;
mod websocket;

use clap::{Args, Subcommand};
use serde::Serialize;
use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

pub(crate) use fill::{FillArguments, run as fill};
pub(crate) use long::serve as serve_tickets;
pub(crate) use serve::{ServerArguments, run as serve};
pub(crate) use surge::spin;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Durable commands over HTTP against a bare epoll echo: requests, CPU, latency.
    Http(http::HttpArguments),
    /// Several loops on one engine against one, in process and over HTTP: answered, split, waits, CPU.
    Loops(loops::LoopsArguments),
    /// The embedded log against a bare write-and-sync loop.
    Journal(journal::JournalArguments),
    /// The journal on PostgreSQL against the same events inserted one by one, and the table events behind it.
    Postgres(postgres::PostgresArguments),
    /// The batching queue against other channels, and against the same work without a hand-off.
    Queue(queue::QueueArguments),
    /// Many entities: bytes each in memory, time to bring one back from the store.
    Entities(entities::EntitiesArguments),
    /// Durable commands over WebSockets against the same over HTTP, one at a time and in batches.
    Websocket(websocket::WebsocketArguments),
    /// Live followers of a kind and of entities: the service's CPU an event delivered, to a few and to many.
    Followers(followers::FollowersArguments),
    /// Seat reservations over HTTP on one journal or several: rates, CPU, latency, a hot show, a cold start.
    Shows(shows::ShowsArguments),
    /// Lift rides over HTTP until the read models hold them: rates, latency, how far behind they are; over limits of a commit.
    Skiers(skiers::SkiersArguments),
    /// KRL against JavaScript that does the same, and events of small rulesets.
    Krl(krl::KrlArguments),
    /// Many picos: creations over HTTP, bytes each in memory, an event to a random one, the next start.
    Picos(picos::PicosArguments),
    /// Recommendations over the Rust API and over HTTP against the same computation in a plain loop.
    Preferences(preferences::PreferencesArguments),
    /// More clients and more load than the service can answer: what it answers still, and how soon; alone and beside others.
    Surge(surge::SurgeArguments),
    /// Faults of processes, disks and servers under load: what was lost or doubled, and how long until it served again.
    Faults(faults::FaultsArguments),
    /// A long run with history that ends: memory, descriptors, disk, latency beside checkpoints and without.
    Long(long::LongArguments),
    /// Several nodes beside one: CPU a request, how long a hand-off and a fail-over hold requests up.
    Cluster(cluster::ClusterArguments),
    /// Durable commands while no console is open, while one is, and while many are: throughput, CPU a request.
    Console(console::ConsoleArguments),
    /// Starting from the journal after a crash.
    Recovery(recovery::RecoveryArguments),
    /// Starting with many entities and the idempotency keys of an hour, and the end of that hour.
    Start(start::StartArguments),
}

/// Runs the measurement.
pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    throng_app::cli::start_logging("error");
    match &arguments.command {
        BenchCommand::Http(arguments) => http::run(arguments),
        BenchCommand::Loops(arguments) => loops::run(arguments),
        BenchCommand::Journal(arguments) => journal::run(arguments),
        BenchCommand::Postgres(arguments) => postgres::run(arguments),
        BenchCommand::Queue(arguments) => queue::run(arguments),
        BenchCommand::Entities(arguments) => entities::run(arguments),
        BenchCommand::Websocket(arguments) => websocket::run(arguments),
        BenchCommand::Followers(arguments) => followers::run(arguments),
        BenchCommand::Shows(arguments) => shows::run(arguments),
        BenchCommand::Skiers(arguments) => skiers::run(arguments),
        BenchCommand::Krl(arguments) => krl::run(arguments),
        BenchCommand::Picos(arguments) => picos::run(arguments),
        BenchCommand::Preferences(arguments) => preferences::run(arguments),
        BenchCommand::Surge(arguments) => surge::run(arguments),
        BenchCommand::Faults(arguments) => faults::run(arguments),
        BenchCommand::Long(arguments) => long::run(arguments),
        BenchCommand::Cluster(arguments) => cluster::run(arguments),
        BenchCommand::Console(arguments) => console::run(arguments),
        BenchCommand::Recovery(arguments) => recovery::run(arguments),
        BenchCommand::Start(arguments) => start::run(arguments),
    }
}

/// What every measurement can be told.
#[derive(Debug, Args)]
struct Common {
    /// Where files are written; on the disk to be measured. What a measurement leaves there is removed.
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// An empty directory for one measurement, removed at its end.
    fn scratch(&self) -> anyhow::Result<Scratch> {
        use anyhow::Context as _;
        let path = self.data.join(format!("bench-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Scratch(path))
    }

    fn print<T: Serialize>(&self, figures: &T, table: impl FnOnce() -> String) {
        use std::io::Write as _;
        let text = if self.json {
            serde_json::to_string(figures).expect("figures have only string keys and finite numbers") + "\n"
        } else {
            table()
        };
        // A reader that went away (`| head`) is no error of ours.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

struct Scratch(PathBuf);

impl Scratch {
    /// Leaves it there, for a person to look at.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("note: {} could not be removed: {error}", self.0.display());
        }
    }
}

/// This program anew, as one of its hidden yardsticks.
fn yardstick(name: &str) -> anyhow::Result<Command> {
    use anyhow::Context as _;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(["yardstick", name]);
    Ok(command)
}

/// The middle of some figures (the lower one of an even number).
fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median([]).is_nan());
    }
}
