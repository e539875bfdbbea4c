//! Fields to filter by: their cost for commands at a steady rate, and the time of a filter.

use anyhow::{Context as _, ensure};
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};
use throng::{
    Engine, Filter, MatchRange, Options,
    model::{CommandAnswer, Entity, Event, IndexedField, Turn},
};
use throng_testing::fixtures::Never;
use tokio::task::JoinSet;

use super::{Common, cpu::cpu_time, fill, median, table::Table};
use crate::units::count;

/// The number of commands that wait for their answers at a time.
const TASKS: usize = 512;
/// The time between two checkpoints, short enough for several in a round.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);

/// The measurement of filters.
#[derive(Debug, Args)]
pub(super) struct FiltersArguments {
    #[command(flatten)]
    common: Common,
    /// Commands a second.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Seconds of each round of each kind.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Entities that the commands are spread over.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entities: u32,
    /// Rounds, each without fields and with them in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct FilterRow {
    fields: usize,
    commands_per_s: f64,
    cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
    store_bytes: f64,
    /// The milliseconds of a filter over all changed entities; 0 without fields.
    filter_ms: f64,
    /// The milliseconds of the same filter after a checkpoint has written the rows.
    filter_of_rows_ms: f64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &FiltersArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut seen: [Vec<FilterRow>; 2] = Default::default();
    for round in 0..arguments.rounds {
        let place = |fields: usize| scratch.0.join(format!("{round}-{fields}"));
        seen[0].push(runtime.block_on(measure::<0>(&place(0), arguments))?);
        seen[1].push(runtime.block_on(measure::<3>(&place(3), arguments))?);
    }
    let ratios = seen[1]
        .iter()
        .zip(&seen[0])
        .map(|(with, without)| with.cpu_us / without.cpu_us);
    let ratio = median(ratios);
    let rows = seen.map(|rounds| {
        let of = |figure: fn(&FilterRow) -> f64| median(rounds.iter().map(figure));
        FilterRow {
            fields: rounds[0].fields,
            commands_per_s: of(|row| row.commands_per_s),
            cpu_us: of(|row| row.cpu_us),
            p50_ms: of(|row| row.p50_ms),
            p99_ms: of(|row| row.p99_ms),
            store_bytes: of(|row| row.store_bytes),
            filter_ms: of(|row| row.filter_ms),
            filter_of_rows_ms: of(|row| row.filter_of_rows_ms),
        }
    });
    let figures = serde_json::json!({ "filters": rows, "cpu_ratio": ratio });
    arguments.common.print(&figures, || text(&rows, ratio));
    Ok(ExitCode::SUCCESS)
}

async fn measure<const COUNT: usize>(data: &Path, arguments: &FiltersArguments) -> anyhow::Result<FilterRow> {
    let (log, store) = fill::open(data)?;
    let options = Options {
        checkpoint_every: CHECKPOINT_EVERY,
        ..Options::default()
    };
    let engine = Engine::builder().with::<Lot<COUNT>>().options(options);
    let engine = engine.start_shared(log, store).await?;
    let entities = arguments.entities as usize;
    ask::<COUNT>(&engine, entities, entities, None).await?;
    engine.checkpoint().await?;

    let commands = arguments.rate as usize * arguments.seconds as usize;
    let (begun, cpu) = (Instant::now(), cpu_time());
    let mut latencies = ask::<COUNT>(&engine, commands, entities, Some(arguments.rate)).await?;
    let elapsed = begun.elapsed();
    let asked = cpu_time().saturating_sub(cpu);
    let filter_ms = time_filter::<COUNT>(&engine, entities).await?;
    let cpu = cpu_time();
    engine.checkpoint().await?;
    // Includes the work that the last commands leave to a checkpoint.
    let cpu = asked + cpu_time().saturating_sub(cpu);
    let filter_of_rows_ms = time_filter::<COUNT>(&engine, entities).await?;
    engine.stop().await;
    drop(engine);
    let store = std::fs::metadata(data.join("store.redb")).context("the store has no file")?;
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)].as_secs_f64() * 1e3;
    Ok(FilterRow {
        fields: COUNT,
        commands_per_s: commands as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / commands as f64,
        p50_ms: at(50),
        p99_ms: at(99),
        store_bytes: store.len() as f64,
        filter_ms,
        filter_of_rows_ms,
    })
}

