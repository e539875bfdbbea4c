//! Many commands from Rust, for the measurements that need much history.

use anyhow::Context as _;
use clap::Args;
use registration::section::{Section, SectionCommand};
use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use throng::{
    Engine, Options,
    journal::{self, Journal, Store},
    model::Error,
};

/// The number of tasks that ask at the same time.
const TASKS: usize = 512;
/// The number of sections that the students are spread over.
const SECTIONS: usize = 1_000;

/// A command of a section, with or without an idempotency key.
pub(super) struct Ask {
    pub(super) id: String,
    pub(super) command: SectionCommand,
    pub(super) key: Option<String>,
}

impl Ask {
    /// Returns a command without a key.
    pub(super) fn new(id: String, command: SectionCommand) -> Self {
        Self { id, command, key: None }
    }
}

/// Opens an embedded journal that is not synced and has hardly a cache.
pub(super) fn open(data: &Path) -> anyhow::Result<(Arc<dyn Journal>, Arc<dyn Store>)> {
    let log_options = throng_log::Options {
        durability: journal::Durability::Os,
        store_cache_bytes: 8 << 20,
        ..throng_log::Options::default()
    };
    let (log, store) = throng_log::open_embedded(data, log_options)?;
    Ok((log, store))
}

/// Starts an engine of registration on [such a journal](open).
pub(super) async fn engine(data: &Path, options: Options) -> anyhow::Result<(Engine, Arc<dyn Journal>)> {
    let (log, store) = open(data)?;
    let held = Arc::clone(&log);
    let engine = registration::kinds(Engine::builder())
        .options(options)
        .start_shared(log, store)
        .await?;
    Ok((engine, held))
}

/// Sends this many commands from many tasks at once. `command` returns the `n`-th one.
pub(super) async fn ask(
    engine: &Engine,
    count: usize,
    command: impl Fn(usize) -> Ask + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let command = Arc::new(command);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (engine, command) = (engine.clone(), Arc::clone(&command));
        tasks.spawn(async move {
            for number in (task..count).step_by(TASKS) {
                loop {
                    let Ask { id, command, key } = command(number);
                    let entity = engine.entity::<Section>(id.as_str());
                    let entity = match key {
                        Some(key) => entity.once(key),
                        None => entity,
                    };
                    match entity.ask(command).await {
                        Err(Error::Overloaded { retry_after }) => tokio::time::sleep(retry_after).await,
                        told => break told.map(drop).with_context(|| format!("asking section {id}"))?,
                    }
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task crashed")??;
    }
    Ok(())
}

/// The contents for filling a journal.
#[derive(Debug, Args)]
pub(crate) struct FillArguments {
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    events: usize,
    /// The number of sections that the students are spread over.
    #[arg(long, default_value_t = SECTIONS)]
    sections: usize,
}

/// Writes this many events after a checkpoint, reports it on standard output, and waits to be killed.
pub(crate) fn run(arguments: &FillArguments) -> anyhow::Result<ExitCode> {
    throng_app::cli::start_logging("error");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = Options {
            checkpoint_every: Duration::from_secs(86_400),
            checkpoint_bytes: u64::MAX,
            memory_bytes_max: 4 << 30,
            ..Options::default()
        };
        let (engine, _) = engine(&arguments.data, options).await?;
        let sections = arguments.sections.max(1);
        ask(&engine, sections, |section| {
            Ask::new(format!("S{section}"), SectionCommand::Open { capacity: u32::MAX })
        })
        .await?;
        engine.checkpoint().await?;
        ask(&engine, arguments.events, move |number| {
            Ask::new(
                format!("S{}", number % sections),
                SectionCommand::Add {
                    student: format!("{number:08}"),
                },
            )
        })
        .await?;
        anyhow::Ok(())
    })?;
    let mut output = std::io::stdout();
    writeln!(output, "filled")?;
    output.flush()?;
    let mut buffer = [0; 64];
    while matches!(std::io::stdin().read(&mut buffer), Ok(1..)) {}
    // The process ends without a checkpoint or a seal, as in a crash.
    std::process::exit(0);
}
