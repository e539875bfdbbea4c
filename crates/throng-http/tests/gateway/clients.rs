//! Limits per client, which leave room for the others.

use crate::support::{
    Client,
    both_paths::FULL,
    client::request,
    http2::Http2,
    metric,
    socket::{Socket, query},
    start, tokens, wait,
};
use serde_json::json;
use std::num::NonZeroU32;
use throng_http::{Gateway, Limits, Running};

fn limited(set: impl FnOnce(&mut Limits)) -> Running {
    start(|gateway| gateway.adjust_limits(set))
}

fn limited_total(gateway: &Running, limit: &str) -> u64 {
    metric(gateway, &format!("throng_http_limited_total{{limit=\"{limit}\"}}"))
}

/// Opens as many connections as are accepted.
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
fn an_address_has_bounded_connections_and_can_reuse_them() {
    let gateway = limited(|limits| limits.connections_per_address_max = Some(4));
    let mut clients = fill(&gateway, 4);
    let mut fifth = Client::new(&gateway);
    fifth.send(request("GET", "/api/section/S1", &[], ""));
    fifth.answer().problem(503, "overloaded");
    assert!(limited_total(&gateway, "connections_per_address_max") >= 1);
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
    assert!(limited_total(&gateway, "connection_rate_max") >= 1);
}

