//! Answers to invalid input name what was found, where, and the remedy. Nothing is executed.

use crate::support::{
    Client,
    both_paths::{in_both, raw_in_both},
    client::request,
    http2::Http2,
    plain,
    socket::{Socket, query},
    start, wait,
};
use serde_json::json;
use std::time::Duration;
use throng_http::Limits;
use tokio_tungstenite::tungstenite::Message;

const OPEN: &str = "/api/section/S1/open";
const ADD: &str = "/api/section/S1/add-student";

#[test]
fn a_request_timeout_is_bounded_by_the_largest_deadline() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            deadline_max: Duration::from_secs(20),
            ..Limits::default()
        })
    });
    let seconds = |seconds: &'static str| [("request-timeout", seconds)];
    for taken in in_both(&gateway, "POST", OPEN, &seconds("20"), r#"{"capacity":9}"#) {
        assert_eq!(taken.status, 200);
    }
    for refused in in_both(&gateway, "POST", OPEN, &seconds("20.001"), r#"{"capacity":9}"#) {
        assert_eq!(refused.problem(400, "malformed")["field"], "Request-Timeout");
    }
    let mut socket = Socket::new(&gateway);
    let mut ask = |ms: u64| {
        let mut asked = query(ms, "S1", "view", &json!({}));
        asked["timeout_ms"] = ms.into();
        socket.send(&asked);
    };
    ask(20_000);
    ask(20_001);
    socket.expect("reply", 20_000);
    assert_eq!(socket.problem(20_001, "malformed")["field"], "timeout_ms");
}

#[test]
fn missing_kinds_and_commands_are_named_beside_existing_ones() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let kind = client.post("/api/lecture/S1/open", "{}").problem(404, "unknown-kind");
    assert_eq!(kind["detail"], "There is no kind \"lecture\". There are: section.");
    client.get("/api/lecture/S1").problem(404, "unknown-kind");
    client.get("/api/lecture").problem(404, "unknown-kind");
    let command = client
        .post("/api/section/S1/enrol", "{}")
        .problem(404, "unknown-command");
    let detail = command["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("The kind section has no command \"enrol\". It has: "),
        "{detail}"
    );
    assert!(detail.contains("open") && detail.contains("add_student"), "{detail}");
    let query = client.get("/api/section/S1/roster").problem(404, "unknown-query");
    assert_eq!(
        query["detail"],
        "The kind section has no query \"roster\". It has: view, enrolled."
    );
    let entity = client.get("/api/section/S1").problem(404, "unknown-entity");
    assert_eq!(entity["detail"], "There is no section \"S1\".");
    client.get("/api/section/S1/events").problem(404, "unknown-entity");
    client.post(ADD, r#"{"student":"7"}"#).problem(404, "unknown-entity");
    for path in [
        "/nowhere",
        "/api",
        "/api/section/S1/open/now",
        "/api/section//open",
        "/problems/none",
    ] {
        client.get(path).problem(404, "unknown-route");
    }
}

