//! `throng load URL`: one request, open or closed model.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::common::{Common, stop_on_signals};
use super::progress::{Display, Goal};
use super::values;
use crate::{Arrivals, Closed, Open, Request, Target, run_watched};

/// `throng load URL`.
#[derive(Debug, Args)]
pub(crate) struct DirectArgs {
    /// What to load, for example http://127.0.0.1:8080/primes/20
    url: Option<String>,
    /// Open model: requests a second, sent whatever the server does.
    #[arg(long, short = 'r', value_parser = values::rate)]
    rate: Option<f64>,
    /// Independent arrivals (exponential gaps) instead of evenly spaced ones.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Seed of random arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long (60s, 5m); default 10s.
    #[arg(long = "for", short = 'd', value_parser = values::time, value_name = "TIME")]
    duration: Option<Duration>,
    /// Closed model: end after so many requests.
    #[arg(long, short = 'n', conflicts_with = "rate", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Method; POST where there is a body.
    #[arg(long, short = 'm')]
    method: Option<String>,
    /// A header, `Name: value`; repeatable.
    #[arg(long, short = 'H', value_parser = values::header)]
    header: Vec<(String, String)>,
    /// The request's body; `@FILE` reads it from a file.
    #[arg(long, short = 'b')]
    body: Option<String>,
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
    let request = request(args, &target)?;
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
        // Late requests may still be sent for as long as one may take; what is left then is unsent.
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

fn request(args: &DirectArgs, target: &Target) -> anyhow::Result<Request> {
    let body = match args.body.as_deref() {
        Some(body) => match body.strip_prefix('@') {
            Some(file) => Some(std::fs::read(file).with_context(|| format!("cannot read the body from {file}"))?),
            None => Some(body.as_bytes().to_vec()),
        },
        None => None,
    };
    let method = args
        .method
        .clone()
        .unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_string());
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
        bail!("`{method}` is no HTTP method");
    }
    let mut builder = Request::build(&method.to_ascii_uppercase(), &target.authority, &target.path);
    if args.no_keep_alive {
        builder = builder.header("Connection", "close");
    }
    for (name, value) in &args.header {
        builder = builder.header(name, value);
    }
    if let Some(body) = body {
        builder = builder.body(body);
    }
    Ok(builder.finish())
}
