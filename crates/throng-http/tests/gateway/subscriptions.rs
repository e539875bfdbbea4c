//! Subscriptions over a WebSocket, whose events are limited by credit.

use crate::support::{
    Client, plain, section,
    socket::{Socket, command},
    start, wait,
};
use serde_json::{Value, json};
use std::{sync::atomic::Ordering::SeqCst, thread, time::Duration};
use throng::{
    Engine,
    journal::{Journal, MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Limits};
use throng_testing::HeldJournal;

fn subscribe(id: &str, entity: Option<&str>, after: impl Into<Value>, credit: u32) -> Value {
    let mut message = json!({ "type": "subscribe", "id": id, "kind": "section", "credit": credit });
    let after = after.into();
    if !after.is_null() {
        message["after"] = after;
    }
    if let Some(entity) = entity {
        message["entity"] = entity.into();
    }
    message
}

/// Receives this many events of a subscription. Returns their contents, and the last cursor.
#[track_caller]
fn events(socket: &mut Socket, id: &str, count: usize) -> (Vec<Value>, Value) {
    let (mut all, mut cursor) = (Vec::new(), Value::Null);
    while all.len() < count {
        let told = socket.expect("events", id);
        all.extend(told["events"].as_array().unwrap().iter().cloned());
        cursor = told["cursor"].clone();
    }
    assert_eq!(all.len(), count);
    (all, cursor)
}

fn add(client: &mut Client, entity: &str, student: usize) {
    let body = json!({ "student": student.to_string() }).to_string();
    assert_eq!(
        client.post(&format!("/api/section/{entity}/add-student"), &body).status,
        200
    );
}

fn open(client: &mut Client, entity: &str) {
    client.post(&format!("/api/section/{entity}/open"), r#"{"capacity":1000}"#);
}

#[test]
fn an_entity_s_events_come_as_far_as_credit_goes() {
    let gateway = plain();
    let (mut client, mut socket) = (Client::new(&gateway), Socket::new(&gateway));
    open(&mut client, "S1");
    (0..4).for_each(|student| add(&mut client, "S1", student));
    socket.send(&subscribe("s", Some("S1"), (), 2));
    assert_eq!(socket.expect("subscribed", "s")["cursor"], "0");
    let (seen, cursor) = events(&mut socket, "s", 2);
    assert_eq!(
        (&seen[0]["seq"], &seen[0]["name"], &seen[0]["payload"]),
        (&json!(1), &json!("opened"), &json!({"capacity": 1000}))
    );
    assert!(seen[0].get("entity").is_none(), "it is clear whose it is");
    assert!(cursor.as_str().unwrap().starts_with("2@"), "{cursor}");
    assert_eq!(socket.expect("paused", "s")["cursor"], cursor);
    socket.send(&json!({ "type": "credit", "id": "s", "credit": 100 }));
    let (seen, _) = events(&mut socket, "s", 3);
    assert_eq!(seen[2]["payload"], json!({ "student": "3" }));
    // Later events arrive by themselves, among answers.
    add(&mut client, "S1", 4);
    assert_eq!(events(&mut socket, "s", 1).0[0]["payload"], json!({ "student": "4" }));
    socket.send(&json!({ "type": "unsubscribe", "id": "s" }));
    let ended = socket.expect("ended", "s");
    assert!(ended.get("problem").is_none());
    socket.send(&json!({ "type": "unsubscribe", "id": "s" }));
    assert_eq!(socket.problem("s", "malformed")["field"], "id");
    add(&mut client, "S1", 5);
    socket.command("S1", "drop-student", &json!({ "student": "5" }));
}

#[test]
fn entity_created_earlier_in_the_frame_is_followed() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    let (open, nobody) = (json!({ "capacity": 1 }), json!({ "student": "1" }));
    for number in 0..20 {
        let (section, follower) = (format!("S{number}"), format!("s{number}"));
        socket.send(&json!([
            command("open", &section, "open", &open),
            subscribe(follower.as_str(), Some(&section), (), 10),
        ]));
        socket.expect("reply", "open");
        assert_eq!(socket.expect("subscribed", follower.as_str())["cursor"], "0");
        assert_eq!(events(&mut socket, follower.as_str(), 1).0[0]["name"], "opened");
    }
    // The command does not create the entity, so there is nothing to follow.
    socket.send(&json!([
        command("add", "S99", "add-student", &nobody),
        subscribe("none", Some("S99"), (), 10),
    ]));
    socket.problem("add", "unknown-entity");
    socket.problem("none", "unknown-entity");
}

#[test]
fn events_of_a_kind_come_in_log_order_and_after_a_cursor() {
    let gateway = plain();
    let (mut client, mut socket) = (Client::new(&gateway), Socket::new(&gateway));
    open(&mut client, "S1");
    socket
        .send(&subscribe("all", None, "start", 1_000))
        .send(&subscribe("new", None, (), 1_000));
    let (mut subscribed, mut first) = (0, Vec::new());
    while subscribed < 2 || first.is_empty() {
        let told = socket.next();
        match told["type"].as_str().unwrap() {
            "subscribed" => subscribed += 1,
            "events" => first.extend(told["events"].as_array().unwrap().iter().cloned()),
            other => panic!("{other}"),
        }
    }
    assert_eq!(
        (first.len(), &first[0]["entity"], &first[0]["name"]),
        (1, &json!("S1"), &json!("opened"))
    );
    socket.send(&json!({ "type": "unsubscribe", "id": "all" }));
    socket.expect("ended", "all");
    open(&mut client, "S2");
    (0..50).for_each(|student| add(&mut client, ["S1", "S2"][student % 2], student));
    let (seen, _) = events(&mut socket, "new", 51);
    assert_eq!((&seen[0]["entity"], &seen[0]["name"]), (&json!("S2"), &json!("opened")));
    let students: Vec<String> = seen[1..]
        .iter()
        .map(|event| event["payload"]["student"].as_str().unwrap().into())
        .collect();
    assert_eq!(students, (0..50).map(|student| student.to_string()).collect::<Vec<_>>());
    // Reads small pages, each on a new socket, after the previous one.
    let (mut all, mut after) = (Vec::new(), json!("start"));
    while all.len() < 52 {
        let mut socket = Socket::new(&gateway);
        socket.send(&subscribe("page", None, after, 5));
        socket.expect("subscribed", "page");
        let count = (52 - all.len()).min(5);
        let (seen, cursor) = events(&mut socket, "page", count);
        all.extend(seen);
        after = cursor;
    }
    assert_eq!(all[0], first[0]);
    assert_eq!(all[1..], seen[..]);
}

#[test]
fn events_many_subscriptions_follow_are_read_once() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (journal, _hold) = HeldJournal::new(journal, false);
    let read = journal.read.clone();
    let engine = Engine::builder().with::<section::Section>();
    let engine = wait(engine.start(Box::new(journal) as Box<dyn Journal>, store)).unwrap();
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    open(&mut client, "S1");
    let ids: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
    let mut sockets = [Socket::new(&gateway), Socket::new(&gateway)];
    for socket in &mut sockets {
        for id in &ids {
            socket.send(&subscribe(id, None, (), 1_000));
            socket.expect("subscribed", id.as_str());
        }
    }
    let mut tell_all = |students: std::ops::Range<usize>| {
        let count = students.len();
        students.for_each(|student| add(&mut client, "S1", student));
        for socket in &mut sockets {
            let mut told = 0;
            while told < count * ids.len() {
                told += socket.next()["events"].as_array().unwrap().len();
            }
        }
    };
    // A subscription that has got an event follows the shared reader.
    tell_all(0..1);
    let before = read.load(SeqCst);
    tell_all(1..21);
    assert_eq!(read.load(SeqCst) - before, 20, "commits read");
}

