use std::fmt::Write as _;

use super::{ClassReport, Report, Summary, bytes, count, nanos};
use crate::measure::Latencies;

const CLASSES_SHOWN_MAX: usize = 40;

/// Returns the report for a terminal: plain text, with at most 100 columns for usual numbers.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let counters = &report.counters;
    let seconds = report.elapsed().as_secs_f64();
    let _ = writeln!(out, "\n{}\n", report.title);
    let _ = writeln!(
        out,
        "  successes   {}   failures {} ({:.2} %)   retried {}",
        count(counters.successes),
        count(counters.failures),
        counters.failure_share() * 100.0,
        count(counters.retried)
    );
    let _ = writeln!(out, "  elapsed     {seconds:.3} s   ({})", report.ended);
    let wanted = report
        .wanted_rate
        .map_or(String::new(), |rate| format!("   (wanted {rate:.1})"));
    let _ = writeln!(out, "  throughput  {:.1} requests/s{wanted}", report.throughput());
    let _ = writeln!(
        out,
        "  bytes       {} in, {} out   ({}/s in)   connections opened {}",
        bytes(counters.bytes_in as f64),
        bytes(counters.bytes_out as f64),
        bytes(if seconds > 0.0 {
            counters.bytes_in as f64 / seconds
        } else {
            0.0
        }),
        count(report.connections_opened)
    );
    latency_table(&mut out, report);
    for (kind, number) in &counters.errors {
        let _ = writeln!(out, "  error       {:<26} {:>12}", kind.name(), count(*number));
    }
    for (status, number) in &counters.statuses {
        let _ = writeln!(out, "  status      {status:<26} {:>12}", count(*number));
    }
    for class in report.classes.iter().take(CLASSES_SHOWN_MAX) {
        for (status, body) in &class.examples {
            let _ = writeln!(out, "  an answer   {} {status}: {body}", class.name);
        }
    }
    generator(&mut out, report);
    for warning in &report.warnings {
        let _ = writeln!(out, "  ! {warning}");
    }
    out
}

fn latency_table(out: &mut String, report: &Report) {
    let classes: &[ClassReport] = if report.classes.len() > 1 { &report.classes } else { &[] };
    let widest = classes
        .iter()
        .map(|class| class.name.chars().count())
        .max()
        .unwrap_or(0);
    let width = widest.clamp(13, 32);
    let _ = write!(out, "\n  {:width$}", "");
    for name in ["min", "mean", "median", "p90", "p95", "p99", "p99.9", "max"] {
        let _ = write!(out, " {name:>8}");
    }
    out.push('\n');
    if report.open_model {
        row(out, "response time", width, &report.response);
        row(out, "service time", width, &report.service);
    } else {
        row(out, "latency", width, &report.response);
    }
    for class in classes.iter().take(CLASSES_SHOWN_MAX) {
        let name: String = class.name.chars().take(width).collect();
        row(out, &name, width, &class.response);
    }
    if classes.len() > CLASSES_SHOWN_MAX {
        let _ = writeln!(out, "  … and {} more (see --json)", classes.len() - CLASSES_SHOWN_MAX);
    }
    out.push('\n');
}

fn row(out: &mut String, name: &str, width: usize, histogram: &Latencies) {
    let summary = Summary::of(histogram);
    let _ = write!(out, "  {name:width$}");
    for value in [
        summary.min,
        summary.mean as u64,
        summary.p50,
        summary.p90,
        summary.p95,
        summary.p99,
        summary.p999,
        summary.max,
    ] {
        let _ = write!(out, " {:>8}", nanos(value));
    }
    out.push('\n');
}

fn generator(out: &mut String, report: &Report) {
    let usage = &report.generator;
    let seconds = report.elapsed().as_secs_f64().max(1e-9);
    let _ = writeln!(
        out,
        "  generator   {:.2} µs CPU a request, {:.0} % of {} thread{}; waited for a core {:.1} %",
        report.cpu_nanos_per_request() / 1e3,
        usage.cpu_nanos as f64 / 1e7 / seconds / usage.threads.max(1) as f64,
        usage.threads,
        if usage.threads == 1 { "" } else { "s" },
        usage.run_delay_nanos as f64 / 1e7 / seconds / usage.threads.max(1) as f64
    );
    if report.open_model {
        let _ = writeln!(
            out,
            "              sent late: p99 {}, of it by the generator itself p99 {}, max {}",
            nanos(report.lateness.value_at_quantile(0.99)),
            nanos(report.own_delay.value_at_quantile(0.99)),
            nanos(report.own_delay.max())
        );
    }
}
