//! Commands, queries and problems over a WebSocket.

use crate::support::{
    Client, plain,
    socket::{Socket, command, query},
    start,
};
use serde_json::{Value, json};
use std::{io::Write, thread, time::Duration};
use throng_http::Limits;
use tokio_tungstenite::tungstenite::Message;

fn add(id: impl Into<Value>, student: &str) -> Value {
    command(id, "S1", "add-student", &json!({ "student": student }))
}

#[test]
fn the_hello_names_the_limits_of_the_socket() {
    let gateway = plain();
    let (mut socket, response) = Socket::open(&gateway, &[]).unwrap();
    assert!(
        response.headers().get("sec-websocket-protocol").is_none(),
        "none was offered"
    );
    let expected = json!({
        "type": "hello", "protocol": "throng.v1", "requests_max": 1_024, "subscriptions_max": 64,
        "frame_bytes_max": 2 << 20, "credit_max": 10_000, "ping_ms": 20_000, "kinds": ["section"],
    });
    assert_eq!(socket.next(), expected);
}

#[test]
fn commands_of_a_frame_share_full_turns_and_commits() {
    let limits = Limits {
        batch: Duration::ZERO,
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    let mut socket = Socket::new(&gateway);
    socket.send(&command(0, "S1", "open", &json!({ "capacity": 1_000 })));
    socket.expect("reply", 0);
    let commits = || gateway.engine().metrics().commits();
    let before = commits();
    let adds: Vec<Value> = (1..=320).map(|id| add(id, &id.to_string())).collect();
    socket.send(&Value::from(adds));
    (1..=320).for_each(|id| drop(socket.expect("reply", id)));
    let commits = commits() - before;
    assert!(
        commits <= 20,
        "{commits} commits of 320 commands, 32 of which go together"
    );
    gateway.stop_blocking();
}

//= promise 1: one command at a time
#[test]
fn messages_of_a_frame_run_in_order_and_are_answered_by_id() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    let look = |id: &str| query(id, "S1", "view", &json!({}));
    socket.send(&json!([
        command(1, "S1", "open", &json!({ "capacity": 2 })),
        look("before"),
        add(2, "7"),
        look("between"),
        query("enrolled", "S1", "enrolled", &json!({ "student": "8" })),
        add(3, "8"),
        add(4, "9"),
        look("after"),
    ]));
    let mut told: Vec<Value> = (0..8).map(|_| socket.next()).collect();
    let commands: Vec<Value> = told
        .iter()
        .map(|told| told["id"].clone())
        .filter(Value::is_number)
        .collect();
    assert_eq!(commands, [1, 2, 3, 4], "commands are answered in their order");
    told.sort_by_key(|told| told["id"].to_string());
    let students = |at: usize| told[at]["body"]["students"].clone();
    let ids: Vec<&Value> = told.iter().map(|told| &told["id"]).collect();
    assert_eq!(
        ids,
        ["after", "before", "between", "enrolled"]
            .map(Value::from)
            .iter()
            .chain(&[1, 2, 3, 4].map(Value::from))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        (students(0), students(1), students(2)),
        (json!(["7", "8"]), json!([]), json!(["7"]))
    );
    assert_eq!(
        told[3]["body"], false,
        "a query shows the commands before it and none after"
    );
    assert_eq!(students(6), json!(["7", "8"]));
    assert_eq!(told[7]["problem"]["type"], "/problems/full");
}

