//! `throng journal`: look at a journal, check it, copy it, move it.

#[cfg(feature = "s3")]
use crate::objects;
use crate::{
    App,
    history::{EraseArguments, PruneArguments},
    open_files::create_private,
    operator::DecidedArguments,
    place::JournalLocation,
};
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
    time::Duration,
};
use throng::journal::{Address, Error, Position};
#[cfg(feature = "postgres")]
use throng::journal::{Commit, WriterId, commit::Buffer};
#[cfg(feature = "postgres")]
use throng_log::tools::{ExportLines, ImportTarget};
use throng_log::{
    Options,
    tools::{self, ExportOptions, Exported, ImportOptions, Imported, InspectOptions, LiveBackup, Until},
};
#[cfg(feature = "s3")]
use throng_object_storage::S3Location;
#[cfg(feature = "postgres")]
use throng_postgres::{
    PostgresOptions,
    tools::{self as postgres, HistoryPart, Import},
};

/// The answer of the tools that do not read object storage.
#[cfg(feature = "s3")]
const NOT_YET: &str =
    "this does not take a journal on object storage yet; `journal verify`, `check` and `trace` read one";
/// The time between two looks of a backup that follows.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The arguments of `journal`.
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
    /// List losses of acknowledged commits that a service has found in a database that was rolled back, with the entities and keys that were
    /// in them; also beside a running service.
    Loss(Here),
    /// Write the whole history as JSON lines, one a record; also beside a running service.
    Export(ExportArguments),
    /// Import a whole history from an export or another journal, to a place without a journal.
    Import(ImportArguments),
    /// Copy a data directory's journal, also beside a running service, and check the copy; run again, it adds what is new.
    Backup(BackupArguments),
    /// Create a data directory from a journal's history, up to a commit or a time.
    Restore(RestoreArguments),
    /// Remove history whose retention is over, from a journal that no service uses. This starts the service's program on it, so due timers fire. A
    /// running service does it by itself, and on POST /admin/prune.
    Prune(PruneArguments),
    /// End an entity and overwrite all recorded and stored data of it, in a journal that no service uses. In a running service: POST /admin/erase.
    Erase(EraseArguments),
    /// Quarantine an entity in a journal that no service uses: it executes nothing until it is released, and its messages wait. In a running service:
    /// POST /admin/quarantine.
    Quarantine(DecidedArguments),
    /// End the quarantine of an entity in a journal that no service uses: its messages are delivered. In a running service: POST /admin/release.
    Release(DecidedArguments),
    /// Drop the messages that wait for a quarantined entity, in a journal that no service uses. In a running service: POST /admin/messages/drop.
    DropMessages(DecidedArguments),
    /// Free room that the store and the log of an unused directory do not need; no history is removed. A running service frees the store's by itself,
    /// and on POST /admin/compact.
    Compact(Directory),
}

/// An existing journal, or one to be created.
#[derive(Clone, Debug)]
enum Source {
    Directory(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresOptions>),
    #[cfg(feature = "s3")]
    Objects(Box<S3Location>),
}

