//! The output of the load client of the course on scalable distributed systems.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::Report;
use crate::plan::Plan;
use crate::report::Summary;

/// The header line of its CSV file.
const HEADER: &str = "start_time,latency,request_type,response_code";

/// Returns its report, with times in milliseconds.
pub(super) fn text(report: &Report) -> String {
    let summary = Summary::of(&report.response);
    let seconds = report.elapsed().as_secs_f64();
    let millis = |nanos: u64| nanos as f64 / 1e6;
    let mut out = String::new();
    let _ = writeln!(out, "Total successes: {}", report.counters.successes);
    let _ = writeln!(out, "Total failures: {}", report.counters.failures);
    let _ = writeln!(out, "Time elapsed (sec): {seconds:.3}");
    let _ = writeln!(out, "Total throughput (reqs/sec): {:.4}", report.throughput());
    let _ = writeln!(out, "Max latency (ms): {:.3}", millis(summary.max));
    let _ = writeln!(out, "Min latency (ms): {:.3}", millis(summary.min));
    let _ = writeln!(out, "Mean latency (ms): {:.3}", summary.mean / 1e6);
    let _ = writeln!(out, "Median latency (ms): {:.3}", millis(summary.p50));
    let _ = writeln!(out, "99th percentile (ms): {:.3}", millis(summary.p99));
    out
}

/// Rewrites the requests of a run in the format of that client, one CSV line for each attempt: start in milliseconds since 1970, latency in
/// milliseconds, method, status (0 without an answer).
pub(super) fn rewrite(path: &Path, report: &Report, plan: &Plan) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = String::with_capacity(text.len());
    out.push_str(HEADER);
    out.push('\n');
    for line in text.lines().skip(1) {
        let mut fields = line.splitn(6, ',');
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
        let (Some(start), Some(latency), Some(_), Some(status)) = (number(), number(), number(), number()) else {
            continue;
        };
        let class = fields.nth(1).unwrap_or_default().trim_matches('"');
        let method = plan.method_of(class);
        let start = report.started_unix_millis + start / 1_000_000;
        let _ = writeln!(out, "{start},{:.3},{method},{status}", latency as f64 / 1e6);
    }
    std::fs::write(path, out).with_context(|| format!("cannot write {}", path.display()))
}
