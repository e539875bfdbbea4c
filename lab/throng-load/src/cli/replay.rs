//! `throng load replay`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::common::{Common, stop_on_signals};
use super::progress::{Display, Goal};
use super::values;
use crate::{Aftermath, ErrorKind, OrderedReplay, Outcome, Verdict, run_watched, trace};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Recorded requests, one JSON object a line.
    trace: PathBuf,
    /// The base URL of the recorded paths.
    #[arg(long)]
    target: String,
    /// The speed as a multiple of the recorded one. Without it, requests are sent as fast as answers arrive.
    #[arg(long, value_parser = values::rate)]
    speed: Option<f64>,
    /// The most requests that may wait behind others of the same key.
    #[arg(long, default_value_t = 4096)]
    look_ahead: usize,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let target = common.target(&args.target)?;
    let text = std::fs::read_to_string(&args.trace).with_context(|| format!("cannot read {}", args.trace.display()))?;
    let recording = trace::read(&text, &args.trace.display().to_string(), &target)?;
    let stop = stop_on_signals()?;
    let mut options = common.options(target, &stop)?;
    options.classes = recording.classes;
    let (trace, expected) = (Arc::new(recording.trace), Arc::new(recording.expected));
    let threads = common.threads();
    let sources = (0..threads)
        .map(|part| {
            let expected = expected.clone();
            let judge = move |index: usize, outcome: &Outcome<'_>| {
                let expected: &[u16] = &expected[index];
                let status = outcome.status();
                let passes = if expected.is_empty() {
                    ErrorKind::of_status(status).is_none()
                } else {
                    expected.contains(&status)
                };
                Aftermath::Done(if passes { Verdict::Success } else { Verdict::CheckFailed })
            };
            OrderedReplay::new(trace.clone(), judge)
                .part(part, threads)
                .speed(args.speed.unwrap_or(0.0))
                .look_ahead(args.look_ahead)
        })
        .collect();
    let sampler = common.sampler(&[])?;
    let mut display = Display::new("replay", Goal::Requests(trace.len() as u64), common.quiet);
    let run = run_watched(&options, sources, |progress| display.update(progress));
    display.finish();
    let report = run?
        .report
        .titled(format!("replay of {}", args.trace.display()))
        .setting("requests", trace.len())
        .setting("keys", trace.keys())
        .setting(
            "speed",
            args.speed
                .map_or("flat out".to_string(), |speed| format!("{speed} times")),
        );
    common.deliver(&Common::sampled(sampler, report))
}
