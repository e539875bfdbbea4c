//! Starting from a journal with many entities and an hour of idempotency keys, and the moment when these keys expire.

use clap::Args;
use registration::section::{Look, Section, SectionCommand};
use serde::Serialize;
use std::{
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::{
    Engine, Options,
    host::{Host, TokioHost},
    model::Timestamp,
};

use super::{
    Common,
    fill::{self, Ask},
    table::Table,
};
use crate::units::count;

/// A time longer than keys are kept, in microseconds.
const PAST_MICROS: i64 = 3_700_000_000;
/// The time for which pauses are measured.
const LOOK: Duration = Duration::from_secs(10);

/// The measurement of a start.
#[derive(Debug, Args)]
pub(super) struct StartArguments {
    #[command(flatten)]
    common: Common,
    /// Entities in the journal.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    entities: u64,
    /// Commands under idempotency keys of one hour.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
}

#[derive(Debug, Serialize)]
struct Figures {
    entities: u64,
    keys: u64,
    journal_bytes: u64,
    open_s: f64,
    start_s: f64,
    first_read_ms: f64,
    before: Pauses,
    at_expiry: Pauses,
}

/// The latencies of a client that sends the next command as soon as it has its answer.
#[derive(Debug, Serialize)]
struct Pauses {
    asked: u64,
    p99_ms: f64,
    worst_ms: f64,
}

/// A host on the real machine, with a wall clock that can be moved.
struct Movable {
    host: TokioHost,
    ahead_micros: AtomicI64,
}

impl Host for Movable {
    throng_testing::delegate!(Host, host: elapsed_micros thread_cpu_micros entropy spawn sleep close);

    fn now(&self) -> Timestamp {
        Timestamp {
            micros: self.host.now().micros + self.ahead_micros.load(Ordering::Relaxed),
        }
    }
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &StartArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let data = scratch.0.join("journal");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fill_journal(&data, arguments))?;
    let figures = runtime.block_on(measure(&data, arguments))?;
    arguments.common.print(&serde_json::json!({ "start": figures }), || {
        let mut table = Table::new([
            "entities",
            "keys",
            "journal MB",
            "open s",
            "start s",
            "first read ms",
            "p99 ms",
            "worst ms",
            "p99 ms at the keys' end",
            "worst ms",
        ]);
        table.row([
            count(figures.entities),
            count(figures.keys),
            format!("{:.0}", figures.journal_bytes as f64 / 1e6),
            format!("{:.2}", figures.open_s),
            format!("{:.2}", figures.start_s),
            format!("{:.2}", figures.first_read_ms),
            format!("{:.2}", figures.before.p99_ms),
            format!("{:.1}", figures.before.worst_ms),
            format!("{:.2}", figures.at_expiry.p99_ms),
            format!("{:.1}", figures.at_expiry.worst_ms),
        ]);
        table.text()
    });
    Ok(ExitCode::SUCCESS)
}

/// Opens every section, then adds students under keys. The stop at the end makes the last checkpoint.
async fn fill_journal(data: &Path, arguments: &StartArguments) -> anyhow::Result<()> {
    let (engine, journal) = fill::engine(data, Options::default()).await?;
    let entities = arguments.entities;
    fill::ask(&engine, entities as usize, |number| {
        Ask::new(format!("S{number}"), SectionCommand::Open { capacity: u32::MAX })
    })
    .await?;
    fill::ask(&engine, arguments.keys as usize, move |number| {
        let number = number as u64;
        Ask {
            id: format!("S{}", number % entities),
            command: SectionCommand::Add {
                student: (number / entities).to_string(),
            },
            key: Some(format!("key-{number}")),
        }
    })
    .await?;
    engine.stop().await;
    drop(engine);
    throng_app::cli::close_journal(journal);
    // Otherwise the disk would write gigabytes back while pauses are measured.
    for file in std::fs::read_dir(data)? {
        let path = file?.path();
        if path.is_file() {
            std::fs::File::open(&path)?.sync_all()?;
        }
    }
    Ok(())
}

async fn measure(data: &Path, arguments: &StartArguments) -> anyhow::Result<Figures> {
    let host = Arc::new(Movable {
        host: TokioHost::new()?,
        ahead_micros: AtomicI64::new(0),
    });
    let begun = Instant::now();
    let (log, store) = fill::open(data)?;
    let held = Arc::clone(&log);
    let open_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let engine = registration::kinds(Engine::builder())
        .host(host.clone())
        .start_shared(log, store)
        .await?;
    let start_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    engine.entity::<Section>("S0").read(Look {}).await?;
    let first_read_ms = begun.elapsed().as_secs_f64() * 1e3;
    let journal_bytes = engine.health().journal_bytes.unwrap_or(0);
    let before = pauses(&engine, arguments.entities, "before").await?;
    host.ahead_micros.store(PAST_MICROS, Ordering::Relaxed);
    let at_expiry = pauses(&engine, arguments.entities, "after").await?;
    engine.stop().await;
    drop(engine);
    throng_app::cli::close_journal(held);
    Ok(Figures {
        entities: arguments.entities,
        keys: arguments.keys,
        journal_bytes,
        open_s,
        start_s,
        first_read_ms,
        before,
        at_expiry,
    })
}

/// Adds new students for a while, one after the other, during a checkpoint.
async fn pauses(engine: &Engine, entities: u64, student: &str) -> anyhow::Result<Pauses> {
    let begun = Instant::now();
    let mut waits = throng_load::measure::latencies();
    let checkpoint = tokio::spawn({
        let engine = engine.clone();
        async move { engine.checkpoint().await }
    });
    let mut asked = 0_u64;
    while begun.elapsed() < LOOK {
        let id = format!("S{}", asked * 7_919 % entities);
        let sent = Instant::now();
        engine
            .entity::<Section>(id.as_str())
            .ask(SectionCommand::Add {
                student: format!("{student}-{asked}"),
            })
            .await?;
        waits.saturating_record(u64::try_from(sent.elapsed().as_nanos())?);
        asked += 1;
    }
    checkpoint.await??;
    Ok(Pauses {
        asked,
        p99_ms: crate::units::milliseconds(waits.value_at_quantile(0.99)),
        worst_ms: crate::units::milliseconds(waits.max()),
    })
}
