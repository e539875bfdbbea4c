//! The commands of a service's program, for programs that have other commands, too.

#[cfg(feature = "postgres")]
pub use crate::cluster::ClusterCommands;
pub use crate::{
    check::CheckArguments,
    exit::exit_code,
    health::HealthArguments,
    journal::JournalArguments,
    logging::{is_colourless, start as start_logging},
    place::LocationArguments,
    projection::ProjectionArguments,
    schema::SchemaArguments,
    serve::ServeArguments,
    service::close_journal,
    token::TokenArguments,
    trace::TraceArguments,
};

use crate::App;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::{ffi::OsString, process::ExitCode, thread};

/// A service, and the tools for what it keeps.
#[derive(Debug, Parser)]
#[command(propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service, until it is told to end.
    Serve(Box<ServeArguments>),
    /// Look at a journal, check it, copy it, move it.
    Journal(JournalArguments),
    /// Show the read models, or have one rebuilt.
    Projection(ProjectionArguments),
    /// Show and manage the nodes that share a journal.
    #[cfg(feature = "postgres")]
    Cluster(ClusterCommands),
    /// Make a token for a caller of the service.
    Token(TokenArguments),
    /// Ask a running service whether it is ready.
    Health(HealthArguments),
    /// Read the whole journal with this program and say what it does not understand, before a roll-out; also beside a running service.
    Check(CheckArguments),
    /// Write the contract of the service as JSON Schemas, or compare two: do clients and recorded events still fit?
    Schema(SchemaArguments),
    /// Show what led to the last turns of an entity, and what came of them; also beside a running service.
    Trace(TraceArguments),
    /// Load the service as a plan says, on a fresh journal, and report what it bears.
    #[cfg(feature = "bench")]
    Bench(crate::bench::BenchArguments),
}

/// The tools that take a journal's place, and the name of that argument: the service's own place unless said otherwise.
const PLACES: &[(&str, &str)] = &[
    ("inspect", "place"),
    ("verify", "place"),
    ("export", "place"),
    ("prune", "place"),
    ("compact", "data"),
];

/// Returns the commands and arguments of this app's program.
fn command(app: &App) -> clap::Command {
    // Leaked once a process: clap wants a static text.
    let place: &'static str = app.default_place().display().to_string().leak();
    let with_place = |journal: clap::Command| {
        PLACES.iter().fold(journal, |journal, (tool, argument)| {
            journal.mut_subcommand(*tool, |tool| {
                tool.mut_arg(*argument, |argument| argument.required(false).default_value(place))
            })
        })
    };
    Arguments::command()
        .name(app.name())
        .version(app.version_text())
        .mut_subcommand("journal", with_place)
        .subcommands(app.tools().iter().map(|(tool, _)| tool.clone()))
}

impl App {
    /// Runs the command that the process's arguments name, and returns its exit code. It may be called anywhere, also in an async `main`.
    #[must_use]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
    }

    /// Runs the command that these arguments name; the first is the program's own name.
    #[must_use]
    pub fn run_with(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        // Runs on a separate thread: a runtime cannot be entered on a thread that already runs another one.
        let main = thread::Builder::new().name("throng-main".into());
        match main.spawn(|| run(self, arguments)).map(thread::JoinHandle::join) {
            Ok(Ok(code)) => code,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => {
                eprintln!("cannot start a thread: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs the command that these arguments name; the first is the program's own name.
fn run(app: App, arguments: Vec<OsString>) -> ExitCode {
    let matches = command(&app).get_matches_from(arguments);
    let (name, asked) = (app.name(), matches.subcommand());
    let tool = |(asked, arguments)| {
        let (_, run) = app.tools().iter().find(|(tool, _)| tool.get_name() == asked)?;
        start_logging("info");
        Some(exit_code(name, run(arguments)))
    };
    if let Some(code) = asked.and_then(tool) {
        return code;
    }
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let done = match arguments.command {
        Command::Serve(arguments) => arguments.run(app),
        Command::Journal(arguments) => arguments.run(|| Ok(app)),
        Command::Projection(arguments) => arguments.run(Some(name)),
        #[cfg(feature = "postgres")]
        Command::Cluster(arguments) => arguments.run(name),
        Command::Token(arguments) => arguments.run(),
        Command::Health(arguments) => arguments.run(),
        Command::Check(arguments) => arguments.run(app),
        Command::Schema(arguments) => arguments.run(app),
        Command::Trace(arguments) => arguments.run(&app),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => arguments.run(name),
    };
    exit_code(name, done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_arguments_are_consistent() {
        command(&App::new("wallet")).debug_assert();
    }

    #[test]
    fn journal_to_copy_comes_before_its_backup() {
        let arguments = ["wallet", "journal", "backup", "data", "copy"];
        let matches = command(&App::new("wallet")).try_get_matches_from(arguments).unwrap();
        let (_, journal) = matches.subcommand().unwrap();
        let (_, backup) = journal.subcommand().unwrap();
        assert_eq!(backup.get_one::<String>("data").unwrap(), "data");
        assert_eq!(backup.get_one::<PathBuf>("target").unwrap(), Path::new("copy"));
        let short = ["wallet", "journal", "backup", "copy"];
        assert!(command(&App::new("wallet")).try_get_matches_from(short).is_err());
    }
}
