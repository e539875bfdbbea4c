//! More than a loop can do.

use crate::support::{Answer, Client, start};
use std::{thread, time::Duration};
use throng_http::{Limits, Running};

/// What comes of many clients who each open sections that take a few milliseconds, until one of the answers is `wanted`.
fn storm(
    gateway: &Running,
    headers: &[(&str, &str)],
    wanted: impl Fn(&Answer) -> bool + Sync,
) -> Vec<(String, Answer)> {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 200;
    Client::new(gateway).post("/api/section/hot/open", r#"{"capacity":1}"#);
    thread::scope(|scope| {
        let client = |number: usize| {
            let wanted = &wanted;
            move || {
                let mut client = Client::new(gateway);
                let mut answers = Vec::new();
                for round in 0..ROUNDS {
                    client.request("POST", "/api/section/hot/ponder", &[], r#"{"ms":3}"#);
                    let id = format!("{number}-{round}");
                    let answer =
                        client.request("POST", &format!("/api/section/{id}/open"), headers, r#"{"capacity":1}"#);
                    let found = wanted(&answer);
                    answers.push((id, answer));
                    if found {
                        break;
                    }
                }
                answers
            }
        };
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(client(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn who_would_wait_too_long_is_refused_before_anything_is_done() {
    let limits = Limits {
        turn: Duration::from_millis(1),
        wait_max: Duration::from_millis(2),
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    let answers = storm(&gateway, &[], |answer| answer.status == 503);
    assert!(
        answers.iter().any(|(_, answer)| answer.status == 503),
        "nobody was refused"
    );
    let mut client = Client::new(&gateway);
    for (id, answer) in &answers {
        let seen = client.get(&format!("/api/section/{id}"));
        if answer.status == 503 {
            answer.problem(503, "overloaded");
            assert_eq!(answer.header("retry-after"), Some("1"));
            seen.problem(404, "unknown-entity");
        } else {
            assert_eq!((answer.status, seen.status), (200, 200), "{}", answer.text());
        }
    }
}

#[test]
fn a_deadline_that_passes_while_a_request_waits_is_told_and_nothing_is_done() {
    let limits = Limits {
        turn: Duration::from_millis(1),
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    let answers = storm(&gateway, &[("request-timeout", "1ms")], |answer| answer.status == 504);
    assert!(
        answers
            .iter()
            .any(|(_, answer)| answer.text().contains("/problems/expired")),
        "no deadline passed"
    );
    let mut client = Client::new(&gateway);
    for (id, answer) in answers
        .iter()
        .filter(|(_, answer)| answer.text().contains("/problems/expired"))
    {
        answer.problem(504, "expired");
        client.get(&format!("/api/section/{id}")).problem(404, "unknown-entity");
    }
}
