//! `throng serve`, `throng check` and `throng journal`: one of the project's apps as a service, and against a journal.

use clap::Args;
use std::process::ExitCode;
use throng_app::cli;

use crate::apps::{self, Served};

/// How to run an app.
#[derive(Debug, Args)]
pub(crate) struct ServeAppArguments {
    #[arg(long, value_name = "NAME", default_value = "registration", value_parser = apps::find, help = format!("The app: {}.", apps::names()))]
    app: Served,
    #[command(flatten)]
    serve: cli::ServeArguments,
}

/// Serves until SIGTERM or SIGINT, then finishes what is in flight.
pub(crate) fn run(arguments: &ServeAppArguments) -> anyhow::Result<ExitCode> {
    arguments.serve.run((arguments.app.app)())
}

/// What to check, with which app.
#[derive(Debug, Args)]
pub(crate) struct CheckAppArguments {
    #[arg(long, value_name = "NAME", default_value = "registration", value_parser = apps::find, help = format!("The app: {}.", apps::names()))]
    app: Served,
    #[command(flatten)]
    check: cli::CheckArguments,
}

impl CheckAppArguments {
    /// Says what the app does not understand.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        self.check.run((self.app.app)())
    }
}

/// What to do with a journal, and with which app where that matters.
#[derive(Debug, Args)]
pub(crate) struct JournalAppArguments {
    #[arg(long, global = true, value_name = "NAME", value_parser = apps::find, help = format!("The app whose history prune and erase remove: {}.", apps::names()))]
    app: Option<Served>,
    #[command(flatten)]
    journal: cli::JournalArguments,
}

impl JournalAppArguments {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        self.journal.run(|| match self.app {
            Some(app) => Ok((app.app)()),
            None => anyhow::bail!("say whose journal it is: --app NAME, one of {}", apps::names()),
        })
    }
}
