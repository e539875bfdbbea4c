//! Pages and answers that exceed their share of the memory.

use crate::support::{
    Client,
    client::request,
    engine_with,
    socket::{Socket, command, query},
    wait,
};
use serde_json::{Value, json};
use std::{thread, time::Duration};
use throng::{Engine, Options, driver::Share};
use throng_http::{Gateway, Limits, PageRoom, Running};

const STREAM: [(&str, &str); 1] = [("accept", "text/event-stream")];
const EVENTS: &str = "/api/section/S1/events";
/// The part of the memory for pages and answers, and the size of an event's payload.
const SHARE: usize = 512 << 10;
const TITLE: usize = 100_000;

/// Returns a gateway, and the memory share of its pages.
fn with(limits: Limits) -> (Running, Share) {
    let engine = engine_with(Options {
        memory_bytes_max: 8 * SHARE,
        ..Options::default()
    });
    let gateway = Gateway::builder(engine.clone()).limits(limits).start().unwrap();
    let share = share(&engine);
    assert_eq!(share.most(), SHARE);
    (gateway, share)
}

fn share(engine: &Engine) -> Share {
    share_of(engine, 0)
}

fn share_of(engine: &Engine, most: usize) -> Share {
    engine.driver().budget().share("pages", most)
}

/// Returns a section whose history is much larger than the memory for it.
fn with_history(limits: Limits, events: usize) -> (Running, Share) {
    let (gateway, share) = with(limits);
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let title = json!({ "title": "x".repeat(TITLE) }).to_string();
    for _ in 1..events {
        assert_eq!(client.post("/api/section/S1/rename", &title).status, 200);
    }
    (gateway, share)
}

fn open(gateway: &Running) -> Client {
    let mut stream = Client::new(gateway);
    stream.send(request("GET", EVENTS, &STREAM, ""));
    assert_eq!(stream.head().unwrap().status, 200);
    stream
}

/// Returns the sequence numbers of the next events.
fn seqs(stream: &mut Client, count: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    while (seqs.len() as u64) < count {
        let line = stream.line().unwrap();
        if let Some((seq, _)) = line.strip_prefix("id: ").and_then(|id| id.split_once('@')) {
            seqs.push(seq.parse().unwrap());
        }
    }
    seqs
}

#[test]
fn page_without_room_is_dropped_and_read_again() {
    let (gateway, share) = with_history(Limits::default(), 12);
    let all = share.take(SHARE).unwrap();
    let mut stream = open(&gateway);
    while stream.line().unwrap() != ": connected" {}
    let mut socket = Socket::new(&gateway);
    let subscribe = json!({ "type": "subscribe", "id": 1, "kind": "section", "entity": "S1", "credit": 100 });
    socket.send(&subscribe).expect("subscribed", 1);
    assert_eq!(Client::new(&gateway).get("/health/live").status, 200);
    drop(all);
    assert_eq!(seqs(&mut stream, 12), (1..=12).collect::<Vec<_>>());
    let mut told: Vec<u64> = Vec::new();
    while told.len() < 12 {
        let events = socket.expect("events", 1)["events"].clone();
        told.extend(
            events
                .as_array()
                .unwrap()
                .iter()
                .map(|event| event["seq"].as_u64().unwrap()),
        );
    }
    assert_eq!(told, (1..=12).collect::<Vec<_>>());
    while share.held() > 0 {
        thread::yield_now();
    }
}

#[test]
fn stream_that_nobody_reads_holds_one_page() {
    let (gateway, share) = with_history(Limits::default(), 150);
    let unread: Vec<_> = (0..3).map(|_| open(&gateway)).collect();
    let mut read = open(&gateway);
    assert_eq!(seqs(&mut read, 150), (1..=150).collect::<Vec<_>>());
    // The kernel may buffer some of it; the service holds one page per client.
    while share.held() > 3 * (TITLE + 1_000) {
        thread::yield_now();
    }
    drop((unread, read));
    while share.held() > 0 {
        thread::yield_now();
    }
}

