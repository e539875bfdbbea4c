//! Clients that read their answers, but too slowly.

use crate::support::{
    Client,
    client::request,
    http2::{Http2, patiently},
    socket::{Socket, query},
    start, wait,
};
use http_body_util::BodyExt as _;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};
use throng_http::{Gateway, Limits, Running};

/// The bytes that a slow client reads before it does something else.
const TAKEN_BYTES: usize = 16 << 10;
/// The number of reads after which a client sends another request.
const TAKES_A_PAGE: usize = 16;
/// The most reads of a client. A fast machine allows thousands before the first check of the rate.
const TAKES_MAX: usize = 300_000;

/// Starts a gateway with a large section, for which every client is too slow.
fn demanding() -> Running {
    let limits = Limits {
        write_wait: Duration::from_secs(1),
        write_rate_min: u32::MAX,
        ..Limits::default()
    };
    let gateway = start(|gateway: Gateway| gateway.limits(limits));
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let student = json!({ "student": "x".repeat(500_000) }).to_string();
    assert_eq!(client.post("/api/section/S1/add-student", &student).status, 200);
    gateway
}

/// Reads the requested answers piece by piece until the connection is cut. Requests more than it reads, on any machine.
fn take_slowly(gateway: &Running, mut stream: impl Read + Write, ask: &[u8]) {
    let mut health = Client::new(gateway);
    let mut bytes = [0; TAKEN_BYTES];
    for take in 0..TAKES_MAX {
        let asked = match take % TAKES_A_PAGE {
            0 => stream.write_all(ask),
            _ => Ok(()),
        };
        match asked.and_then(|()| stream.read(&mut bytes)) {
            Ok(0) | Err(_) => return,
            Ok(_) => assert_eq!(health.get("/health/live").status, 200),
        }
    }
    panic!("it was not cut off");
}

#[test]
fn reader_below_the_least_rate_is_cut_off() {
    let gateway = demanding();
    let slow = |field| {
        let ask = request("GET", "/api/section/S1", &[field], "");
        take_slowly(&gateway, Client::new(&gateway).stream(), ask.as_bytes());
    };
    let slow_socket = || {
        let mut socket = Socket::new(&gateway);
        let look = query(1, "S1", "view", &json!({})).to_string();
        // A complete text frame, with a mask of zeros.
        let head = [0x81, 0x80 | u8::try_from(look.len()).unwrap(), 0, 0, 0, 0];
        take_slowly(&gateway, socket.inner.get_mut(), &[&head[..], look.as_bytes()].concat());
    };
    thread::scope(|scope| {
        scope.spawn(|| slow(("x-path", "plain")));
        scope.spawn(|| slow(("te", "trailers")));
        scope.spawn(slow_socket);
    });
    let metrics = Client::new(&gateway).get("/metrics");
    let cut = "throng_http_limited_total{limit=\"write_wait\"} 3\n";
    assert!(metrics.text().contains(cut), "{}", metrics.text());
}

fn small(client: &mut Builder<TokioExecutor>) {
    client.initial_stream_window_size(1 << 16);
}

/// Leaves an answer unread while it sends other requests. `None`: the whole connection has ended.
async fn leave_unread(gateway: &Running) -> Option<()> {
    let (client, _) = Http2::new(gateway.address(), small).await;
    let unread = client.begin("GET", "/api/section/S1", "").await;
    let asking = tokio::spawn(async move {
        let cut = "throng_http_limited_total{limit=\"write_wait\"} 0\n";
        while client.ask("GET", "/metrics", "").await.1.contains(cut) {}
        // The answer was received up to its window, and no further.
        assert!(patiently(unread.into_body().collect()).await.is_err());
        assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
    });
    asking.await.ok()
}

#[test]
fn unread_http2_answer_is_reset_and_its_connection_lives() {
    // A busy machine may stall a whole connection.
    for _ in 0..5 {
        let gateway = demanding();
        if wait(leave_unread(&gateway)).is_some() {
            return;
        }
    }
    panic!("each connection ended with its unread answer");
}