#[test]
fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let cases = [
        ("GET", OPEN, "POST"),
        ("PUT", OPEN, "POST"),
        ("POST", "/api/section/S1/view", "GET, HEAD"),
        ("POST", "/api/section/S1/events", "GET, HEAD"),
        ("DELETE", "/api/section/S1", "GET, HEAD"),
        ("POST", "/api/section", "GET, HEAD"),
        ("POST", "/health/live", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
    ];
    for (method, path, allow) in cases {
        let answer = client.request(method, path, &[], "");
        answer.problem(405, "method-not-allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[test]
fn json_that_cannot_be_read_is_told_with_line_column_and_field() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post(OPEN, r#"{"capacity":9}"#);
    let mut place = |body: &str| {
        let problem = client.post(ADD, body).problem(400, "malformed");
        (
            problem["field"].as_str().map(str::to_owned),
            problem["line"].as_u64(),
            problem["column"].as_u64(),
        )
    };
    assert_eq!(
        place("{\n  \"student\": }"),
        (Some("student".into()), Some(2), Some(14))
    );
    assert_eq!(place("{}"), (Some("student".into()), Some(1), Some(2)));
    assert_eq!(place(r#"{"student":7}"#), (Some("student".into()), Some(1), Some(12)));
    assert_eq!(place(r#"{"student":"7""#), (None, Some(1), Some(14)));
    assert_eq!(place("no").1, Some(1));
    assert_eq!(place(r#"{"student":"7"} {}"#).1, Some(1));
    assert_eq!(
        place(""),
        (Some("student".into()), Some(1), Some(2)),
        "an empty body is {{}}"
    );
    let deep = format!("{{\"student\":{}", "[".repeat(200));
    assert_eq!(place(&deep).1, Some(1));
    let twice = r#"{"student":"7","student":"8"}"#;
    assert_eq!(place(twice).0.as_deref(), Some("student"));
    assert_eq!(client.get("/api/section/S1").json()["students"], serde_json::json!([]));
}

#[test]
fn an_id_has_1_to_256_bytes_of_utf8() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let longest = "é".repeat(128).replace('é', "%C3%A9");
    assert_eq!(
        client
            .post(&format!("/api/section/{longest}/open"), r#"{"capacity":1}"#)
            .status,
        200
    );
    let problem = client
        .post(&format!("/api/section/{longest}x/open"), r#"{"capacity":1}"#)
        .problem(400, "malformed");
    assert_eq!(
        (&problem["detail"], &problem["field"]),
        (&"The id has 257 bytes; it may have 1 to 256.".into(), &"id".into())
    );
    client
        .get(&format!("/api/section/{longest}x"))
        .problem(400, "malformed");
    client.get("/api/section/%FF").problem(400, "malformed");
}

#[test]
fn header_fields_that_mean_nothing_are_named() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let long = "k".repeat(256);
    let cases = [
        ("idempotency-key", long.as_str()),
        ("idempotency-key", ""),
        ("request-timeout", "soon"),
        ("x-request-timeout", "0"),
    ];
    for (name, value) in cases {
        let problem = client
            .request("POST", OPEN, &[(name, value)], r#"{"capacity":1}"#)
            .problem(400, "malformed");
        assert!(
            problem["field"].as_str().unwrap().eq_ignore_ascii_case(name),
            "{problem}"
        );
    }
    client
        .request(
            "GET",
            "/api/section/S1/events",
            &[("accept", "text/event-stream"), ("last-event-id", "x")],
            "",
        )
        .problem(400, "malformed");
    client.get("/api/section/S1").problem(404, "unknown-entity");
}

#[test]
fn a_body_that_is_not_json_by_its_type_is_refused() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for media in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = client.request("POST", OPEN, &[("content-type", media)], r#"{"capacity":1}"#);
        let problem = answer.problem(415, "unsupported-media-type");
        assert!(problem["detail"].as_str().unwrap().contains(media));
    }
    client.get("/api/section/S1").problem(404, "unknown-entity");
}

#[test]
fn a_body_may_have_its_limit_and_not_a_byte_more() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            body_bytes_max: 1_000,
            ..Limits::default()
        })
    });
    let mut client = Client::new(&gateway);
    let body = |bytes: usize| format!("{}{}", r#"{"capacity":1}"#, " ".repeat(bytes - 14));
    assert_eq!(client.post(OPEN, &body(1_000)).status, 200);
    let problem = client.post(OPEN, &body(1_001)).problem(413, "too-large");
    assert_eq!(
        problem["detail"],
        "The body has 1001 bytes, at most 1000 are allowed. Nothing was done."
    );
    assert_eq!(client.post(OPEN, &body(1_000)).status, 200, "the connection lives");
    // A chunked body without a length is refused once it is too large.
    let chunked = |pieces: usize| {
        let mut text = String::from(
            "POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\ne\r\n{\"capacity\":1}\r\n",
        );
        (0..pieces).for_each(|_| text.push_str(&format!("64\r\n{}\r\n", " ".repeat(100))));
        text + "0\r\n\r\n"
    };
    assert_eq!(client.send(chunked(9)).answer().status, 200);
    client.send(chunked(10)).answer().problem(413, "too-large");
    // A body that is far too large is not even read.
    let mut client = Client::new(&gateway);
    client.send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n");
    client.answer().problem(413, "too-large");
}

#[test]
fn a_command_may_be_as_large_as_the_body_limit_says_by_default() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let body = format!("{}{}", r#"{"capacity":1}"#, " ".repeat((1 << 20) - 14));
    assert_eq!(client.post(OPEN, &body).status, 200);
    client.post(OPEN, &format!("{body} ")).problem(413, "too-large");
}

#[test]
fn a_head_that_is_too_large_is_told_so_and_ends_the_connection() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let fits = "x".repeat(15 << 10);
    assert_eq!(
        client.request("GET", "/health/live", &[("x-filler", &fits)], "").status,
        200
    );
    client.send(request(
        "GET",
        "/health/live",
        &[("x-filler", &"x".repeat(16 << 10))],
        "",
    ));
    let answer = client.answer();
    answer.problem(431, "header-too-large");
    assert_eq!(answer.header("connection"), Some("close"));
    client.is_closed();
}

#[test]
fn bytes_that_are_no_request_are_told_so_and_end_the_connection() {
    let gateway = plain();
    for bytes in [
        "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
        "hello\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
    ] {
        let mut client = Client::new(&gateway);
        client.send(bytes).answer().problem(400, "malformed");
        client.is_closed();
    }
    let mut client = Client::new(&gateway);
    client.send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n");
    client.answer().problem(400, "malformed");
}

#[test]
fn query_strings_that_cannot_be_read_are_told_so() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post(OPEN, r#"{"capacity":9}"#);
    let problem = client.get("/api/section/S1/enrolled").problem(400, "malformed");
    assert_eq!(problem["field"], "student");
    for path in [
        "/api/section/S1/enrolled?student=7&stundent=8",
        "/api/section/S1?stundent=8",
    ] {
        let problem = client.get(path).problem(400, "malformed");
        assert_eq!(problem["field"], "stundent", "{problem}");
    }
    for path in [
        "/api/section?limit=0",
        "/api/section?limit=1001",
        "/api/section?page=2",
        "/api/section/S1/events?after=x",
    ] {
        client.get(path).problem(400, "malformed");
    }
}

#[test]
fn a_crash_costs_its_request_and_nothing_else() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post(OPEN, r#"{"capacity":9}"#);
    let problem = client.post("/api/section/S1/crash", "").problem(500, "crashed");
    assert!(
        problem["detail"].as_str().unwrap().contains("it was asked to"),
        "{problem}"
    );
    assert_eq!(client.get("/api/section/S1").status, 200);
}

#[test]
fn a_port_that_is_taken_and_an_address_that_is_none_are_told() {
    let first = plain();
    let engine = first.engine().clone();
    let error = throng_http::Gateway::builder(engine.clone())
        .bind(first.address())
        .start()
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "{} is in use by another program: stop it, choose another port, or 0 for any free one",
            first.address()
        )
    );
    let error = throng_http::Gateway::builder(engine.clone())
        .bind("localhost")
        .start()
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with("\"localhost\" is not an address to listen on; give one such as 127.0.0.1:8080")
    );
    let error = throng_http::Gateway::builder(engine).loops(0).start().err().unwrap();
    assert_eq!(error.to_string(), "cannot run 0 loops: choose 1 to 64");
}

#[test]
fn the_type_of_an_entity_s_own_refusal_leads_to_a_page() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post(OPEN, r#"{"capacity":0}"#);
    let problem = client.post(ADD, r#"{"student":"7"}"#).problem(409, "full");
    let page = client.get(problem["type"].as_str().unwrap());
    assert_eq!(page.status, 200);
    let page = page.json();
    assert_eq!(
        (&page["type"], &page["title"]),
        (&"/problems/full".into(), &"Full".into())
    );
    let meaning = page["meaning"].as_str().unwrap();
    assert!(
        meaning.contains("section") && meaning.contains("nothing has happened"),
        "{meaning}"
    );
    client.get("/problems/not-enrolled").json();
    client.get("/problems/none").problem(404, "unknown-route");
}

#[test]
fn unknown_fields_and_invalid_ids_are_named() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let problem = client
        .post(OPEN, r#"{"capacity":3,"capcity":4}"#)
        .problem(400, "malformed");
    assert_eq!(problem["field"], "capcity");
    assert_eq!(problem["detail"], "Unknown field `capcity`.");
    client.post(OPEN, r#"{"capacity":3}"#);
    for to in [String::new(), "x".repeat(257)] {
        let body = serde_json::json!({ "to": to, "student": "7" }).to_string();
        let problem = client
            .post("/api/section/S1/recommend", &body)
            .problem(400, "malformed");
        assert_eq!(problem["field"], "to", "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("an id has 1 to 256 bytes"), "{detail}");
    }
}

#[test]
fn body_that_is_compressed_or_no_utf8_is_refused() {
    let gateway = plain();
    let path = "/admin/entity/section/S1/command";
    let command = r#"{"name":"open","body":{"capacity":9}}"#;
    for (field, value) in [
        ("content-encoding", "gzip"),
        ("content-encoding", "br"),
        ("content-encoding", "identity, gzip"),
        ("content-type", "application/json; charset=iso-8859-1"),
        ("content-type", "application/json; charset=\"utf-16\""),
    ] {
        for (path, body) in [(OPEN, r#"{"capacity":9}"#), (path, command)] {
            for refused in in_both(&gateway, "POST", path, &[(field, value)], body) {
                let problem = refused.problem(415, "unsupported-media-type");
                let named = problem["field"].as_str().unwrap();
                assert!(named.eq_ignore_ascii_case(field), "{problem}");
            }
        }
    }
    for field in [
        ("content-encoding", "identity"),
        ("content-encoding", ""),
        ("content-type", "application/json; charset=UTF-8"),
    ] {
        for taken in in_both(&gateway, "POST", OPEN, &[field], r#"{"capacity":9}"#) {
            assert_eq!(taken.status, 200, "{field:?}: {}", taken.text());
        }
    }
}

#[test]
fn byte_order_mark_before_json_is_named() {
    let gateway = plain();
    let names_it = |problem: &serde_json::Value| problem["detail"].to_string().contains("byte order mark");
    for (path, body) in [
        (OPEN, "\u{feff}{\"capacity\":9}"),
        ("/admin/entity/section/S1/command", "\u{feff}{\"name\":\"open\"}"),
    ] {
        for refused in in_both(&gateway, "POST", path, &[], body) {
            let problem = refused.problem(400, "malformed");
            assert!(names_it(&problem), "{problem}");
        }
    }
    let mut socket = Socket::new(&gateway);
    let marked = format!("\u{feff}{}", query(1, "S1", "view", &json!({})));
    socket.inner.send(Message::text(marked)).unwrap();
    let told = socket.next();
    assert!(names_it(&told["problem"]), "{told}");
}

#[test]
fn field_that_decides_something_may_not_stand_twice() {
    let gateway = start(|gateway| gateway.origin("https://app.example"));
    Client::new(&gateway).post(OPEN, r#"{"capacity":9}"#);
    let head = format!("POST {ADD} HTTP/1.1\r\nhost: localhost\r\n");
    let json = "content-type: application/json\r\n";
    for (fields, name) in [
        (format!("{json}content-type: text/plain\r\n"), "Content-Type"),
        (format!("content-type: text/plain\r\n{json}"), "Content-Type"),
        (
            format!("{json}origin: https://app.example\r\norigin: https://evil.example\r\n"),
            "Origin",
        ),
        (
            format!("{json}request-timeout: 1\r\nrequest-timeout: 2\r\n"),
            "Request-Timeout",
        ),
        (
            format!("{json}idempotency-key: a\r\nidempotency-key: b\r\n"),
            "Idempotency-Key",
        ),
    ] {
        for refused in raw_in_both(&gateway, &format!("{head}{fields}")) {
            let problem = refused.problem(400, "malformed");
            assert_eq!(problem["field"], name, "{problem}");
        }
    }
    wait(async {
        let (client, _task) = Http2::new(gateway.address(), |_| {}).await;
        let twice = [("origin", "https://app.example"), ("origin", "https://evil.example")];
        assert_eq!(client.begin_with("GET", "/api/section", &twice, "").await.status(), 400);
    });
}
