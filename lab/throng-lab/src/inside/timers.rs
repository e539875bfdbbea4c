//! Accounts with waiting timers: the cost of many of them for the start and for the accounts in use.

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use throng::{Engine, Options, model::Timestamp};

use super::{
    player::{self, Play, Player},
    work::save,
};
use crate::{Common, entities::resident_bytes, median, table::Table, units::count, yardstick};

/// The delay of the timers, long after the measurement.
const DUE: Duration = Duration::from_secs(86_400);
/// The number of commands that wait for their answers at a time.
const AT_A_TIME: usize = 256;

/// The measurement of timers.
#[derive(Debug, Args)]
pub(crate) struct TimersArguments {
    #[command(flatten)]
    common: Common,
    /// Accounts with a timer each.
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u32,
    /// Accounts that are used, and the accounts of the service to compare with.
    #[arg(long, default_value_t = 1_024)]
    used: u32,
    /// MiB that the entities may use, like a service's `--memory`.
    #[arg(long, default_value_t = 64)]
    memory: usize,
    /// Commands to the accounts in use, each round.
    #[arg(long, default_value_t = 200_000)]
    commands: u32,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// The arguments of one process of the measurement.
#[derive(Debug, Args)]
pub(crate) struct ServiceArguments {
    #[arg(long)]
    data: PathBuf,
    /// Make this many accounts, each with a timer, and end.
    #[arg(long)]
    make: Option<u32>,
    #[arg(long, default_value_t = 1_024)]
    used: u32,
    #[arg(long, default_value_t = 64)]
    memory: usize,
    #[arg(long, default_value_t = 0)]
    commands: u32,
}

/// The observations of one process.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    start_s: f64,
    commands_per_s: f64,
    resident_mib: f64,
}

#[derive(Debug, Serialize)]
struct Line {
    accounts: u32,
    start_s: f64,
    commands_per_s: f64,
    resident_mib: f64,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &TimersArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let sizes = [arguments.used, arguments.accounts];
    let place = |accounts: u32| scratch.0.join(accounts.to_string());
    for accounts in sizes {
        service(&place(accounts), &["--make", &accounts.to_string()])?;
    }
    let mut seen: [Vec<Seen>; 2] = Default::default();
    for _ in 0..arguments.rounds {
        for (seen, accounts) in seen.iter_mut().zip(sizes) {
            let (used, memory) = (arguments.used.to_string(), arguments.memory.to_string());
            let commands = arguments.commands.to_string();
            let told = service(
                &place(accounts),
                &["--used", &used, "--memory", &memory, "--commands", &commands],
            )?;
            seen.push(serde_json::from_slice(&told).context("the measured process said something else")?);
        }
    }
    let lines: Vec<Line> = seen
        .iter()
        .zip(sizes)
        .map(|(seen, accounts)| line(accounts, seen))
        .collect();
    let ratios = seen[1]
        .iter()
        .zip(&seen[0])
        .map(|(many, few)| many.commands_per_s / few.commands_per_s);
    let ratio = median(ratios);
    let figures = serde_json::json!({ "timers": lines, "ratio": ratio });
    arguments.common.print(&figures, || text(&lines, ratio));
    Ok(ExitCode::SUCCESS)
}

fn line(accounts: u32, seen: &[Seen]) -> Line {
    Line {
        accounts,
        start_s: median(seen.iter().map(|seen| seen.start_s)),
        commands_per_s: median(seen.iter().map(|seen| seen.commands_per_s)),
        resident_mib: median(seen.iter().map(|seen| seen.resident_mib)),
    }
}

fn text(lines: &[Line], ratio: f64) -> String {
    let mut table = Table::new(["accounts with a timer", "start s", "commands/s", "resident MiB"]);
    for line in lines {
        table.row([
            count(line.accounts.into()),
            format!("{:.2}", line.start_s),
            count(line.commands_per_s as u64),
            format!("{:.0}", line.resident_mib),
        ]);
    }
    format!(
        "{}commands/s with many by with few, median of the rounds: {ratio:.2}\n",
        table.text()
    )
}

/// Runs a process of the measurement and returns its output.
fn service(data: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let told = yardstick("timers")?
        .arg("--data")
        .arg(data)
        .args(arguments)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start the measured process")?;
    ensure!(told.status.success(), "the measured process ended with {}", told.status);
    Ok(told.stdout)
}

/// Makes the accounts, or measures them.
pub(crate) fn serve(arguments: &ServiceArguments) -> anyhow::Result<ExitCode> {
    throng_app::cli::start_logging("error");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(async {
        let memory = if arguments.make.is_some() {
            4_096
        } else {
            arguments.memory
        };
        let before = Instant::now();
        let (log, store) = throng_log::open_embedded(&arguments.data, throng_log::Options::default())?;
        let options = Options {
            memory_bytes_max: memory << 20,
            ..Options::default()
        };
        let engine = player::with_players(Engine::builder())
            .options(options)
            .start_shared(log, store)
            .await?;
        let start_s = before.elapsed().as_secs_f64();
        if let Some(accounts) = arguments.make {
            let at = (SystemTime::now() + DUE).duration_since(UNIX_EPOCH)?.as_micros();
            let at = Timestamp {
                micros: i64::try_from(at)?,
            };
            save(&engine, accounts, at).await?;
            engine.checkpoint().await?;
        }
        let begun = Instant::now();
        use_accounts(&engine, arguments).await?;
        let seen = Seen {
            start_s,
            commands_per_s: f64::from(arguments.commands) / begun.elapsed().as_secs_f64(),
            resident_mib: resident_bytes()? as f64 / f64::from(1 << 20),
        };
        engine.stop().await;
        anyhow::Ok(seen)
    })?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&seen)?)?;
    Ok(ExitCode::SUCCESS)
}

async fn use_accounts(engine: &Engine, arguments: &ServiceArguments) -> anyhow::Result<()> {
    for first in (0..arguments.commands).step_by(AT_A_TIME) {
        let asked = (first..arguments.commands.min(first + AT_A_TIME as u32)).map(|number| {
            let account = engine.entity::<Player>(format!("account-{}", number % arguments.used));
            async move { account.ask(Play::Note {}).await }
        });
        for told in futures_util::future::join_all(asked).await {
            told.context("using an account")?;
        }
    }
    Ok(())
}