#[test]
fn history_is_cut_by_its_bytes_and_refused_without_room() {
    let limits = Limits {
        wait_max: Duration::from_millis(1),
        ..Limits::default()
    };
    let (gateway, share) = with_history(limits, 5);
    let mut client = Client::new(&gateway);
    let (mut seen, mut after, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(seq) = after {
        let page: Value = client.get(&format!("{EVENTS}?limit=1000&after={seq}")).json();
        seen.extend(
            page["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| event["seq"].as_u64().unwrap()),
        );
        assert!(page.get("removed").is_none());
        (after, pages) = (page["next"].as_u64(), pages + 1);
    }
    assert_eq!((seen, pages), (vec![1, 2, 3, 4, 5], 5));
    let all = share.take(SHARE).unwrap();
    client.get(EVENTS).problem(503, "overloaded");
    drop(all);
    assert_eq!(client.get(EVENTS).status, 200);
}

#[test]
fn large_answer_without_room_is_refused() {
    for field in [("x-path", "plain"), ("te", "trailers")] {
        let (gateway, share) = with(Limits::default());
        let mut client = Client::new(&gateway);
        client.post("/api/section/S1/open", r#"{"capacity":9}"#);
        let student = json!({ "student": "x".repeat(TITLE) }).to_string();
        client.post("/api/section/S1/add-student", &student);
        let all = share.take(SHARE).unwrap();
        client
            .request("GET", "/api/section/S1", &[field], "")
            .problem(503, "overloaded");
        drop(all);
        let answer = client.request("GET", "/api/section/S1", &[field], "");
        assert_eq!(answer.json()["students"][0].as_str().unwrap().len(), TITLE);
        while share.held() > 0 {
            thread::yield_now();
        }
    }
}

/// Returns a gateway, and the memory share of its pages. Its section is much larger than the kernel's buffers.
fn with_large_section() -> (Running, Share) {
    let (gateway, share) = with(Limits::default());
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":99}"#);
    let student = json!({ "student": "x".repeat(SHARE + SHARE / 2) }).to_string();
    client.post("/api/section/S1/add-student", &student);
    (gateway, share)
}

#[test]
fn reply_of_an_executed_command_needs_no_room() {
    let (gateway, share) = with_large_section();
    let all = share.take(SHARE).unwrap();
    for (student, field) in [("x-path", "plain"), ("te", "trailers")].into_iter().enumerate() {
        let body = json!({ "student": student.to_string() }).to_string();
        let mut client = Client::new(&gateway);
        let answer = client.request("POST", "/api/section/S1/add-student", &[field], &body);
        assert_eq!(answer.json()["students"].as_array().unwrap().len(), 2 + student);
    }
    let mut socket = Socket::new(&gateway);
    let add = command(1, "S1", "add-student", &json!({ "student": "s" }));
    socket.send(&add).expect("reply", 1);
    socket.send(&query(2, "S1", "view", &json!({})));
    assert_eq!(socket.expect("problem", 2)["problem"]["status"], 503);
    drop(all);
    socket.send(&query(3, "S1", "view", &json!({}))).expect("reply", 3);
    while share.held() > 0 {
        thread::yield_now();
    }
}

#[test]
fn commands_are_refused_while_replies_hold_too_much() {
    let (gateway, share) = with_large_section();
    let add = |student: &str| json!({ "student": student });
    let mut client = Client::new(&gateway);
    let one = |student: &str| request("POST", "/api/section/S1/add-student", &[], &add(student).to_string());
    client.send(one("1") + &one("2"));
    assert_eq!(client.answer().status, 200);
    client.answer().problem(503, "overloaded");
    let mut socket = Socket::new(&gateway);
    let both = [("3", 3), ("4", 4)].map(|(student, id)| command(id, "S1", "add-student", &add(student)));
    socket.send(&Value::from(both.to_vec())).expect("reply", 3);
    assert_eq!(socket.expect("problem", 4)["problem"]["status"], 503);
    while share.held() > 0 {
        thread::yield_now();
    }
    let students = client.get("/api/section/S1").json()["students"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(students, 3, "what was refused is not done");
}

#[test]
fn page_of_an_app_needs_room() {
    let engine = engine_with(Options {
        memory_bytes_max: 8 * SHARE,
        ..Options::default()
    });
    let share = share_of(&engine, SHARE);
    let all = share.take(SHARE).unwrap();
    assert!(wait(PageRoom::take(&engine, 1)).is_err());
    drop(all);
    let room = wait(PageRoom::take(&engine, 2 * SHARE)).ok();
    assert_eq!((room.is_some(), share.held()), (true, SHARE));
}
