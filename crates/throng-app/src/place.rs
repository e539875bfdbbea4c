//! The location of a journal: a directory, a PostgreSQL database, a bucket of an object storage, or memory.

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};
use throng::{
    journal::{self, Directory, Journal, MemoryJournal, MemoryStore, MemoryViews, Position, Store, Views},
    model::Timestamp,
};
#[cfg(feature = "s3")]
use throng_object_storage::S3Location;
#[cfg(feature = "postgres")]
use throng_postgres::{PostgresOptions, open_postgres};

use crate::open_files::{Guarded, warn_if_open};

/// The location of a journal. Its `Display` hides the password.
#[derive(Clone, Debug)]
pub enum JournalLocation {
    /// The embedded journal's directory.
    Directory(PathBuf),
    /// A schema of a database.
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresOptions>),
    /// A prefix in a bucket of an object storage.
    #[cfg(feature = "s3")]
    Objects(Box<S3Location>),
    /// The process's memory: everything is lost with it.
    Memory,
}

impl JournalLocation {
    /// `directory`, `postgresql`, `object-storage` or `memory`: what the console's API calls it.
    pub(crate) fn medium(&self) -> &'static str {
        match self {
            Self::Directory(_) => "directory",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgresql",
            #[cfg(feature = "s3")]
            Self::Objects(_) => "object-storage",
            Self::Memory => "memory",
        }
    }
}

impl FromStr for JournalLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(feature = "postgres")]
        if throng_postgres::is_url(text) {
            let options = text.parse::<PostgresOptions>().map_err(|error| error.to_string())?;
            return Ok(Self::Postgres(Box::new(options)));
        }
        // The message leaves out what may be a password.
        #[cfg(feature = "postgres")]
        if let Some(("postgres" | "postgresql", _)) = text.split_once(':') {
            return Err("a database is written postgres://USER@HOST:PORT/DATABASE, with two slashes".into());
        }
        match text.split_once(':') {
            #[cfg(feature = "s3")]
            Some(("s3", _)) => match text.parse::<S3Location>() {
                Ok(location) => Ok(Self::Objects(Box::new(location))),
                Err(error) => Err(error.to_string()),
            },
            #[cfg(not(feature = "s3"))]
            Some(("s3", _)) => {
                Err("this program was built without object storage: build it with the feature `s3` of throng-app".into())
            }
            #[cfg(not(feature = "postgres"))]
            Some(("postgres" | "postgresql", _)) => {
                Err("this program was built without PostgreSQL: build it with the \
                feature `postgres` of throng-app"
                    .into())
            }
            Some(("file", directory)) if !directory.is_empty() => Ok(Self::Directory(directory.into())),
            Some(("memory", "")) => Ok(Self::Memory),
            _ if text.is_empty() || text == "file:" || text.contains("://") => {
                Err(
                    "write a directory, file:DIR, postgres://user:password@host:port/database, s3://bucket/prefix, or memory:".into(),
                )
            }
            _ => Ok(Self::Directory(text.into())),
        }
    }
}

impl fmt::Display for JournalLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => directory.display().fmt(f),
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => options.place().fmt(f),
            #[cfg(feature = "s3")]
            Self::Objects(location) => location.fmt(f),
            Self::Memory => "memory".fmt(f),
        }
    }
}

/// `--journal`, and its short form `--data`.
#[derive(Clone, Debug, Args)]
pub struct LocationArguments {
    /// The location of the journal: a directory, file:DIR, postgres://USER:PASSWORD@HOST:PORT/DATABASE (docs/postgresql.md says which options
    /// follow), s3://BUCKET/PREFIX (docs/object-storage.md), or memory: to keep nothing. A password is better given as PGPASSWORD.
    #[arg(long, value_name = "PLACE", conflicts_with = "data")]
    journal: Option<String>,
    /// The directory of the embedded journal, short for --journal file:DIR. It is created if it does not exist. By default data/ and the app's name.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl LocationArguments {
    /// True if a location was named.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.journal.is_some() || self.data.is_some()
    }

    /// Returns the named location, or the app's own directory.
    ///
    /// # Errors
    /// The named text is no location.
    pub fn place(&self, app: &str) -> anyhow::Result<JournalLocation> {
        self.place_or(app, None)
    }

    /// Returns the location named here, else the one in the variable, else the app's own directory.
    ///
    /// The text is parsed here and not by the argument parser, whose error would show it with the password in it.
    pub(crate) fn place_or(&self, app: &str, variable: Option<&str>) -> anyhow::Result<JournalLocation> {
        let read = |from: &str, place: &str| place.parse().map_err(|why| anyhow!("{from} cannot be read: {why}"));
        match (&self.journal, &self.data, variable) {
            (Some(place), ..) => read("--journal", place),
            (None, Some(directory), _) => Ok(JournalLocation::Directory(directory.clone())),
            (None, None, Some(place)) => read("what the environment says of the journal", place),
            (None, None, None) => Ok(JournalLocation::Directory(Path::new("data").join(app))),
        }
    }
}

