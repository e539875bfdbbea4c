//! The command `projection`: lists the read models, or has one rebuilt.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::{process::ExitCode, sync::Arc};
use throng::{
    journal::{ViewOffset, Views},
    projection::begin_anew,
};

use crate::place::LocationArguments;

/// The arguments of `projection`.
#[derive(Debug, Args)]
pub struct ProjectionArguments {
    #[command(subcommand)]
    command: ProjectionCommand,
}

#[derive(Debug, Subcommand)]
enum ProjectionCommand {
    /// Show the read models and sinks, and the commit each has come to.
    List(LocationArguments),
    /// Clear a read model. The next start rebuilds it from the first event; on PostgreSQL a running service does so within ten seconds.
    Rebuild(RebuildArguments),
}

#[derive(Debug, Args)]
struct RebuildArguments {
    /// Its name, for example available-shows.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: LocationArguments,
}

impl ProjectionArguments {
    /// Runs the command, on the read models of this app unless another place is named.
    ///
    /// # Errors
    /// The read models cannot be opened, there is no such read model, or the command failed.
    pub fn run(&self, app: Option<&str>) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        runtime.block_on(self.command.run(app))
    }
}

impl ProjectionCommand {
    async fn run(&self, app: Option<&str>) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(place) => {
                let views = open(place, app, true)?;
                for name in views.names().await? {
                    if let Some(ViewOffset { position, version, .. }) = views.offset(&name).await? {
                        println!("{name}: up to commit {position}, written by version {version}");
                    }
                }
            }
            Self::Rebuild(RebuildArguments { name, place }) => {
                let views = open(place, app, false)?;
                let Some(position) = begin_anew(&*views, name).await? else {
                    let names = views.names().await?;
                    bail!(
                        "there is no read model {name:?} that was written; there are: {}",
                        names.join(", ")
                    );
                };
                println!(
                    "{name} had come to commit {position}, and is rebuilt from the first event; what a sink has delivered is cleared before, by the service"
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn open(place: &LocationArguments, app: Option<&str>, is_to_read: bool) -> anyhow::Result<Arc<dyn Views>> {
    if app.is_none() && !place.is_given() {
        bail!("say where the read models stand: --journal PLACE, or --data DIR");
    }
    place.place(app.unwrap_or_default())?.open_views(is_to_read)
}
