//! A self-contained page with the numbers as JSON and a script that draws them. It needs no network.

use serde_json::{Value, json};

use super::{Cost, Report, Summary, curve};
use crate::capacity::{Promise, Trial, best};
use crate::comparison::Repetition;
use crate::measure::Latencies;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const CHARTS: &str = include_str!("page/charts.js");
const SCRIPT: &str = include_str!("page/page.js");

/// Returns the page of one run.
pub fn run(report: &Report) -> String {
    page(
        &report.title,
        &json!({ "kind": "run", "title": report.title, "runs": [view("", report)], "sentences": [] }),
    )
}

/// A run among several.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The name of the run.
    pub name: &'a str,
    /// The report over all repetitions.
    pub report: &'a Report,
    /// The resources that the target's process used, if they are known.
    pub cost: Option<Cost>,
    /// Its repetitions. The n-th ones of all sides belong together. Empty for a single run.
    pub repetitions: &'a [Repetition],
}

impl<'a> Side<'a> {
    /// Returns a single run with unknown costs of its target.
    pub fn single(name: &'a str, report: &'a Report) -> Self {
        Side {
            name,
            report,
            cost: None,
            repetitions: &[],
        }
    }
}

/// Returns the page of two or more runs, overlaid and side by side.
pub fn several(title: &str, sides: &[Side<'_>], sentences: &[String]) -> String {
    let runs: Vec<Value> = sides.iter().map(side).collect();
    let repeated = sides.iter().any(|side| !side.repetitions.is_empty());
    let rounds: Option<Vec<&[Repetition]>> = repeated.then(|| sides.iter().map(|side| side.repetitions).collect());
    page(
        title,
        &json!({ "kind": "several", "title": title, "runs": runs, "sentences": sentences, "rounds": rounds }),
    )
}

fn side(side: &Side<'_>) -> Value {
    let mut view = view(side.name, side.report);
    view["cost"] = json!(side.cost);
    view
}

/// Returns the page of a capacity search, with the run at the highest rate that kept the promise.
pub fn capacity(title: &str, trials: &[Trial], promise: &Promise, kept: Option<&Report>) -> String {
    let runs: Vec<Value> = kept.iter().map(|report| view("", report)).collect();
    let title = format!("Capacity of {title}");
    let capacity = best(trials).map(|trial| trial.rate);
    let data = json!({
        "kind": "capacity", "title": title, "runs": runs, "sentences": [],
        "trials": trials, "promise": promise, "capacity": capacity,
    });
    page(&title, &data)
}

/// Returns a page of other figures in the same style. `script` draws `data` with the helpers of `charts.js`.
pub fn figures(title: &str, figures: &impl serde::Serialize, script: &str) -> String {
    let data = json!({ "kind": "figures", "title": title, "figures": figures });
    scripted(title, &data, script)
}

/// Returns the part of a report that the page needs.
fn view(name: &str, report: &Report) -> Value {
    let classes: Vec<Value> = report
        .classes
        .iter()
        .map(
            |class| json!({ "name": class.name, "counters": class.counters, "examples": class.examples, "response": Summary::of(&class.response) }),
        )
        .collect();
    let errors: Vec<Value> = report
        .counters
        .errors
        .iter()
        .map(|(kind, count)| json!([kind.name(), count]))
        .collect();
    json!({
        "name": name,
        "title": report.title,
        "target": report.target,
        "settings": report.settings,
        "started": report.started_unix_millis,
        "elapsed": report.elapsed_nanos as f64 / 1e9,
        "ended": report.ended,
        "throughput": report.throughput(),
        "wanted": report.wanted_rate,
        "open": report.open_model,
        "counters": report.counters,
        "failureShare": report.counters.failure_share(),
        "errors": errors,
        "response": distribution(&report.response),
        "service": distribution(&report.service),
        "lateness": Summary::of(&report.lateness),
        "ownDelay": Summary::of(&report.own_delay),
        "classes": classes,
        "classNames": report.classes.iter().map(|class| &class.name).collect::<Vec<_>>(),
        "seconds": report.seconds,
        "outliers": report.outliers.iter().map(|one| json!([one.at_nanos as f64 / 1e9, one.latency_nanos, one.status])).collect::<Vec<_>>(),
        "requests": report.requests.points.iter().map(|one| json!([one.at_nanos as f64 / 1e9, one.latency_nanos, one.status])).collect::<Vec<_>>(),
        "every": report.requests.every,
        "generator": report.generator,
        "cpuPerRequest": report.cpu_nanos_per_request(),
        "opened": report.connections_opened,
        "samples": report.samples,
        "plan": report.plan,
        "machine": report.machine,
        "warnings": report.warnings,
        "unsent": report.unsent,
    })
}

fn distribution(histogram: &Latencies) -> Value {
    json!({ "summary": Summary::of(histogram), "curve": curve(histogram) })
}

fn page(title: &str, data: &Value) -> String {
    scripted(title, data, SCRIPT)
}

fn scripted(title: &str, data: &Value, script: &str) -> String {
    // Within a script element, `</` and `<!--` could end it early. JSON may write `<` as an escape.
    let data = data.to_string().replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + CHARTS.len() + script.len() + data.len());
    let mut rest = PAGE;
    for (mark, text) in [
        ("{{title}}", title.as_str()),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{charts}}", CHARTS),
        ("{{script}}", script),
    ] {
        let (before, after) = rest.split_once(mark).expect("the page has every mark, in this order");
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let page = page(
            "</title><script>alert(1)</script>",
            &json!({ "title": "</script><script>alert(1)</script>" }),
        );
        assert!(!page.contains("alert(1)</script>"));
        assert!(page.contains(r"\u003c/script>\u003cscript>alert(1)"));
    }

    #[test]
    fn the_page_needs_no_network() {
        let text = [PAGE, STYLE, CHARTS, SCRIPT].concat();
        for word in ["src=", "href=\"http", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            assert!(!text.contains(word), "{word}");
        }
    }
}
