//! `throng load capacity`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use super::common::{Common, note, stop_on_signals};
use super::plan::Planned;
use super::request::RequestArgs;
use super::values;
use crate::capacity::{Promise, Search, Trial, best};
use crate::report::{html, nanos};
use crate::sample::Usage;
use crate::{Arrivals, Open, Options, Report, Request};

#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    /// A plan with a variable for its rate, a shipped plan, or a URL.
    plan: String,
    #[command(flatten)]
    planned: Planned,
    #[command(flatten)]
    request: RequestArgs,
    /// Response time that 99 % must keep.
    #[arg(long, value_parser = values::time)]
    p99: Duration,
    /// Share of requests that may fail, in percent.
    #[arg(long, default_value_t = 0.1, value_name = "PERCENT")]
    errors: f64,
    /// The plan's variable that is searched.
    #[arg(long, default_value = "rate")]
    variable: String,
    /// First rate [default: the plan's, or 100].
    #[arg(long, value_parser = values::rate)]
    from: Option<f64>,
    /// The highest rate to try.
    #[arg(long, value_parser = values::rate, default_value = "1000000")]
    to: f64,
    /// Go up by this much, instead of doubling and halving.
    #[arg(long, value_parser = values::rate)]
    step: Option<f64>,
    /// End the search when the rate is known this precisely, in percent.
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    precision: f64,
    /// The time for which each rate is held, for a URL; a plan has its own time.
    #[arg(long = "for", short = 'd', value_parser = values::time, default_value = "10s", value_name = "TIME")]
    duration: Duration,
    #[command(flatten)]
    common: Common,
}

/// The results of one rate.
struct Attempt {
    report: Report,
    /// The part that is judged, if that is not the whole report.
    part: Option<Report>,
    cpu_percent: Option<f64>,
}

impl Attempt {
    fn judge(self, rate: f64, promise: &Promise) -> (Report, Trial) {
        let trial = Trial {
            cpu_percent: self.cpu_percent,
            ..Trial::judge(rate, self.part.as_ref().unwrap_or(&self.report), promise)
        };
        (self.report, trial)
    }
}

fn run_search(
    search: Search,
    promise: &Promise,
    mut attempt: impl FnMut(f64) -> anyhow::Result<Attempt>,
    mut show: impl FnMut(&Trial),
) -> anyhow::Result<(Vec<Trial>, Option<Report>)> {
    let mut trials = Vec::new();
    let mut kept = None;
    while let Some(rate) = search.next(&trials) {
        let mut tried = attempt(rate)?.judge(rate, promise);
        if tried.1.broken.is_some() && tried.0.ended != "stopped" {
            // The failure may be due to the machine, so the last rate is tried twice.
            show(&tried.1);
            tried = attempt(rate)?.judge(rate, promise);
        }
        let (report, trial) = tried;
        if report.ended == "stopped" {
            break; // an incomplete search has no answer
        }
        show(&trial);
        trials.push(trial);
        if best(&trials).is_some_and(|best| best.rate == rate) {
            kept = Some(report);
        }
    }
    Ok((trials, kept))
}

