//! `throng load head2head`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::common::{Common, stop_on_signals};
use super::progress::{Display, Goal};
use crate::comparison::{Repetition, differences};
use crate::plan::Plan;
use crate::report::{Summary, html, nanos};
use crate::{Closed, Options, Report, Request, run_watched};

#[derive(Debug, Args)]
pub(crate) struct HeadToHeadArgs {
    /// The one.
    a: String,
    /// The other.
    b: String,
    /// Requests a round [default: 1000].
    #[arg(long, short = 'n')]
    requests: Option<u64>,
    /// Connections [default: 1000].
    #[arg(long)]
    concurrency: Option<usize>,
    /// Rounds before those that count [default: 1].
    #[arg(long)]
    warmup: Option<u32>,
    /// Rounds that count; below 3 nothing is said about a difference [default: 5].
    #[arg(long)]
    rounds: Option<u32>,
    /// Take path and numbers from a plan, for example `primes`.
    #[arg(long)]
    plan: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &HeadToHeadArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    common.refuse_csv()?;
    let shape = match &args.plan {
        Some(name) => match Plan::open(name)?.head_to_head() {
            Some(shape) => Some(shape),
            None => bail!("the plan `{name}` has no [head2head]"),
        },
        None => None,
    };
    let shape = shape.as_ref();
    let requests = args
        .requests
        .or(shape.map(|shape| shape.requests))
        .unwrap_or(1000)
        .max(1);
    let concurrency = args
        .concurrency
        .or(common.connections)
        .or(shape.map(|shape| shape.concurrency))
        .unwrap_or(1000);
    let warmup = args.warmup.or(shape.map(|shape| shape.warmup)).unwrap_or(1);
    let rounds = args
        .rounds
        .or(shape.map(|shape| shape.rounds))
        .unwrap_or(5)
        .clamp(1, 1000);
    let stop = stop_on_signals()?;
    let mut sides = Vec::new();
    for url in [&args.a, &args.b] {
        let mut target = common.target(url)?;
        if let (Some(shape), "/") = (shape, target.path.as_str()) {
            target.path = shape.path.clone();
        }
        let mut options = common.options(target, &stop);
        options.connections = concurrency.min(requests as usize).max(common.threads());
        sides.push(Side {
            options,
            repetitions: Vec::new(),
            report: None,
        });
    }
    let total = u64::from(warmup + rounds);
    for round in 0..total {
        // Who begins alternates, so that a drift of the machine favours neither.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for index in order {
            let label = format!("round {}/{total} {}", round + 1, ["A", "B"][index]);
            let report = sides[index].round(&label, requests, common)?;
            if report.ended == "stopped" {
                break;
            }
            if round >= u64::from(warmup) {
                sides[index].keep(report);
            }
        }
        if stop.is_set() {
            break;
        }
    }
    let [mut a, mut b] = <[Side; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("two sides"))?;
    let whole = a.repetitions.len().min(b.repetitions.len());
    a.repetitions.truncate(whole);
    b.repetitions.truncate(whole);
    let (Some(a_report), Some(b_report)) = (&a.report, &b.report) else {
        bail!("stopped before one round of each was done")
    };
    let found = differences(&a.repetitions, &b.repetitions, true);
    let sentences: Vec<String> = found.iter().map(|difference| difference.sentence("A", "B")).collect();
    common.page(|| {
        html::two(
            "Head to head",
            [("A", a_report), ("B", b_report)],
            &sentences,
            Some([&a.repetitions, &b.repetitions]),
        )
    })?;
    let json = || {
        serde_json::json!({
            "format": 1, "kind": "head2head", "a": a_report, "b": b_report, "differences": found,
            "rounds": a.repetitions.iter().zip(&b.repetitions).collect::<Vec<_>>(), "sentences": sentences,
        })
        .to_string()
    };
    common.print(json, || {
        text("Head to head", [("A", a_report), ("B", b_report)], &sentences)
    })?;
    let answered = a_report.counters.successes > 0 && b_report.counters.successes > 0;
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Side {
    options: Options,
    repetitions: Vec<Repetition>,
    report: Option<Report>,
}

impl Side {
    fn round(&self, label: &str, requests: u64, common: &Common) -> anyhow::Result<Report> {
        let target = &self.options.target;
        let request = Request::get(&target.authority, &target.path);
        let mut display = Display::new(label, Goal::Requests(requests), common.quiet);
        let sources = Closed::split(&request, requests, common.threads());
        let run = run_watched(&self.options, sources, |progress| display.update(progress));
        display.finish();
        Ok(run?.report)
    }

    fn keep(&mut self, report: Report) {
        self.repetitions.push(Repetition::of_run(&report));
        match &mut self.report {
            Some(whole) => whole.absorb(&report),
            None => self.report = Some(report),
        }
    }
}

/// Two runs as a table, and what can be said about their difference.
pub(crate) fn text(title: &str, sides: [(&str, &Report); 2], sentences: &[String]) -> String {
    let mut out = format!("\n{title}\n\n");
    for (name, report) in sides {
        let _ = writeln!(out, "  {name:2} {} ({})", report.title, report.target);
    }
    let _ = write!(
        out,
        "\n  {:3}{:>10}{:>9}{:>12}",
        "", "successes", "failures", "requests/s"
    );
    for name in ["min", "mean", "median", "p90", "p99", "p99.9", "max"] {
        let _ = write!(out, " {name:>8}");
    }
    out.push('\n');
    for (name, report) in sides {
        let summary = Summary::of(&report.response);
        let _ = write!(
            out,
            "  {name:3}{:>10}{:>9}{:>12.1}",
            report.counters.successes,
            report.counters.failures,
            report.throughput()
        );
        for value in [
            summary.min,
            summary.mean as u64,
            summary.p50,
            summary.p90,
            summary.p99,
            summary.p999,
            summary.max,
        ] {
            let _ = write!(out, " {:>8}", nanos(value));
        }
        out.push('\n');
    }
    out.push('\n');
    for sentence in sentences {
        let _ = writeln!(out, "  {sentence}");
    }
    for (name, report) in sides {
        for warning in &report.warnings {
            let _ = writeln!(out, "  ! {name}: {warning}");
        }
    }
    out
}
