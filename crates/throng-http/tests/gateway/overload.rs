//! Overload: more requests than a loop can execute.

use crate::support::{
    Client, Received,
    client::{PATIENCE, request},
    impatient, start,
};
use std::{
    io::ErrorKind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use throng_http::{Limits, Running};

/// A command that keeps a loop busy for a while.
const PONDER: &str = r#"{"ms":3}"#;

/// Lets many clients keep the loop busy and open sections, each until an answer is `wanted`. Returns the answers to `open`, with the sections' ids.
fn storm(
    gateway: &Running,
    headers: &[(&str, &str)],
    wanted: impl Fn(&Received) -> bool + Sync,
) -> Vec<(String, Received)> {
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
                    client.request("POST", "/api/section/hot/ponder", &[], PONDER);
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

//= promise 9: everything is bounded
#[test]
fn requests_that_would_wait_too_long_are_refused_undone() {
    let gateway = impatient();
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
fn a_deadline_passed_while_waiting_is_told_and_nothing_done() {
    let limits = Limits {
        batch: Duration::from_millis(1),
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

/// Runs a test while many clients keep a gateway busy that allows only short waits.
fn while_saturated(test: impl FnOnce(&Running)) {
    let gateway = impatient();
    let (is_over, is_refused) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..16 {
            let (gateway, is_over, is_refused) = (&gateway, &is_over, &is_refused);
            scope.spawn(move || {
                let mut client = Client::new(gateway);
                // Each client has its own entity: a common one would have a single share and queue.
                let (open, ponder) = (
                    format!("/api/section/{number}/open"),
                    format!("/api/section/{number}/ponder"),
                );
                client.post(&open, r#"{"capacity":1}"#);
                while !is_over.load(Ordering::Relaxed) {
                    let answer = client.post(&ponder, PONDER);
                    is_refused.fetch_or(answer.status == 503, Ordering::Relaxed);
                }
            });
        }
        // Ends the clients even if the test fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _ends = Ends(&is_over);
        while !is_refused.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        test(&gateway);
    });
}

#[test]
fn health_metrics_and_admin_are_served_under_overload() {
    while_saturated(|gateway| {
        let mut old = Client::new(gateway);
        for _ in 0..20 {
            for path in ["/health/live", "/health/ready", "/metrics", "/admin/dead"] {
                assert_eq!(old.get(path).status, 200, "{path}");
                assert_eq!(Client::new(gateway).get(path).status, 200, "{path}");
            }
        }
    });
}

#[test]
fn a_refused_request_with_a_late_body_keeps_its_connection() {
    while_saturated(|gateway| {
        let bytes = request("POST", "/api/section/0/ponder", &[], PONDER);
        let (begin, end) = bytes.split_at(bytes.len() - 4);
        loop {
            let mut client = Client::new(gateway);
            client.send(begin);
            client
                .stream()
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            let early = client.try_answer();
            client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
            client.send(end);
            match early {
                Ok(refused) => {
                    refused.problem(503, "overloaded");
                    assert_eq!(
                        client.get("/health/live").status,
                        200,
                        "the rest of the body is passed over"
                    );
                    return;
                }
                // The request was admitted, and the loop waits for its body.
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                        "{error}"
                    );
                    client.answer();
                }
            }
        }
    });
}

#[test]
fn one_long_request_has_nobody_refused() {
    const CLIENTS: usize = 100;
    // A command may wait ten times as long as the long request. On a busy machine the clients' own requests may take that. If each were as long, they
    // would take thirty seconds.
    let limits = Limits {
        batch: Duration::from_millis(1),
        wait_max: Duration::from_secs(3),
        deadline: PATIENCE,
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&gateway)).collect();
    clients[0].post("/api/section/S1/open", r#"{"capacity":100000}"#);
    for client in &mut clients {
        assert_eq!(client.get("/health/live").status, 200);
    }
    let mut long = Client::new(&gateway);
    for round in 0..3 {
        long.send(request("POST", "/api/section/S1/ponder", &[], r#"{"ms":300}"#));
        for again in 0..10 {
            for (number, client) in clients.iter_mut().enumerate() {
                let body = format!(r#"{{"student":"{round}-{again}-{number}"}}"#);
                client.send(request("POST", "/api/section/S1/add-student", &[], &body));
            }
            for client in &mut clients {
                let answer = client.answer();
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
        assert_eq!(long.answer().status, 200);
    }
}

#[test]
fn the_time_that_others_bytes_take_is_not_a_request_s_age() {
    let deadline = Duration::from_secs(2);
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            deadline,
            ..Limits::default()
        })
    });
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":1}"#);
    let is_over = AtomicBool::new(false);
    let pump = || {
        let chunks = "1\r\n \r\n".repeat(1 << 12);
        while !is_over.load(Ordering::Relaxed) {
            let mut stream = Client::new(&gateway).stream().try_clone().unwrap();
            let head = "POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut sent = std::io::Write::write_all(&mut stream, head.as_bytes());
            // A part of a body that is too large is read before the refusal.
            while sent.is_ok() && !is_over.load(Ordering::Relaxed) {
                sent = std::io::Write::write_all(&mut stream, chunks.as_bytes());
            }
        }
    };
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(pump)));
        let begun = std::time::Instant::now();
        while begun.elapsed() < deadline * 3 / 2 {
            thread::yield_now();
        }
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(Client::new(&gateway).get("/api/section/S1").status);
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [200; 3]);
    });
}