pub(crate) fn run(args: &CapacityArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    if !(0.1..=50.0).contains(&args.precision) {
        bail!("a precision of {} %: give 0.1 to 50", args.precision);
    }
    common.refuse_csv()?;
    let promise = Promise {
        p99_nanos: args.p99.as_nanos() as u64,
        failure_share: args.errors / 100.0,
    };
    let stop = stop_on_signals()?;
    let is_url = args.plan.contains("://");
    if !is_url && args.request.is_given() {
        bail!("a plan has requests of its own: -m, -H and -b are for a URL");
    }
    let (plan, options) = if is_url {
        (None, common.options(common.target(&args.plan)?, &stop)?)
    } else {
        let (plan, options) = args.planned.open(&args.plan, common, &stop)?;
        (Some(plan), options)
    };
    let from = match (&plan, args.from) {
        (_, Some(from)) => from,
        (None, None) => 100.0,
        (Some(plan), None) => *plan.variables().get(&args.variable).with_context(|| {
            format!(
                "the plan has no variable `{}`: name the one to search with --variable",
                args.variable
            )
        })?,
    };
    let search = match args.step {
        Some(step) => Search::Steps {
            from,
            to: args.to,
            step,
        },
        None => Search::Bisect {
            from,
            to: args.to,
            precision: args.precision / 100.0,
        },
    };
    let request = args.request.build(&options.target, true)?;
    let attempt = |rate: f64| -> anyhow::Result<Attempt> {
        let before = used(&common.pid)?;
        let begun = Instant::now();
        let (report, part) = match &plan {
            Some(plan) => {
                let plan = plan.with(&args.variable, rate)?;
                let report = plan.run(options.clone(), common.connections, common.threads(), |_| {})?;
                let part = plan.open_part(&report, &options.target)?;
                (report, part)
            }
            None => (hold(&options, &request, rate, args.duration, common.threads())?, None),
        };
        if !common.quiet {
            for warning in &report.warnings {
                note(&format!("  ! at {rate:.0}: {warning}"));
            }
        }
        let after = used(&common.pid)?;
        let nanos: u64 = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after.cpu_nanos_since(before))
            .sum();
        let percent = nanos as f64 / begun.elapsed().as_nanos() as f64 * 100.0;
        Ok(Attempt {
            report,
            part,
            cpu_percent: (!common.pid.is_empty()).then_some(percent),
        })
    };
    let show = |trial: &Trial| {
        if !common.quiet {
            note(&line(trial));
        }
    };
    let (trials, kept) = run_search(search, &promise, attempt, show)?;
    let json = || {
        serde_json::json!({
            "format": 1, "kind": "capacity", "target": options.target.base(), "plan": args.plan, "variable": args.variable,
            "promise": promise, "trials": trials, "capacity": best(&trials).map(|trial| trial.rate), "best": kept,
        })
        .to_string()
    };
    common.print(json, || table(&trials, &promise, args))?;
    common.page(|| html::capacity(&args.plan, &trials, &promise, kept.as_ref()))?;
    Ok(if best(&trials).is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the present usage of the target's processes.
fn used(pids: &[u32]) -> anyhow::Result<Vec<Usage>> {
    let each = pids.iter().map(|pid| Usage::of(*pid).map_err(anyhow::Error::msg));
    each.collect()
}

fn hold(options: &Options, request: &Request, rate: f64, duration: Duration, threads: usize) -> anyhow::Result<Report> {
    let mut options = options.clone();
    options.duration = Some(duration + options.request_timeout);
    let arrivals = Arrivals::constant(rate, duration.as_secs_f64());
    Ok(crate::run(&options, Open::split(request, &arrivals, threads))?.report)
}

fn line(trial: &Trial) -> String {
    format!(
        "  {:>10.1}  {:>11.1}  {:>9}  {:>9}  {:>7.2} %  {:>7}  {}",
        trial.rate,
        trial.throughput,
        nanos(trial.response.p50),
        nanos(trial.response.p99),
        trial.failure_share * 100.0,
        trial
            .cpu_percent
            .map_or_else(|| "–".to_owned(), |percent| format!("{percent:.0} %")),
        trial.broken.as_deref().unwrap_or("kept")
    )
}

fn table(trials: &[Trial], promise: &Promise, args: &CapacityArgs) -> String {
    let mut sorted: Vec<&Trial> = trials.iter().collect();
    sorted.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let mut out = format!(
        "\nCapacity of {}: p99 at most {}, failures at most {} %\n\n  {:>10}  {:>11}  {:>9}  {:>9}  {:>9}  {:>7}\n",
        args.plan,
        nanos(promise.p99_nanos),
        args.errors,
        args.variable,
        "requests/s",
        "median",
        "p99",
        "failed",
        "CPU"
    );
    for trial in &sorted {
        let _ = writeln!(out, "{}", line(trial));
    }
    out.push_str(&plot(&sorted, promise));
    let _ = match best(trials) {
        Some(best) => writeln!(
            out,
            "\n  highest {} that kept the promise: {:.1} ({:.1} requests/s, p99 {})",
            args.variable,
            best.rate,
            best.throughput,
            nanos(best.response.p99)
        ),
        None => writeln!(out, "\n  no {} kept the promise", args.variable),
    };
    out
}

/// Draws p99 over the rate as bars on a log scale, with the promise as a mark.
fn plot(sorted: &[&Trial], promise: &Promise) -> String {
    const WIDTH: f64 = 50.0;
    let shown = || {
        sorted
            .iter()
            .map(|trial| trial.response.p99.max(1))
            .chain([promise.p99_nanos.max(1)])
    };
    let (Some(least), Some(most)) = (shown().min(), shown().max()) else {
        return String::new();
    };
    let (low, high) = ((least as f64 / 2.0).ln(), (most as f64 * 1.1).ln());
    let place = |nanos: u64| ((nanos.max(1) as f64).ln() - low) / (high - low) * WIDTH;
    let mark = place(promise.p99_nanos) as usize;
    let mut out = format!(
        "\n  p99 over {}(log scale, | = {})\n",
        if sorted.is_empty() { "nothing " } else { "the rate " },
        nanos(promise.p99_nanos)
    );
    for trial in sorted {
        let length = place(trial.response.p99) as usize;
        let bar: String = (0..WIDTH as usize + 1)
            .map(|column| {
                if column == mark {
                    '|'
                } else if column < length {
                    '▪'
                } else {
                    ' '
                }
            })
            .collect();
        let _ = writeln!(out, "  {:>10.1}  {}", trial.rate, bar.trim_end());
    }
    out
}
