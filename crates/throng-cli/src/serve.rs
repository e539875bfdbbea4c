//! `throng serve`: one of the project's apps as a service.

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
