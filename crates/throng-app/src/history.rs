//! `throng journal prune` and `erase`: remove history from a journal that no service uses. They start an engine on it, as a
//! service would, and do what `/admin/prune` and `/admin/erase` do.

use crate::{
    App,
    place::{Acting, Durability, JournalLocation, OnLoss, Opened, Opening},
    serve,
    service::close_journal,
};
use anyhow::{Context as _, bail};
use clap::Args;
use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use throng::{Engine, Erased, Options, PruneReport, model::Keep, projection::ProjectionState};

/// The longest wait for projections to catch up. A projection that is behind keeps the events that it has not read from being removed.
const CATCH_UP: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The history to prune now, rather than at the next pass of a running service.
#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// The journal: a data directory, or postgres://….
    #[arg(value_name = "PLACE")]
    place: String,
    /// Only report what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// The time for which the events of a kind are kept: forever, a time (30d, 12h), or a number of events of each entity. Repeatable, once for each
    /// kind [default: what the kind says].
    #[arg(long, value_name = "KIND=HOW", value_parser = serve::keep)]
    keep: Vec<(String, Keep)>,
    /// The directory to which the embedded journal copies its segments before history is removed from them.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
}

/// The arguments of an erasure.
#[derive(Debug, Args)]
pub(crate) struct EraseArguments {
    /// The journal: a data directory, or postgres://….
    #[arg(value_name = "PLACE")]
    place: String,
    /// The kind in the entity's routes.
    #[arg(value_name = "KIND")]
    kind: String,
    /// The id in the entity's routes.
    #[arg(value_name = "ID")]
    id: String,
    /// The directory in which the embedded journal keeps unpruned segments: the entity is erased from these, too.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
}

impl PruneArguments {
    pub(crate) fn run(&self, app: App) -> anyhow::Result<PruneReport> {
        let keep = self.keep.iter().cloned().collect();
        let options = Options {
            keep,
            ..Options::default()
        };
        on_engine(&self.place, app, options, self.archive.clone(), async |engine| {
            catch_up(engine);
            let mut all = engine.prune(self.dry_run).await?;
            // A pass may leave some over for the next. A dry run would report the same again.
            while all.is_cut_short && !self.dry_run {
                let next = engine.prune(false).await?;
                all.add(next);
            }
            Ok(all)
        })
    }
}

impl EraseArguments {
    pub(crate) fn run(&self, app: App) -> anyhow::Result<Erased> {
        let options = Options::default();
        on_engine(&self.place, app, options, self.archive.clone(), async |engine| {
            let erased = engine.erase(&self.kind, &self.id).await;
            erased.map_err(|error| anyhow::anyhow!("{error}"))
        })
    }
}

/// Waits until the projections have read all there is, or cannot go on.
fn catch_up(engine: &Engine) {
    let begun = Instant::now();
    let reads = |engine: &Engine| {
        let projections = engine.projections();
        projections
            .iter()
            .any(|one| one.state == ProjectionState::Running && (one.reached.is_none() || one.lag_commits > 0))
    };
    while reads(engine) && begun.elapsed() < CATCH_UP {
        thread::sleep(LOOK_EVERY);
    }
}

/// Runs a function on an engine of its own, over an existing journal that no service uses.
pub(crate) fn on_engine<T>(
    place: &str,
    mut app: App,
    options: Options,
    archive: Option<PathBuf>,
    work: impl AsyncFn(&Engine) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let place: JournalLocation = place.parse().map_err(anyhow::Error::msg)?;
    refuse_in_use(&place)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let builder = app.take_builder();
    let Opened {
        journal,
        store,
        views,
        restored_at,
        ..
    } = place.open(&Opening {
        durability: Durability::Fsync,
        sync_delay: Duration::ZERO,
        accept_loss: None,
        on_loss: OnLoss::Stop,
        archive,
        disk_bytes_max: None,
        has_projections: builder.has_projections(),
        acting: Acting::UnlessCopied,
        calls: None,
        lease: None,
        release: u64::MAX,
    })?;
    let held = Arc::clone(&journal);
    let options = Options {
        // Prunes only on request.
        prune_every: Some(Duration::MAX),
        restored_at,
        ..options
    };
    let kinds: Vec<String> = options.keep.keys().cloned().collect();
    let builder = builder.options(options).views(views);
    let done = runtime.block_on(async {
        let engine = builder.start_shared(journal, store).await?;
        let unknown = kinds.iter().find(|kind| engine.kind(kind).is_none());
        let done = match unknown {
            Some(kind) => Err(anyhow::anyhow!(
                "--keep names the kind {kind:?}, which this service does not have"
            )),
            None => work(&engine).await,
        };
        engine.stop().await;
        done
    });
    close_journal(held);
    done
}

fn refuse_in_use(place: &JournalLocation) -> anyhow::Result<()> {
    match place {
        JournalLocation::Memory => bail!("what is in memory is gone: name a directory or a database"),
        JournalLocation::Directory(directory) => {
            drop(throng_log::tools::hold(&throng_log::Options::default(), directory)?);
            Ok(())
        }
        #[cfg(feature = "postgres")]
        JournalLocation::Postgres(options) => Ok(throng_postgres::tools::refuse_in_use(options)?),
        #[cfg(feature = "s3")]
        JournalLocation::Objects(_) => {
            bail!(
                "nothing tells here if a service uses a journal on object storage: ask the running service, with POST /admin/…"
            )
        }
    }
}
