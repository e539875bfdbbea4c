//! What one client may take, and what is left to the others.

use crate::support::{Client, client::request, start};
use std::num::NonZeroU32;
use throng_http::{Gateway, Limits, Running};

fn limited(set: impl FnOnce(&mut Limits)) -> Running {
    start(|gateway| gateway.adjust_limits(set))
}

fn metric(gateway: &Running, limit: &str) -> u64 {
    let text = Client::new(gateway).get("/metrics").text().to_owned();
    let name = format!("throng_http_limited_total{{limit=\"{limit}\"}} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Takes as many connections as are given.
fn fill(gateway: &Running, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| Client::new(gateway)).collect();
    for client in &mut clients {
        client.get("/api/section/S1").problem(404, "unknown-entity");
    }
    clients
}

#[test]
fn health_and_metrics_have_connections_of_their_own() {
    for set in [
        |limits: &mut Limits| limits.connections_max = 3,
        |limits: &mut Limits| limits.connections_per_address_max = Some(3),
    ] {
        let gateway = limited(set);
        let _taken = fill(&gateway, 3);
        for path in ["/health/live", "/health/ready", "/metrics"] {
            let mut probe = Client::new(&gateway);
            probe.send(request("GET", path, &[], ""));
            let answer = probe.answer();
            assert_eq!(
                (answer.status, answer.header("connection")),
                (200, Some("close")),
                "{path}"
            );
            probe.is_closed();
        }
        let mut other = Client::new(&gateway);
        other.send(request("GET", "/api/section/S1", &[], ""));
        let problem = other.answer().problem(503, "overloaded");
        assert!(problem["detail"].as_str().unwrap().contains('3'), "{problem}");
        other.is_closed();
    }
}

#[test]
fn connections_that_say_nothing_keep_no_probe_away() {
    let gateway = limited(|limits| {
        limits.connections_max = 1;
        limits.spare_connections_max = 4;
    });
    let _taken = fill(&gateway, 1);
    let _silent: Vec<_> = (0..32).map(|_| Client::new(&gateway)).collect();
    let mut probe = Client::new(&gateway);
    probe.send(request("GET", "/health/live", &[], ""));
    assert_eq!(probe.answer().status, 200);
}

#[test]
fn an_address_gets_no_more_connections_than_it_may_and_those_it_gives_up_again() {
    let gateway = limited(|limits| limits.connections_per_address_max = Some(4));
    let mut clients = fill(&gateway, 4);
    let mut fifth = Client::new(&gateway);
    fifth.send(request("GET", "/api/section/S1", &[], ""));
    fifth.answer().problem(503, "overloaded");
    assert!(metric(&gateway, "connections_per_address_max") >= 1);
    drop(clients.pop());
    let is_served = (0..10_000).any(|_| {
        let mut next = Client::new(&gateway);
        next.send(request("GET", "/api/section/S1", &[], ""));
        next.try_answer().is_ok_and(|answer| answer.status == 404)
    });
    assert!(is_served);
}

#[test]
fn an_address_opens_no_more_connections_a_second_than_it_may() {
    let gateway = limited(|limits| limits.connection_rate_max = NonZeroU32::new(2));
    let answers: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Client::new(&gateway);
            client.send(request("GET", "/api/section/S1", &[], ""));
            client.answer()
        })
        .collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(answers[0].status == 404 && !refused.is_empty());
    refused[0].problem(429, "too-many-requests");
    assert!(refused[0].header("retry-after").is_some());
    assert!(metric(&gateway, "connection_rate_max") >= 1);
}

/// Of so many requests, the statuses.
fn statuses(client: &mut Client, count: usize, headers: &[(&str, &str)]) -> Vec<u16> {
    let body = r#"{"title":"x"}"#;
    let asked = |_| client.request("POST", "/api/section/S1/rename", headers, body);
    let answers: Vec<_> = (0..count).map(asked).collect();
    for answer in answers.iter().filter(|answer| answer.status == 429) {
        answer.problem(429, "too-many-requests");
        assert!(answer.header("retry-after").is_some());
    }
    answers.iter().map(|answer| answer.status).collect()
}

#[test]
fn an_address_asks_no_more_a_second_than_it_may_on_all_its_connections() {
    for headers in [&[][..], &[("te", "trailers")]] {
        let gateway = limited(|limits| limits.request_rate_max = NonZeroU32::new(3));
        let mut first = Client::new(&gateway);
        first.post("/api/section/S1/open", r#"{"capacity":1}"#);
        let mut all = statuses(&mut first, 20, headers);
        all.extend(statuses(&mut Client::new(&gateway), 20, headers));
        assert!(all[0] == 200 && all.contains(&429), "{all:?}");
        assert!(metric(&gateway, "request_rate_max") >= 1);
        for _ in 0..20 {
            assert_eq!(first.get("/health/live").status, 200, "health is never refused");
        }
    }
}

#[test]
fn a_caller_asks_no_more_a_second_than_it_may_and_others_go_on() {
    let set = |gateway: Gateway| {
        let gateway = gateway.client_header("x-caller".parse().unwrap());
        gateway.adjust_limits(|limits| limits.caller_request_rate_max = NonZeroU32::new(2))
    };
    let gateway = start(set);
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1}"#);
    let all = statuses(&mut client, 20, &[("x-caller", "ann")]);
    assert!(all[0] == 200 && all.contains(&429), "{all:?}");
    assert_eq!(statuses(&mut client, 1, &[("x-caller", "ben")]), [200]);
    assert!(metric(&gateway, "caller_request_rate_max") >= 1);
}
