//! The command line, which a binary mounts as `load`.

mod capacity;
mod common;
mod compare;
mod course;
mod direct;
mod head2head;
mod plan;
mod progress;
mod replay;
mod request;
pub mod values;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Load any HTTP service: `throng load URL`, or one of the commands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
pub struct LoadArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    direct: direct::DirectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a plan: phases, data, checks (a TOML file, or a shipped plan by name).
    Run(plan::RunArgs),
    /// List the shipped plans, or print one.
    Plans(plan::PlansArgs),
    /// Replay recorded requests, in recorded time or flat out.
    Replay(replay::ReplayArgs),
    /// Find the highest rate that keeps a promise.
    Capacity(capacity::CapacityArgs),
    /// Compare two or more targets in rotating rounds.
    Head2head(head2head::HeadToHeadArgs),
    /// Put two saved runs side by side.
    Compare(compare::CompareArgs),
}

/// Runs the command. Errors go to standard error.
pub fn run(args: LoadArgs) -> ExitCode {
    let result = match &args.command {
        None => direct::run(&args.direct),
        Some(Command::Run(args)) => plan::run(args),
        Some(Command::Plans(args)) => plan::list(args),
        Some(Command::Replay(args)) => replay::run(args),
        Some(Command::Capacity(args)) => capacity::run(args),
        Some(Command::Head2head(args)) => head2head::run(args),
        Some(Command::Compare(args)) => compare::run(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            common::note(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}
