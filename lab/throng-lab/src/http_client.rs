//! A keep-alive connection that waits for each answer.

use anyhow::Context as _;
use std::time::Duration;
pub(crate) use throng_testing::Client as Connection;

/// The longest wait for an answer. A service answers within its request deadline of 5 s, unless it is paused.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(6);

pub(crate) type Response = throng_testing::Response<Vec<u8>>;

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub(crate) fn post(path: &str, key: Option<&str>, body: &str) -> Vec<u8> {
    let key = key.map_or(String::new(), |key| format!("idempotency-key: {key}\r\n"));
    let (json, length) = (throng_testing::JSON, body.len());
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{json}{key}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Returns the metrics of a service as text.
pub(crate) fn metrics(connection: &mut Connection) -> anyhow::Result<String> {
    told(connection, &get("/metrics"))
}

/// Returns the text of an answer. Fails if its status is no success.
pub(crate) fn told(connection: &mut Connection, request: &[u8]) -> anyhow::Result<String> {
    let answer = connection.ask(request).context("the service does not answer")?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    anyhow::ensure!(answer.status == 200, "the service answered {} {text}", answer.status);
    Ok(text)
}

/// Returns the sum of a metric in the text format of Prometheus.
pub(crate) fn metric(text: &str, name: &str) -> f64 {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.filter_map(|value| value.trim().parse::<f64>().ok()).sum()
}
