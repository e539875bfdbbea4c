//! Bodies that arrive in pieces: the memory they may take together, and their slowest rate.

use crate::support::{
    Client,
    client::request,
    http2::{Http2, patiently, read},
    metric, start, wait,
};
use std::time::Duration;
use throng_http::{Limits, Running};

/// The metric of the memory of bodies.
const HELD: &str = "throng_held_bytes{owner=\"bodies\"}";
const PIECE: &str = "                                                                ";

/// Starts a gateway in which bodies may take this much memory, waiting or not.
fn with(bytes: usize) -> Running {
    let limits = Limits {
        bodies_bytes_max: bytes,
        ..Limits::default()
    };
    start(|gateway| gateway.limits(limits))
}

/// Begins a command with a long body, and sends a part of it.
fn begun(gateway: &Running, field: (&str, &str), pieces: usize) -> Client {
    let mut client = Client::new(gateway);
    let whole = request("POST", "/api/section/S1/open", &[field], &PIECE.repeat(2 * pieces));
    client.send(&whole[..whole.len() - pieces * PIECE.len()]);
    client
}

#[test]
fn bodies_of_all_connections_are_bounded_together() {
    for field in [("x-path", "plain"), ("te", "trailers")] {
        let gateway = with(128 << 10);
        let mut clients: Vec<_> = (0..32).map(|_| begun(&gateway, field, 256)).collect();
        // Some are refused, the others wait for the rest.
        let limited = "throng_http_limited_total{limit=\"bodies_bytes_max\"}";
        while metric(&gateway, limited) < 24 {
            std::thread::yield_now();
        }
        let taken = metric(&gateway, HELD);
        assert!((1..=128 << 10).contains(&taken), "{field:?} {taken}");
        // A small body that arrives at once is still accepted.
        let mut other = Client::new(&gateway);
        assert_eq!(other.post("/api/section/S2/open", r#"{"capacity":1}"#).status, 200);
        let (mut refused, mut taken) = (0, 0);
        for client in &mut clients {
            // The connection of a refused one may have been closed.
            let _ = std::io::Write::write_all(&mut client.stream(), PIECE.repeat(256).as_bytes());
            let answer = client.answer();
            match answer.status {
                503 => {
                    answer.problem(503, "overloaded");
                    refused += 1;
                }
                // The body has only spaces, so it was accepted and found invalid.
                400 => taken += 1,
                _ => panic!("{field:?} {}", answer.text()),
            }
        }
        assert!(refused >= 24 && taken >= 1, "{field:?} {refused} {taken}");
        drop(clients);
        while metric(&gateway, HELD) > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn bodies_of_an_http2_connection_are_some_of_them() {
    let gateway = with(64 << 10);
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        let mut uploads: Vec<_> = (0..64).map(|_| client.upload("/api/section/S1/open")).collect();
        let piece = PIECE.repeat(64).leak();
        uploads.iter().for_each(|(pieces, _)| pieces.send(piece).unwrap());
        let mut statuses = Vec::new();
        while statuses.len() < 48 {
            for (_, answer) in uploads.extract_if(.., |(_, answer)| answer.is_finished()) {
                statuses.push(read(answer.await.unwrap().unwrap()).await.0);
            }
            tokio::task::yield_now().await;
        }
        assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
        assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
        for (pieces, answer) in uploads {
            drop(pieces);
            let status = patiently(answer).await.unwrap().unwrap().status();
            assert!(status == 400 || status == 503, "{status}");
        }
        // All memory was given back.
        assert_eq!(
            client.ask("POST", "/api/section/S1/open", r#"{"capacity":1}"#).await.0,
            200
        );
    });
}

#[test]
fn a_slow_body_is_refused_before_its_time_is_over() {
    let limits = Limits {
        body_wait: Duration::from_secs(3_600),
        body_grace: Duration::from_millis(40),
        body_rate_min: 1 << 30,
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    for field in [("x-path", "plain"), ("te", "trailers")] {
        let mut client = begun(&gateway, field, 2);
        client.answer().problem(408, "request-timeout");
    }
    assert!(metric(&gateway, "throng_http_limited_total{limit=\"body_wait\"}") >= 2);
}
