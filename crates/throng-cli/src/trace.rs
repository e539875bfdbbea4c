//! `throng trace`: the chain of turns around an entity, and days of registration as files.

use anyhow::bail;
use clap::{Args, Subcommand};
use registration::trace::{DEFAULT_SEED, Shape, generate};
use std::{path::PathBuf, process::ExitCode};
use throng_app::cli;

use crate::units::count;

/// An entity to trace, or the generator of a registration day.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct DemoTraceArguments {
    #[command(flatten)]
    of: Option<cli::TraceArguments>,
    #[command(subcommand)]
    command: Option<TraceCommand>,
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
    /// The file for the sections, one line `section<tab>seats` each.
    #[arg(long, value_name = "FILE")]
    capacities: PathBuf,
    /// The file for the requests, one line `student,section,YYYY-MM-DD,HH:MM:SS,operation` each.
    #[arg(long, value_name = "FILE")]
    requests: PathBuf,
    /// The part of the published trace to make: 1 is all of it, 10 a tenth.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
}

/// Runs the command.
pub(crate) fn run(arguments: &DemoTraceArguments) -> anyhow::Result<ExitCode> {
    let arguments = match (&arguments.command, &arguments.of) {
        (Some(TraceCommand::Generate(arguments)), _) => arguments,
        (None, Some(of)) => return of.run(&registration::app()),
        (None, None) => bail!("name an entity, as `throng trace section/A`"),
    };
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
