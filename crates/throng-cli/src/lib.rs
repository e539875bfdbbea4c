//! The binary `throng`: the demo and its service, the load lab, the journal's tools.
//!
//! All code is in this library, so that it can be tested and called. `main` only parses the arguments and calls it.
//!
//! Exit codes: 0 success; 1 failure, or a check found a difference; 2 invalid arguments; 3 another engine has taken over (`serve
//! --when-taken-over exit`); 130 interrupted twice.

pub mod client;
pub mod demo;
mod generate;
mod krl;
mod new;
pub mod percent;
pub mod progress;
mod top;
mod trace;
pub mod units;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use throng_app::cli;

/// Throng: an engine for stateful services that must survive a surge.
#[derive(Debug, Parser)]
#[command(name = "throng", version, about, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A registration day, end to end: replay it over HTTP, restart from the journal, compare every roster.
    Demo(demo::DemoArguments),
    /// Begin a service of your own: a project with an entity, its tests, a simulation and a load plan.
    New(new::NewArguments),
    /// Write a client of a service: its types, and retries under one key.
    Client(generate::ClientArguments),
    /// Run the demo's service, registration, until it is told to end.
    Serve(Box<cli::ServeArguments>),
    /// Load any HTTP service and report its throughput and latencies.
    Load(Box<throng_load::cli::LoadArgs>),
    /// Read a whole journal of the demo's service and say what it does not understand.
    Check(cli::CheckArguments),
    /// Write the contract of the demo's service as JSON Schemas, or compare two.
    Schema(cli::SchemaArguments),
    /// Look at a journal, check it, copy it, move it.
    Journal(cli::JournalArguments),
    /// Check, format and try out rulesets in KRL.
    Krl(krl::KrlArguments),
    /// Show the read models, or have one rebuilt.
    Projection(cli::ProjectionArguments),
    /// Show and manage the nodes that share a journal.
    #[cfg(feature = "postgres")]
    Cluster(cli::ClusterCommands),
    /// Make a token for a caller of a service.
    Token(cli::TokenArguments),
    /// Ask a running service whether it is ready.
    Health(cli::HealthArguments),
    /// Show a service's work now: the console's numbers, in a terminal.
    Top(top::TopArguments),
    /// Show the causes and effects of an entity's last turns; or generate a registration day.
    Trace(Box<trace::DemoTraceArguments>),
}

/// Runs the command. An error is printed on standard error, in one sentence.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Client(arguments) => generate::run(&arguments),
        Command::Serve(arguments) => arguments.run(registration::app()),
        Command::Load(arguments) => return throng_load::cli::run(*arguments),
        Command::Check(arguments) => arguments.run(registration::app()),
        Command::Schema(arguments) => arguments.run(registration::app()),
        Command::Journal(arguments) => arguments.run(|| Ok(registration::app())),
        Command::Krl(arguments) => krl::run(&arguments),
        Command::Projection(arguments) => arguments.run(None),
        Command::Trace(arguments) => trace::run(&arguments),
        #[cfg(feature = "postgres")]
        Command::Cluster(arguments) => arguments.run("throng"),
        Command::Token(arguments) => arguments.run(),
        Command::Health(arguments) => arguments.run(),
        Command::Top(arguments) => arguments.run(),
    };
    cli::exit_code("throng", done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
