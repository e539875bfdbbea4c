//! Work between entities: its time with and without the credit of an entity, and how soon an entity that multiplies is stopped.

pub(crate) mod calls;
mod multiply;
mod player;
pub(crate) mod timers;
mod work;

use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

use super::{Common, table::Table};
use crate::units::count;
pub(crate) use player::{begin, with_players};

/// The options of the measurement.
#[derive(Debug, Args)]
pub(super) struct InsideArguments {
    #[command(flatten)]
    common: Common,
    /// The sorts of work, and of entities that multiply.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "chain,volley,fan-out,interest,messages,pair,timers,pico,two-picos"
    )]
    only: Vec<String>,
    /// Accounts whose interest is due at one moment.
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u32,
    /// Rounds of each sort of work, with the credit and without in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct Figures {
    work: Vec<work::WorkRow>,
    multiply: Vec<multiply::MultiplyRow>,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &InsideArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let is_asked = |name: &str| arguments.only.iter().any(|asked| asked == name);
    let mut figures = Figures {
        work: Vec::new(),
        multiply: Vec::new(),
    };
    for sort in work::SORTS.iter().filter(|sort| is_asked(sort.name)) {
        figures
            .work
            .push(sort.measure(&scratch.0, arguments.rounds, arguments.accounts)?);
    }
    for sort in multiply::Sort::ALL.into_iter().filter(|sort| is_asked(sort.name())) {
        figures
            .multiply
            .push(multiply::measure(sort, &scratch.0.join(sort.name()))?);
    }
    arguments.common.print(&figures, || text(&figures));
    Ok(ExitCode::SUCCESS)
}

fn text(figures: &Figures) -> String {
    let mut work = Table::new(["work", "decisions", "s", "without credit", "ratio", "quarantined"]);
    for line in &figures.work {
        work.row([
            line.work.to_owned(),
            count(line.decisions),
            format!("{:.3}", line.seconds),
            format!("{:.3}", line.seconds_without),
            format!("{:.2}", line.ratio),
            line.quarantined.to_string(),
        ]);
    }
    let mut multiply = Table::new([
        "multiplies",
        "stopped after s",
        "commits",
        "journal MB",
        "others p99 ms before",
        "meanwhile",
        "longest",
    ]);
    for line in &figures.multiply {
        multiply.row([
            line.sort.to_owned(),
            line.stopped_s
                .map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.2}")),
            count(line.commits),
            format!("{:.1}", line.journal_mb),
            format!("{:.2}", line.p99_before_ms),
            format!("{:.2}", line.p99_ms),
            format!("{:.1}", line.longest_ms),
        ]);
    }
    work.text() + &multiply.text()
}
