//! Transfers between accounts, the workload of SpacetimeDB's published benchmark. The bank, a function of PostgreSQL and UmaDB are measured in one
//! run. Afterwards each is killed and its disk loses power, and its accounts are checked.

mod appends;
mod bank;
mod losses;
mod postgres;
mod protobuf;
mod umadb;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use super::{Common, median, table::Table};
use crate::{
    shows::{cpu_of_ended_children, cpu_of_process},
    units::{self, count},
};
use losses::{Loss, Tally};

/// The cents of an account at the beginning.
const CENTS: u64 = 1_000_000_000;

/// The measurement of transfers.
#[derive(Debug, Args)]
pub(super) struct TransfersArguments {
    #[command(flatten)]
    common: Common,
    /// Funded accounts, a multiple of 50.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(50..))]
    accounts: u32,
    /// Exponents of the Zipf distribution that draws the two accounts; 0 draws uniformly.
    #[arg(long, value_delimiter = ',', default_value = "0,1.5")]
    exponents: Vec<f64>,
    /// Transfers in flight on a connection.
    #[arg(long, value_delimiter = ',', default_value = "1,40")]
    in_flight: Vec<usize>,
    /// Connections of each load.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// The time for which each load is held, whole seconds.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    hold: Duration,
    /// Alternating rounds; the median of their ratios counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Leave out the kills and power losses.
    #[arg(long)]
    no_losses: bool,
}

/// The parameters of a load.
#[derive(Clone, Copy, Debug)]
struct Load {
    accounts: u32,
    exponent: f64,
    connections: usize,
    in_flight: usize,
    hold: Duration,
}

/// The figures of a load.
#[derive(Clone, Copy, Debug)]
struct HeldLoad {
    transfers: u64,
    /// The time until the last transfer was complete, so that both accounts have it.
    seconds: f64,
    /// The part of `seconds` after the last answer.
    settled_s: f64,
    /// Appends that another append made invalid and that were repeated.
    conflicts: u64,
}

/// A system that moves money between accounts, which are numbered from 1. It acknowledges only what is durable.
trait Contender {
    fn name(&self) -> &'static str;
    /// Opens this many accounts, each with [`CENTS`].
    fn open(&mut self, accounts: u32) -> anyhow::Result<()>;
    fn hold(&mut self, load: &Load) -> anyhow::Result<HeldLoad>;
    /// Fails if the sum of all money is wrong.
    fn check(&mut self, accounts: u32) -> anyhow::Result<()>;
    /// Returns the ids of its processes, the parent of the others first.
    fn processes(&self) -> Vec<u32>;
    /// Returns the clients of [`losses`], each with two accounts of its own. They end when the contender does not answer.
    fn clients(&mut self, tally: Arc<Tally>) -> anyhow::Result<Clients>;
    /// Waits for the end of its killed processes.
    fn wait_for_end(&mut self) -> anyhow::Result<()>;
    fn resume(&mut self) -> anyhow::Result<()>;
    /// Returns the number of transfers that have left the account `from`, and of those that have arrived at the account `to`.
    fn moved(&mut self, from: u32, to: u32) -> anyhow::Result<[u64; 2]>;
}

type Clients = Box<dyn FnOnce() -> anyhow::Result<()> + Send>;
type Start = fn(&Path) -> anyhow::Result<Box<dyn Contender>>;

/// All contenders. The others are compared with the first.
const CONTENDERS: [(&str, Start); 3] = [
    (bank::NAME, |place| Ok(Box::new(bank::Bank::start(place)?))),
    (postgres::NAME, |place| Ok(Box::new(postgres::Database::start(place)?))),
    (umadb::NAME, |place| Ok(Box::new(umadb::Events::start(place)?))),
];

/// The medians of a contender under a load.
#[derive(Debug, Serialize)]
struct Line {
    contender: &'static str,
    exponent: f64,
    in_flight: usize,
    connections: usize,
    transfers_per_s: f64,
    /// The CPU time of the server's processes for a transfer.
    server_cpu_us: f64,
    conflicts_a_transfer: f64,
    settled_ms: f64,
    /// The bank's transfers a second divided by this contender's.
    bank_ratio: f64,
}