#[test]
fn the_answers_of_a_turn_leave_together() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 1_000 }));
    let before = socket.frames;
    let many: Vec<Value> = (0..200).map(|student| add(student, &student.to_string())).collect();
    socket.send(&Value::Array(many));
    for student in 0..200 {
        socket.expect("reply", student);
    }
    let frames = socket.frames - before;
    assert!(frames <= 20, "{frames} frames for 200 answers");
    let text = Client::new(&gateway).get("/metrics").text().to_owned();
    for line in [
        "throng_http_websockets 1",
        "throng_http_websocket_frames_received_total 2",
        r#"throng_http_requests_total{route="command",status="2xx"} 201"#,
        r#"throng_http_requests_total{route="websocket",status="2xx"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn problems_are_the_same_as_over_http() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    let mut client = Client::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 0 }));
    let cases = [
        ("S1", "add-student", json!({ "student": "7" }), 409, "full"),
        ("S1", "drop-student", json!({ "student": "7" }), 422, "not-enrolled"),
        ("S2", "add-student", json!({ "student": "7" }), 404, "unknown-entity"),
        ("S1", "add-student", json!({}), 400, "malformed"),
        ("S1", "enrol", json!({}), 404, "unknown-command"),
        ("S1", "crash", json!({}), 500, "crashed"),
    ];
    for (entity, name, body, status, slug) in cases {
        socket.send(&command("p", entity, name, &body));
        let told = socket.problem("p", slug);
        let answer = client.post(&format!("/api/section/{entity}/{name}"), &body.to_string());
        let mut same = answer.problem(status, slug);
        same.as_object_mut().unwrap().remove("instance");
        assert_eq!(told, same);
    }
    socket.send(&query("q", "S1", "roster", &json!({})));
    socket.problem("q", "unknown-query");
    socket.send(&query("q", "S1", "enrolled", &json!({})));
    assert_eq!(socket.problem("q", "malformed")["field"], "student");
}

#[test]
fn a_key_takes_effect_once_and_a_deadline_is_kept() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            batch: Duration::from_millis(1),
            ..Limits::default()
        })
    });
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    let mut keyed = add(1, "7");
    keyed["key"] = "k1".into();
    let first = socket.send(&keyed).expect("reply", 1);
    assert_eq!(socket.send(&keyed).expect("reply", 1), first);
    let mut other = add(2, "8");
    other["key"] = "k1".into();
    socket.send(&other).problem(2, "key-reused");
    for (wrong, found) in [("k 1", "' ' at byte 1"), ("kä", "'ä' at byte 1"), ("", "is empty")] {
        other["key"] = wrong.into();
        let problem = socket.send(&other).problem(2, "malformed");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(found) && problem["field"] == "key", "{problem}");
    }
    // The second message has waited for the first.
    let mut hasty = add(4, "9");
    hasty["timeout_ms"] = 1.into();
    socket.send(&json!([command(3, "S1", "ponder", &json!({ "ms": 20 })), hasty]));
    let mut told = [socket.next(), socket.next()];
    told.sort_by_key(|told| told["id"].as_u64());
    assert_eq!(told[0]["type"], "reply");
    assert_eq!(told[1]["problem"]["type"], "/problems/expired", "{told:?}");
    for wrong in [0, 3_600_001] {
        hasty = add(5, "9");
        hasty["timeout_ms"] = wrong.into();
        assert_eq!(socket.send(&hasty).problem(5, "malformed")["field"], "timeout_ms");
    }
    assert_eq!(
        Client::new(&gateway).get("/api/section/S1").json()["students"],
        json!(["7"])
    );
}

#[test]
fn unreadable_messages_are_refused_and_the_socket_lives() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    socket.inner.send(Message::text("{no")).unwrap();
    let problem = socket.problem((), "malformed");
    assert_eq!((&problem["line"], &problem["column"]), (&json!(1), &json!(2)));
    socket.send(&json!([7, { "type": "dance", "id": 1 }, { "type": "command", "id": 2 }, { "type": "command" }]));
    socket.problem((), "malformed");
    assert_eq!(socket.problem(1, "malformed")["field"], "type");
    assert_eq!(socket.problem(2, "malformed")["field"], "kind");
    assert_eq!(socket.problem((), "malformed")["field"], "id");
    socket.send(&command(3, &"x".repeat(257), "open", &json!({})));
    assert_eq!(socket.problem(3, "malformed")["field"], "entity");
    socket.send(&json!([]));
    socket.command("S1", "open", &json!({ "capacity": 9 }));
}

#[test]
fn surplus_requests_wait_unread_and_are_all_answered() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            socket_requests_max: 4,
            ..Limits::default()
        })
    });
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 1_000 }));
    let batch = |from: usize| Value::Array((from..from + 100).map(|id| add(id, &id.to_string())).collect());
    socket.send(&batch(0)).send(&batch(100));
    for id in 0..200 {
        socket.expect("reply", id);
    }
}

