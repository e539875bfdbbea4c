//! A request means the same to our own HTTP/1.1 implementation (http1) and to the full one.

use crate::support::{Client, Received, plain, start};
use throng_http::Running;

/// Sends a request to http1 and to the full implementation. Returns both answers.
/// The second request has a field that only the full implementation takes.
fn both(gateway: &Running, line: &str, fields: &str) -> [Received; 2] {
    ["", "te: trailers\r\n"].map(|other| {
        let mut client = Client::new(gateway);
        client.send(format!("{line}\r\n{fields}{other}content-length: 0\r\n\r\n"));
        client.answer()
    })
}

#[track_caller]
fn are(answers: &[Received; 2], status: u16, what: &str) {
    let statuses = answers.each_ref().map(|answer| answer.status);
    assert_eq!(statuses, [status; 2], "{what}: {}", answers[0].text());
}

#[test]
fn a_target_with_forbidden_characters_is_malformed() {
    let gateway = plain();
    for id in [
        "a#b", "a<b", "a>b", "a^b", "a`b", "a{b", "a}b", "a\"b", "a\\b", "a%b#", "\u{7f}",
    ] {
        let line = format!("POST /api/section/{id}/open HTTP/1.1");
        let answers = both(&gateway, &line, "host: localhost\r\n");
        are(&answers, 400, &line);
        answers
            .iter()
            .for_each(|answer| assert_eq!(answer.json()["type"], "/problems/malformed"));
    }
    for query in ["a#b", "a<b", "a\"b"] {
        let line = format!("GET /openapi.json?{query} HTTP/1.1");
        are(&both(&gateway, &line, "host: localhost\r\n"), 400, &line);
    }
    for path in [
        "/openapi.json?a[b]={c}|d^e`f\\g",
        "/openapi.json?a=b?c/d:e@f,g;h=i&j=%20",
    ] {
        are(
            &both(&gateway, &format!("GET {path} HTTP/1.1"), "host: localhost\r\n"),
            200,
            path,
        );
    }
}

#[test]
fn a_target_is_judged_also_after_the_full_path() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nte: trailers\r\n\r\n");
    client.send(get("/health/live") + &get("/health/live#x"));
    assert_eq!(client.answer().status, 200);
    client.answer().problem(400, "malformed");
    client.is_closed();
}

#[test]
fn a_request_names_one_host_that_can_be_one() {
    let gateway = start(|gateway| gateway.host("*"));
    for host in [
        "test",
        "test:8080",
        "127.0.0.1:1",
        "[::1]:80",
        "a-b_c.example.",
        "xn--bcher-kva.example",
        "",
    ] {
        are(
            &both(&gateway, "GET /health/live HTTP/1.1", &format!("host: {host}\r\n")),
            200,
            host,
        );
    }
    for fields in [
        "",
        "host: a\r\nhost: a\r\n",
        "host: a\r\nHost: b\r\n",
        "host: a b\r\n",
        "host: a,b\r\n",
        "host: a/b\r\n",
        "host: <a>\r\n",
        "host: user@a\r\n",
        "host: a:b\r\n",
        "host: a:99999\r\n",
        "host: [::1\r\n",
        "host: a#b\r\n",
        "host: a?b\r\n",
    ] {
        let answers = both(&gateway, "GET /health/live HTTP/1.1", fields);
        are(&answers, 400, fields);
        assert!(
            answers.iter().all(|answer| answer.json()["field"] == "Host"),
            "{fields}"
        );
    }
    let mut old = Client::new(&gateway);
    old.send("GET /health/live HTTP/1.0\r\n\r\n");
    assert_eq!(old.answer().status, 200, "HTTP/1.0 knows no Host");
}

#[test]
fn a_length_that_no_body_has_is_too_large_and_says_so() {
    let gateway = plain();
    for length in ["18446744073709551615", "9223372036854775808"] {
        let mut client = Client::new(&gateway);
        client.send(format!(
            "POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        ));
        client.answer().problem(413, "too-large");
    }
    let mut client = Client::new(&gateway);
    client
        .send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-length: 18446744073709551616\r\n\r\n");
    client.answer().problem(400, "malformed");
}

#[test]
fn a_body_is_chunked_or_has_a_length_and_no_other_coding() {
    let gateway = plain();
    let of = |fields: &str| {
        let mut client = Client::new(&gateway);
        client.send(format!(
            "POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{fields}\r\ne\r\n{{\"capacity\":1}}\r\n0\r\n\r\n"
        ));
        client.answer()
    };
    assert_eq!(of("transfer-encoding: chunked\r\n").status, 200);
    assert_eq!(of("Transfer-Encoding: Chunked\r\n").status, 200);
    for coding in [
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: identity, chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: chunked, \r\n",
        "transfer-encoding:\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 24\r\n",
        "content-length: 24\r\ntransfer-encoding: chunked\r\n",
        "content-length: 1\r\ncontent-length: 2\r\n",
    ] {
        of(coding).problem(400, "malformed");
    }
}