/// An open journal and store.
pub(crate) struct Opened {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) views: Arc<dyn Views>,
    /// The time since when this copy is served instead of its original.
    pub(crate) restored_at: Option<Timestamp>,
    /// The directory of the nodes that share the journal; `None` for the journal of a single process.
    pub(crate) directory: Option<Arc<dyn Directory>>,
}

impl Opened {
    /// Returns a journal and store that end with the process.
    pub(crate) fn in_memory() -> Self {
        let journal = MemoryJournal::new();
        Self {
            store: Arc::new(MemoryStore::new(journal.clone())),
            journal: Arc::new(journal),
            views: Arc::new(MemoryViews::new()),
            restored_at: None,
            directory: None,
        }
    }
}

/// The treatment of a journal that is a copy of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acting {
    /// A copy is refused: its timers, messages and sinks would act beside those of the original.
    UnlessCopied,
    /// The copy takes the original's place.
    AsPrimary,
    /// Nothing acts, and the copy stays one.
    Quiet,
}

impl Acting {
    /// Checks that a journal may be served: it is no copy, or may be served although it is one.
    fn permit(self, copied: Option<String>, place: &JournalLocation) -> anyhow::Result<()> {
        match copied {
            Some(why) if self == Self::UnlessCopied => bail!(
                "the journal in {place} is a copy: {why}. A service on it would act as the original does: fire its timers, deliver its messages, \
                 feed its sinks. Start with --quiet to look at it; with --as-primary, once, if the original is served no more"
            ),
            _ => Ok(()),
        }
    }
}

/// The fate of outside calls that were open when a journal was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OpenCalls {
    /// They are made again, under their keys.
    Again,
    /// They end with the outcome `Unknown`, even if the journal does not count as a copy.
    Unknown,
}

fn warn_of_unknown_place(error: &journal::Error) {
    tracing::warn!("where the journal is served could not be noted, so a copy of it will not be known as one: {error}");
}

/// The failures that an acknowledged command survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Power loss: every commit is synced to the disk before it is answered.
    Fsync,
    /// The end of the process, not power loss: commits are handed to the operating system.
    Os,
    /// Nothing: all is lost with the process.
    Memory,
}

/// The behaviour of a service that finds acknowledged commits lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// The service answers 503, and so does every other service on the journal, until a person has accepted the loss.
    #[default]
    Stop,
    /// The engine goes on with what is left. The loss is recorded in the journal.
    Continue,
}

impl From<Durability> for journal::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Fsync => Self::Fsync,
            Durability::Os => Self::Os,
            Durability::Memory => Self::Memory,
        }
    }
}

/// The options with which an engine opens its journal.
pub(crate) struct Opening {
    pub(crate) durability: Durability,
    pub(crate) sync_delay: Duration,
    /// A loss of durable commits that is accepted.
    pub(crate) accept_loss: Option<Position>,
    /// The behaviour if acknowledged commits are lost while it runs.
    pub(crate) on_loss: OnLoss,
    /// The directory to which segments are copied before history is removed from them.
    pub(crate) archive: Option<PathBuf>,
    /// Bytes the journal may take of the disk.
    pub(crate) disk_bytes_max: Option<u64>,
    pub(crate) has_projections: bool,
    pub(crate) acting: Acting,
    /// The operator's choice for open calls. Without it, those of a copy end as `Unknown`.
    pub(crate) calls: Option<OpenCalls>,
    /// The time for which an engine of a cluster may answer from memory after its last sign of life.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "s3")),
        expect(dead_code, reason = "no other journal has one")
    )]
    pub(crate) lease: Option<Duration>,
    /// The service's release.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no other journal is finalized")
    )]
    pub(crate) release: u64,
}

