//! One client that asks for more than its share.

use crate::support::{Client, start};
use http::HeaderName;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use throng_http::Limits;

const PONDER: (&str, &str) = ("/api/section/hot/ponder", r#"{"ms":3}"#);

#[test]
fn a_greedy_client_is_refused_while_a_modest_one_is_served() {
    const GREEDY: usize = 24;
    const ROUNDS: usize = 400;
    let limits = Limits {
        turn: Duration::from_millis(1),
        wait_max: Duration::from_millis(20),
        ..Limits::default()
    };
    let header = HeaderName::from_static("x-client");
    let gateway = start(|gateway| gateway.limits(limits).client_header(header));
    Client::new(&gateway).post("/api/section/hot/open", r#"{"capacity":1}"#);
    let refused = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..GREEDY {
            scope.spawn(|| {
                let mut client = Client::new(&gateway);
                for _ in 0..ROUNDS {
                    let answer = client.request("POST", PONDER.0, &[("x-client", "1.2.3.4, greedy")], PONDER.1);
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
            let mut client = Client::new(&gateway);
            for _ in 0..ROUNDS {
                let answer = client.request("POST", PONDER.0, &[("x-client", "modest")], PONDER.1);
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
