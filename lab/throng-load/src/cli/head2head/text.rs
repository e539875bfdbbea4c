//! Several runs for a terminal.

use std::fmt::Write as _;

use crate::report::html::Side;
use crate::report::{Summary, units};

/// Returns the runs as a table, with sentences about their differences.
pub(crate) fn text(title: &str, sides: &[Side<'_>], sentences: &[String]) -> String {
    let width = sides
        .iter()
        .map(|side| side.name.chars().count())
        .max()
        .unwrap_or(0)
        .max(2);
    let mut out = format!("\n{title}\n\n");
    for side in sides {
        let _ = writeln!(
            out,
            "  {:width$} {} ({})",
            side.name, side.report.title, side.report.target
        );
    }
    let measured = sides.iter().any(|side| side.cost.is_some());
    let _ = write!(
        out,
        "\n  {:width$}{:>11}{:>9}{:>12}",
        "", "successes", "failures", "requests/s"
    );
    for name in ["min", "mean", "median", "p95", "p99", "p99.9", "max"] {
        let _ = write!(out, " {name:>8}");
    }
    if measured {
        let _ = write!(out, " {:>11} {:>9}", "CPU/request", "memory");
    }
    out.push('\n');
    for side in sides {
        row(&mut out, side, width);
    }
    out.push('\n');
    for sentence in sentences {
        let _ = writeln!(out, "  {sentence}");
    }
    for side in sides {
        for warning in &side.report.warnings {
            let _ = writeln!(out, "  ! {}: {warning}", side.name);
        }
    }
    out
}

fn row(out: &mut String, side: &Side<'_>, width: usize) {
    let report = side.report;
    let summary = Summary::of(&report.response);
    let _ = write!(
        out,
        "  {:width$}{:>11}{:>9}{:>12.1}",
        side.name,
        report.counters.successes,
        report.counters.failures,
        report.throughput()
    );
    for value in [
        summary.min,
        summary.mean as u64,
        summary.p50,
        summary.p95,
        summary.p99,
        summary.p999,
        summary.max,
    ] {
        let _ = write!(out, " {:>8}", units::nanos(value));
    }
    if let Some(cost) = side.cost {
        let cpu = units::nanos(cost.cpu_nanos_per_request as u64);
        let _ = write!(out, " {cpu:>11} {:>9}", units::bytes(cost.memory_bytes as f64));
    }
    out.push('\n');
}
