use std::borrow::Cow;
use std::fmt::Write as _;

use super::Report;

/// Returns the per-second series as CSV, with times in milliseconds. The last columns are the kinds of errors in the run.
pub fn seconds_csv(report: &Report) -> String {
    let mut text = String::from(
        "second,successes,failures,retried,p50_ms,p90_ms,p99_ms,p99_9_ms,max_ms,connections,bytes_in,bytes_out",
    );
    let kinds = report.counters.errors.keys();
    for kind in kinds.clone() {
        let _ = write!(text, ",{}", field(kind.name()));
    }
    text.push('\n');
    for second in &report.seconds {
        let [p50, p90, p99, p999, max] = [
            second.p50_nanos,
            second.p90_nanos,
            second.p99_nanos,
            second.p999_nanos,
            second.max_nanos,
        ]
        .map(|nanos| nanos as f64 / 1e6);
        let counters = &second.counters;
        let _ = write!(
            text,
            "{},{},{},{},{p50:.3},{p90:.3},{p99:.3},{p999:.3},{max:.3},{},{},{}",
            second.second,
            counters.successes,
            counters.failures,
            counters.retried,
            second.connections,
            counters.bytes_in,
            counters.bytes_out
        );
        for kind in kinds.clone() {
            let _ = write!(text, ",{}", counters.errors.get(kind).copied().unwrap_or(0));
        }
        text.push('\n');
    }
    text
}

/// Returns a field, quoted if needed.
pub(crate) fn field(text: &str) -> String {
    let quoted: Cow<'_, str> = if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    };
    quoted.into_owned()
}