impl Opening {
    /// Returns the time since when this copy is served instead of its original.
    fn restored_micros(&self, is_copy: bool, noted: Option<i64>) -> Option<i64> {
        let now = || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
        };
        match self.calls {
            Some(OpenCalls::Again) => None,
            Some(OpenCalls::Unknown) => Some(now()),
            None if is_copy => Some(now()),
            None => noted,
        }
    }
}

impl JournalLocation {
    /// Opens the journal and store at this location.
    pub(crate) fn open(&self, how: &Opening) -> anyhow::Result<Opened> {
        let (durability, sync_delay) = (how.durability, how.sync_delay);
        match (self, durability) {
            (Self::Memory, _) | (_, Durability::Memory) => Ok(Opened::in_memory()),
            (Self::Directory(directory), _) => {
                if how.on_loss != OnLoss::Stop {
                    bail!(
                        "--on-loss is for PostgreSQL, whose server may be replaced while the service runs; the start of the embedded journal \
                         names what is lost, see --accept-loss"
                    );
                }
                let options = throng_log::Options {
                    durability: durability.into(),
                    sync_delay,
                    accept_loss: how.accept_loss,
                    ..throng_log::Options::default()
                }
                .within(how.disk_bytes_max);
                warn_if_open(directory, Guarded::Private);
                let stands = throng_log::Place::of(directory);
                let copied = stands.copied()?;
                let restored = how.restored_micros(copied.is_some(), stands.restored_micros()?);
                how.acting.permit(copied, self)?;
                let (log, store) = throng_log::open_embedded(directory, options)
                    .with_context(|| format!("cannot open the data directory {}", directory.display()))?;
                if how.acting != Acting::Quiet
                    && let Err(error) = stands.record(restored)
                {
                    warn_of_unknown_place(&error);
                }
                log.set_archive(how.archive.clone());
                // A service without projections needs no file for them.
                let views: Arc<dyn Views> = match how.has_projections {
                    true => Arc::new(throng_log::EmbeddedViews::open(Arc::clone(&log))?),
                    false => Arc::new(MemoryViews::new()),
                };
                Ok(Opened {
                    journal: log,
                    store,
                    views,
                    restored_at: restored.map(|micros| Timestamp { micros }),
                    directory: None,
                })
            }
            #[cfg(feature = "postgres")]
            (Self::Postgres(options), _) => {
                if !sync_delay.is_zero() {
                    bail!("--sync-delay slows the embedded journal only");
                }
                if how.archive.is_some() {
                    bail!(
                        "--archive is the embedded journal's; PostgreSQL has backups of its own, see docs/postgresql.md"
                    );
                }
                let mut options = (**options).clone();
                options.accept_loss = how.accept_loss;
                options.on_loss = match how.on_loss {
                    OnLoss::Stop => throng_postgres::OnLoss::Stop,
                    OnLoss::Continue => throng_postgres::OnLoss::Continue,
                };
                // The weaker of the URL's and the flag's durability applies.
                if durability == Durability::Os {
                    options.durability = journal::Durability::Os;
                }
                options.release = how.release;
                if let Some(lease) = how.lease {
                    options.lease = lease;
                }
                let opened = open_postgres(options)?;
                let copied = opened.journal.copied()?;
                let restored = how.restored_micros(copied.is_some(), opened.journal.restored_micros()?);
                how.acting.permit(copied, self)?;
                if how.acting != Acting::Quiet
                    && let Err(error) = opened.journal.record_place(restored)
                {
                    warn_of_unknown_place(&error);
                }
                Ok(Opened {
                    journal: opened.journal,
                    store: opened.store,
                    views: opened.views,
                    restored_at: restored.map(|micros| Timestamp { micros }),
                    directory: Some(opened.directory),
                })
            }
            #[cfg(feature = "s3")]
            (Self::Objects(location), _) => {
                if !sync_delay.is_zero() {
                    bail!("--sync-delay slows the embedded journal only");
                }
                if how.archive.is_some() {
                    bail!("--archive is the embedded journal's; see docs/object-storage.md");
                }
                if how.on_loss != OnLoss::Stop || how.accept_loss.is_some() {
                    bail!(
                        "--on-loss and --accept-loss are for other journals: a service on object storage ends if commits are lost, and says which"
                    );
                }
                let opened = crate::objects::open(location, how.lease)?;
                Ok(Opened {
                    journal: opened.journal,
                    store: opened.store,
                    // Made anew at each start.
                    views: Arc::new(MemoryViews::new()),
                    restored_at: None,
                    directory: None,
                })
            }
        }
    }
}

