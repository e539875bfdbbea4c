//! What is public, under which name, for whose pages, and what a service's own hook says.

use crate::support::{
    Answer, Client,
    client::request,
    engine, plain,
    socket::{Socket, command, query},
    start,
};
use serde_json::json;
use throng_http::{Access, Action, Gateway, Problem, Running, StartError};

/// A field that sends a request, and its connection, to the full lane.
const FULL: (&str, &str) = ("te", "trailers");

/// Asks in the lane of plain requests and in the full one.
fn in_both(gateway: &Running, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> [Answer; 2] {
    [&[][..], &[FULL]].map(|more| {
        let fields = [fields, more].concat();
        Client::new(gateway).request(method, path, &fields, body)
    })
}

/// The same with a head of one's own.
fn raw_in_both(gateway: &Running, head: &str) -> [Answer; 2] {
    ["", "te: trailers\r\n"].map(|more| {
        let mut client = Client::new(gateway);
        client
            .send(format!("{head}{more}content-length: 2\r\n\r\n{{}}"))
            .answer()
    })
}

#[test]
fn a_command_that_is_not_public_is_no_route_and_in_no_document() {
    let gateway = plain();
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    for name in ["take_over", "take-over"] {
        let path = format!("/api/section/S1/{name}");
        for refused in in_both(&gateway, "POST", &path, &[], r#"{"students":["eve"]}"#) {
            let detail = refused.problem(403, "not-public")["detail"].to_string();
            assert!(detail.contains("take_over") && detail.contains("PUBLIC"), "{detail}");
        }
    }
    let mut client = Client::new(&gateway);
    client.get("/api/section/S1/take_over").problem(404, "unknown-query");
    let unknown = client
        .post("/api/section/S1/close", "{}")
        .problem(404, "unknown-command");
    assert!(!unknown["detail"].to_string().contains("take_over"), "{unknown}");
    let document = client.get("/openapi.json");
    let document = document.text();
    assert!(document.contains("/api/section/{id}/add_student") && document.contains("Enrolment"));
    assert!(
        !document.contains("take_over") && !document.contains("Moved"),
        "{document}"
    );

    let mut socket = Socket::new(&gateway);
    socket.send(&command(1, "S1", "take_over", &json!({ "students": ["eve"] })));
    socket.problem(1, "not-public");
    assert_eq!(client.get("/api/section/S1").json()["students"], json!([]));
}

#[test]
fn a_kind_may_have_no_routes_at_all() {
    let gateway = start(|gateway| gateway.without_routes("section"));
    let mut client = Client::new(&gateway);
    client
        .post("/api/section/S1/open", r#"{"capacity":9}"#)
        .problem(404, "unknown-kind");
    for path in ["/api/section", "/api/section/S1", "/api/section/S1/events"] {
        client.get(path).problem(404, "unknown-kind");
    }
    assert!(!client.get("/openapi.json").text().contains("/api/section"));
    let error = Gateway::builder(engine()).without_routes("sektion").start().err();
    assert!(matches!(error, Some(StartError::NoSuchKind { kind }) if kind == "sektion"));
}

#[test]
fn a_hook_decides_about_each_access() {
    let gateway = start(|gateway| {
        gateway.authorize(|access: &Access<'_>| match access.action {
            Action::Command("rename") => Err(Problem::forbidden("Nobody renames a section.").into()),
            Action::Events if access.id.is_none() => Err(Problem::unauthorized("Say who you are.").into()),
            Action::List => Err(Problem::unauthorized("Say who you are.").into()),
            Action::Query("view") if access.id == Some("S2") => Err(Problem::forbidden("Not this one.").into()),
            _ => Ok(()),
        })
    });
    let mut client = Client::new(&gateway);
    assert_eq!(client.post("/api/section/S1/open", r#"{"capacity":9}"#).status, 200);
    for refused in in_both(&gateway, "POST", "/api/section/S1/rename", &[], r#"{"title":"x"}"#) {
        let problem = refused.problem(403, "forbidden");
        assert_eq!(problem["detail"], "Nobody renames a section.");
    }
    for refused in in_both(&gateway, "GET", "/api/section", &[], "") {
        refused.problem(401, "unauthorized");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    client.get("/api/section/S2").problem(403, "forbidden");
    assert_eq!(client.get("/api/section/S1").status, 200);
    assert_eq!(client.get("/api/section/S1/events").status, 200);

    let mut socket = Socket::new(&gateway);
    for (asked, slug) in [
        (command(1, "S1", "rename", &json!({ "title": "x" })), "forbidden"),
        (query(1, "S2", "view", &json!({})), "forbidden"),
        (
            json!({ "type": "subscribe", "id": 1, "kind": "section", "credit": 1 }),
            "unauthorized",
        ),
    ] {
        socket.send(&asked);
        socket.problem(1, slug);
    }
}

#[test]
fn a_service_on_loopback_is_asked_under_no_foreign_name() {
    let gateway = start(|gateway| gateway.host("shop.test"));
    let post = |host: &str| {
        format!("POST /api/section/S1/open HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n")
    };
    let get = |host: &str| format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n");
    for head in [
        post("evil.example"),
        get("evil.example:8080"),
        get("localhost.evil.example"),
    ] {
        for refused in raw_in_both(&gateway, &head) {
            let problem = refused.problem(421, "misdirected");
            assert!(problem["detail"].to_string().contains("evil.example"), "{problem}");
        }
    }
    for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:80", "shop.test:8080"] {
        for answer in raw_in_both(&gateway, &get(host)) {
            assert_eq!(answer.status, 200, "{host}");
        }
    }
    // The target of a request in absolute form counts, too.
    let mut client = Client::new(&gateway);
    client.send("GET http://evil.example/metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.answer().problem(421, "misdirected");
}

#[test]
fn a_page_of_another_origin_asks_for_nothing_unless_it_is_allowed() {
    let gateway = start(|gateway| gateway.origin("https://app.example"));
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let body = r#"{"student":"eve"}"#;
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost:1",
        "https://app.example.evil",
    ] {
        let fields = [("origin", origin)];
        for refused in in_both(&gateway, "POST", "/api/section/S1/add_student", &fields, body) {
            let problem = refused.problem(403, "forbidden-origin");
            assert!(problem["detail"].to_string().contains(origin), "{problem}");
        }
        for refused in in_both(&gateway, "GET", "/api/section/S1/events", &fields, "") {
            refused.problem(403, "forbidden-origin");
        }
    }
    for origin in ["https://app.example", "http://localhost"] {
        for answer in in_both(
            &gateway,
            "POST",
            "/api/section/S1/add_student",
            &[("origin", origin)],
            body,
        ) {
            assert_eq!(answer.status, 200, "{origin}");
        }
    }
}

#[test]
fn what_a_page_of_any_site_could_send_without_asking_is_no_command() {
    let gateway = plain();
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let path = "POST /api/section/S1/crash HTTP/1.1\r\nhost: localhost\r\n";
    for refused in raw_in_both(&gateway, path) {
        let problem = refused.problem(415, "unsupported-media-type");
        assert!(problem["detail"].to_string().contains("no Content-Type"), "{problem}");
    }
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        for refused in in_both(
            &gateway,
            "POST",
            "/api/section/S1/crash",
            &[("content-type", media)],
            "{}",
        ) {
            refused.problem(415, "unsupported-media-type");
        }
    }
    // Also among many that were sent together.
    let mut client = Client::new(&gateway);
    let good = request("POST", "/api/section/S1/add_student", &[], r#"{"student":"ann"}"#);
    client.send(format!("{good}{path}content-length: 0\r\n\r\n{good}"));
    assert_eq!([200, 415, 200], [(); 3].map(|()| client.answer().status));
}