/// Sends this many requests. Returns their statuses.
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
fn requests_of_an_address_are_bounded_over_its_connections() {
    for headers in [&[][..], &[("te", "trailers")]] {
        let gateway = limited(|limits| limits.request_rate_max = NonZeroU32::new(3));
        let mut first = Client::new(&gateway);
        first.post("/api/section/S1/open", r#"{"capacity":1}"#);
        let mut all = statuses(&mut first, 20, headers);
        all.extend(statuses(&mut Client::new(&gateway), 20, headers));
        assert!(all[0] == 200 && all.contains(&429), "{all:?}");
        assert!(limited_total(&gateway, "request_rate_max") >= 1);
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
    assert!(limited_total(&gateway, "caller_request_rate_max") >= 1);
}

/// Starts a service behind a proxy that names its clients. Each client has this rate.
fn proxied(a_second: u32, set: impl FnOnce(Gateway) -> Gateway) -> Running {
    start(|gateway| {
        let own = axum::Router::new().route("/own", axum::routing::get(async || "own"));
        let gateway = gateway.client_header("x-forwarded-for".parse().unwrap()).routes(own);
        set(gateway.adjust_limits(|limits| limits.caller_request_rate_max = NonZeroU32::new(a_second)))
    })
}

/// Asks until the limit is reached. Returns the statuses before that.
#[track_caller]
fn until_limited(mut ask: impl FnMut() -> u16) -> Vec<u16> {
    let mut statuses = Vec::new();
    while statuses.len() < 1_000 {
        match ask() {
            429 => return statuses,
            status => statuses.push(status),
        }
    }
    panic!("{} were answered", statuses.len());
}

#[test]
fn every_answer_spends_the_rate_of_its_address() {
    let (dir, [ann]) = tokens(["ann"]);
    let file = dir.path().join("tokens");
    let by_ann = ("authorization", ann.as_str());
    let wrong = ("authorization", "Bearer throng_wrong");
    for (asks_who, method, path, fields, expected) in [
        (false, "GET", "/nothing", &[][..], 404),
        (false, "GET", "/api/nothing/S1", &[], 404),
        (false, "POST", "/api/nothing/S1/open", &[], 404),
        (false, "GET", "/docs", &[], 200),
        (false, "PUT", "/api/section/S1", &[], 405),
        (false, "GET", "/api/section", &[("origin", "https://evil.example")], 403),
        (false, "GET", "/api/ws", &[], 426),
        (true, "GET", "/api/section", &[], 401),
        (true, "POST", "/api/section/S1/open", &[wrong], 401),
        (true, "GET", "/nothing", &[by_ann], 404),
    ] {
        for more in [&[][..], &[FULL]] {
            let fields = [fields, more].concat();
            let gateway = start(|gateway| {
                let gateway = gateway.adjust_limits(|limits| limits.request_rate_max = NonZeroU32::new(3));
                if asks_who { gateway.tokens(&file) } else { gateway }
            });
            let mut client = Client::new(&gateway);
            let statuses = until_limited(|| client.request(method, path, &fields, "{}").status);
            let is_expected = !statuses.is_empty() && statuses.iter().all(|status| *status == expected);
            assert!(is_expected, "{method} {path}: {statuses:?}");
        }
    }
}

#[test]
fn wrong_tokens_of_an_address_slow_no_right_one() {
    let (dir, [ann]) = tokens(["ann"]);
    let gateway = start(|gateway| {
        let gateway = gateway.tokens(dir.path().join("tokens"));
        gateway.adjust_limits(|limits| limits.request_rate_max = NonZeroU32::new(2))
    });
    let mut client = Client::new(&gateway);
    let mut ask = |bearer: &str| {
        client
            .request("GET", "/api/section", &[("authorization", bearer)], "")
            .status
    };
    until_limited(|| ask("Bearer throng_wrong"));
    assert_eq!(ask(&ann), 200);
}

#[test]
fn caller_is_a_token_else_an_address_without_its_port() {
    let gateway = proxied(2, |gateway| gateway);
    let written: [fn(u16) -> String; 2] = [
        |number| format!("203.0.113.11:{number}"),
        |number| format!("[2001:db8::{number:x}]:443"),
    ];
    for address in written {
        let (mut client, mut numbers) = (Client::new(&gateway), 1..);
        until_limited(|| {
            let address = address(numbers.next().unwrap());
            client
                .request("GET", "/own", &[("x-forwarded-for", &address)], "")
                .status
        });
    }
    let others = ["203.0.113.12", "2001:db8:0:1::1"];
    let asked = |address| Client::new(&gateway).request("GET", "/own", &[("x-forwarded-for", address)], "");
    assert_eq!(others.map(|address| asked(address).status), [200, 200]);
}

#[test]
fn caller_rate_holds_for_routes_of_an_app_and_for_sockets() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let gateway = proxied(2, |gateway| gateway.tokens(dir.path().join("tokens")));
    for more in [&[][..], &[FULL]] {
        let mut client = Client::new(&gateway);
        let mut ask = |bearer: &str| {
            let fields = [&[("authorization", bearer)][..], more].concat();
            client.request("GET", "/own", &fields, "").status
        };
        until_limited(|| ask(&ann));
    }
    let fields = [("authorization", bob.as_str()), ("x-forwarded-for", "203.0.113.1")];
    assert_eq!(Client::new(&gateway).request("GET", "/own", &fields, "").status, 200);
    // A socket without a token counts for the client's address.
    let gateway = proxied(2, |gateway| gateway);
    let open = |address| Socket::open(&gateway, &[("x-forwarded-for", address)]).unwrap().0;
    let (mut first, mut other) = (open("203.0.113.1"), open("203.0.113.2"));
    first.next();
    other.next();
    let ask = |socket: &mut Socket| {
        socket.send(&query(1, "S1", "view", &json!({})));
        socket.next()["problem"]["status"]
            .as_u64()
            .and_then(|status| status.try_into().ok())
    };
    until_limited(|| ask(&mut first).unwrap());
    assert_eq!(ask(&mut other), Some(404), "another address has a rate of its own");
}

#[test]
fn requests_of_many_callers_on_one_connection_stay_apart() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let gateway = proxied(8, |gateway| gateway.tokens(dir.path().join("tokens")));
    let sign = "/api/section/S1/sign";
    let mut client = Client::new(&gateway);
    let open = client.request(
        "POST",
        "/api/section/S1/open",
        &[("authorization", &bob)],
        r#"{"capacity":9}"#,
    );
    assert_eq!(open.status, 200);
    let mut spend = |bearer: &str, timeout: &str| {
        let fields = [
            ("authorization", bearer),
            ("request-timeout", timeout),
            ("x-forwarded-for", "203.0.113.1"),
        ];
        let answer = client.request("POST", sign, &fields, "{}");
        let last = (answer.status == 200).then(|| answer.json()["students"].as_array().unwrap().last().cloned());
        (answer.status, last.flatten())
    };
    // The rate and the time of one request do not affect other requests.
    until_limited(|| spend(&ann, "1ms").0);
    assert_eq!(spend(&bob, "5"), (200, Some(json!("bob"))));

    let gateway = proxied(8, |gateway| gateway.tokens(dir.path().join("tokens")));
    wait(async {
        let (client, _task) = Http2::new(gateway.address(), |_| {}).await;
        let ask = async |bearer: &str, path: &str, body: &str| {
            let fields = [("authorization", bearer), ("x-forwarded-for", "203.0.113.1")];
            let answer = client.begin_with("POST", path, &fields, body).await;
            let status = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body())
                .await
                .unwrap()
                .to_bytes();
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        assert_eq!(ask(&bob, "/api/section/S1/open", r#"{"capacity":9}"#).await.0, 200);
        while ask(&ann, sign, "{}").await.0 != 429 {}
        let (status, body) = ask(&bob, sign, "{}").await;
        assert!(status == 200 && body.ends_with(r#""bob"]}"#), "{status} {body}");
    });
}
