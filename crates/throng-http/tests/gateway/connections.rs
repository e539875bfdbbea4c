//! Connections: many requests on one, slow clients, too many connections.

use crate::support::{
    Client,
    client::{PATIENCE, request},
    plain, start,
};
use std::time::Duration;
use throng_http::Limits;

fn short(set: impl FnOnce(&mut Limits)) -> throng_http::Running {
    let mut limits = Limits::default();
    set(&mut limits);
    start(|gateway| gateway.limits(limits))
}

//= promise 1: one command at a time
#[test]
fn requests_sent_without_waiting_are_answered_in_their_order() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    let mut all = String::new();
    for student in 0..200 {
        all += &request(
            "POST",
            "/api/section/S1/add-student",
            &[],
            &format!(r#"{{"student":"{student}"}}"#),
        );
        all += &request("GET", "/api/section/S1", &[], "");
    }
    client.send(all);
    for student in 0..200 {
        for _ in 0..2 {
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["students"].as_array().unwrap().len(), student + 1);
        }
    }
}

#[test]
fn a_connection_lives_until_its_client_asks_for_the_end() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for _ in 0..100 {
        assert_eq!(client.get("/health/live").status, 200);
    }
    let last = client.request("GET", "/health/live", &[("connection", "close")], "");
    assert_eq!(last.header("connection"), Some("close"));
    client.is_closed();
}

#[test]
fn a_request_that_comes_byte_by_byte_is_a_request() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.stream().set_nodelay(true).unwrap();
    for byte in request("POST", "/api/section/S1/open", &[], r#"{"capacity":1}"#).as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_head_that_does_not_come_to_its_end_ends_the_connection() {
    let gateway = short(|limits| limits.header_wait = Duration::from_millis(40));
    let mut client = Client::new(&gateway);
    client.send("GET /health/live HTTP/1.1\r\nhost:");
    client.is_closed();
}

#[test]
fn a_body_that_does_not_come_to_its_end_is_told_so() {
    let gateway = short(|limits| limits.body_wait = Duration::from_millis(40));
    let mut client = Client::new(&gateway);
    client.send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{\"capa");
    client.answer().problem(408, "request-timeout");
    client.is_closed();
    let mut client = Client::new(&gateway);
    client.get("/api/section/S1").problem(404, "unknown-entity");
}

#[test]
fn a_body_that_ends_early_does_nothing() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"capacity\":1}");
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    let _told_or_not = client.try_answer();
    Client::new(&gateway)
        .get("/api/section/S1")
        .problem(404, "unknown-entity");
}

#[test]
fn an_idle_connection_is_closed() {
    let gateway = short(|limits| limits.idle = Duration::from_millis(40));
    let mut fresh = Client::new(&gateway);
    let mut used = Client::new(&gateway);
    used.get("/health/live");
    fresh.is_closed();
    used.is_closed();
}

#[test]
fn a_client_that_takes_nothing_of_its_answers_is_cut_off() {
    let gateway = short(|limits| limits.write_wait = Duration::from_millis(40));
    let client = Client::new(&gateway);
    client.stream().set_nonblocking(true).unwrap();
    // The client asks for more than the buffers of both ends hold, and reads nothing.
    let ask = request("GET", "/openapi.json", &[], "");
    let mut stream = client.stream().try_clone().unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    let error = loop {
        match std::io::Write::write(&mut stream, ask.as_bytes()) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => break error,
        }
        assert!(std::time::Instant::now() < until, "it was not cut off");
    };
    assert!(
        matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
        ),
        "{error}"
    );
    assert_eq!(Client::new(&gateway).get("/health/live").status, 200);
}

#[test]
fn connections_over_the_limit_are_told_so_and_closed() {
    let gateway = short(|limits| limits.connections_max = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&gateway)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/health/live").status, 200);
    }
    for _ in 0..5 {
        let mut over = Client::new(&gateway);
        over.send(request("GET", "/api/section/S1", &[], ""));
        let answer = over.answer();
        answer.problem(503, "overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
        over.is_closed();
    }
    for client in &mut clients {
        assert_eq!(client.get("/health/live").status, 200, "those within it are served");
    }
    let metrics = clients[0].get("/metrics");
    let refused = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("throng_http_connections_refused_total "));
    assert_eq!(refused, Some("5"), "each counts once");
    // A freed place is used again.
    drop(clients.pop());
    let served = (0..10_000).any(|_| {
        let mut next = Client::new(&gateway);
        next.send(request("GET", "/api/section/S1", &[], ""));
        next.try_answer().is_ok_and(|answer| answer.status == 404)
    });
    assert!(served);
}

#[test]
fn several_loops_share_the_port_and_the_engine() {
    let gateway = start(|gateway| gateway.loops(3));
    let mut clients: Vec<Client> = (0..24).map(|_| Client::new(&gateway)).collect();
    clients[0].post("/api/section/S1/open", r#"{"capacity":1000}"#);
    for (student, client) in clients.iter_mut().enumerate() {
        let added = client.post("/api/section/S1/add-student", &format!(r#"{{"student":"{student}"}}"#));
        assert_eq!(added.json()["students"].as_array().unwrap().len(), student + 1);
    }
    gateway.stop_blocking();
}

#[test]
fn each_of_many_refused_connections_is_answered() {
    let gateway = short(|limits| {
        limits.connections_max = 2;
        limits.spare_connections_max = 8;
    });
    let mut taken: Vec<Client> = (0..2).map(|_| Client::new(&gateway)).collect();
    for client in &mut taken {
        assert_eq!(client.get("/health/live").status, 200);
    }
    // Far more connections than are examined at a time: some have sent a request, the others are silent.
    let mut over: Vec<Client> = (0..300).map(|_| Client::new(&gateway)).collect();
    for client in over.iter_mut().step_by(2) {
        let _told_already = std::io::Write::write_all(
            &mut client.stream(),
            request("GET", "/api/section/S1", &[], "").as_bytes(),
        );
    }
    let mut probe = Client::new(&gateway);
    probe.send(request("GET", "/health/live", &[], ""));
    assert_eq!(probe.answer().status, 200);
    for client in &mut over {
        let answer = client.answer();
        answer.problem(503, "overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let metrics = taken[0].get("/metrics");
    assert!(
        metrics.text().contains("throng_http_connections_refused_total 301\n"),
        "{}",
        metrics.text()
    );
}
