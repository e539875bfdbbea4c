//! Header fields of hostile clients: the answer is the same on each path, and over HTTP/2.

use crate::support::{
    Client,
    both_paths::{FULL, in_all},
    http2::{Frames, Http2},
    plain, start, tokens, wait,
};
use std::net::TcpStream;

const OPEN: &str = "/api/section/S1/open";
const EVENTS: &str = "/api/section/S1/events";
const BODY: &str = r#"{"capacity":9}"#;
const JSON: (&str, &str) = ("content-type", "application/json");
const STREAM: (&str, &str) = ("accept", "text/event-stream");
const GO_ON: (&str, &str) = ("last-event-id", "1");
/// Types of frames that end a stream, and a connection.
const ENDS: [u8; 2] = [3, 7];

/// Returns a field's name in an unusual notation.
fn odd(name: &str) -> String {
    let odd = |(at, letter): (usize, char)| match at % 2 {
        0 => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    name.chars().enumerate().map(odd).collect()
}

#[test]
fn hostile_fields_are_answered_alike_by_every_way_in() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let gateway = start(|gateway| gateway.tokens(dir.path().join("tokens")));
    let (ann, bob) = (("authorization", &*ann), ("authorization", &*bob));
    let wrong = ("authorization", "Bearer throng_wrong");
    let key = ("idempotency-key", "k");
    let other_key = ("idempotency-key", "another");
    let time = ("request-timeout", "5");
    let text = ("content-type", "text/plain");
    let utf16 = ("content-type", "application/json; charset=utf-16");
    let utf8 = ("content-type", "application/json; charset=UTF-8");
    let length = ("content-length", "14");
    for (path, fields, status, field) in [
        (OPEN, &[utf16, ann][..], 415, "Content-Type"),
        (OPEN, &[JSON, JSON, ann], 400, "Content-Type"),
        (OPEN, &[JSON, text, ann], 400, "Content-Type"),
        (OPEN, &[text, JSON, ann], 400, "Content-Type"),
        (OPEN, &[JSON, ann, ann], 400, "Authorization"),
        (OPEN, &[JSON, ann, bob], 400, "Authorization"),
        (OPEN, &[JSON, wrong, ann], 400, "Authorization"),
        (OPEN, &[JSON, ann, wrong], 400, "Authorization"),
        (OPEN, &[JSON, ann, key, key], 400, "Idempotency-Key"),
        (OPEN, &[JSON, ann, key, other_key], 400, "Idempotency-Key"),
        (OPEN, &[JSON, ann, ("idempotency-key", "a b")], 400, "Idempotency-Key"),
        (OPEN, &[JSON, ann, ("idempotency-key", "a\tb")], 400, "Idempotency-Key"),
        (
            OPEN,
            &[JSON, ann, ("idempotency-key", "\"a b\"")],
            400,
            "Idempotency-Key",
        ),
        (OPEN, &[JSON, ann, ("idempotency-key", "ä")], 400, "Idempotency-Key"),
        (OPEN, &[JSON, ann, time, time], 400, "Request-Timeout"),
        (OPEN, &[JSON, ann, length, length], 200, ""),
        (OPEN, &[JSON, ann, key], 200, ""),
        (OPEN, &[utf8, ann], 200, ""),
        (EVENTS, &[ann, ann], 400, "Authorization"),
        (EVENTS, &[ann, STREAM, GO_ON, GO_ON], 400, "Last-Event-ID"),
        (EVENTS, &[ann], 200, ""),
    ] {
        let (method, body) = match path {
            OPEN => ("POST", BODY),
            _ => ("GET", ""),
        };
        let named: Vec<(String, &str)> = fields.iter().map(|(name, value)| (odd(name), *value)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(name, value)| (&**name, *value)).collect();
        for fields in [fields, &named] {
            for answer in in_all(&gateway, method, path, fields, body) {
                if status == 200 {
                    assert_eq!(answer.status, 200, "{fields:?}: {}", answer.text());
                    continue;
                }
                let slug = if status == 415 {
                    "unsupported-media-type"
                } else {
                    "malformed"
                };
                let problem = answer.problem(status, slug);
                assert_eq!(problem["field"], field, "{fields:?}: {problem}");
            }
        }
    }
}

#[test]
fn lengths_of_a_body_that_differ_end_the_request() {
    let gateway = plain();
    for lengths in [["14", "15"], ["15", "14"]] {
        let fields = [JSON, ("content-length", lengths[0]), ("Content-Length", lengths[1])];
        for way in [&[][..], &[FULL]] {
            let fields: String = [&fields[..], way]
                .concat()
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let mut client = Client::new(&gateway);
            client.send(format!("POST {OPEN} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n{BODY}"));
            let problem = client.answer().problem(400, "malformed");
            assert_eq!(problem["field"], "Content-Length", "{problem}");
            client.is_closed();
        }
        let reset = wait(async {
            let (client, _task) = Http2::new(gateway.address(), |_| {}).await;
            let fields = lengths.map(|length| ("content-length", length));
            client.try_begin("POST", OPEN, &fields, BODY).await
        });
        assert!(reset.is_err(), "{reset:?}");
    }
    let mut client = Client::new(&gateway);
    client.get("/api/section/S1").problem(404, "unknown-entity");
}

#[test]
fn capital_in_a_name_over_http2_ends_the_request() {
    let gateway = plain();
    for name in ["Content-Type", "X-Own", "Authorization"] {
        let mut frames = Frames::over(TcpStream::connect(gateway.address()).unwrap());
        frames.send("POST", OPEN, &[(name, "application/json")]);
        let ended = loop {
            let frame = frames.next();
            if frame.stream != 0 || ENDS.contains(&frame.kind) {
                break frame;
            }
        };
        assert!(ENDS.contains(&ended.kind), "{name}: frame {}", ended.kind);
    }
    let mut client = Client::new(&gateway);
    client.get("/api/section/S1").problem(404, "unknown-entity");
}
