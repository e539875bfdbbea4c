//! Faults under load. The real program runs as a child process, and many clients remember its answers. Each run has one fault, and then compares the
//! history with these answers.
//!
//! | file | holds |
//! |---|---|
//! | `kind` | the kinds of faults, and what each needs |
//! | `run` | one run from its start to its end |
//! | `directory`, `database`, `cluster`, `restore` | making the faults |
//! | `failover` | databases that are replaced |
//! | `attacks` | clients that take memory and connections |
//! | `disk`, `shim` | a small file system, I/O errors |
//! | `network`, `namespaces`, `proxies` | lines that are cut, as links or as connections |
//! | `load`, `history` | the clients of the program |
//! | `check` | the checker |

mod attacks;
mod check;
mod cluster;
mod database;
mod directory;
mod disk;
mod failover;
mod history;
mod kind;
mod load;
mod namespaces;
mod network;
mod proxies;
mod restore;
mod run;
mod shim;

use clap::{Args, ValueEnum as _};
use serde::Serialize;
use servers::{Postgres, PostgresOptions};
use std::{process::ExitCode, time::Duration};

use self::{
    check::Findings,
    kind::Kind,
    run::{Outcome, Setting},
};
pub(super) use self::{
    database::signal,
    disk::{SmallDisk, unavailable as disk_unavailable},
};
use super::{Common, table::Table};
use crate::units::count;
use throng_app::Durability;

/// The options of the campaign.
#[derive(Debug, Args)]
pub(super) struct FaultsArguments {
    #[command(flatten)]
    common: Common,
    /// Only these kinds.
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    only: Vec<Kind>,
    /// Runs of each kind, each on a journal of its own.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Chooses requests, moments and errors. Each run prints its own seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients, each on a connection of its own.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// The failures that an acknowledged command survives. With less than fsync the checker has to find the losses.
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
}

/// The figures of all runs of a kind.
#[derive(Debug, Serialize)]
struct Line {
    fault: Kind,
    runs: u32,
    acknowledged: u64,
    reads: u64,
    lost: u64,
    doubled: u64,
    other: u64,
    /// The seconds until it served again.
    recovery_p50_s: Option<f64>,
    recovery_p90_s: Option<f64>,
    recovery_max_s: Option<f64>,
    /// The first differences in words.
    told: Vec<String>,
    /// The reason why it was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// Runs the campaign and prints a table. The exit code is 1 if anything was found.
pub(super) fn run(arguments: &FaultsArguments) -> anyhow::Result<ExitCode> {
    // A stop signal takes effect after the current run, so that its file systems are unmounted.
    let mut end = throng_http::StopSignal::watch()?;
    let scratch = arguments.common.scratch()?;
    // The path is absolute, because other programs get it and run in other directories.
    let directory = std::fs::canonicalize(&scratch.0)?;
    let mut server = None;
    let mut lines = Vec::new();
    for kind in kinds(arguments) {
        let mut line = Line::new(kind);
        line.unavailable = kind.unavailable();
        if line.unavailable.is_none() && kind.ground().is_shared_server() && server.is_none() {
            server = Some(Postgres::start(PostgresOptions::default())?);
        }
        let mut recoveries = Vec::new();
        let runs = if line.unavailable.is_some() { 0 } else { arguments.runs };
        for number in 0..runs {
            if end.has_come() {
                break;
            }
            let setting = Setting {
                scratch: &directory,
                clients: arguments.clients,
                durability: arguments.durability,
                seed: arguments.seed + u64::from(number),
            };
            let of_kind = server.as_mut().filter(|_| kind.ground().is_shared_server());
            let made = match kind {
                Kind::Failover => failover::make(&setting),
                _ => run::make(kind, &setting, of_kind),
            };
            line.add(made, &mut recoveries);
        }
        line.summarise(recoveries);
        eprintln!("  {}", line.shown());
        lines.push(line);
    }
    let is_clean = lines.iter().all(|line| line.lost + line.doubled + line.other == 0);
    arguments
        .common
        .print(&serde_json::json!({ "faults": lines }), || table(&lines));
    if !is_clean {
        scratch.keep();
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kinds(arguments: &FaultsArguments) -> Vec<Kind> {
    match arguments.only.is_empty() {
        true => Kind::value_variants().to_vec(),
        false => arguments.only.clone(),
    }
}

impl Line {
    fn new(fault: Kind) -> Self {
        Self {
            fault,
            runs: 0,
            acknowledged: 0,
            reads: 0,
            lost: 0,
            doubled: 0,
            other: 0,
            recovery_p50_s: None,
            recovery_p90_s: None,
            recovery_max_s: None,
            told: Vec::new(),
            unavailable: None,
        }
    }

    fn add(&mut self, run: anyhow::Result<Outcome>, recoveries: &mut Vec<Duration>) {
        self.runs += 1;
        let findings = match run {
            Ok(outcome) => {
                self.acknowledged += outcome.acknowledged;
                self.reads += outcome.reads;
                recoveries.extend(outcome.recovery);
                outcome.findings
            }
            Err(error) => {
                let mut findings = Findings::default();
                findings.other(format!("{error:#}"));
                findings
            }
        };
        self.lost += findings.lost;
        self.doubled += findings.doubled;
        self.other += findings.other;
        for told in findings.told {
            eprintln!("    {}: {told}", self.fault.name());
            self.told.push(told);
        }
    }

    fn summarise(&mut self, mut recoveries: Vec<Duration>) {
        recoveries.sort_unstable();
        let at = |part: f64| {
            let last = recoveries.len().checked_sub(1)?;
            recoveries
                .get((last as f64 * part).round() as usize)
                .map(Duration::as_secs_f64)
        };
        self.recovery_p50_s = at(0.5);
        self.recovery_p90_s = at(0.9);
        self.recovery_max_s = at(1.0);
    }

    fn cells(&self) -> [String; 9] {
        let seconds = |figure: Option<f64>| figure.map_or_else(|| "-".into(), |figure| format!("{figure:.2}"));
        [
            self.fault.name(),
            self.runs.to_string(),
            count(self.acknowledged),
            count(self.lost),
            count(self.doubled),
            count(self.other),
            seconds(self.recovery_p50_s),
            seconds(self.recovery_p90_s),
            seconds(self.recovery_max_s),
        ]
    }

    /// Returns the outcome in one line, to be printed at once.
    fn shown(&self) -> String {
        match &self.unavailable {
            Some(why) => format!("{}: not run: {why}", self.fault.name()),
            None => self.cells().join("  "),
        }
    }
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::new([
        "fault",
        "runs",
        "acknowledged",
        "lost",
        "doubled",
        "other",
        "served again s",
        "p90",
        "max",
    ]);
    for line in lines {
        table.row(line.cells());
    }
    let mut text = table.text();
    for line in lines {
        if let Some(why) = &line.unavailable {
            text += &format!("  {} was not run: {why}\n", line.fault.name());
        }
        for told in &line.told {
            text += &format!("  {}: {told}\n", line.fault.name());
        }
    }
    text
}