#[test]
fn a_batch_of_one_commit_is_cut_where_credit_ends() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 1_000 }));
    let adds: Vec<Value> = (0..60)
        .map(|student| {
            crate::support::socket::command(student, "S1", "add-student", &json!({ "student": student.to_string() }))
        })
        .collect();
    socket.send(&Value::Array(adds));
    (0..60).for_each(|student| drop(socket.expect("reply", student)));
    let mut after = json!("start");
    for page in 0..6 {
        let id = format!("p{page}");
        socket.send(&subscribe(&id, None, after, 10));
        socket.expect("subscribed", id.as_str());
        let (seen, cursor) = events(&mut socket, &id, 10);
        assert_eq!(seen[0]["seq"], page * 10 + 1);
        assert_eq!(socket.expect("paused", id.as_str())["cursor"], cursor);
        after = cursor;
    }
}

#[test]
fn a_cursor_of_another_history_is_noticed() {
    let gateway = plain();
    let (mut client, mut socket) = (Client::new(&gateway), Socket::new(&gateway));
    open(&mut client, "S1");
    socket.send(&subscribe("s", Some("S1"), (), 1));
    socket.expect("subscribed", "s");
    let (_, cursor) = events(&mut socket, "s", 1);
    let cursor = cursor.as_str().unwrap().to_owned();
    socket.send(&subscribe("same", Some("S1"), cursor.as_str(), 1));
    socket.expect("subscribed", "same");
    for (entity, cursor) in [
        (Some("S1"), format!("{cursor}7")),
        (Some("S1"), "9@1.1".into()),
        (None, "77.1".into()),
        (None, "1.999".into()),
    ] {
        socket.send(&subscribe("lost", entity, cursor.as_str(), 1));
        socket.problem("lost", "history-lost");
    }
    for beyond in [json!(2), json!(99), json!("99")] {
        socket.send(&subscribe("lost", Some("S1"), beyond, 1));
        socket.problem("lost", "history-lost");
    }
    socket.send(&subscribe("end", Some("S1"), json!(1), 1));
    socket.expect("subscribed", "end");
    for (entity, wrong) in [
        (Some("S1"), json!("x")),
        (None, json!("x")),
        (None, json!(7)),
        (None, json!("1.0")),
    ] {
        socket.send(&subscribe("wrong", entity, wrong, 1));
        assert_eq!(socket.problem("wrong", "malformed")["field"], "after");
    }
    socket.send(&subscribe("nobody", Some("S9"), (), 1));
    socket.problem("nobody", "unknown-entity");
}

