//! Calls that wait for a provider which never answers: the memory of the process, the more of them there are.

use anyhow::Context as _;
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use throng::{Engine, Options, model::*};
use throng_testing::fixtures::Never;

use crate::{Common, entities::resident_bytes, fill, table::Table, units::count};

/// Calls of one command.
const AT_ONCE: u32 = 50;
/// Commands that wait for their answers at a time.
const AT_A_TIME: usize = 64;
const STEPS: u32 = 10;

/// The measurement of waiting calls.
#[derive(Debug, Args)]
pub(crate) struct CallsArguments {
    #[command(flatten)]
    common: Common,
    /// Calls that wait.
    #[arg(long, default_value_t = 1_000_000)]
    calls: u32,
    /// MiB the entities may take, as a service's `--memory`.
    #[arg(long, default_value_t = 32)]
    memory: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    calls: u32,
    /// Growth of the process since its start.
    resident_mib: f64,
    /// Bytes of entities, timers and keys in memory, as the engine counts them.
    counted_mib: f64,
    entities_in_memory: u64,
    calls_per_s: f64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &CallsArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let data = scratch.0.join("journal");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lines = runtime.block_on(measure(&data, arguments))?;
    arguments
        .common
        .print(&serde_json::json!({ "calls": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

async fn measure(data: &std::path::Path, arguments: &CallsArguments) -> anyhow::Result<Vec<Line>> {
    let options = Options {
        memory_bytes_max: arguments.memory << 20,
        checkpoint_every: Duration::from_secs(2),
        drain: Duration::ZERO,
        ..Options::default()
    };
    let (log, store) = fill::open(data)?;
    let engine = Engine::builder()
        .with::<Caller>()
        .outside::<Caller, Silent>(Silent)
        .options(options)
        .start_shared(log, store)
        .await?;
    ask(&engine, 0).await?;
    engine.checkpoint().await?;
    let before = resident_bytes()?;
    let (mut lines, mut next) = (Vec::new(), 1);
    for step in 1..=STEPS {
        let begun = Instant::now();
        let upto = (arguments.calls / AT_ONCE * step / STEPS).max(next);
        stream::iter(next..upto)
            .map(|caller| ask(&engine, caller))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        let made = (upto - next) * AT_ONCE;
        next = upto;
        engine.checkpoint().await?;
        let statistics = engine.statistics();
        lines.push(Line {
            calls: upto * AT_ONCE,
            resident_mib: mib(resident_bytes()?.saturating_sub(before)),
            counted_mib: mib(statistics.entity_bytes),
            entities_in_memory: statistics.entities,
            calls_per_s: f64::from(made) / begun.elapsed().as_secs_f64(),
        });
    }
    engine.stop().await;
    Ok(lines)
}

async fn ask(engine: &Engine, caller: u32) -> anyhow::Result<()> {
    loop {
        let command = CallerCommand::Call { calls: AT_ONCE };
        match engine.entity::<Caller>(caller.to_string()).ask(command).await {
            Err(Error::Overloaded { retry_after }) => tokio::time::sleep(retry_after).await,
            told => return told.with_context(|| format!("asking the caller {caller}")),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new(["calls waiting", "resident +MiB", "counted MiB", "in memory", "calls/s"]);
    for line in lines {
        table.row([
            count(line.calls.into()),
            format!("{:.1}", line.resident_mib),
            format!("{:.1}", line.counted_mib),
            count(line.entities_in_memory),
            count(line.calls_per_s as u64),
        ]);
    }
    table.text()
}

/// An entity that makes calls, and hears of none.
#[derive(Default, Serialize, Deserialize)]
struct Caller {}

#[derive(Serialize, Deserialize, JsonSchema)]
enum CallerCommand {
    Call { calls: u32 },
    Hear {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum CallerEvent {
    Heard {},
}
impl Event for CallerEvent {}

impl Entity for Caller {
    const KIND: &'static str = "caller";
    type Id = String;
    type Command = CallerCommand;
    type Event = CallerEvent;
    type Reply = ();
    type Rejection = Never;

    fn decide(&self, command: CallerCommand, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
        match command {
            CallerCommand::Call { calls } => {
                for cents in 0..calls {
                    turn.call::<Silent>(u64::from(cents))
                        .within(Duration::from_secs(86_400));
                }
            }
            CallerCommand::Hear {} => turn.emit(CallerEvent::Heard {}),
        }
        Ok(Answer::Now(()))
    }

    fn evolve(&mut self, _: &CallerEvent) {}
}

impl OnCallOutcome<Silent> for Caller {
    fn on_call_outcome(_: CallId, _: CallOutcome<u64, u64>) -> CallerCommand {
        CallerCommand::Hear {}
    }

    fn on_late_answer(_: CallId, _: Result<u64, u64>) -> CallerCommand {
        CallerCommand::Hear {}
    }
}

/// A provider that never answers.
struct Silent;

impl Outside for Silent {
    const NAME: &'static str = "silent";
    type Request = u64;
    type Answer = u64;
    type Failure = u64;

    async fn call(&self, _: u64, _: &Attempt) -> Result<u64, CallError<u64>> {
        std::future::pending().await
    }
}
