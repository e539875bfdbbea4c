//! `throng journal`: look at a data directory, check it, copy it.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::{
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};
use throng::journal::{Address, CommitNo, Position, WriterId};
use throng_log::{
    Options,
    tools::{self, ExportOptions, InspectOptions},
};

/// What to do with a data directory.
#[derive(Debug, Args)]
pub(crate) struct JournalArguments {
    #[command(subcommand)]
    command: JournalCommand,
    /// Print the result as one JSON object.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// Show what a data directory holds; also beside a running service.
    Inspect(InspectArguments),
    /// Check every commit, and that nothing is missing; also beside a running service. Exit code 1 if something is damaged.
    Verify(Directory),
    /// Write the whole history as JSON lines, one a record; also beside a running service.
    Export(ExportArguments),
    /// Read an export into a directory that holds no journal yet.
    Import(ImportArguments),
    /// Copy the journal and the store of a directory nobody uses, and check the copy.
    Backup(BackupArguments),
    /// Give back room the store and the log do not need; no history is dropped.
    Compact(Directory),
}

#[derive(Debug, Args)]
struct Directory {
    /// The data directory.
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

#[derive(Debug, Args)]
struct InspectArguments {
    #[command(flatten)]
    directory: Directory,
    /// Show the records of this entity, as `section/C S 142-1`.
    #[arg(long, value_name = "KIND/ID", value_parser = address)]
    entity: Option<Address>,
    /// Show the records of this commit, as `3.1071`.
    #[arg(long, value_name = "WRITER.NUMBER", value_parser = position)]
    commit: Option<Position>,
    /// Records shown at most.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ExportArguments {
    #[command(flatten)]
    directory: Directory,
    /// Where the lines go [default: standard output].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out what is damaged and go on.
    #[arg(long)]
    skip_damage: bool,
}

#[derive(Debug, Args)]
struct ImportArguments {
    #[command(flatten)]
    directory: Directory,
    /// Where the lines come from [default: standard input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct BackupArguments {
    #[command(flatten)]
    directory: Directory,
    /// Where the copy goes.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

fn address(text: &str) -> Result<Address, String> {
    match text.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => Ok(Address::new(kind, id)),
        _ => Err("write an entity as `section/C S 142-1`: its kind, a slash, its id".into()),
    }
}

fn position(text: &str) -> Result<Position, String> {
    let parts = text
        .split_once('.')
        .and_then(|(writer, commit)| Some((writer.parse().ok()?, commit.parse().ok()?)));
    let (writer, commit) = parts.ok_or("write a commit as `3.1071`: writer, point, number")?;
    Ok(Position {
        writer: WriterId(writer),
        commit: CommitNo(commit),
    })
}

/// Runs the command.
pub(crate) fn run(arguments: &JournalArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("warn");
    let options = Options::default();
    let json = arguments.json;
    match &arguments.command {
        JournalCommand::Inspect(InspectArguments {
            directory,
            entity,
            commit,
            limit,
        }) => {
            let what = InspectOptions {
                entity: entity.clone(),
                commit: *commit,
                records_max: *limit,
            };
            print(&tools::inspect(&options, &directory.data, &what)?, json)
        }
        JournalCommand::Verify(directory) => {
            let found = tools::verify(&options, &directory.data)?;
            print(&found, json)?;
            Ok(if found.is_sound() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        JournalCommand::Export(arguments) => export(&options, arguments, json),
        JournalCommand::Import(ImportArguments { directory, input }) => {
            let mut lines: Box<dyn BufRead> = match input {
                None => Box::new(io::stdin().lock()),
                Some(path) => Box::new(BufReader::new(opened(path, File::open(path), "read")?)),
            };
            print(&tools::import(&options, &directory.data, &mut *lines)?, json)
        }
        JournalCommand::Backup(BackupArguments { directory, target }) => {
            let copy = tools::backup(&options, &directory.data, target)?;
            print(&copy, json)?;
            Ok(if copy.verification.is_sound() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        JournalCommand::Compact(directory) => print(&tools::compact(&options, &directory.data)?, json),
    }
}

fn export(options: &Options, arguments: &ExportArguments, json: bool) -> anyhow::Result<ExitCode> {
    let how = ExportOptions {
        skip_damage: arguments.skip_damage,
    };
    let data = &arguments.directory.data;
    match &arguments.output {
        None => {
            let exported = tools::export(options, data, &mut BufWriter::new(io::stdout().lock()), how)?;
            eprintln!("{exported}");
            Ok(ExitCode::SUCCESS)
        }
        Some(path) => {
            let mut out = BufWriter::new(opened(path, File::create(path), "write")?);
            let exported = tools::export(options, data, &mut out, how)?;
            out.flush()
                .with_context(|| format!("cannot write {}", path.display()))?;
            print(&exported, json)
        }
    }
}

fn opened(path: &Path, file: io::Result<File>, verb: &str) -> anyhow::Result<File> {
    file.with_context(|| format!("cannot {verb} {}", path.display()))
}

fn print<T: Display + Serialize>(result: &T, json: bool) -> anyhow::Result<ExitCode> {
    let text = if json {
        serde_json::to_string(result).context("cannot write the result as JSON")?
    } else {
        result.to_string()
    };
    // A reader that went away (`| head`) is no error of ours.
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_and_commits_are_written_as_they_are_shown() {
        assert_eq!(address("section/C S 142-1").unwrap().to_string(), "section/C S 142-1");
        assert_eq!(address("a/b/c").unwrap(), Address::new("a", "b/c"));
        assert_eq!(position("3.1071").unwrap().to_string(), "3.1071");
        for text in ["", "section", "/id", "section/"] {
            assert!(address(text).is_err(), "{text}");
        }
        for text in ["", "3", "3.x", ".1"] {
            assert!(position(text).is_err(), "{text}");
        }
    }
}
