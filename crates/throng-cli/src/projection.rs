//! `throng projection`: look at the read models, have one rebuilt.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use throng::journal::{ViewOffset, Views};

use crate::place::PlaceArguments;

/// What to do with the read models.
#[derive(Debug, Args)]
pub(crate) struct ProjectionArguments {
    #[command(subcommand)]
    command: ProjectionCommand,
}

#[derive(Debug, Subcommand)]
enum ProjectionCommand {
    /// Show the read models and sinks, and the commit each has come to.
    List(PlaceArguments),
    /// Clear a read model: it is rebuilt from the first event, by the next start; on PostgreSQL also by a service that runs,
    /// within ten seconds.
    Rebuild(RebuildArguments),
}

#[derive(Debug, Args)]
struct RebuildArguments {
    /// Its name, for example available-shows.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &ProjectionArguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    match &arguments.command {
        ProjectionCommand::List(place) => {
            let views = open(place)?;
            for name in runtime.block_on(views.names())? {
                if let Some(ViewOffset { position, version, .. }) = runtime.block_on(views.offset(&name))? {
                    println!("{name}: up to commit {position}, written by version {version}");
                }
            }
        }
        ProjectionCommand::Rebuild(RebuildArguments { name, place }) => {
            let views = open(place)?;
            let Some(ViewOffset { position, .. }) = runtime.block_on(views.offset(name))? else {
                let names = runtime.block_on(views.names())?;
                bail!(
                    "there is no read model {name:?} that was written; there are: {}",
                    names.join(", ")
                );
            };
            runtime.block_on(views.clear(name))?;
            println!("{name} is empty; it had come to commit {position}, and is rebuilt from the first event");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open(place: &PlaceArguments) -> anyhow::Result<std::sync::Arc<dyn Views>> {
    if !place.is_given() {
        bail!("say where the read models stand: --journal PLACE, or --data DIR");
    }
    place.place("")?.open_views()
}
