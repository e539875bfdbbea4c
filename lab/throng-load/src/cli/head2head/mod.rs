//! `throng load head2head`.

mod side;
mod target;
mod text;

pub(crate) use text::text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::common::{Common, stop_on_signals};
use super::values;
use crate::comparison::differences;
use crate::plan::{HeadToHeadShape, Plan};
use crate::report::html;
use side::{Load, Side};
use target::TargetArgument;

/// The most targets of one comparison.
const TARGETS_MAX: usize = 12;

#[derive(Debug, Args)]
pub(crate) struct HeadToHeadArgs {
    /// The targets' URLs, two or more; they are called A, B and so on.
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// A target with a name and a process: name=NAME,url=URL[,http2=STREAMS][,pid=PID][,command=COMMAND]; repeatable.
    /// COMMAND is all that follows: it is started before the rounds and ended after them. CPU and memory are those of the
    /// process.
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetArgument>,
    /// Start and end each target's command in every round: cold starts.
    #[arg(long)]
    restart: bool,
    /// Requests a round [default: 1000].
    #[arg(long, short = 'n', conflicts_with = "duration")]
    requests: Option<u64>,
    /// Load each target for this time in a round, instead of a number of requests.
    #[arg(long = "for", short = 'd', value_parser = values::time, value_name = "TIME")]
    duration: Option<Duration>,
    /// Requests at once, each on a connection of its own or on a stream of HTTP/2 [default: 1000].
    #[arg(long)]
    concurrency: Option<usize>,
    /// Rounds before those that count [default: 1].
    #[arg(long)]
    warmup: Option<u32>,
    /// Rounds that count. Fewer than 3 allow no statement about a difference [default: 5].
    #[arg(long)]
    rounds: Option<u32>,
    /// Take path and numbers from a plan, for example `primes`.
    #[arg(long)]
    plan: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl HeadToHeadArgs {
    fn shape(&self) -> anyhow::Result<Option<HeadToHeadShape>> {
        let Some(name) = &self.plan else { return Ok(None) };
        let shape = Plan::open(name)?.head_to_head();
        Ok(Some(
            shape.with_context(|| format!("the plan `{name}` has no [head2head]"))?,
        ))
    }

    fn all_targets(&self) -> anyhow::Result<Vec<TargetArgument>> {
        let named = self.urls.iter().zip('A'..='Z').map(|(url, name)| TargetArgument {
            name: name.to_string(),
            url: url.clone(),
            http2: None,
            pid: None,
            command: None,
        });
        let all: Vec<TargetArgument> = named.chain(self.targets.iter().cloned()).collect();
        if !(2..=TARGETS_MAX).contains(&all.len()) {
            bail!("{} targets: give 2 to {TARGETS_MAX} URLs or --target", all.len());
        }
        for (place, target) in all.iter().enumerate() {
            if all[..place].iter().any(|other| other.name == target.name) {
                bail!("two targets are called `{}`", target.name);
            }
            if self.restart && target.command.is_none() {
                bail!(
                    "--restart needs a command=… for each target; `{}` has none",
                    target.name
                );
            }
        }
        Ok(all)
    }
}

pub(crate) fn run(args: &HeadToHeadArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    common.refuse_csv()?;
    let targets = args.all_targets()?;
    let shape = args.shape()?;
    let shape = shape.as_ref();
    let load = match args.duration {
        Some(duration) => Load::For(duration),
        None => {
            let requests = args.requests.or(shape.map(|shape| shape.requests));
            Load::Requests(requests.unwrap_or(1000).max(1))
        }
    };
    let concurrency = args.concurrency.or(common.connections);
    let concurrency = concurrency.or(shape.map(|shape| shape.concurrency)).unwrap_or(1000);
    let warmup = args.warmup.or(shape.map(|shape| shape.warmup)).unwrap_or(1);
    let rounds = args.rounds.or(shape.map(|shape| shape.rounds)).unwrap_or(5);
    let total = u64::from(warmup) + u64::from(rounds.clamp(1, 1000));
    let stop = stop_on_signals()?;
    let mut sides = Vec::with_capacity(targets.len());
    for target in targets {
        sides.push(Side::new(target, shape, common, &stop, load, concurrency)?);
    }
    if !args.restart {
        for side in &mut sides {
            side.start(&stop)?;
        }
    }
    let count = sides.len();
    'rounds: for round in 0..total {
        // The first target rotates, so that a drift of the machine favours none.
        for place in 0..count {
            let side = &mut sides[(place + round as usize) % count];
            if args.restart {
                side.start(&stop)?;
            }
            let label = format!("round {}/{total} {}", round + 1, side.name());
            side.round(&label, load, common, round >= u64::from(warmup))?;
            if args.restart {
                side.stop();
            }
            if stop.is_set() {
                break 'rounds;
            }
        }
    }
    sides.iter_mut().for_each(Side::stop);
    finish(&mut sides, common)
}

fn finish(sides: &mut [Side], common: &Common) -> anyhow::Result<ExitCode> {
    let whole = sides.iter().map(|side| side.repetitions.len()).min().unwrap_or(0);
    if whole == 0 {
        bail!("stopped before one round of each was done");
    }
    for side in sides.iter_mut() {
        side.repetitions.truncate(whole);
    }
    let shown: Vec<html::Side<'_>> = sides.iter().filter_map(Side::shown).collect();
    let mut found = Vec::new();
    let mut sentences = Vec::new();
    for other in &shown[1..] {
        for difference in differences(shown[0].repetitions, other.repetitions, true) {
            sentences.push(difference.sentence(shown[0].name, other.name));
            found.push(serde_json::json!({ "a": shown[0].name, "b": other.name, "difference": difference }));
        }
    }
    let json = || {
        let targets: Vec<_> = shown
            .iter()
            .map(|side| {
                serde_json::json!({
                    "name": side.name, "report": side.report, "cost": side.cost, "rounds": side.repetitions,
                })
            })
            .collect();
        serde_json::json!({
            "format": 1, "kind": "head2head", "targets": targets, "differences": found, "sentences": sentences,
        })
        .to_string()
    };
    common.print(json, || text("Head to head", &shown, &sentences))?;
    common.page(|| html::several("Head to head", &shown, &sentences))?;
    let answered = shown.iter().all(|side| side.report.counters.successes > 0);
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
