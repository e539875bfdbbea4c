//! The host names of a service, the pages that may use it, and the header fields for their browsers.

use crate::support::{
    Client,
    both_paths::{FULL, in_both, raw_in_both},
    client::request,
    plain, start, tokens,
};
use std::time::Duration;
use throng_http::{Limits, Running};

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
    // The same holds on a connection whose earlier requests used the right host name.
    let mut client = Client::new(&gateway);
    for host in ["localhost", "evil.example", "127.0.0.1", "evil.example", "localhost"] {
        let open = post(host) + "content-length: 14\r\n\r\n{\"capacity\":1}";
        let answer = client.send(&open).answer();
        match host {
            "evil.example" => drop(answer.problem(421, "misdirected")),
            _ => assert_ne!(answer.status, 421, "{host}"),
        }
    }
    // The target of a request in absolute form is checked, too.
    let mut client = Client::new(&gateway);
    client.send("GET http://evil.example/metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.answer().problem(421, "misdirected");
}

#[test]
fn pages_of_another_origin_are_refused_unless_allowed() {
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
fn requests_any_page_could_send_unasked_are_no_commands() {
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
    // The same holds among many pipelined requests.
    let mut client = Client::new(&gateway);
    let good = request("POST", "/api/section/S1/add_student", &[], r#"{"student":"ann"}"#);
    client.send(format!("{good}{path}content-length: 0\r\n\r\n{good}"));
    assert_eq!([200, 415, 200], [(); 3].map(|()| client.answer().status));
}

#[test]
fn the_browser_of_an_allowed_page_is_told_that_it_may() {
    let (dir, [ann]) = tokens(["ann"]);
    let gateway = start(|gateway| {
        let hello = axum::Router::new().route("/hello", axum::routing::post(async || "hello"));
        gateway
            .tokens(dir.path().join("tokens"))
            .origin("https://app.example")
            .routes(hello)
    });
    let page = ("origin", "https://app.example");
    let asks = [
        page,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type"),
    ];
    for path in ["/api/section/S1/open", "/hello"] {
        for told in in_both(&gateway, "OPTIONS", path, &asks, "") {
            assert_eq!(
                (told.status, told.header("access-control-allow-origin")),
                (204, Some("https://app.example"))
            );
            assert_eq!(
                told.header("access-control-allow-headers"),
                Some("authorization, content-type")
            );
            assert!(
                told.header("access-control-allow-methods")
                    .is_some_and(|methods| methods.contains("POST"))
            );
        }
        let fields = [page, ("authorization", ann.as_str())];
        for answer in in_both(&gateway, "POST", path, &fields, r#"{"capacity":9}"#) {
            assert_eq!(
                (answer.status, answer.header("access-control-allow-origin")),
                (200, Some("https://app.example"))
            );
            assert_eq!(answer.header("vary"), Some("origin"));
            let exposed = answer.header("access-control-expose-headers");
            assert!(exposed.is_some_and(|names| names.contains("read-model-behind")));
        }
        // The page may read the refusal as well.
        for refused in in_both(&gateway, "POST", path, &[page], r#"{"capacity":9}"#) {
            assert_eq!(
                (refused.status, refused.header("access-control-allow-origin")),
                (401, Some("https://app.example"))
            );
        }
        let foreign = [("origin", "https://evil.example"), asks[1]];
        for refused in in_both(&gateway, "OPTIONS", path, &foreign, "") {
            refused.problem(403, "forbidden-origin");
            assert_eq!(refused.header("access-control-allow-origin"), None);
        }
    }
}

#[test]
fn the_pages_run_no_script_but_their_own() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for (path, fields) in [("/docs", &[][..]), ("/", &[("accept", "text/html")])] {
        let page = client.request("GET", path, fields, "");
        let policy = page.header("content-security-policy").unwrap();
        assert!(!policy.contains("unsafe-inline"), "{policy}");
        for element in ["script", "style"] {
            let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
            let inside = page
                .text()
                .split_once(&begin)
                .and_then(|(_, rest)| rest.split_once(&end))
                .unwrap()
                .0;
            let hash = ring::digest::digest(&ring::digest::SHA256, inside.as_bytes());
            let hash = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, hash);
            assert!(
                policy.contains(&format!("'sha256-{hash}'")),
                "{path} {element}: {policy}"
            );
        }
        assert!(
            !page.text().contains(" style=") && !page.text().contains(" onclick="),
            "{path}"
        );
    }
}

