//! `throng load URL`: one request, open or closed model.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::common::{Common, stop_on_signals};
use super::progress::{Display, Goal};
use super::request::RequestArgs;
use super::values;
use crate::{Arrivals, Closed, Open, run_watched};

/// `throng load URL`.
#[derive(Debug, Args)]
pub(crate) struct DirectArgs {
    /// The URL to load, for example http://127.0.0.1:8080/primes/20
    url: Option<String>,
    /// Open model: requests a second, sent even if the server falls behind.
    #[arg(long, short = 'r', value_parser = values::rate)]
    rate: Option<f64>,
    /// Independent arrivals (exponential gaps) instead of evenly spaced ones.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Seed of random arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The time for which to load (60s, 5m) [default: 10s].
    #[arg(long = "for", short = 'd', value_parser = values::time, value_name = "TIME")]
    duration: Option<Duration>,
    /// Closed model: end after this many requests.
    #[arg(long, short = 'n', conflicts_with = "rate", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    #[command(flatten)]
    request: RequestArgs,
    /// Requests in flight on one connection (HTTP pipelining).
    #[arg(long, default_value_t = 1, conflicts_with = "http2")]
    pipeline: usize,
    /// A new connection for every request.
    #[arg(long, conflicts_with = "http2")]
    no_keep_alive: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &DirectArgs) -> anyhow::Result<ExitCode> {
    let Some(url) = &args.url else {
        bail!("give a URL, for example http://127.0.0.1:8080/ (see --help)")
    };
    let common = &args.common;
    let target = common.target(url)?;
    let request = args.request.build(&target, !args.no_keep_alive)?;
    let stop = stop_on_signals()?;
    let mut options = common.options(target, &stop)?;
    options.pipeline = args.pipeline;
    options.keep_alive = !args.no_keep_alive;
    let threads = common.threads();
    let quiet = common.quiet;
    let default = Duration::from_secs(10);
    let sampler = common.sampler(&[])?;
    let report = if let Some(rate) = args.rate {
        let duration = args.duration.unwrap_or(default);
        let mut arrivals = Arrivals::constant(rate, duration.as_secs_f64());
        if args.poisson {
            arrivals = arrivals.poisson(args.seed);
        }
        // Late requests may still be sent during one request timeout. The rest is counted as unsent.
        options.duration = Some(duration + options.request_timeout);
        let mut display = Display::new("open", Goal::Time(duration), quiet);
        let run = run_watched(&options, Open::split(&request, &arrivals, threads), |progress| {
            display.update(progress)
        })?;
        display.finish();
        let mut report = run.report.setting(
            "model",
            if args.poisson {
                "open, Poisson"
            } else {
                "open, constant rate"
            },
        );
        report.wanted_rate = Some(rate);
        report
    } else {
        let total = args.requests.unwrap_or(u64::MAX);
        options.duration = args.duration.or(args.requests.is_none().then_some(default));
        let goal = match (args.requests, options.duration) {
            (Some(total), _) => Goal::Requests(total),
            (None, Some(duration)) => Goal::Time(duration),
            (None, None) => Goal::Unknown,
        };
        let mut display = Display::new("closed", goal, quiet);
        let run = run_watched(&options, Closed::split(&request, total, threads), |progress| {
            display.update(progress)
        })?;
        display.finish();
        run.report.setting("model", "closed")
    };
    common.deliver(&Common::sampled(sampler, report))
}
