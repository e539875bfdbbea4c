//! The binary `throng`: the demo, the apps as services, the load lab, the benchmarks, the journal's tools.
//!
//! Everything stands in this library, so that it can be tested and called; `main` only parses and runs.
//!
//! Exit codes: 0 done, 1 it did not work or a check found a difference, 2 the arguments make no sense, 3 another
//! engine has taken over (`serve --when-taken-over exit`), 130 ended twice by hand.

mod apps;
mod bench;
mod client;
mod demo;
mod journal;
mod logging;
mod percent;
mod place;
mod progress;
mod projection;
mod serve;
mod service;
mod signals;
mod trace;
mod units;
mod yardstick;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    /// Run an app as a service, until it is told to end.
    Serve(serve::ServeArguments),
    /// Load any HTTP service and report what it bears.
    Load(Box<throng_load::cli::LoadArgs>),
    /// Measure the engine against what the machine can do.
    Bench(bench::BenchArguments),
    /// Look at a data directory, check it, copy it.
    Journal(journal::JournalArguments),
    /// Look at the read models, have one rebuilt.
    Projection(projection::ProjectionArguments),
    /// Traces of a registration day.
    Trace(trace::TraceArguments),
    /// What the benchmarks start as processes of their own.
    #[command(hide = true, subcommand)]
    Yardstick(yardstick::Yardstick),
}

/// Runs the command. What goes wrong is said on standard error, in one sentence.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Load(arguments) => return throng_load::cli::run(*arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Projection(arguments) => projection::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Yardstick(yardstick) => yardstick.run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("throng: {}", sentence(&error));
        ExitCode::FAILURE
    })
}

/// What went wrong and why, each cause once: some errors say their cause themselves.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn every_cause_is_said_once() {
        let inner = std::io::Error::other("no such file");
        let error = Err::<(), _>(inner)
            .context("cannot read x: no such file; check it")
            .context("no demo");
        assert_eq!(
            sentence(&error.unwrap_err()),
            "no demo: cannot read x: no such file; check it"
        );
    }
}