/// Sends commands, at this rate or as fast as they are answered. Returns the time from when each was due to its answer.
async fn ask<const COUNT: usize>(
    engine: &Engine,
    commands: usize,
    entities: usize,
    rate: Option<u32>,
) -> anyhow::Result<Vec<Duration>> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let engine = engine.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            for number in (task..commands).step_by(TASKS) {
                let due = match rate {
                    Some(rate) => begun + Duration::from_secs_f64(number as f64 / f64::from(rate)),
                    None => Instant::now(),
                };
                tokio::time::sleep_until(due.into()).await;
                // The entities are far apart. Multiplication by an odd prime visits each one once.
                let id = format!("lot-{:07}", number.wrapping_mul(7_368_787) % entities);
                let bid = Bid::Bid(number as u64);
                let told = engine.entity::<Lot<COUNT>>(id.as_str()).ask(bid).await;
                told.map_err(|error| anyhow::anyhow!("{error}"))
                    .with_context(|| format!("asking {id}"))?;
                latencies.push(due.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::with_capacity(commands);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.context("a task crashed")??);
    }
    Ok(latencies)
}

/// Returns the milliseconds of a filter over all entities that matches none.
async fn time_filter<const COUNT: usize>(engine: &Engine, entities: usize) -> anyhow::Result<f64> {
    if COUNT == 0 {
        return Ok(0.0);
    }
    let filter = Filter::read("price < 0, is_open = true", &engine.registry().kinds()[0].indexed)?;
    let (begun, mut examined) = (Instant::now(), 0);
    let mut after: Option<Box<str>> = None;
    loop {
        let range = MatchRange {
            after: after.as_deref(),
            limit: 1_000,
            ..MatchRange::default()
        };
        let page = engine.matches(0, &filter, range).await;
        let page = page.map_err(|error| anyhow::anyhow!("{error}"))?;
        examined += page.examined;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ensure!(examined == entities, "{examined} of {entities} were examined");
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn text(rows: &[FilterRow; 2], ratio: f64) -> String {
    let mut table = Table::new([
        "fields",
        "commands/s",
        "CPU µs a command",
        "p50 ms",
        "p99 ms",
        "store MB",
        "filter ms",
        "of rows ms",
    ]);
    for row in rows {
        table.row([
            row.fields.to_string(),
            count(row.commands_per_s as u64),
            format!("{:.2}", row.cpu_us),
            format!("{:.2}", row.p50_ms),
            format!("{:.2}", row.p99_ms),
            format!("{:.1}", row.store_bytes / 1e6),
            format!("{:.0}", row.filter_ms),
            format!("{:.0}", row.filter_of_rows_ms),
        ]);
    }
    format!(
        "{}CPU with fields by without, median of the rounds: {ratio:.3}\n",
        table.text()
    )
}

/// A lot of an auction with `COUNT` fields to filter by: none, or three.
#[derive(Default, Serialize, Deserialize)]
struct Lot<const COUNT: usize> {
    price: u64,
    bids: u32,
    is_closed: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Bid {
    Bid(u64),
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum LotEvent {
    Bid(u64),
}
impl Event for LotEvent {}

impl<const COUNT: usize> Entity for Lot<COUNT> {
    const KIND: &'static str = "lot";
    const INDEXED: &'static [IndexedField<Self>] = match COUNT {
        0 => &[],
        _ => &[
            IndexedField::of("price", |lot| lot.price.into()),
            IndexedField::of("bids", |lot| lot.bids.into()),
            IndexedField::of("is_open", |lot| (!lot.is_closed).into()),
        ],
    };
    type Id = String;
    type Command = Bid;
    type Event = LotEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, Bid::Bid(price): Bid, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(LotEvent::Bid(price));
        Ok(CommandAnswer::after(|lot: &Self| lot.price))
    }

    fn evolve(&mut self, LotEvent::Bid(price): &LotEvent) {
        self.price = *price;
        self.bids += 1;
    }
}