#[test]
fn early_refusal_is_readable_by_an_allowed_page() {
    let limits = Limits {
        connections_max: 1,
        body_wait: Duration::from_millis(30),
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.origin("https://app.example").limits(limits));
    let mut only = Client::new(&gateway);
    let mut told = |bytes: &str, status| {
        let own = only.get("/health/live").status == 200;
        let answer = match status {
            503 => Client::new(&gateway).send(bytes).answer(),
            _ => {
                let answer = only.send(bytes).answer();
                only.is_closed();
                only = until_served(&gateway);
                answer
            }
        };
        assert!(own && answer.status == status, "{}", answer.text());
        answer.header("access-control-allow-origin").map(str::to_owned)
    };
    let long = "x".repeat(64 << 10);
    for (first, rest, status) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n", format!("x: {long}\r\n"), 431),
        ("GET /a#b HTTP/1.1\r\nhost: localhost\r\n", String::new(), 400),
        ("GET / HTTP/1.1\r\nhost: localhost\r\n", "no field\r\n".into(), 400),
        ("GET /api/section HTTP/1.1\r\nhost: localhost\r\n", String::new(), 503),
        // The body of this request never arrives.
        (
            "POST /own HTTP/1.1\r\nhost: localhost\r\n",
            "content-length: 2\r\n".into(),
            408,
        ),
    ] {
        let of = |origin| format!("{first}Origin: {origin}\r\n{rest}\r\n");
        assert_eq!(
            told(&of("https://app.example"), status).as_deref(),
            Some("https://app.example"),
            "{first}"
        );
        assert_eq!(told(&of("https://evil.example"), status), None, "{first}");
    }
}

/// Returns a client that got the place of a closed connection.
fn until_served(gateway: &Running) -> Client {
    loop {
        let mut client = Client::new(gateway);
        client.send(request("GET", "/api/section", &[], ""));
        if client.try_answer().is_ok_and(|answer| answer.status == 200) {
            return client;
        }
    }
}

#[test]
fn page_allowed_to_ask_the_service_administrates_nothing() {
    let beside = start(|gateway| gateway.origin("*").host("*").admin(([127, 0, 0, 1], 0).into()));
    let within = start(|gateway| gateway.origin("https://app.example"));
    for gateway in [&beside, &within] {
        let admin = gateway.admin_address().unwrap_or(gateway.address());
        Client::new(gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
        for more in [&[][..], &[FULL]] {
            let ask = |method: &str, path: &str, origin: &str| {
                let fields = [
                    &[("origin", origin), ("access-control-request-method", "POST")][..],
                    more,
                ]
                .concat();
                Client::of(admin).request(method, path, &fields, "")
            };
            let erase = "/admin/erase?kind=section&id=S1";
            for (method, path) in [
                ("POST", erase),
                ("GET", "/admin/dead"),
                ("OPTIONS", erase),
                ("GET", "/console/"),
            ] {
                let refused = ask(method, path, "https://app.example");
                refused.problem(403, "forbidden-origin");
                assert_eq!(refused.header("access-control-allow-origin"), None, "{path}");
            }
            assert_eq!(ask("GET", "/admin/dead", "http://localhost").status, 200);
        }
    }
    let admin = beside.admin_address().unwrap();
    Client::of(admin)
        .request("GET", "/api/section/S1", &[("origin", "https://app.example")], "")
        .problem(403, "forbidden-origin");
    let rebound = Client::of(admin)
        .send("GET /admin/dead HTTP/1.1\r\nhost: evil.example\r\n\r\n")
        .answer();
    rebound.problem(421, "misdirected");
    assert_eq!(
        Client::new(&beside).get("/api/section/S1").status,
        200,
        "it was not erased"
    );
}
