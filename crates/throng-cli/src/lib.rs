//! The binary `throng`: the demo, the apps as services, the load lab, the benchmarks, the journal's tools.
//!
//! Everything stands in this library, so that it can be tested and called; `main` only parses and runs.
//!
//! Exit codes: 0 done, 1 it did not work or a check found a difference, 2 the arguments make no sense, 3 another
//! engine has taken over (`serve --when-taken-over exit`), 130 ended twice by hand.

mod apps;
#[cfg(feature = "bench")]
mod bench;
mod client;
mod cpu;
mod demo;
mod krl;
mod new;
mod percent;
mod pico_requests;
mod progress;
mod serve;
mod top;
mod trace;
mod units;
#[cfg(feature = "bench")]
mod yardstick;

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
    /// Run one of the project's apps as a service, until it is told to end.
    Serve(Box<serve::ServeAppArguments>),
    /// Load any HTTP service and report what it bears.
    Load(Box<throng_load::cli::LoadArgs>),
    /// Measure the engine against what the machine can do.
    #[cfg(feature = "bench")]
    Bench(bench::BenchArguments),
    /// Read a whole journal with one of the project's apps and say what it does not understand.
    Check(serve::CheckAppArguments),
    /// Look at a journal, check it, copy it, move it.
    Journal(serve::JournalAppArguments),
    /// Check, format and try out rulesets in KRL.
    Krl(krl::KrlArguments),
    /// Look at the read models, have one rebuilt.
    Projection(cli::ProjectionArguments),
    /// Look at the nodes that share a journal, have one give away what it owns.
    #[cfg(feature = "postgres")]
    Cluster(cli::ClusterCommands),
    /// Make a token for a caller of a service.
    Token(cli::TokenArguments),
    /// See what a service does now: the console's numbers, in a terminal.
    Top(top::TopArguments),
    /// Traces of a registration day.
    Trace(trace::TraceArguments),
    #[cfg(feature = "bench")]
    /// What the benchmarks start as processes of their own.
    #[command(hide = true, subcommand)]
    Yardstick(yardstick::Yardstick),
}

/// Runs the command. What goes wrong is said on standard error, in one sentence.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Load(arguments) => return throng_load::cli::run(*arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Check(arguments) => arguments.run(),
        Command::Journal(arguments) => arguments.run(),
        Command::Krl(arguments) => krl::run(&arguments),
        Command::Projection(arguments) => arguments.run(None),
        Command::Trace(arguments) => trace::run(&arguments),
        #[cfg(feature = "postgres")]
        Command::Cluster(arguments) => arguments.run("throng"),
        Command::Token(arguments) => arguments.run(),
        Command::Top(arguments) => arguments.run(),
        #[cfg(feature = "bench")]
        Command::Yardstick(yardstick) => yardstick.run(),
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