/// Parses a location. The argument parser does not do this, because its error would show the text with the password in it.
fn source(text: &str) -> anyhow::Result<Source> {
    match text.parse::<JournalLocation>().map_err(anyhow::Error::msg)? {
        JournalLocation::Directory(directory) => Ok(Source::Directory(directory)),
        #[cfg(feature = "postgres")]
        JournalLocation::Postgres(options) => Ok(Source::Postgres(options)),
        #[cfg(feature = "s3")]
        JournalLocation::Objects(location) => Ok(Source::Objects(location)),
        JournalLocation::Memory => bail!("what is in memory is gone: name a directory or a database"),
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
            #[cfg(feature = "postgres")]
            Source::Postgres(_) => {
                bail!("this is for data directories; PostgreSQL has tools of its own for it, see docs/postgresql.md")
            }
            #[cfg(feature = "s3")]
            Source::Objects(_) => bail!("{NOT_YET}"),
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
    /// The file for the lines [default: standard output].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out what is damaged and go on.
    #[arg(long)]
    skip_damage: bool,
}

#[derive(Debug, Args)]
struct ImportArguments {
    /// The target: a data directory, or postgres://….
    #[arg(value_name = "PLACE", required_unless_present = "to", conflicts_with = "to")]
    place: Option<String>,
    /// The target, as an option.
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// The journal to import from. Refused while a service uses it, since its end would be missing.
    #[arg(long, value_name = "PLACE", conflicts_with = "input")]
    from: Option<String>,
    /// The file of an export [default: standard input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Accept an export without its checksums and end: one of an older program, or changed on purpose.
    #[arg(long, conflicts_with = "from")]
    unchecked: bool,
}

#[derive(Debug, Args)]
struct BackupArguments {
    #[command(flatten)]
    directory: Directory,
    /// The directory of the copy; an earlier copy of the same journal gets the new part.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Go on copying, once a second, until told to end.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Args)]
struct RestoreArguments {
    /// The backup, or any data directory.
    #[command(flatten)]
    backup: Directory,
    /// The new data directory.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The last commit, as `3.1071`, or a time, as 2026-11-22T18:00:00Z: nothing made after it is restored [default: everything].
    #[arg(long, value_name = "COMMIT|TIME", value_parser = until)]
    at: Option<Until>,
    /// The directory in which `serve --archive` keeps the history that retention removes; it is restored, too.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
}

fn until(text: &str) -> Result<Until, String> {
    if let Ok(position) = text.parse() {
        return Ok(Until::Commit(position));
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    let time = time.map_err(|_| "write a commit as 3.1071, or a time as 2026-11-22T18:00:00Z")?;
    Ok(Until::Micros(time.as_microsecond()))
}

pub(crate) fn address(text: &str) -> Result<Address, String> {
    match text.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => Ok(Address::new(kind, id)),
        _ => Err("write an entity as `section/C S 142-1`: its kind, a slash, its id".into()),
    }
}

fn run(arguments: &JournalArguments, app: impl FnOnce() -> anyhow::Result<App>) -> anyhow::Result<ExitCode> {
    crate::logging::start("warn");
    let options = Options::default();
    let json = arguments.json;
    match &arguments.command {
        JournalCommand::Inspect(arguments) => inspect(arguments, json),
        JournalCommand::Verify(here) => {
            let found = match &source(&here.place)? {
                Source::Directory(data) => tools::verify(&options, data)?,
                #[cfg(feature = "postgres")]
                Source::Postgres(options) => postgres::verify(options)?,
                #[cfg(feature = "s3")]
                Source::Objects(location) => {
                    let found = objects::verify(location)?;
                    print(&found, json)?;
                    return Ok(sound(found.is_sound()));
                }
            };
            print(&found, json)?;
            Ok(sound(found.is_sound()))
        }
        JournalCommand::Loss(here) => match &source(&here.place)? {
            Source::Directory(_) => bail!(
                "this is for PostgreSQL, whose server may be replaced while a service runs; of a data directory `journal verify` and the start \
                 say what is lost"
            ),
            #[cfg(feature = "postgres")]
            Source::Postgres(options) => print(&postgres::losses(options)?, json),
            #[cfg(feature = "s3")]
            Source::Objects(_) => bail!("{NOT_YET}"),
        },
        JournalCommand::Export(arguments) => export(arguments, json),
        JournalCommand::Import(arguments) => import(arguments, json),
        JournalCommand::Backup(arguments) => backup(arguments, json),
        JournalCommand::Restore(RestoreArguments {
            backup,
            target,
            at,
            archive,
        }) => {
            let from = (&*backup.path()?, archive.as_deref());
            print(&tools::restore(&options, from, target, at.unwrap_or_default())?, json)
        }
        JournalCommand::Prune(arguments) => print(&arguments.run(app()?)?, json),
        JournalCommand::Erase(arguments) => print(&arguments.run(app()?)?, json),
        JournalCommand::Quarantine(arguments) => print(&arguments.quarantine(app()?)?, json),
        JournalCommand::Release(arguments) => print(&arguments.release(app()?)?, json),
        JournalCommand::DropMessages(arguments) => print(&arguments.drop_messages(app()?)?, json),
        JournalCommand::Compact(directory) => match tools::compact(&options, &directory.path()?) {
            Err(Error::InUse { what }) => bail!(
                "{what} is in use by another process: a running service compacts its store by itself, and at once when asked with \
                 POST /admin/compact; stop it to give back unused segments too"
            ),
            compacted => print(&compacted?, json),
        },
    }
}

impl JournalArguments {
    /// Runs the command. Some commands need the app that the journal belongs to.
    ///
    /// # Errors
    /// The command's failure, in a sentence for the user.
    pub fn run(&self, app: impl FnOnce() -> anyhow::Result<App>) -> anyhow::Result<ExitCode> {
        run(self, app)
    }
}

fn sound(is_sound: bool) -> ExitCode {
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn backup(arguments: &BackupArguments, json: bool) -> anyhow::Result<ExitCode> {
    let (options, from) = (Options::default(), arguments.directory.path()?);
    if !arguments.follow {
        let copy = tools::backup(&options, &from, &arguments.target)?;
        print(&copy, json)?;
        return Ok(sound(copy.verification.is_sound()));
    }
    let mut end = throng_http::StopSignal::watch().context("cannot watch for signals")?;
    let mut copy = LiveBackup::begin(&options, &from, &arguments.target)?;
    let mut is_first = true;
    loop {
        let is_last = end.has_come();
        let added = copy.catch_up()?;
        if added.bytes > 0 || std::mem::take(&mut is_first) || is_last {
            print(&added, json)?;
        }
        if is_last {
            return Ok(ExitCode::SUCCESS);
        }
        end.wait_within(FOLLOW_EVERY);
    }
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
        #[cfg(feature = "postgres")]
        Source::Postgres(options) => print(&postgres::inspect(options, &what)?, json),
        #[cfg(feature = "s3")]
        Source::Objects(_) => bail!("{NOT_YET}"),
    }
}

/// Writes a journal's history as JSON lines.
fn write_lines(from: &Source, out: &mut dyn Write, how: ExportOptions) -> Result<Exported, Error> {
    match from {
        Source::Directory(data) => tools::export(&Options::default(), data, out, how),
        #[cfg(feature = "postgres")]
        Source::Postgres(options) => {
            let mut lines = ExportLines::begin(out, how)?;
            postgres::walk(options, &mut |seen| match seen {
                HistoryPart::Writer { writer, node, .. } => lines.writer(writer, node),
                HistoryPart::Commit(commit) => lines.commit(commit),
                HistoryPart::Damage(damage) => lines.damage(damage),
            })?;
            lines.finish()
        }
        #[cfg(feature = "s3")]
        Source::Objects(_) => Err(Error::Refused(NOT_YET.into())),
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
            // The export holds the whole history, so only its owner may read it.
            let mut out = BufWriter::new(opened(path, create_private(path), "write")?);
            let exported = write_lines(from, &mut out, how)?;
            out.flush()
                .with_context(|| format!("cannot write {}", path.display()))?;
            print(&exported, json)
        }
    }
}

#[cfg(feature = "postgres")]
/// An import into a database.
struct ToPostgres(Import);

#[cfg(feature = "postgres")]
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
        #[cfg(feature = "postgres")]
        Source::Postgres(options) => {
            let mut target = ToPostgres(Import::begin(options)?);
            let imported = tools::import_into(&mut target, lines, how)?;
            target.0.finish()?;
            Ok(imported)
        }
        #[cfg(feature = "s3")]
        Source::Objects(_) => Err(Error::Refused(NOT_YET.into())),
    }
}