impl JournalLocation {
    /// Opens only the read models. An embedded directory must not be in use. A database may be: the running service notices changes.
    /// If they are opened to be read only, the medium may be read-only, too.
    pub(crate) fn open_views(&self, is_to_read: bool) -> anyhow::Result<Arc<dyn Views>> {
        match self {
            Self::Memory => bail!("what is in memory is gone: name a directory or a database"),
            Self::Directory(directory) => {
                if !directory.is_dir() {
                    bail!("there is no data directory {}", directory.display());
                }
                let options = throng_log::Options::default();
                let options = if is_to_read {
                    options.to_read(directory)
                } else {
                    options
                };
                let opened = throng_log::Log::open(directory, options);
                let log = match opened {
                    Err(error @ journal::Error::InUse { .. }) => {
                        return Err(error).context(
                            "while a service runs, its own /metrics says how far its read models are (throng_projection_lag_seconds, throng_projection_stopped)",
                        );
                    }
                    opened => {
                        opened.with_context(|| format!("cannot open the data directory {}", directory.display()))?
                    }
                };
                Ok(Arc::new(throng_log::EmbeddedViews::open(Arc::new(log))?))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => Ok(open_postgres((**options).clone())?.views),
            #[cfg(feature = "s3")]
            Self::Objects(_) => {
                bail!("read models of a journal on object storage are in the service's memory, made anew at each start")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn a_program_without_postgresql_says_how_to_build_one_with_it() {
        let said = "postgres://ann:secret@h/d".parse::<JournalLocation>().unwrap_err();
        assert!(
            said.contains("feature `postgres`") && !said.contains("secret"),
            "{said}"
        );
    }

    fn opening(acting: Acting, calls: Option<OpenCalls>) -> Opening {
        Opening {
            durability: Durability::Os,
            sync_delay: Duration::ZERO,
            accept_loss: None,
            on_loss: OnLoss::Stop,
            archive: None,
            disk_bytes_max: None,
            has_projections: false,
            acting,
            calls,
            lease: None,
            release: 0,
        }
    }

    #[test]
    fn copy_served_as_primary_keeps_the_time_of_its_restore() {
        let dir = tempfile::tempdir().unwrap();
        let [first, copy] = ["first", "copy"].map(|name| JournalLocation::Directory(dir.path().join(name)));
        let restored = |of: &JournalLocation, acting, calls| of.open(&opening(acting, calls)).unwrap().restored_at;
        assert_eq!(restored(&first, Acting::UnlessCopied, None), None);
        let (JournalLocation::Directory(from), JournalLocation::Directory(to)) = (&first, &copy) else {
            panic!("both are directories")
        };
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        let since = restored(&copy, Acting::AsPrimary, None);
        assert!(since.is_some());
        assert_eq!(
            restored(&copy, Acting::UnlessCopied, None),
            since,
            "a later start knows it"
        );
        assert_eq!(restored(&copy, Acting::UnlessCopied, Some(OpenCalls::Again)), None);
        assert_eq!(restored(&copy, Acting::UnlessCopied, None), None);
        assert!(restored(&copy, Acting::UnlessCopied, Some(OpenCalls::Unknown)).is_some());
    }

    #[test]
    fn a_place_is_written_as_one_word_and_shown_without_a_password() {
        let shown = |text: &str| text.parse::<JournalLocation>().map(|place| place.to_string());
        assert_eq!(shown("file:data/x"), Ok("data/x".into()));
        assert_eq!(shown("data/x"), Ok("data/x".into()), "as the journal's tools take it");
        assert_eq!(shown("memory:"), Ok("memory".into()));
        #[cfg(feature = "postgres")]
        assert_eq!(
            shown("postgres://ann:secret@h:1/d?schema=box"),
            Ok("postgres://ann@h:1/d, schema box".into())
        );
        for wrong in [
            "",
            "file:",
            "mysql://h",
            "postgres:/ann:secret@h/d",
            "postgresql:ann:secret@h/d",
            "postgres://ann:secret@h/d?events=often",
        ] {
            let said = shown(wrong).unwrap_err();
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
