//! `throng journal`: look at a journal, check it, copy it, move it.

use crate::place::Place;
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::{
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};
use throng::journal::{Address, Commit, Error, Position, WriterId, commit::Buffer};
use throng_log::{
    Options,
    tools::{self, ExportLines, ExportOptions, Exported, ImportOptions, ImportTarget, Imported, InspectOptions},
};
use throng_postgres::{
    PostgresOptions,
    tools::{self as postgres, Import, Seen},
};

/// What to do with a journal.
#[derive(Debug, Args)]
pub struct JournalArguments {
    #[command(subcommand)]
    command: JournalCommand,
    /// Print the result as one JSON object.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// Show what a journal holds; also beside a running service.
    Inspect(InspectArguments),
    /// Check every commit, and that nothing is missing; also beside a running service. Exit code 1 if something is damaged.
    Verify(Here),
    /// Write the whole history as JSON lines, one a record; also beside a running service.
    Export(ExportArguments),
    /// Take a whole history in, from an export or straight from another journal, where there is no journal yet.
    Import(ImportArguments),
    /// Copy the journal and the store of a directory nobody uses, and check the copy.
    Backup(BackupArguments),
    /// Give back room the store and the log do not need; no history is dropped.
    Compact(Directory),
}

/// A journal that is there, or is to be.
#[derive(Clone, Debug)]
enum Source {
    Directory(PathBuf),
    Postgres(Box<PostgresOptions>),
}

/// Not read by the parser of the arguments: that would show what it cannot read, with the password in it.
fn source(text: &str) -> anyhow::Result<Source> {
    match text.parse::<Place>().map_err(anyhow::Error::msg)? {
        Place::Directory(directory) => Ok(Source::Directory(directory)),
        Place::Postgres(options) => Ok(Source::Postgres(options)),
        Place::Memory => bail!("what is in memory is gone: name a directory or a database"),
    }
}

#[derive(Debug, Args)]
struct Here {
    /// The journal: a data directory, or postgres://….
    #[arg(value_name = "PLACE")]
    place: String,
}

#[derive(Debug, Args)]
struct Directory {
    /// The data directory.
    #[arg(value_name = "DIR")]
    data: String,
}

impl Directory {
    fn path(&self) -> anyhow::Result<PathBuf> {
        match source(&self.data)? {
            Source::Directory(directory) => Ok(directory),
            Source::Postgres(_) => {
                bail!("this is for data directories; PostgreSQL has tools of its own for it, see docs/postgresql.md")
            }
        }
    }
}

#[derive(Debug, Args)]
struct InspectArguments {
    #[command(flatten)]
    here: Here,
    /// Show the records of this entity, as `section/C S 142-1`.
    #[arg(long, value_name = "KIND/ID", value_parser = address)]
    entity: Option<Address>,
    /// Show the records of this commit, as `3.1071`.
    #[arg(long, value_name = "WRITER.NUMBER")]
    commit: Option<Position>,
    /// Records shown at most.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ExportArguments {
    #[command(flatten)]
    here: Here,
    /// Where the lines go [default: standard output].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out what is damaged and go on.
    #[arg(long)]
    skip_damage: bool,
}

#[derive(Debug, Args)]
struct ImportArguments {
    /// Where it goes: a data directory, or postgres://….
    #[arg(value_name = "PLACE", required_unless_present = "to", conflicts_with = "to")]
    place: Option<String>,
    /// Where it goes, named.
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Take it straight from this journal. Refused while a service uses it: its end would be missing.
    #[arg(long, value_name = "PLACE", conflicts_with = "input")]
    from: Option<String>,
    /// The file of an export [default: standard input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Take an export also without its sums and its end: of an older program, or changed by intent.
    #[arg(long, conflicts_with = "from")]
    unchecked: bool,
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

fn run(arguments: &JournalArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("warn");
    let options = Options::default();
    let json = arguments.json;
    match &arguments.command {
        JournalCommand::Inspect(arguments) => inspect(arguments, json),
        JournalCommand::Verify(here) => {
            let found = match &source(&here.place)? {
                Source::Directory(data) => tools::verify(&options, data)?,
                Source::Postgres(options) => postgres::verify(options)?,
            };
            print(&found, json)?;
            Ok(sound(found.is_sound()))
        }
        JournalCommand::Export(arguments) => export(arguments, json),
        JournalCommand::Import(arguments) => import(arguments, json),
        JournalCommand::Backup(BackupArguments { directory, target }) => {
            let copy = tools::backup(&options, &directory.path()?, target)?;
            print(&copy, json)?;
            Ok(sound(copy.verification.is_sound()))
        }
        JournalCommand::Compact(directory) => print(&tools::compact(&options, &directory.path()?)?, json),
    }
}

impl JournalArguments {
    /// Runs the command.
    ///
    /// # Errors
    /// It did not work.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        run(self)
    }
}

