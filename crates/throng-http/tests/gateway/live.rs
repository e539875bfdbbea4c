//! Live events, as server-sent events over HTTP.

use crate::support::{Client, client::request, engine, http2::patiently, plain, start, wait};
use std::thread;
use throng::Follow;
use throng_http::{Gateway, Limits};

const STREAM: [(&str, &str); 1] = [("accept", "text/event-stream")];

/// Reads lines until one begins like this.
fn until(client: &mut Client, start: &str) -> String {
    loop {
        let line = client.line().unwrap();
        if line.starts_with(start) {
            return line;
        }
    }
}

#[test]
fn a_stream_shows_past_and_new_events() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut stream = Client::new(&gateway);
    stream.send(request("GET", "/api/section/S1/events", &STREAM, ""));
    let head = stream.head().unwrap();
    assert_eq!(
        (head.status, head.header("content-type")),
        (200, Some("text/event-stream"))
    );
    assert!(until(&mut stream, "id:").starts_with("id: 1@"));
    assert_eq!(stream.line().unwrap(), "event: opened");
    assert!(stream.line().unwrap().contains(r#""payload":{"capacity":9}"#));
    for (student, id) in [("7", "id: 2@"), ("8", "id: 3@")] {
        client.post("/api/section/S1/add-student", &format!(r#"{{"student":"{student}"}}"#));
        assert!(until(&mut stream, "id:").starts_with(id));
        assert!(until(&mut stream, "data:").contains(&format!(r#""student":"{student}""#)));
    }
}

#[test]
fn a_client_that_comes_back_goes_on_where_it_was() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    client.post("/api/section/S1/add-student", r#"{"student":"7"}"#);
    let come_back = |last: &str| {
        let mut stream = Client::new(&gateway);
        let headers = [STREAM[0], ("last-event-id", last)];
        stream.send(request("GET", "/api/section/S1/events", &headers, ""));
        stream
    };
    let first = until(&mut come_back("0"), "id:");
    let first = first.strip_prefix("id: ").unwrap();
    for last in ["1", first] {
        assert!(until(&mut come_back(last), "id:").starts_with("id: 2@"));
    }
    // The cursor belongs to a history that was lost.
    Client::new(&gateway)
        .request(
            "GET",
            "/api/section/S1/events",
            &[STREAM[0], ("last-event-id", "1@9.9")],
            "",
        )
        .problem(410, "history-lost");
}

#[test]
fn stream_after_an_event_that_never_was_is_refused() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for last in ["2", "99"] {
        let seen = [STREAM[0], ("last-event-id", last)];
        let answer = client.request("GET", "/api/section/S1/events", &seen, "");
        assert_eq!(answer.problem(410, "history-lost")["field"], "Last-Event-ID");
        let answer = client.request("GET", &format!("/api/section/S1/events?after={last}"), &STREAM, "");
        assert_eq!(answer.problem(410, "history-lost")["field"], "after");
    }
    // At the end the stream waits for new events.
    let mut stream = Client::new(&gateway);
    stream.send(request("GET", "/api/section/S1/events?after=1", &STREAM, ""));
    assert_eq!(stream.head().unwrap().status, 200);
    client.post("/api/section/S1/add-student", r#"{"student":"7"}"#);
    assert_eq!(until(&mut stream, "id:"), "id: 2@1.2");
}

#[test]
fn a_stream_of_nobody_is_not_opened() {
    let gateway = plain();
    Client::new(&gateway)
        .request("GET", "/api/section/S1/events", &STREAM, "")
        .problem(404, "unknown-entity");
}

#[test]
fn streams_have_a_limit_and_give_their_place_back() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            live_max: 1,
            ..Limits::default()
        })
    });
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut stream = Client::new(&gateway);
    stream.send(request("GET", "/api/section/S1/events", &STREAM, ""));
    until(&mut stream, "id:");
    client
        .request("GET", "/api/section/S1/events", &STREAM, "")
        .problem(503, "overloaded");
    drop(stream);
    while !client.get("/metrics").text().contains("throng_http_live_streams 0") {
        thread::yield_now();
    }
    client.send(request("GET", "/api/section/S1/events", &STREAM, ""));
    assert_eq!(client.head().unwrap().status, 200);
}

#[test]
fn streams_end_when_the_gateway_stops() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut stream = Client::new(&gateway);
    stream.send(request("GET", "/api/section/S1/events", &STREAM, ""));
    until(&mut stream, "id:");
    drop(client);
    let stopping = thread::spawn(move || gateway.stop_blocking());
    // The last chunk is empty, so the stream ended cleanly.
    until(&mut stream, "0");
    stopping.join().unwrap();
}

#[test]
fn follower_that_looks_finds_nothing_until_something_happens() {
    let engine = engine();
    let gateway = Gateway::builder(engine.clone()).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let add = |student: &str| format!(r#"{{"student":"{student}"}}"#);
    client.post("/api/section/S1/add-student", &add("1"));
    let (kind, id) = (engine.kind("section").unwrap(), "S1".to_owned());
    let entity = Follow::Entity {
        kind,
        id,
        after: 0,
        at: None,
    };
    wait(async {
        let mut follower = engine.follow(entity).await.unwrap();
        for seq in 1..=2 {
            follower.wait().await.unwrap();
            assert_eq!(follower.next_now(1, 0).await.unwrap()[0].event.seq, seq);
        }
        let mut found = Vec::new();
        for seq in 3..=5_u64 {
            assert!(follower.next_now(9, 0).await.unwrap().is_empty());
            client.post("/api/section/S1/add-student", &add(&seq.to_string()));
            while found.is_empty() {
                patiently(follower.wait()).await.unwrap();
                found = follower.next_now(9, 0).await.unwrap();
            }
            assert_eq!(found.pop().map(|event| event.event.seq), Some(seq));
        }
    });
}
