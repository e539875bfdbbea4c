//! `throng trace`: traces as files.

use clap::{Args, Subcommand};
use registration::trace::{DEFAULT_SEED, Shape, generate};
use std::{path::PathBuf, process::ExitCode};

use crate::units::count;

/// What to do with traces.
#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Generate a trace and write its two files.
    Generate(GenerateArguments),
}

#[derive(Debug, Args)]
struct GenerateArguments {
    /// The same seed gives the same trace everywhere.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Where the sections go, one line `section<tab>seats` each.
    #[arg(long, value_name = "FILE")]
    capacities: PathBuf,
    /// Where the requests go, one line `student,section,YYYY-MM-DD,HH:MM:SS,operation` each.
    #[arg(long, value_name = "FILE")]
    requests: PathBuf,
    /// One part in so many of the published trace: 1 is all of it, 10 a tenth.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
}

/// Runs the command.
pub(crate) fn run(arguments: &TraceArguments) -> anyhow::Result<ExitCode> {
    let TraceCommand::Generate(arguments) = &arguments.command;
    let trace = generate(&Shape::one_in(arguments.one_in), arguments.seed)?;
    trace.write(&arguments.capacities, &arguments.requests)?;
    println!(
        "{} sections in {}, {} requests in {}",
        count(trace.sections.len() as u64),
        arguments.capacities.display(),
        count(trace.requests.len() as u64),
        arguments.requests.display()
    );
    Ok(ExitCode::SUCCESS)
}