/// Pipes one journal's history into another, which no process uses.
fn pour(from: &Source, to: &Source) -> anyhow::Result<Imported> {
    let _held = match from {
        Source::Directory(data) => Some(tools::hold(&Options::default(), data)?),
        #[cfg(feature = "postgres")]
        Source::Postgres(options) => {
            postgres::refuse_in_use(options)?;
            None
        }
        #[cfg(feature = "s3")]
        Source::Objects(_) => bail!("{NOT_YET}"),
    };
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    thread::scope(|scope| {
        let exporting = scope.spawn(move || {
            let mut out = BufWriter::with_capacity(1 << 16, writer);
            write_lines(from, &mut out, ExportOptions::default())
        });
        let mut lines = BufReader::with_capacity(1 << 16, reader);
        let imported = read_lines(to, &mut lines, ImportOptions::default());
        // The writer on the other thread must notice that nobody reads any more; otherwise it would wait for ever.
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
    // Writing fails if the reader has gone away (`| head`), which is no error here.
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
    fn a_moment_is_a_commit_or_a_time() {
        assert_eq!(until("3.1071"), Ok(Until::Commit("3.1071".parse().unwrap())));
        assert_eq!(until("1970-01-01T00:00:02Z"), Ok(Until::Micros(2_000_000)));
        for wrong in ["yesterday", "2027-01-01", "3"] {
            assert!(until(wrong).unwrap_err().contains("as 2026-11-22T18:00:00Z"), "{wrong}");
        }
    }

    #[test]
    fn a_journal_is_named_by_its_directory_or_its_url() {
        assert!(matches!(source("file:data/x"), Ok(Source::Directory(path)) if path == Path::new("data/x")));
        assert!(matches!(source("data/x"), Ok(Source::Directory(path)) if path == Path::new("data/x")));
        assert!(source("file:").is_err() && source("postgres://h/d?events=often").is_err());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_database_has_tools_of_its_own_for_some_things() {
        assert!(matches!(source("postgres://h/d"), Ok(Source::Postgres(_))));
        let directory = Directory {
            data: "postgres://h/d".into(),
        };
        assert!(directory.path().unwrap_err().to_string().contains("docs/postgresql.md"));
    }
}