#[test]
fn missing_credit_ends_a_subscription_with_its_cursor() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            socket_credit_wait: Duration::from_millis(20),
            ..Limits::default()
        })
    });
    let (mut client, mut socket) = (Client::new(&gateway), Socket::new(&gateway));
    open(&mut client, "S1");
    socket.send(&subscribe("s", Some("S1"), (), 1));
    socket.expect("subscribed", "s");
    let (_, cursor) = events(&mut socket, "s", 1);
    // No event waits for credit yet.
    add(&mut client, "S1", 7);
    assert_eq!(socket.expect("paused", "s")["cursor"], cursor);
    let ended = socket.expect("ended", "s");
    assert_eq!(
        (&ended["problem"]["type"], &ended["cursor"]),
        (&json!("/problems/slow-reader"), &cursor)
    );
    socket.send(&subscribe("s", Some("S1"), cursor, 1));
    socket.expect("subscribed", "s");
    assert_eq!(events(&mut socket, "s", 1).0[0]["payload"], json!({ "student": "7" }));
}

#[test]
fn subscriptions_have_a_limit_and_give_their_places_back() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            socket_subscriptions_max: 2,
            live_max: 3,
            ..Limits::default()
        })
    });
    let (mut client, mut socket) = (Client::new(&gateway), Socket::new(&gateway));
    for id in ["a", "b"] {
        socket.send(&subscribe(id, None, (), 1));
        socket.expect("subscribed", id);
    }
    socket.send(&subscribe("a", None, (), 1));
    assert_eq!(socket.problem("a", "malformed")["field"], "id");
    socket.send(&subscribe("c", None, (), 1));
    assert!(
        socket.problem("c", "malformed")["detail"]
            .as_str()
            .unwrap()
            .contains("2 subscriptions")
    );
    let mut other = Socket::new(&gateway);
    other.send(&subscribe("d", None, (), 1));
    other.expect("subscribed", "d");
    other.send(&subscribe("e", None, (), 1));
    other.problem("e", "overloaded");
    drop(socket);
    while !client.get("/metrics").text().contains("throng_http_live_streams 1") {
        thread::yield_now();
    }
    other.send(&subscribe("e", None, (), 1));
    other.expect("subscribed", "e");
}
