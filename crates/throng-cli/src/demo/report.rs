//! The demo's final report: sentences for a person, and a summary for a program.

use registration::{
    reference::{ContradictoryAnswers, Difference},
    trace::Trace,
};
use serde::Serialize;
use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};
use throng_app::Durability;

use super::steps::Replay;
use crate::{
    percent,
    units::{count, milliseconds},
};

/// Most differences that are shown in full.
const SHOWN_MAX: usize = 10;

/// Facts known at the end, in addition to the replay.
pub(super) struct Ending {
    pub(super) clients: usize,
    pub(super) durability: Durability,
    pub(super) commits: u64,
    pub(super) journal_bytes: u64,
    pub(super) recovery: Duration,
    pub(super) enrolled: usize,
    pub(super) differences: Vec<Difference>,
    pub(super) contradiction: Option<ContradictoryAnswers>,
    pub(super) overfull: Vec<Arc<str>>,
}

/// Warns that the figures are those of an unoptimized build.
const UNOPTIMISED: &str = match cfg!(debug_assertions) {
    true => " (compiled without optimisation; `cargo run --release -- demo` measures)",
    false => "",
};

/// The figures for a program. Each request is granted, refused, a drop, or a difference.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    requests: usize,
    granted: u64,
    refused: u64,
    dropped: u64,
    elapsed_s: f64,
    requests_per_s: f64,
    latency_ms: Latency,
    commits: u64,
    mean_batch: f64,
    recovery_s: f64,
    sections: usize,
    enrolled: usize,
    pub(super) differences: usize,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: f64,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Summary {
    pub(super) fn of(trace: &Trace, replay: &Replay, ending: &Ending) -> Self {
        let (counts, requests) = (replay.counts(), trace.requests.len());
        let elapsed_s = replay.report.elapsed().as_secs_f64();
        let times = &replay.report.response;
        let at = |quantile| milliseconds(times.value_at_quantile(quantile));
        Self {
            requests,
            granted: counts.granted(),
            refused: counts.refused(),
            dropped: counts.dropped + counts.not_present,
            elapsed_s,
            requests_per_s: if elapsed_s > 0.0 {
                requests as f64 / elapsed_s
            } else {
                0.0
            },
            latency_ms: Latency {
                min: milliseconds(times.min()),
                mean: times.mean() / 1e6,
                p50: at(0.5),
                p95: at(0.95),
                p99: at(0.99),
                p999: at(0.999),
                max: milliseconds(times.max()),
            },
            commits: ending.commits,
            mean_batch: requests as f64 / ending.commits.max(1) as f64,
            recovery_s: ending.recovery.as_secs_f64(),
            sections: trace.sections.len(),
            enrolled: ending.enrolled,
            differences: replay.wrong
                + ending.differences.len()
                + ending.overfull.len()
                + usize::from(ending.contradiction.is_some()),
        }
    }
}

/// The report for a person.
pub(super) fn text(summary: &Summary, replay: &Replay, ending: &Ending) -> String {
    let counts = replay.counts();
    let latency = &summary.latency_ms;
    let survives = match ending.durability {
        Durability::Fsync => "each answered after its fdatasync",
        Durability::Os | Durability::Memory => "NOT synced: they do not survive power loss",
    };
    let faults = faults(replay, ending);
    let mut out = format!(
        "
  requests   {requests} by {clients} clients, {survives}
  granted    {granted:>7}   {added} added, {present} present already
  refused    {refused:>7}   {full} section full, {nowhere} no such section
  dropped    {dropped:>7}   {left} left, {absent} were not present
  elapsed    {:.3} s, {rate} requests/s{UNOPTIMISED}
  latency    min {:.2} ms, mean {:.2}, median {:.2}, p95 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}
  commits    {commits}, mean batch {:.1} requests, journal {:.1} MB
  recovery   {:.3} s
  rosters    {sections} sections, {enrolled} students enrolled: {verdict}
",
        summary.elapsed_s,
        latency.min,
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.p999,
        latency.max,
        summary.mean_batch,
        ending.journal_bytes as f64 / 1e6,
        summary.recovery_s,
        requests = count(summary.requests as u64),
        clients = count(ending.clients as u64),
        granted = count(summary.granted),
        added = count(counts.added),
        present = count(counts.already_present),
        refused = count(summary.refused),
        full = count(counts.full),
        nowhere = count(counts.no_section),
        dropped = count(summary.dropped),
        left = count(counts.dropped),
        absent = count(counts.not_present),
        rate = count(summary.requests_per_s as u64),
        commits = count(summary.commits),
        sections = count(summary.sections as u64),
        enrolled = count(summary.enrolled as u64),
        verdict = match faults.is_empty() {
            true => "all as they must be",
            false => "NOT as they must be",
        },
    );
    for fault in faults {
        writeln!(out, "  !          {fault}").expect("a string takes any text");
    }
    out
}

/// Returns a sentence for each wrong answer and each difference from the reference.
pub(super) fn faults(replay: &Replay, ending: &Ending) -> Vec<String> {
    let mut faults = replay.shown.clone();
    if replay.wrong > replay.shown.len() {
        faults.push(format!(
            "… and {} more wrong answers",
            replay.wrong - replay.shown.len()
        ));
    }
    faults.extend(ending.contradiction.iter().map(ToString::to_string));
    faults.extend(
        ending
            .overfull
            .iter()
            .map(|section| format!("section `{section}` has more students than seats")),
    );
    faults.extend(ending.differences.iter().take(SHOWN_MAX).map(ToString::to_string));
    if ending.differences.len() > SHOWN_MAX {
        faults.push(format!("… and {} more sections", ending.differences.len() - SHOWN_MAX));
    }
    faults
}

/// Returns addresses worth opening while the service stays up.
pub(super) fn places(console: &str, url: &str, trace: &Trace) -> String {
    let mut wanted: HashMap<&str, usize> = HashMap::new();
    for request in &trace.requests {
        *wanted.entry(&request.section).or_default() += 1;
    }
    let busiest = wanted
        .iter()
        .max_by_key(|(id, requests)| (**requests, **id))
        .map_or("", |(id, _)| id);
    let busiest = percent::segment(busiest);
    format!(
        "\n  The service stays up; Ctrl-C ends it. Worth opening:\n\n    \
         {console}{pad}the console: the curves of the replay, every section with its past\n    \
         {url}/docs{pad}every route, from the types\n    \
         {url}/sections{pad}the sections\n    \
         {url}/sections/{busiest}/roster   the most wanted one's roster\n    \
         {url}/api/section/{busiest}/events   all that happened to it\n    \
         {url}/metrics{pad}what the engine counts\n",
        pad = "   "
    )
}