fn sound(is_sound: bool) -> ExitCode {
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn inspect(arguments: &InspectArguments, json: bool) -> anyhow::Result<ExitCode> {
    let InspectArguments {
        here,
        entity,
        commit,
        limit,
    } = arguments;
    let what = InspectOptions {
        entity: entity.clone(),
        commit: *commit,
        records_max: *limit,
    };
    match &source(&here.place)? {
        Source::Directory(data) => print(&tools::inspect(&Options::default(), data, &what)?, json),
        Source::Postgres(options) => print(&postgres::inspect(options, &what)?, json),
    }
}

/// Writes a journal's history as lines.
fn write_lines(from: &Source, out: &mut dyn Write, how: ExportOptions) -> Result<Exported, Error> {
    match from {
        Source::Directory(data) => tools::export(&Options::default(), data, out, how),
        Source::Postgres(options) => {
            let mut lines = ExportLines::begin(out, how)?;
            postgres::walk(options, &mut |seen| match seen {
                Seen::Writer { writer, node, .. } => lines.writer(writer, node),
                Seen::Commit(commit) => lines.commit(commit),
                Seen::Damage(damage) => lines.damage(damage),
            })?;
            lines.finish()
        }
    }
}

fn export(arguments: &ExportArguments, json: bool) -> anyhow::Result<ExitCode> {
    let how = ExportOptions {
        skip_damage: arguments.skip_damage,
    };
    let from = &source(&arguments.here.place)?;
    match &arguments.output {
        None => {
            let exported = write_lines(from, &mut BufWriter::new(io::stdout().lock()), how)?;
            eprintln!("{exported}");
            Ok(ExitCode::SUCCESS)
        }
        Some(path) => {
            let mut out = BufWriter::new(opened(path, File::create(path), "write")?);
            let exported = write_lines(from, &mut out, how)?;
            out.flush()
                .with_context(|| format!("cannot write {}", path.display()))?;
            print(&exported, json)
        }
    }
}

/// A database that takes a history in.
struct ToPostgres(Import);

impl ImportTarget for ToPostgres {
    fn begin(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        self.0.writer(writer, node)
    }

    fn append(&mut self, commit: Commit) -> Result<Buffer, Error> {
        self.0.commit(commit)
    }
}

fn import(arguments: &ImportArguments, json: bool) -> anyhow::Result<ExitCode> {
    let Some(to) = arguments.to.as_ref().or(arguments.place.as_ref()) else {
        bail!("say where it goes: a data directory, or postgres://…");
    };
    let to = &source(to)?;
    let how = ImportOptions {
        unchecked: arguments.unchecked,
    };
    let imported = match (&arguments.from, &arguments.input) {
        (Some(from), _) => pour(&source(from)?, to)?,
        (None, None) => read_lines(to, &mut io::stdin().lock(), how)?,
        (None, Some(path)) => {
            let mut lines = BufReader::new(opened(path, File::open(path), "read")?);
            read_lines(to, &mut lines, how)?
        }
    };
    print(&imported, json)
}

/// Reads lines into a journal.
fn read_lines(to: &Source, lines: &mut dyn BufRead, how: ImportOptions) -> Result<Imported, Error> {
    match to {
        Source::Directory(data) => tools::import(&Options::default(), data, lines, how),
        Source::Postgres(options) => {
            let mut target = ToPostgres(Import::begin(options)?);
            let imported = tools::import_into(&mut target, lines, how)?;
            target.0.finish()?;
            Ok(imported)
        }
    }
}

/// One journal's history into another that nobody uses, through a pipe.
fn pour(from: &Source, to: &Source) -> anyhow::Result<Imported> {
    let _held = match from {
        Source::Directory(data) => Some(tools::hold(&Options::default(), data)?),
        Source::Postgres(options) => {
            postgres::refuse_in_use(options)?;
            None
        }
    };
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    thread::scope(|scope| {
        let exporting = scope.spawn(move || {
            let mut out = BufWriter::with_capacity(1 << 16, writer);
            write_lines(from, &mut out, ExportOptions::default())
        });
        let mut lines = BufReader::with_capacity(1 << 16, reader);
        let imported = read_lines(to, &mut lines, ImportOptions::default());
        // Who still writes is told that nobody reads.
        drop(lines);
        match exporting.join() {
            Ok(Err(Error::Io { source, .. })) if source.kind() == io::ErrorKind::BrokenPipe => Ok(imported?),
            Ok(exported) => {
                exported?;
                Ok(imported?)
            }
            Err(_) => bail!("reading the journal ended in a panic"),
        }
    })
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
        assert_eq!("3.1071".parse::<Position>().unwrap().to_string(), "3.1071");
        for text in ["", "section", "/id", "section/"] {
            assert!(address(text).is_err(), "{text}");
        }
        for text in ["", "3", "3.x", ".1"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_journal_is_named_by_its_directory_or_its_url() {
        assert!(matches!(source("file:data/x"), Ok(Source::Directory(path)) if path == Path::new("data/x")));
        assert!(matches!(source("data/x"), Ok(Source::Directory(path)) if path == Path::new("data/x")));
        assert!(matches!(source("postgres://h/d"), Ok(Source::Postgres(_))));
        let directory = Directory {
            data: "postgres://h/d".into(),
        };
        assert!(directory.path().unwrap_err().to_string().contains("docs/postgresql.md"));
        assert!(source("file:").is_err() && source("postgres://h/d?events=often").is_err());
    }
}
