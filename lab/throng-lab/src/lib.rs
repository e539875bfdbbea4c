//! The library of the binary `throng-lab`. It compares the engine with what the machine can do, by ratios taken in one run, and it runs campaigns of
//! faults.
//!
//! Exit codes: 0 done, 1 it did not work or a check found a difference, 2 the arguments make no sense.

mod apps;

mod cluster;
mod console;
mod cpu;
mod day;
mod entities;
mod faults;
mod fill;
mod filters;
mod followers;
mod http;
mod http_client;
mod inside;
mod journal;
mod krl;
mod long;
mod loops;
mod pico_requests;
mod picos;
mod plot;
mod postgres;
mod preferences;
mod queue;
mod recovery;
mod requests;
mod serve;
mod service;
mod shows;
mod skiers;
mod start;

mod surge;
mod table;
mod tickets;
mod transfers;
mod websocket;
mod yardstick;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};
use throng_cli::units;

/// Measure Throng, and break it.
#[derive(Debug, Parser)]
#[command(name = "throng-lab", version, about, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Durable commands over HTTP against a bare epoll echo: requests, CPU, latency.
    Http(http::HttpArguments),
    /// Several loops on one engine against one, in process and over HTTP: throughput, its split, latency, CPU.
    Loops(loops::LoopsArguments),
    /// The embedded log against a bare write-and-sync loop.
    Journal(journal::JournalArguments),
    /// The journal on PostgreSQL against the same events inserted one by one, and the table `events` that follows it.
    Postgres(postgres::PostgresArguments),
    /// The batching queue against other channels, and against the same work without a hand-off.
    Queue(queue::QueueArguments),
    /// Many entities: the memory of each, the time to load one from the store.
    Entities(entities::EntitiesArguments),
    /// Fields to filter by: the CPU of commands with them and without, the time of a filter.
    Filters(filters::FiltersArguments),
    /// Durable commands over WebSockets against the same over HTTP, one at a time and in batches.
    Websocket(websocket::WebsocketArguments),
    /// Live followers of a kind and of entities: the service's CPU for a delivered event, with few followers and with many.
    Followers(followers::FollowersArguments),
    /// Seat reservations over HTTP on one journal or several: rates, CPU, latency, a hot show, a cold start.
    Shows(shows::ShowsArguments),
    /// Transfers between accounts as in SpacetimeDB's benchmark, compared with PostgreSQL and UmaDB; kills and power losses of each.
    Transfers(transfers::TransfersArguments),
    /// Lift rides over HTTP until the read models hold them: rates, latency, lag, with several limits of a commit.
    Skiers(skiers::SkiersArguments),
    /// KRL against JavaScript that does the same, and events of small rulesets.
    Krl(krl::KrlArguments),
    /// Many picos: creations over HTTP, bytes each in memory, an event to a random one, the next start.
    Picos(picos::PicosArguments),
    /// Recommendations over the Rust API and over HTTP against the same computation in a plain loop.
    Preferences(preferences::PreferencesArguments),
    /// More clients and more load than the service can answer: rate and latency of its answers, alone and beside other processes.
    Surge(surge::SurgeArguments),
    /// Faults of processes, disks and servers under load: losses, duplicates, and the time until it served again.
    Faults(faults::FaultsArguments),
    /// A long run in which entities end and history is removed: memory, descriptors, disk, latency during checkpoints and without.
    Long(long::LongArguments),
    /// Several nodes compared with one: the CPU of a request, the delays by hand-offs and fail-overs.
    Cluster(cluster::ClusterArguments),
    /// Durable commands with no console open, with one and with many: throughput, the CPU of a request.
    Console(console::ConsoleArguments),
    /// Starting from the journal after a crash.
    Recovery(recovery::RecoveryArguments),
    /// Starting with many entities and the idempotency keys of an hour, and the end of that hour.
    Start(start::StartArguments),
    /// Work between entities: its cost, and how soon an entity that multiplies is stopped.
    Inside(inside::InsideArguments),
    /// Waiting timers of accounts: the start, and commands to a few accounts, with many timers and with none.
    Timers(inside::timers::TimersArguments),
    /// Calls that wait for a provider which never answers: the memory of the process for a growing number of them.
    Calls(inside::calls::CallsArguments),
    /// Tickets on sale to many customers, some of whom never pay: orders, seats and payments have to agree in the end.
    Tickets(tickets::TicketsArguments),
    /// A registration day through picos, or on several nodes of which one is killed: every roster has to be right.
    Day(day::DayArguments),
    /// An app's own program, as a process that is measured or killed.
    #[command(hide = true)]
    App(apps::AppArguments),
    /// Run a process that a measurement starts.
    #[command(hide = true, subcommand)]
    Yardstick(yardstick::Yardstick),
}

