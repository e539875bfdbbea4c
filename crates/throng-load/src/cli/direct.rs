//! `throng load URL`: one request, open or closed model.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::progress::{Display, Goal};
use super::values;
use crate::{Arrivals, Closed, Open, Options, Report, Request, Stop, Target, report, run_watched};

/// What is common to all commands that drive load.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Connections over all threads.
    #[arg(long, short = 'c')]
    pub(crate) connections: Option<usize>,
    /// Worker threads; one drives more than 100,000 requests a second.
    #[arg(long, short = 't', default_value_t = 1)]
    pub(crate) threads: usize,
    /// How long a request may take.
    #[arg(long, default_value = "10s", value_parser = values::duration)]
    pub(crate) timeout: Duration,
    /// How long a connection may take to be made.
    #[arg(long, default_value = "1s", value_parser = values::duration)]
    pub(crate) connect_timeout: Duration,
    /// Write the whole report as JSON to this file (`-`: standard output, instead of the text).
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write one CSV line a request to this file, and one a second to FILE.seconds.csv.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// No progress.
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// Allow a target that is neither loopback nor on a private network.
    #[arg(long)]
    pub(crate) i_own_this_target: bool,
    /// Accept any TLS certificate.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Trust the certificates of this PEM file.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,
}

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
    #[arg(long = "for", short = 'd', value_parser = values::duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// Closed model: end after so many requests.
    #[arg(long, short = 'n', conflicts_with = "rate")]
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
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// A new connection for every request.
    #[arg(long)]
    no_keep_alive: bool,
    #[command(flatten)]
    common: Common,
}

impl Common {
    /// Options of a run against `target`.
    pub(crate) fn options(&self, target: Target, stop: &Stop) -> Options {
        let mut options = Options::new(target);
        options.connections = self.connections.unwrap_or(options.connections);
        options.request_timeout = self.timeout;
        options.connect_timeout = self.connect_timeout.min(self.timeout);
        options.drain = self.timeout;
        options.stop = stop.clone();
        options.log = self.csv.clone();
        options.tls.insecure = self.insecure;
        options.tls.roots = self.tls_roots.clone();
        options
    }

    /// Writes the files that were asked for and prints the report.
    pub(crate) fn deliver(&self, report: &Report) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.csv {
            let mut seconds = path.clone().into_os_string();
            seconds.push(".seconds.csv");
            std::fs::write(&seconds, report::seconds_csv(report))
                .with_context(|| format!("cannot write {}", seconds.display()))?;
        }
        match &self.json {
            Some(path) if path.as_os_str() == "-" => println!("{}", report.to_json()),
            Some(path) => {
                std::fs::write(path, report.to_json()).with_context(|| format!("cannot write {}", path.display()))?;
                print!("{}", report::text(report));
            }
            None => print!("{}", report::text(report)),
        }
        Ok(if report.counters.successes == 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// Ctrl-C ends the run with its report; a second one ends the program at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.flag()).context("cannot handle signals")?;
        signal_hook::flag::register(signal, stop.flag()).context("cannot handle signals")?;
    }
    Ok(stop)
}

pub(crate) fn run(args: &DirectArgs) -> anyhow::Result<ExitCode> {
    let Some(url) = &args.url else {
        bail!("give a URL, for example http://127.0.0.1:8080/ (see --help)")
    };
    let common = &args.common;
    let target = Target::resolve(url, common.i_own_this_target)?;
    let request = request(args, &target)?;
    let stop = stop_on_signals()?;
    let mut options = common.options(target, &stop);
    options.pipeline = args.pipeline;
    options.keep_alive = !args.no_keep_alive;
    let threads = common.threads.max(1);
    let quiet = common.quiet;
    let default = Duration::from_secs(10);
    let report = if let Some(rate) = args.rate {
        let duration = args.duration.unwrap_or(default);
        let mut arrivals = Arrivals::constant(rate, duration.as_secs_f64());
        if args.poisson {
            arrivals = arrivals.poisson(args.seed);
        }
        // Late requests may still be sent for as long as one may take; what is left then is unsent.
        options.duration = Some(duration + common.timeout);
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
    common.deliver(&report)
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
