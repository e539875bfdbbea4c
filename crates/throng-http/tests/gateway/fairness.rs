//! A client that asks for more than its share.

use crate::support::{Client, start};
use http::HeaderName;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use throng_http::{Limits, Running};

const PONDER: &str = r#"{"ms":3}"#;

/// Returns a client with an entity of its own. An entity that all clients used would have a single share and queue.
fn client(gateway: &Running, entity: usize) -> (Client, String) {
    let mut client = Client::new(gateway);
    client.post(&format!("/api/section/{entity}/open"), r#"{"capacity":1}"#);
    (client, format!("/api/section/{entity}/ponder"))
}

#[test]
fn a_greedy_client_is_refused_while_a_modest_one_is_served() {
    const GREEDY: usize = 24;
    const ROUNDS: usize = 400;
    let limits = Limits {
        batch: Duration::from_millis(1),
        wait_max: Duration::from_millis(20),
        ..Limits::default()
    };
    let header = HeaderName::from_static("x-client");
    let gateway = start(|gateway| gateway.limits(limits).client_header(header));
    let refused = AtomicBool::new(false);
    thread::scope(|scope| {
        for entity in 0..GREEDY {
            let (gateway, refused) = (&gateway, &refused);
            scope.spawn(move || {
                let (mut client, ponder) = client(gateway, entity);
                for _ in 0..ROUNDS {
                    let answer = client.request("POST", &ponder, &[("x-client", "1.2.3.4, greedy")], PONDER);
                    if answer.status == 429 {
                        answer.problem(429, "too-many-requests");
                        assert_eq!(answer.header("retry-after"), Some("1"));
                        refused.store(true, Ordering::Relaxed);
                    }
                    if refused.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            let (mut client, ponder) = client(&gateway, GREEDY);
            for _ in 0..ROUNDS {
                let answer = client.request("POST", &ponder, &[("x-client", "modest")], PONDER);
                assert_ne!(answer.status, 429, "{}", answer.text());
                if refused.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    });
    assert!(refused.load(Ordering::Relaxed), "nobody was refused");
    let text = Client::new(&gateway).get("/metrics").text().to_owned();
    assert!(
        text.contains(r#"throng_http_problems_total{type="too-many-requests"}"#),
        "{text}"
    );
}
