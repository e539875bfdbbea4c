//! The original's pages for operators, for existing probes and dashboards.
//!
//! | route | answers |
//! |---|---|
//! | `GET /actuator/health` | 200 `{"status":"UP"}`, 503 `{"status":"DOWN"}` |
//! | `GET /actuator/info` | the app's name and version |
//! | `GET /actuator/prometheus` | all metrics, in the text format of Prometheus (0.0.4) |
//! | `GET /actuator/metrics` | their names |
//! | `GET /actuator/metrics/{name}` | one of them, over all its labels; 404 with no body |
//!
//! Health is public. Like the engine's own `/metrics`, the metrics are only for administrators, on the listener for administration.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use throng::Engine;
use throng_http::{Administrator, Described, Route};

const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Router<Engine> {
    Router::new()
        .route("/actuator/health", get(health))
        .route("/actuator/info", get(info))
        .route("/actuator/prometheus", get(prometheus))
        .route("/actuator/metrics", get(names))
        .route("/actuator/metrics/{name}", get(metric))
}

pub(super) fn describe(described: Described) -> Described {
    let page = |path: &str, summary: &str| Route::get(path, summary);
    described
        .route(page("/actuator/health", "Are commands taken?").replies::<Value>(200, "`UP`; 503 with `DOWN`"))
        .route(page("/actuator/info", "Which program this is").replies::<Value>(200, "Its name and version"))
        .route(page("/actuator/prometheus", "All metrics").replies::<String>(200, "Prometheus' text, 0.0.4"))
        .route(page("/actuator/metrics", "The names of the metrics").replies::<Value>(200, "`names`"))
        .route(
            page("/actuator/metrics/{name}", "One metric, over all its labels")
                .part("name", "Its name")
                .replies::<Value>(200, "Its `measurements`"),
        )
}

async fn health(State(engine): State<Engine>) -> (StatusCode, Json<Value>) {
    match engine.health().ready {
        true => (StatusCode::OK, Json(json!({ "status": "UP" }))),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "DOWN" }))),
    }
}

async fn info() -> Json<Value> {
    Json(json!({ "app": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") } }))
}

/// Returns all metrics as text.
fn text(engine: &Engine) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = engine.metrics().encode_plain(&mut text);
    text
}

async fn prometheus(_: Administrator, State(engine): State<Engine>) -> Response {
    ([(header::CONTENT_TYPE, PLAIN)], text(&engine)).into_response()
}

async fn names(_: Administrator, State(engine): State<Engine>) -> Json<Value> {
    let text = text(&engine);
    let names: Vec<&str> = declared(&text).map(|(name, _)| name).collect();
    Json(json!({ "names": names }))
}

async fn metric(_: Administrator, State(engine): State<Engine>, Path(name): Path<String>) -> Response {
    let text = text(&engine);
    let Some((_, kind)) = declared(&text).find(|(found, _)| *found == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let measurements: Vec<Value> = sums(&text, &name, kind)
        .into_iter()
        .map(|(statistic, value)| json!({ "statistic": statistic, "value": value }))
        .collect();
    Json(json!({ "name": name, "measurements": measurements, "availableTags": [] })).into_response()
}

/// Returns each metric with its type.
fn declared(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
}

/// Sums the samples of a metric, by statistic.
fn sums(text: &str, name: &str, kind: &str) -> BTreeMap<&'static str, f64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, value) = line.rsplit_once(' ').unwrap_or((line, ""));
        let series = sample.split_once('{').map_or(sample, |(series, _)| series);
        let statistic = match (series.strip_prefix(name), kind) {
            (Some(""), "counter") | (Some("_count"), "histogram") => "COUNT",
            (Some("_sum"), "histogram") => "TOTAL",
            (Some(""), _) => "VALUE",
            _ => continue,
        };
        *sums.entry(statistic).or_default() += value.parse().unwrap_or(0.0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE hits_total counter\nhits_total{a=\"x\"} 1\nhits_total{a=\"y z\"} 2\n# TYPE took histogram\ntook_sum 0.5\n\
                    took_count 3\ntook_bucket{le=\"1\"} 3\n# TYPE level gauge\nlevel 7\n";
        let found: Vec<_> = declared(text).collect();
        assert_eq!(
            found,
            [("hits_total", "counter"), ("took", "histogram"), ("level", "gauge")]
        );
        let sums = |name, kind| sums(text, name, kind).into_iter().collect::<Vec<_>>();
        assert_eq!(sums("hits_total", "counter"), [("COUNT", 3.0)]);
        assert_eq!(sums("took", "histogram"), [("COUNT", 3.0), ("TOTAL", 0.5)]);
        assert_eq!(sums("level", "gauge"), [("VALUE", 7.0)]);
    }
}