/// Measures and prints the figures. The exit code is 1 if anything acknowledged was lost.
pub(super) fn run(arguments: &TransfersArguments) -> anyhow::Result<ExitCode> {
    ensure!(
        arguments.accounts.is_multiple_of(50),
        "the plan opens accounts by 50: give a multiple of that"
    );
    let scratch = arguments.common.scratch()?;
    // The path is absolute, because other programs get it and run in other directories.
    let place = std::fs::canonicalize(&scratch.0)?;
    let mut contenders = Vec::new();
    let mut notes = Vec::new();
    for (name, start) in CONTENDERS {
        match start(&place) {
            Ok(contender) => contenders.push(contender),
            Err(error) => match error.downcast_ref::<servers::Error>() {
                Some(servers::Error::Missing { .. }) => notes.push(format!("{name} was not measured: {error:#}")),
                _ => return Err(error.context(name)),
            },
        }
    }
    for contender in &mut contenders {
        contender.open(arguments.accounts).context(contender.name())?;
    }
    let mut lines = Vec::new();
    for &exponent in &arguments.exponents {
        for &in_flight in &arguments.in_flight {
            let load = Load {
                accounts: arguments.accounts,
                exponent,
                connections: arguments.connections,
                in_flight,
                hold: arguments.hold,
            };
            lines.extend(measure(&mut contenders, &load, arguments.rounds)?);
        }
    }
    for contender in &mut contenders {
        contender.check(arguments.accounts).context(contender.name())?;
    }
    let measured: Vec<&str> = contenders.iter().map(|contender| contender.name()).collect();
    drop(contenders);
    let losses = match arguments.no_losses {
        true => Vec::new(),
        false => losses::find(&place, |name| measured.contains(&name), &mut notes)?,
    };
    let is_clean = losses.iter().all(|loss| loss.lost + loss.other == 0);
    let figures = serde_json::json!({ "transfers": lines, "losses": losses, "notes": notes });
    arguments.common.print(&figures, || text(&lines, &losses, &notes));
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the CPU seconds of these processes, and of the ended children of the first one.
fn cpu_s(processes: &[u32]) -> f64 {
    let names: Vec<String> = processes.iter().map(u32::to_string).collect();
    let ended = names.first().and_then(|name| cpu_of_ended_children(name));
    let running = names.iter().filter_map(|name| cpu_of_process(name));
    ended.unwrap_or(f64::NAN) + running.sum::<f64>()
}

/// Measures one round of each contender in turn. The first one alternates, so that a drift of the machine favours none.
fn measure(contenders: &mut [Box<dyn Contender>], load: &Load, rounds: u16) -> anyhow::Result<Vec<Line>> {
    let mut held: Vec<Vec<(HeldLoad, f64)>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let contender = &mut contenders[at];
            let before = cpu_s(&contender.processes());
            let one = contender.hold(load).context(contender.name())?;
            // The first round is not counted. It touches the memory and makes the files.
            if round > 0 {
                held[at].push((one, cpu_s(&contender.processes()) - before));
            }
        }
    }
    let per_s = |(held, _): &(HeldLoad, f64)| held.transfers as f64 / held.seconds;
    let lines = contenders.iter().zip(&held).map(|(contender, rounds)| {
        let of = |figure: &dyn Fn(&(HeldLoad, f64)) -> f64| median(rounds.iter().map(figure));
        Line {
            contender: contender.name(),
            exponent: load.exponent,
            in_flight: load.in_flight,
            connections: load.connections,
            transfers_per_s: of(&per_s),
            server_cpu_us: of(&|(held, cpu)| cpu * 1e6 / held.transfers as f64),
            conflicts_a_transfer: of(&|(held, _)| held.conflicts as f64 / held.transfers as f64),
            settled_ms: of(&|(held, _)| held.settled_s * 1e3),
            bank_ratio: median(
                held[0]
                    .iter()
                    .zip(rounds)
                    .map(|(bank, other)| per_s(bank) / per_s(other)),
            ),
        }
    });
    Ok(lines.collect())
}

fn text(lines: &[Line], losses: &[Loss], notes: &[String]) -> String {
    let mut table = Table::new([
        "",
        "exponent",
        "in flight",
        "transfers/s",
        "CPU µs",
        "conflicts",
        "settled ms",
        "bank by it",
    ]);
    for line in lines {
        table.row([
            line.contender.to_owned(),
            format!("{}", line.exponent),
            format!("{} × {}", line.connections, line.in_flight),
            count(line.transfers_per_s as u64),
            format!("{:.1}", line.server_cpu_us),
            format!("{:.2}", line.conflicts_a_transfer),
            format!("{:.1}", line.settled_ms),
            format!("{:.2}", line.bank_ratio),
        ]);
    }
    let mut found = Table::new(["", "fault", "acknowledged", "lost", "other"]);
    for loss in losses {
        found.row([
            loss.contender.to_owned(),
            loss.fault.to_owned(),
            count(loss.acknowledged),
            count(loss.lost),
            count(loss.other),
        ]);
    }
    let mut text = table.text();
    text += "\n  CPU: of the server's processes, a transfer; conflicts: appends made again, a transfer\n";
    text += "  settled: from the last answer until the receivers have all money; the rate counts that time\n";
    if !losses.is_empty() {
        text += &found.text();
    }
    for note in notes {
        text += &format!("  {note}\n");
    }
    text
}
