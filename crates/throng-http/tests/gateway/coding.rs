//! Answers that are compressed, or not modified, for clients that ask for this.

use crate::support::{Client, Received, client::request, start};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read;
use throng_http::Running;

const HISTORY: &str = "/api/section/S1/events";
const GZIP: (&str, &str) = ("accept-encoding", "br, gzip");

/// Starts a service with a history of more than a kibibyte.
fn with_history() -> (Running, Client) {
    let gateway = start(|gateway| gateway);
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let body = format!(r#"{{"title":"{}"}}"#, "x".repeat(200_000));
    assert_eq!(client.post("/api/section/S1/rename", &body).status, 200);
    (gateway, client)
}

fn unpacked(answer: &Received) -> Vec<u8> {
    let mut body = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut body).unwrap();
    body
}

#[test]
fn a_large_answer_is_compressed_for_the_client_that_asks() {
    let (_gateway, mut client) = with_history();
    let plain = client.get(HISTORY);
    assert_eq!(
        (
            plain.header("content-encoding"),
            plain.header("etag"),
            plain.header("vary")
        ),
        (None, None, None)
    );
    let small = client.request("GET", HISTORY, &[GZIP], "");
    assert_eq!(small.status, 200);
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert_eq!(small.header("vary"), Some("accept-encoding"));
    assert_eq!(small.header("content-type"), Some("application/json"));
    assert!(small.body.len() < plain.body.len() / 10, "{}", small.body.len());
    assert_eq!(unpacked(&small), plain.body);
    let head = client.send(request("HEAD", HISTORY, &[GZIP], "")).head().unwrap();
    assert_eq!(head.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_small_answer_and_a_problem_are_sent_as_they_are() {
    let (_gateway, mut client) = with_history();
    for (path, status) in [("/api/section/S2", 404), ("/health/live", 200), ("/api/section", 200)] {
        let answer = client.request("GET", path, &[GZIP, ("if-none-match", "*")], "");
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (status, None),
            "{path}"
        );
        let _: Value = serde_json::from_slice(&answer.body).unwrap();
    }
}

#[test]
fn an_unchanged_answer_is_304_and_a_changed_one_comes() {
    let (_gateway, mut client) = with_history();
    let first = client.request("GET", HISTORY, &[GZIP], "");
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    for coding in [GZIP, ("accept-encoding", "identity")] {
        let again = client.request("GET", HISTORY, &[coding, ("if-none-match", &tag)], "");
        assert_eq!((again.status, again.body.len()), (304, 0));
        assert_eq!(again.header("etag"), Some(&*tag));
        assert_eq!(again.header("content-length"), None);
    }
    client.post("/api/section/S1/rename", r#"{"title":"y"}"#);
    let changed = client.request("GET", HISTORY, &[GZIP, ("if-none-match", &tag)], "");
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(&*tag));
}

#[test]
fn an_answer_that_must_not_be_stored_has_no_tag() {
    let (_gateway, mut client) = with_history();
    let plain = client.get("/openapi.json");
    let small = client.request("GET", "/openapi.json", &[GZIP], "");
    assert_eq!(unpacked(&small), plain.body);
    assert!(small.header("etag").is_some());
    let metrics = client.request("GET", "/metrics", &[GZIP, ("if-none-match", "*")], "");
    assert_eq!((metrics.status, metrics.header("etag")), (200, None));
    assert_eq!(metrics.header("content-encoding"), Some("gzip"));
    assert_eq!(metrics.header("cache-control"), Some("no-store"));
}
