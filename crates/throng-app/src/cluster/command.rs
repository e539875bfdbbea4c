//! The command `cluster`: it looks at running nodes, and records what they shall do.

use super::{ANY, not_shared, shown::Shown};
use crate::place::{JournalLocation, LocationArguments};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::{collections::BTreeMap, process::ExitCode};
use throng::journal::{Directory, Floor, ShardSet, View};
use throng_postgres::PostgresDirectory;

/// The arguments of `cluster`.
#[derive(Debug, Args)]
pub struct ClusterCommands {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Show the nodes, what they are at, and how many shards each owns.
    Status(LookArguments),
    /// Show which shards each node owns, and which are pinned to one.
    Shards(LookArguments),
    /// Pin shards to a node: it owns them while it serves. While it does not, others own them.
    Move(MoveArguments),
    /// Have a node give away all its shards. It still takes requests, which others execute.
    Drain(NodeArguments),
    /// Let a node own shards again.
    Undrain(NodeArguments),
    /// After a rolling upgrade: refuse nodes whose program or release (`--app-number`) is older than those of all running nodes.
    Finalize(FinalizeArguments),
}

#[derive(Debug, Args)]
struct LookArguments {
    #[command(flatten)]
    place: LocationArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NodeArguments {
    /// The name of the node.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: LocationArguments,
}

#[derive(Debug, Args)]
struct MoveArguments {
    /// The shards as `cluster shards` shows them: numbers and ranges, 0-9,17.
    #[arg(value_name = "SHARDS")]
    shards: ShardSet,
    /// The name of the node; `any` ends the pinning.
    #[arg(long, value_name = "NAME")]
    to: String,
    #[command(flatten)]
    place: LocationArguments,
}

#[derive(Debug, Args)]
struct FinalizeArguments {
    #[command(flatten)]
    place: LocationArguments,
}

impl ClusterCommands {
    /// Runs the command, on the journal of this app unless another location is named.
    ///
    /// # Errors
    /// The journal is not one that nodes share, or cannot be reached; or no node has that name.
    pub fn run(&self, app: &str) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        runtime.block_on(self.command.run(app))
    }
}

impl ClusterCommand {
    async fn run(&self, app: &str) -> anyhow::Result<ExitCode> {
        match self {
            Self::Status(look) => {
                let view = look.view(app).await?;
                let shown = Shown::of(&view);
                if look.json {
                    println!("{}", serde_json::to_string_pretty(&shown)?);
                    return Ok(ExitCode::SUCCESS);
                }
                println!(
                    "node  name                state       shards  features  app  http                        peer"
                );
                for node in &shown.nodes {
                    let state = node.state_or_doubt();
                    println!(
                        "{:<6}{:<20}{state:<10}{:>8}{:>10}{:>5}  {:<28}{}",
                        node.node, node.name, node.owns, node.features, node.app, node.http, node.peer
                    );
                }
                for node in &shown.nodes {
                    if let Some(why) = &node.apart {
                        println!("{} owns nothing until others reach it: {why}", node.name);
                    }
                }
                if !shown.unowned.is_empty() {
                    println!("nobody owns the shards {}", shown.unowned);
                }
                let Floor { features, app } = view.floor;
                if view.floor != Floor::default() {
                    println!(
                        "finalized: no node joins that knows features below {features}, or is of a release below {app}"
                    );
                }
            }
            Self::Shards(look) => {
                let view = look.view(app).await?;
                let shown = Shown::of(&view);
                if look.json {
                    let own = |node: &'_ throng::journal::Node| (node.said.name.clone(), view.shards_of(Some(node.id)));
                    let mut owned: BTreeMap<String, ShardSet> = BTreeMap::new();
                    // A dead node may still own some while its successor of the same name serves.
                    for (name, shards) in view.nodes.iter().map(own) {
                        let before = owned.entry(name).or_default();
                        *before = before.union(&shards);
                    }
                    let owned: BTreeMap<String, String> = owned
                        .into_iter()
                        .map(|(name, shards)| (name, shards.to_string()))
                        .collect();
                    let of = serde_json::json!({ "owned": owned, "unowned": shown.unowned, "pinned": shown.pinned });
                    println!("{}", serde_json::to_string_pretty(&of)?);
                    return Ok(ExitCode::SUCCESS);
                }
                for node in &shown.nodes {
                    println!("{}: {}", node.name, node.shards);
                }
                if !shown.unowned.is_empty() {
                    println!("nobody: {}", shown.unowned);
                }
                for (name, shards) in &shown.pinned {
                    println!("pinned to {name}: {shards}");
                }
            }
            Self::Move(moved) => moved.pin(app).await?,
            Self::Drain(node) => node.ask(app, true).await?,
            Self::Undrain(node) => node.ask(app, false).await?,
            Self::Finalize(arguments) => arguments.finalize(app).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl LookArguments {
    async fn view(&self, app: &str) -> anyhow::Result<View> {
        Ok(directory(&self.place, app)?.view().await?)
    }
}

impl NodeArguments {
    async fn ask(&self, app: &str, drain: bool) -> anyhow::Result<()> {
        let directory = directory(&self.place, app)?;
        if !directory.ask_drain(&self.name, drain).await? {
            bail!(
                "there is no node {:?} that lives; `cluster status` shows those that do",
                self.name
            );
        }
        match drain {
            true => {
                println!("{} gives away its shards", self.name);
                let view = directory.view().await?;
                if !view.nodes.iter().any(|node| node.serves() && !node.wants_drain) {
                    println!("no other node serves: the last one keeps them until one does");
                }
            }
            false => println!("{} may own shards again", self.name),
        }
        Ok(())
    }
}

impl MoveArguments {
    async fn pin(&self, app: &str) -> anyhow::Result<()> {
        let Self { shards, to, place } = self;
        let name = (to != ANY).then_some(&**to);
        directory(place, app)?.pin(shards, name).await?;
        match name {
            Some(name) => println!("the shards {shards} are pinned to {name}: whoever owns them gives them to it"),
            None => println!("the shards {shards} are pinned to no node, and are balanced as all others"),
        }
        Ok(())
    }
}

impl FinalizeArguments {
    async fn finalize(&self, app: &str) -> anyhow::Result<()> {
        let (before, after) = directory(&self.place, app)?.finalize().await?;
        let raised = |what: &str, before: u64, after: u64| match before == after {
            true => println!("{what} stays at {after}"),
            false => println!("{what} is raised from {before} to {after}: no node with less joins any more"),
        };
        raised("the floor of features", before.features.into(), after.features.into());
        raised("the floor of releases (--app-number)", before.app, after.app);
        Ok(())
    }
}

/// Opens the directory of a cluster's nodes without migrating it: a look must not change the tables under running nodes.
fn directory(place: &LocationArguments, app: &str) -> anyhow::Result<PostgresDirectory> {
    match place.place(app)? {
        JournalLocation::Postgres(options) => Ok(PostgresDirectory::look(*options)?),
        other => Err(not_shared(&other)),
    }
}
