//! Calls that wait for a provider which never answers: the memory of the process for a growing number of them. Also calls that are answered at once:
//! the CPU time of one, compared with that of a plain command.

use anyhow::Context as _;
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    process::ExitCode,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use throng::{Engine, Options, model::*};
use throng_testing::fixtures::Never;

use crate::{Common, cpu::cpu_time, entities::resident_bytes, fill, table::Table, units::count};

/// The calls that one command makes.
const AT_ONCE: u32 = 50;
/// The number of commands that wait for their answers at a time.
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
    /// Calls that are answered at once, and as many plain commands; each is measured in three rounds.
    #[arg(long, default_value_t = 20_000)]
    answered: u32,
    /// MiB that the entities may use, like a service's `--memory`.
    #[arg(long, default_value_t = 32)]
    memory: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    calls: u32,
    /// The growth of the process since its start.
    resident_mib: f64,
    /// The memory of entities, timers and keys, as the engine counts it.
    counted_mib: f64,
    entities_in_memory: u64,
    calls_per_s: f64,
}

/// The CPU time in microseconds, the minimum of three rounds.
#[derive(Debug, Serialize)]
struct Cpu {
    command_us: f64,
    /// The time of a command with a call, up to the outcome that the entity receives.
    call_us: f64,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &CallsArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cpu = runtime.block_on(measure_cpu(&scratch.0.join("answered"), arguments.answered))?;
    let lines = runtime.block_on(measure(&scratch.0.join("waiting"), arguments))?;
    arguments
        .common
        .print(&serde_json::json!({ "calls": lines, "cpu": cpu }), || {
            let above = cpu.call_us - cpu.command_us;
            let cpu = format!(
                "CPU: a plain command {:.1} µs; a call to its outcome {above:.1} µs above it\n\n",
                cpu.command_us
            );
            cpu + &text(&lines)
        });
    Ok(ExitCode::SUCCESS)
}

async fn measure_cpu(data: &std::path::Path, many: u32) -> anyhow::Result<Cpu> {
    let (log, store) = fill::open(data)?;
    let builder = Engine::builder().with::<Caller>().outside::<Caller, Prompt>(Prompt);
    let engine = builder.start_shared(log, store).await?;
    let (mut cpu, mut heard) = ([f64::INFINITY; 2], 0);
    for round in 0..6 {
        let (is_call, begun) = (round % 2 == 1, cpu_time());
        stream::iter(0..many)
            .map(|caller| {
                let command = match is_call {
                    true => CallerCommand::Prompt {},
                    false => CallerCommand::Hear {},
                };
                told(&engine, caller % 1_000, command)
            })
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        heard += many;
        while HEARD.load(Ordering::Relaxed) < heard {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let each = (cpu_time() - begun).as_secs_f64() * 1e6 / f64::from(many.max(1));
        cpu[usize::from(is_call)] = cpu[usize::from(is_call)].min(each);
    }
    engine.stop().await;
    let [command_us, call_us] = cpu;
    Ok(Cpu { command_us, call_us })
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
    told(engine, caller, CallerCommand::Call { calls: AT_ONCE }).await
}

async fn told(engine: &Engine, caller: u32, command: CallerCommand) -> anyhow::Result<()> {
    loop {
        match engine.entity::<Caller>(caller.to_string()).ask(command.clone()).await {
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

/// An entity that makes calls and gets no outcome.
#[derive(Default, Serialize, Deserialize)]
struct Caller {}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum CallerCommand {
    Call { calls: u32 },
    Prompt {},
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

    fn decide(&self, command: CallerCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            CallerCommand::Call { calls } => {
                for cents in 0..calls {
                    turn.call::<Silent>(u64::from(cents))
                        .within(Duration::from_secs(86_400));
                }
            }
            CallerCommand::Prompt {} => _ = turn.call::<Prompt>(1),
            CallerCommand::Hear {} => {
                HEARD.fetch_add(1, Ordering::Relaxed);
                turn.emit(CallerEvent::Heard {});
            }
        }
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, _: &CallerEvent) {}
}

impl<W: Outside<Answer = u64, Failure = u64>> OnCallOutcome<W> for Caller {
    fn on_call_outcome(_: CallId, _: CallOutcome<u64, u64>) -> CallerCommand {
        CallerCommand::Hear {}
    }

    fn on_late_answer(_: CallId, _: Result<u64, u64>) -> CallerCommand {
        CallerCommand::Hear {}
    }
}

/// The commands received since the start: plain ones, and outcomes.
static HEARD: AtomicU32 = AtomicU32::new(0);

/// A provider that answers at once.
struct Prompt;

impl Outside for Prompt {
    const NAME: &'static str = "prompt";
    const CONCURRENCY: usize = 256;
    type Request = u64;
    type Answer = u64;
    type Failure = u64;

    async fn call(&self, asked: u64, _: &Attempt) -> Result<u64, CallError<u64>> {
        Ok(asked)
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
