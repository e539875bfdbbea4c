//! `HEAD`, on every route of both listeners, in both versions of HTTP.

use crate::support::{
    Client,
    client::{PATIENCE, request},
    engine,
    http2::{END_STREAM, Frames, HEADERS, Http2},
    start, tokens, wait,
};
use axum::{
    Router,
    body::Body,
    extract::State,
    routing::{get, post},
};
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use std::{
    convert::Infallible,
    net::{SocketAddr, TcpStream},
    ops::ControlFlow,
    thread,
};
use throng::{Engine, Follow};
use throng_http::{Gateway, Limits, LiveEvents, Problem, Running};

/// Path, header field, status.
type Case = (&'static str, (&'static str, &'static str), u16);

/// A header field without effect.
const NONE: (&str, &str) = ("accept", "*/*");
const PAGE: (&str, &str) = ("accept", "text/html");
const STREAM: (&str, &str) = ("accept", "text/event-stream");

/// The routes with the same answers on both listeners.
const BOTH: &[Case] = &[
    ("/health/live", NONE, 200),
    ("/health/ready", NONE, 200),
    ("/openapi.json", NONE, 200),
    ("/docs", PAGE, 200),
    ("/", NONE, 200),
    ("/", PAGE, 200),
    ("/problems/expired", NONE, 200),
    ("/problems/full", NONE, 200),
    ("/problems/expired", PAGE, 303),
    ("/problems/none", NONE, 404),
    ("/api/section", NONE, 200),
    ("/api/section?limit=none", NONE, 400),
    ("/api/none", NONE, 404),
    ("/api/section/S1", NONE, 200),
    ("/api/section/none", NONE, 404),
    ("/api/section/S1/enrolled?student=7", NONE, 200),
    ("/api/section/S1/events", NONE, 200),
    ("/api/section/S1/events", STREAM, 200),
    ("/api/section/none/events", STREAM, 404),
    ("/api/section/S1/none", NONE, 404),
    ("/api/section/S1/open", NONE, 405),
    ("/api/section/S1/enrolled/x", NONE, 404),
    ("/none", NONE, 404),
    ("/app/text", NONE, 200),
    ("/app/live", STREAM, 200),
    ("/app/pieces", NONE, 200),
    ("/app/empty", NONE, 204),
    ("/app/unchanged", NONE, 304),
    ("/app/missing", NONE, 404),
    ("/app/post", NONE, 405),
    ("/app/crash", NONE, 500),
];

const SERVICE: &[Case] = &[
    ("/api/ws", NONE, 426),
    ("/metrics", NONE, 404),
    ("/console/", NONE, 404),
    ("/admin/overview", NONE, 404),
    ("/api/section", ("origin", "https://evil.example"), 403),
    ("/health/live", ("origin", "https://friend.example"), 200),
];

const ADMINISTRATION: &[Case] = &[
    ("/api/ws", NONE, 404),
    ("/metrics", NONE, 200),
    ("/metrics", ("accept", "application/openmetrics-text"), 200),
    ("/console", NONE, 308),
    ("/console/", NONE, 200),
    ("/console/console.js", ("accept-encoding", "gzip"), 200),
    ("/console/console.css", ("if-none-match", "*"), 304),
    ("/console/none.js", NONE, 404),
    ("/admin/dead", NONE, 200),
    ("/admin/stuck", NONE, 200),
    ("/admin/overview", NONE, 200),
    ("/admin/series", NONE, 200),
    ("/admin/live", NONE, 426),
    ("/admin/map", NONE, 200),
    ("/admin/map/section", NONE, 200),
    ("/admin/map/section/groups?by=id", NONE, 400),
    ("/admin/hot", NONE, 200),
    ("/admin/shards", NONE, 200),
    ("/admin/trouble", NONE, 200),
    ("/admin/journal", NONE, 200),
    ("/admin/journal/parts", NONE, 200),
    ("/admin/cluster", NONE, 404),
    ("/admin/entity/section/S1", NONE, 200),
    ("/admin/entity/section/S1/history", NONE, 200),
    ("/admin/entity/section/S1/children", NONE, 200),
    ("/admin/entity/section/S1/command", NONE, 405),
    ("/admin/entity/section/S1/what-if", NONE, 405),
    ("/admin/projection/rebuild", NONE, 405),
    ("/admin/projection/resume", NONE, 405),
    ("/admin/projection/skip", NONE, 405),
    ("/admin/dead/retry", NONE, 405),
    ("/admin/dead/drop", NONE, 405),
    ("/admin/timer/cancel", NONE, 405),
    ("/admin/release", NONE, 405),
    ("/admin/prune", NONE, 405),
    ("/admin/erase", NONE, 405),
    ("/admin/compact", NONE, 405),
    ("/admin/none", NONE, 404),
];

/// Routes of a service whose engine has stopped, and that requires authentication.
const CLOSED: &[Case] = &[
    ("/health/ready", NONE, 503),
    ("/api/section/S1", NONE, 401),
    ("/api/section/S1/events", STREAM, 401),
    ("/api/ws", NONE, 401),
    ("/app/text", NONE, 401),
    ("/", NONE, 401),
    ("/admin/overview", NONE, 401),
    ("/admin/live", NONE, 401),
    ("/metrics", NONE, 401),
];

/// An app's own routes.
fn routes(engine: Engine) -> Router {
    Router::new()
        .route("/app/text", get(async || "text"))
        .route("/app/pieces", get(pieces))
        .route("/app/live", get(live))
        .route("/app/empty", get(async || StatusCode::NO_CONTENT))
        .route("/app/unchanged", get(async || StatusCode::NOT_MODIFIED))
        // A refusal without a media type.
        .route(
            "/app/missing",
            get(async || (StatusCode::NOT_FOUND, Body::from("not here"))),
        )
        .route("/app/post", post(async || "text"))
        .route(
            "/app/crash",
            get(async || -> &'static str { panic!("it was asked to") }),
        )
        .with_state(engine)
}

/// Returns a body of unknown length.
async fn pieces() -> Body {
    Body::from_stream(stream::iter(["one", "two"].map(Ok::<_, Infallible>)))
}

async fn live(State(engine): State<Engine>) -> Result<LiveEvents, Problem> {
    let entity = Follow::Entity {
        kind: 0,
        id: "S1".into(),
        after: 0,
        at: None,
    };
    LiveEvents::follow(&engine, entity, |_| ControlFlow::Continue(Some("{}".into()))).await
}

/// The status and header fields of a response, without those that depend on the connection or the time.
#[derive(Debug, PartialEq)]
struct Head {
    status: u16,
    fields: Vec<(String, String)>,
    length: Option<usize>,
}

impl Head {
    fn new(status: u16, mut fields: Vec<(String, String)>) -> Self {
        let length = fields.iter().find(|(name, _)| name == "content-length");
        let length = length.map(|(_, value)| value.parse().unwrap());
        fields.retain(|(name, _)| !matches!(&**name, "date" | "content-length" | "transfer-encoding"));
        fields.sort();
        Self { status, fields, length }
    }

    fn of_http1(client: &mut Client, method: &str, (path, field, _): &Case) -> Self {
        client.send(request(method, path, &[*field], ""));
        let head = client.head().unwrap();
        let fields = head.headers.iter().map(|line| line.split_once(": ").unwrap());
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self::new(head.status, fields.collect())
    }

    async fn of_http2(client: &Http2, method: &str, (path, field, _): &Case) -> Self {
        let response = client.head(method, path, &[*field]).await;
        let fields = |headers: &HeaderMap| {
            let fields = headers.iter();
            fields
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect()
        };
        Self::new(response.status().as_u16(), fields(response.headers()))
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Checks that a `HEAD` has the head of the `GET`, including its length, and no body.
async fn compare(address: SocketAddr, cases: &[Case]) {
    let mut frames = Frames::over(connect(address));
    let mut http1 = Client::of(address);
    let (http2, _) = Http2::new(address, |_| {}).await;
    for case in cases {
        let (path, field, status) = case;
        let frame = frames.ask("HEAD", path, &[*field]);
        let is_end = frame.kind == HEADERS && frame.flags & END_STREAM == END_STREAM;
        assert!(is_end, "{case:?}: frame {} with flags {:#x}", frame.kind, frame.flags);

        // The length of counters and measurements may change between the two requests.
        let mut tries = 100;
        let get = loop {
            let get = Head::of_http1(&mut Client::of(address), "GET", case);
            let head = Head::of_http1(&mut http1, "HEAD", case);
            let get2 = Head::of_http2(&http2, "GET", case).await;
            let head2 = Head::of_http2(&http2, "HEAD", case).await;
            assert_eq!([get.status, get2.status], [*status, *status], "{case:?}");
            assert_eq!((head.status, &head.fields), (get.status, &get.fields), "{case:?}");
            assert_eq!((head2.status, &head2.fields), (get2.status, &get2.fields), "{case:?}");
            let lengths = [get.length, head.length, head2.length];
            if lengths.iter().all(|length| *length == get.length) {
                break get;
            }
            tries -= 1;
            assert!(tries > 0, "{case:?}: {lengths:?}");
        };
        let is_stream = *field == STREAM && *status == 200 || *path == "/app/pieces";
        let has_length = !is_stream && !matches!(status, 204 | 304);
        assert_eq!(get.length.is_some(), has_length, "{case:?}");
    }
    // The previous answer ended with its head.
    assert_eq!(http1.get("/health/live").status, 200);
}

fn with_app(set: impl FnOnce(Gateway) -> Gateway) -> Running {
    let engine = engine();
    set(Gateway::builder(engine.clone()).routes(routes(engine)))
        .start()
        .unwrap()
}

#[test]
fn head_is_get_without_body_on_every_route() {
    let gateway = with_app(|gateway| {
        gateway
            .admin(([127, 0, 0, 1], 0).into())
            .origin("https://friend.example")
    });
    let mut client = Client::new(&gateway);
    assert_eq!(client.post("/api/section/S1/open", r#"{"capacity":1}"#).status, 200);
    let admin = gateway.admin_address().unwrap();
    wait(async {
        compare(gateway.address(), BOTH).await;
        compare(gateway.address(), SERVICE).await;
        compare(admin, BOTH).await;
        compare(admin, ADMINISTRATION).await;
    });
    // No stream remains open.
    let mut admin = Client::of(admin);
    while !admin.get("/metrics").text().contains("throng_http_live_streams 0") {
        thread::yield_now();
    }
    gateway.stop_blocking();
}

#[test]
fn head_is_refused_as_get_is_without_body() {
    let (dir, _) = tokens(["alice"]);
    let gateway = with_app(|gateway| gateway.tokens(dir.path().join("tokens")).admin_token("secret"));
    wait(async {
        gateway.engine().stop().await;
        compare(gateway.address(), CLOSED).await;
    });
    gateway.stop_blocking();
}

#[test]
fn head_that_ends_its_connection_gets_no_body() {
    let gateway = start(|gateway| gateway);
    let long = format!(
        "HEAD / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "x".repeat(64 << 10)
    );
    let cases = [
        ("HEAD /a#b HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        ("HEAD /a HTTP/1.1\r\n\r\n", 400),
        ("HEAD /a HTTP/1.1\r\nhost: localhost\r\nno field\r\n\r\n", 400),
        (&long, 431),
    ];
    for (bytes, status) in cases {
        let mut client = Client::new(&gateway);
        let head = client.send(bytes).head().unwrap();
        assert_eq!(head.status, status, "{}", &bytes[..40.min(bytes.len())]);
        assert!(head.header("content-length").is_some_and(|length| length != "0"));
        client.is_closed();
    }
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            connections_max: 1,
            ..Limits::default()
        })
    });
    let mut first = Client::new(&gateway);
    assert_eq!(first.get("/health/live").status, 200);
    let mut second = Client::new(&gateway);
    second.send(request("HEAD", "/api/section", &[], ""));
    assert_eq!(second.head().unwrap().status, 503);
    second.is_closed();
}
