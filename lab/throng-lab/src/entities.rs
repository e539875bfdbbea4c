//! Many entities: the memory of each, and the time to load one.

use anyhow::Context as _;
use clap::Args;
use registration::section::{Look, Section, SectionCommand};
use serde::Serialize;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use throng::Options;

use super::{Common, fill, table::Table};
use crate::units::count;

/// The entities that are loaded and timed.
const ACTIVATED: usize = 20_000;

/// The measurement of entities.
#[derive(Debug, Args)]
pub(super) struct EntitiesArguments {
    #[command(flatten)]
    common: Common,
    /// Sections that are opened.
    #[arg(long, default_value_t = 1_000_000)]
    count: usize,
}

#[derive(Debug, Serialize)]
struct Figures {
    entities: usize,
    open_per_s: f64,
    /// The growth of the process for an idle entity in memory, without its state.
    bytes_each: f64,
    /// The size of the state.
    state_bytes: usize,
    start_s: f64,
    activation_p50_us: f64,
    activation_p99_us: f64,
    activation_max_us: f64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &EntitiesArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let data = scratch.0.join("journal");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(&data, arguments.count))?;
    arguments
        .common
        .print(&serde_json::json!({ "entities": figures }), || text(&figures));
    Ok(ExitCode::SUCCESS)
}

async fn measure(data: &std::path::Path, entities: usize) -> anyhow::Result<Figures> {
    let options = Options {
        memory_bytes_max: 8 << 30,
        checkpoint_every: Duration::from_secs(2),
        ..Options::default()
    };
    let (engine, journal) = fill::engine(data, options.clone()).await?;
    let before = resident_bytes()?;
    let begun = Instant::now();
    fill::ask(&engine, entities, |section| {
        fill::Ask::new(id(section), SectionCommand::Open { capacity: 30 })
    })
    .await?;
    let open_per_s = entities as f64 / begun.elapsed().as_secs_f64();
    engine.checkpoint().await?;
    let bytes_each = (resident_bytes()?.saturating_sub(before)) as f64 / entities as f64;
    engine.stop().await;
    drop(engine);
    throng_app::cli::close_journal(journal);

    let begun = Instant::now();
    let (engine, _) = fill::engine(data, options).await?;
    let start_s = begun.elapsed().as_secs_f64();
    let mut times = Vec::with_capacity(ACTIVATED);
    for number in 0..ACTIVATED.min(entities) {
        // Loads distant entities, not in the store's order. Multiplication by an odd prime visits each one once.
        let section = id(number.wrapping_mul(7_368_787) % entities);
        let begun = Instant::now();
        engine.entity::<Section>(section).read(Look {}).await?;
        times.push(begun.elapsed());
    }
    engine.stop().await;
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
    let state_bytes = size_of::<Section>();
    Ok(Figures {
        entities,
        open_per_s,
        bytes_each: bytes_each - state_bytes as f64,
        state_bytes,
        start_s,
        activation_p50_us: at(50),
        activation_p99_us: at(99),
        activation_max_us: at(100),
    })
}

fn id(number: usize) -> String {
    format!("C S {number:07}-1")
}

/// Returns the resident memory of this process (proc(5), `statm`, second field in pages).
pub(super) fn resident_bytes() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse().ok())
        .context("/proc/self/statm has an unknown form")?;
    Ok(pages * 4_096)
}

fn text(figures: &Figures) -> String {
    let mut table = Table::new([
        "entities",
        "opened/s",
        "bytes each idle",
        "state",
        "start s",
        "activation p50 µs",
        "p99",
        "max",
    ]);
    table.row([
        count(figures.entities as u64),
        count(figures.open_per_s as u64),
        format!("{:.0}", figures.bytes_each),
        figures.state_bytes.to_string(),
        format!("{:.2}", figures.start_s),
        format!("{:.0}", figures.activation_p50_us),
        format!("{:.0}", figures.activation_p99_us),
        format!("{:.0}", figures.activation_max_us),
    ]);
    table.text()
}
