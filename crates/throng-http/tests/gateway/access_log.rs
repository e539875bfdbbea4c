//! The access log.

use crate::support::{
    Client,
    both_paths::FULL,
    http2::Http2,
    plain,
    socket::{Socket, command, query},
    start, tokens, wait,
};
use serde_json::{Value, json};
use std::{fs, num::NonZeroU32, path::Path};
use throng_http::{AccessLog, Gateway};

pub(crate) fn logging(gateway: Gateway, one_in: u32, file: &Path) -> Gateway {
    gateway.access_log(AccessLog {
        one_in: NonZeroU32::new(one_in).unwrap(),
        file: Some(file.to_owned()),
    })
}

pub(crate) fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the parts of a line that are equal in every run.
fn said(line: &Value) -> String {
    let of = |name: &str| match &line[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ["protocol", "method", "path", "caller", "status", "problem"]
        .map(of)
        .join(" ")
}

#[test]
fn each_request_has_a_line_without_secrets() {
    let (dir, [ann]) = tokens(["ann"]);
    let file = dir.path().join("access.log");
    let gateway = start(|gateway| {
        logging(
            gateway.tokens(dir.path().join("tokens")).origin("https://app.example"),
            1,
            &file,
        )
    });
    for more in [&[][..], &[FULL]] {
        let with = |fields: &[(&'static str, &'static str)]| {
            let ann: &'static str = ann.clone().leak();
            [&[("authorization", ann)], more, fields].concat()
        };
        let mut client = Client::new(&gateway);
        client.request("POST", "/api/section/S1/open", &with(&[]), r#"{"capacity":9}"#);
        client.request(
            "POST",
            "/api/section/S%201/close",
            &with(&[]),
            r#"{"hidden":"body-secret"}"#,
        );
        client.request(
            "GET",
            "/api/section/S1/enrolled?student=query-secret",
            &with(&[("cookie", "cookie-secret")]),
            "",
        );
        client.request("GET", "/own?key=query-secret", &with(&[]), "");
        client.request("POST", "/api/section/S1/open", more, "{}");
    }
    let page = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
    ];
    Client::new(&gateway).request("OPTIONS", "/api/section/S1/open", &page, "");
    Client::new(&gateway)
        .send("GET /a#b HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .answer();
    let (mut socket, _) = Socket::open(&gateway, &[("authorization", &ann)])
        .map_err(|status| status.to_string())
        .unwrap();
    socket.next();
    socket.command("S1", "sign", &json!({}));
    for asked in [
        command(1, "S/1", "close", &json!({ "hidden": "body-secret" })),
        query(2, "S1", "enrolled", &json!({ "student": "query-secret" })),
        json!({ "type": "subscribe", "id": 3, "kind": "section", "entity": "S1", "after": 9, "credit": 1 }),
        json!({ "type": "unsubscribe", "id": 4 }),
        json!({ "no": "id" }),
    ] {
        // Each message is answered before the next is sent, so the lines are in order.
        socket.send(&asked).next();
    }
    drop(socket);
    gateway.stop_blocking();
    let of_path = [
        "HTTP/1.1 POST /api/section/S1/open ann 200 -",
        "HTTP/1.1 POST /api/section/S%201/close ann 404 unknown-command",
        "HTTP/1.1 GET /api/section/S1/enrolled ann 200 -",
        "HTTP/1.1 GET /own ann 404 unknown-route",
        "HTTP/1.1 POST /api/section/S1/open - 401 unauthorized",
    ];
    let others = [
        "HTTP/1.1 OPTIONS /api/section/S1/open - 204 -",
        "HTTP/1.1 - - - 400 malformed",
        "HTTP/1.1 GET /api/ws ann 101 -",
        "websocket COMMAND /api/section/S1/sign ann 200 -",
        "websocket COMMAND /api/section/S%2F1/close ann 404 unknown-command",
        "websocket QUERY /api/section/S1/enrolled ann 200 -",
        "websocket SUBSCRIBE /api/section/S1/events ann 200 -",
        "websocket UNSUBSCRIBE /api/ws ann 400 malformed",
        "websocket - /api/ws ann 400 malformed",
    ];
    let found: Vec<String> = lines(&file).iter().map(said).collect();
    assert_eq!(found, [&of_path[..], &of_path, &others].concat());
    for line in lines(&file) {
        assert_eq!(line["client"], "127.0.0.1");
        assert!(
            line["at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(),
            "{line}"
        );
        let had_its_turn = line["status"] == 200 && line["method"] != "SUBSCRIBE" || line["method"] == "COMMAND";
        assert_eq!(line["micros"].is_u64(), had_its_turn, "{line}");
    }
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains("secret") && !text.contains(ann.trim_start_matches("Bearer ")),
        "{text}"
    );
}

#[test]
fn behind_a_trusted_proxy_a_line_has_the_clients_address() {
    const HEADER: &str = "x-forwarded-for";
    for (proxy, says, expected) in [
        ("127.0.0.1", "198.51.100.1, 192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "no address, but a secret", "127.0.0.1"),
        ("198.51.100.9", "192.0.2.7", "127.0.0.1"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("access.log");
        let gateway = start(|gateway| {
            let gateway = gateway.client_header(HEADER.parse().unwrap());
            logging(gateway.trusted_proxy(proxy.parse().unwrap()), 1, &file)
        });
        let mut client = Client::new(&gateway);
        for more in [&[(HEADER, says)][..], &[(HEADER, says), FULL]] {
            client.request("POST", "/api/section/S1/open", more, r#"{"capacity":9}"#);
            client.request("GET", "/api/section/S1", more, "");
        }
        let (mut socket, _) = Socket::open(&gateway, &[(HEADER, says)])
            .map_err(|status| status.to_string())
            .unwrap();
        socket.next();
        socket.command("S1", "sign", &json!({}));
        drop(socket);
        gateway.stop_blocking();
        let clients: Vec<Value> = lines(&file).into_iter().map(|mut line| line["client"].take()).collect();
        assert_eq!(clients, [expected; 6], "{says:?} of {proxy}");
    }
}

#[test]
fn of_http2_each_stream_has_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let gateway = start(|gateway| logging(gateway, 1, &file));
    wait(async {
        let (connection, _task) = Http2::new(gateway.address(), |_| {}).await;
        assert_eq!(connection.ask("GET", "/health/live", "").await.0, 200);
        assert_eq!(connection.ask("GET", "/nowhere", "").await.0, 404);
    });
    gateway.stop_blocking();
    let found: Vec<String> = lines(&file).iter().map(said).collect();
    assert_eq!(
        found,
        [
            "HTTP/2 GET /health/live - 200 -",
            "HTTP/2 GET /nowhere - 404 unknown-route"
        ]
    );
}

#[test]
fn sampled_requests_have_a_line_on_every_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let gateway = start(|gateway| logging(gateway.loops(1), 10, &file));
    let mut client = Client::new(&gateway);
    for _ in 0..50 {
        client.post("/api/section/S1/open", r#"{"capacity":9}"#);
        client.get("/api/section/S1");
        client.request("GET", "/nowhere", &[FULL], "");
        client.post("/api/section/S1/drop_student", r#"{"student":"nobody"}"#);
    }
    gateway.stop_blocking();
    let count = lines(&file).len();
    assert!(count.abs_diff(20) <= 1, "{count} of 200");
}

#[test]
fn a_moved_log_file_is_made_anew_while_the_service_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let gateway = start(|gateway| logging(gateway, 1, &file));
    let mut client = Client::new(&gateway);
    client.get("/health/live");
    while lines(&file).is_empty() {
        std::thread::yield_now();
    }
    fs::rename(&file, &moved).unwrap();
    client.get("/health/ready");
    gateway.stop_blocking();
    assert_eq!(lines(&moved)[0]["path"], "/health/live");
    assert_eq!(lines(&file)[0]["path"], "/health/ready");
}

#[test]
fn a_file_that_cannot_be_opened_stops_the_start() {
    let missing = Path::new("/nowhere/at/all/access.log");
    let error = logging(Gateway::builder(crate::support::engine()), 1, missing)
        .start()
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nowhere/at/all/access.log"), "{error}");
    let metrics = Client::new(&plain()).get("/metrics");
    assert!(metrics.text().contains("throng_http_access_log_dropped_total 0"));
}
