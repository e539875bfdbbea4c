//! The command line, to be mounted by a binary as `load`.

mod direct;
mod progress;
mod values;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Load any HTTP service.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LoadArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    direct: direct::DirectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Runs the command; errors go to standard error.
pub fn run(args: LoadArgs) -> ExitCode {
    let result = match args.command {
        Some(command) => match command {},
        None => direct::run(&args.direct),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