/// Runs the measurement. An error is reported on standard error in one sentence.
#[must_use]
pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        LabCommand::App(arguments) => return arguments.run(),
        LabCommand::Yardstick(yardstick) => yardstick.run(),
        LabCommand::Day(arguments) => arguments.run(),
        measurement => measure(measurement),
    };
    throng_app::cli::exit_code("throng-lab", done)
}

fn measure(command: &LabCommand) -> anyhow::Result<ExitCode> {
    throng_app::cli::start_logging("error");
    match command {
        LabCommand::Http(arguments) => http::run(arguments),
        LabCommand::Loops(arguments) => loops::run(arguments),
        LabCommand::Journal(arguments) => journal::run(arguments),
        LabCommand::Postgres(arguments) => postgres::run(arguments),
        LabCommand::Queue(arguments) => queue::run(arguments),
        LabCommand::Entities(arguments) => entities::run(arguments),
        LabCommand::Filters(arguments) => filters::run(arguments),
        LabCommand::Websocket(arguments) => websocket::run(arguments),
        LabCommand::Followers(arguments) => followers::run(arguments),
        LabCommand::Shows(arguments) => shows::run(arguments),
        LabCommand::Transfers(arguments) => transfers::run(arguments),
        LabCommand::Skiers(arguments) => skiers::run(arguments),
        LabCommand::Krl(arguments) => krl::run(arguments),
        LabCommand::Picos(arguments) => picos::run(arguments),
        LabCommand::Preferences(arguments) => preferences::run(arguments),
        LabCommand::Surge(arguments) => surge::run(arguments),
        LabCommand::Faults(arguments) => faults::run(arguments),
        LabCommand::Long(arguments) => long::run(arguments),
        LabCommand::Cluster(arguments) => cluster::run(arguments),
        LabCommand::Console(arguments) => console::run(arguments),
        LabCommand::Recovery(arguments) => recovery::run(arguments),
        LabCommand::Start(arguments) => start::run(arguments),
        LabCommand::Inside(arguments) => inside::run(arguments),
        LabCommand::Timers(arguments) => inside::timers::run(arguments),
        LabCommand::Calls(arguments) => inside::calls::run(arguments),
        LabCommand::Tickets(arguments) => tickets::run(arguments),
        LabCommand::App(_) | LabCommand::Yardstick(_) | LabCommand::Day(_) => unreachable!("it is no measurement"),
    }
}

/// The arguments of every measurement.
#[derive(Debug, Args)]
struct Common {
    /// The directory for files, on the disk to be measured. A measurement removes its files at the end.
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Makes an empty directory for one measurement, which is removed at the end.
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
        // A closed reader (`| head`) is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

struct Scratch(PathBuf);

impl Scratch {
    /// Keeps the directory, for a person to look at.
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

/// Returns the command that runs this program as one of its hidden yardsticks.
fn yardstick(name: &str) -> anyhow::Result<Command> {
    use anyhow::Context as _;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(["yardstick", name]);
    Ok(command)
}

/// Returns the median, or the lower one of the two middle figures.
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
    use super::{Arguments, median};
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median([]).is_nan());
    }
}
