//! The command `schema`: the contract of a service as JSON Schemas, and the comparison of two contracts.

mod accept;
mod diff;

use crate::{App, place::Opened};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use diff::{Change, Level, changes};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};
use throng::Options;

/// The version of the document's format.
const FORMAT: u64 = 1;
/// The exit code if no comparison was possible.
const ERROR: u8 = 2;

/// The arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArguments {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, Subcommand)]
enum SchemaCommand {
    /// Write the JSON Schemas of all commands, events, replies, rejections and queries.
    Export(ExportArguments),
    /// Compare two exports. Exit code 0: compatible, 1: breaking, 2: they could not be compared.
    Diff(DiffArguments),
}

#[derive(Debug, Args)]
struct ExportArguments {
    /// The file to write; standard output unless said.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct DiffArguments {
    /// The export of the program that is in use.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The export of the program that is to come; this program unless said.
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Take cautions for breaking: the older program could not be rolled back to, or older readers could meet what they do not know.
    #[arg(long)]
    strict: bool,
    /// Accept the breaking changes at this place of the contract and below, such as account/commands/close. May be given several times.
    #[arg(long, value_name = "PATH")]
    allow: Vec<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

impl SchemaArguments {
    /// Exports the contract of this app, or compares two contracts.
    ///
    /// # Errors
    /// The contract cannot be built or written. A failed comparison is no error: it has the exit code 2.
    pub fn run(&self, app: App) -> anyhow::Result<ExitCode> {
        match &self.command {
            SchemaCommand::Export(arguments) => arguments.run(app),
            SchemaCommand::Diff(arguments) => Ok(arguments.run(app).unwrap_or_else(|error| {
                eprintln!("schema diff: {error:#}");
                ERROR.into()
            })),
        }
    }
}

impl ExportArguments {
    fn run(&self, app: App) -> anyhow::Result<ExitCode> {
        let mut text = serde_json::to_string_pretty(&export(app)?).context("cannot write the contract as JSON")?;
        text.push('\n');
        match &self.output {
            None => print!("{text}"),
            Some(file) => fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the contract of an app. Its engine is started in memory, without timers and messages, because actors describe themselves only to
/// a running one.
fn export(app: App) -> anyhow::Result<Value> {
    let (name, version) = (app.name(), app.version_text());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let Opened {
        journal, store, views, ..
    } = Opened::in_memory();
    let options = Options {
        quiet: true,
        ..Options::default()
    };
    let builder = app.into_builder().options(options).views(views);
    let engine = runtime.block_on(builder.start_shared(journal, store))?;
    let mut contract = throng_http::contract(engine.registry(), engine.actor_kinds());
    runtime.block_on(engine.stop());
    // Leaves out the engine's own kinds, which no client sees.
    if let Some(kinds) = contract["kinds"].as_object_mut() {
        kinds.remove(<throng_http::Audit as throng::model::Entity>::KIND);
    }
    contract["throng_schema"] = FORMAT.into();
    contract["service"] = json!({ "name": name, "version": version });
    Ok(contract)
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let contract: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    match contract["throng_schema"].as_u64() {
        Some(FORMAT) => Ok(contract),
        Some(other) => bail!(
            "{} has the format {other}, and this program reads {FORMAT}: export it again",
            file.display()
        ),
        None => bail!("{} is no export: write one with `schema export`", file.display()),
    }
}

impl DiffArguments {
    fn run(&self, app: App) -> anyhow::Result<ExitCode> {
        let old = read(&self.old)?;
        let new = match &self.new {
            Some(file) => read(file)?,
            None => export(app)?,
        };
        let found = changes(&old, &new);
        let is_below = |change: &Change, place: &String| {
            change
                .path
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_breaking =
            |change: &Change| change.level == Level::Breaking || self.strict && change.level == Level::Caution;
        // An exception that no longer matches would hide the next change at its place.
        for place in &self.allow {
            let is_used = found
                .iter()
                .any(|change| is_breaking(change) && is_below(change, place));
            ensure!(is_used, "--allow {place} names no breaking change: leave it out");
        }
        let is_allowed = |change: &Change| self.allow.iter().any(|place| is_below(change, place));
        let is_compatible = !found.iter().any(|change| is_breaking(change) && !is_allowed(change));
        match self.json {
            true => println!("{}", json!({ "compatible": is_compatible, "changes": found })),
            false => {
                for change in &found {
                    let allowed = if is_breaking(change) && is_allowed(change) {
                        " (allowed)"
                    } else {
                        ""
                    };
                    println!("{change}{allowed}");
                }
                println!("{}", if is_compatible { "compatible" } else { "breaking" });
            }
        }
        Ok(match is_compatible {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

#[cfg(test)]
mod tests;