#[test]
fn frames_that_are_none_close_the_socket_with_a_code() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            socket_frame_bytes_max: 1_000,
            ..Limits::default()
        })
    });
    let mut socket = Socket::new(&gateway);
    socket.inner.send(Message::binary(vec![1, 2])).unwrap();
    assert_eq!(socket.close_code(), 1003);
    let mut socket = Socket::new(&gateway);
    socket.inner.send(Message::text("x".repeat(1_000))).unwrap();
    socket.problem((), "malformed");
    socket.inner.send(Message::text("x".repeat(1_001))).unwrap();
    assert_eq!(socket.close_code(), 1009);
    // Text that is not UTF-8, with a mask of zeros; then a frame without a mask.
    for (bytes, code) in [(&[0x81, 0x81, 0, 0, 0, 0, 0xff][..], 1007), (&[0x81, 0x01, b'1'], 1002)] {
        let mut socket = Socket::new(&gateway);
        socket.inner.get_mut().write_all(bytes).unwrap();
        assert_eq!(socket.close_code(), code);
    }
}

#[test]
fn only_an_upgrade_request_gets_a_websocket() {
    let gateway = start(|gateway| gateway.origin("https://app.example"));
    let own = format!("http://{}", gateway.address());
    let status = |fields: &[(&'static str, &str)]| Socket::open(&gateway, fields).err();
    assert_eq!(status(&[]), None);
    assert_eq!(status(&[("origin", &own)]), None);
    assert_eq!(status(&[("origin", "https://app.example")]), None);
    assert_eq!(status(&[("origin", "https://evil.example")]), Some(403));
    assert_eq!(status(&[("sec-websocket-protocol", "mqtt")]), Some(400));
    assert_eq!(status(&[("sec-websocket-version", "8")]), Some(426));
    let mut client = Client::new(&gateway);
    let answer = client.get("/api/ws");
    answer.problem(426, "upgrade-required");
    assert_eq!(
        (answer.header("upgrade"), answer.header("sec-websocket-version")),
        (Some("websocket"), Some("13"))
    );
    client.post("/api/ws", "").problem(405, "method-not-allowed");
}

#[test]
fn a_silent_client_is_pinged_and_a_gone_one_is_let_go() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            socket_ping: Duration::from_millis(50),
            ..Limits::default()
        })
    });
    let mut socket = Socket::new(&gateway);
    for _ in 0..4 {
        // Reading the ping answers it.
        assert!(matches!(socket.inner.read().unwrap(), Message::Ping(_)));
        socket.inner.flush().unwrap();
    }
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    // From here on the client reads nothing, so it answers no ping.
    let mut client = Client::new(&gateway);
    while !client.get("/metrics").text().contains("throng_http_websockets 0") {
        thread::yield_now();
    }
    assert_eq!(socket.close_code(), 4408);
}

#[test]
fn a_client_that_takes_nothing_is_bounded_and_cut_off() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            write_wait: Duration::from_millis(100),
            ..Limits::default()
        })
    });
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    socket.command("S1", "add-student", &json!({ "student": "x".repeat(500_000) }));
    socket.send(&json!({ "type": "subscribe", "id": "s", "kind": "section", "credit": 1 }));
    socket.expect("subscribed", "s");
    // Each answer has half a megabyte. Together that exceeds the kernel's buffers.
    let looks = Value::Array((0..64).map(|id| query(id, "S1", "view", &json!({}))).collect());
    socket.send(&looks);
    let mut client = Client::new(&gateway);
    for level in ["throng_http_websockets 0", "throng_http_live_streams 0"] {
        while !client.get("/metrics").text().contains(level) {
            thread::yield_now();
        }
    }
}

#[test]
fn a_stop_answers_requests_in_flight_and_closes() {
    let gateway = plain();
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    let stopping = thread::spawn(move || gateway.stop_blocking());
    assert_eq!(socket.close_code(), 1001);
    stopping.join().unwrap();
}
