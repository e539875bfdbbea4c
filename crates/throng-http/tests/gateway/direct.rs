//! Connections that share a task, and those with a task of their own: clients see no difference.

use crate::support::{Client, client::request, engine, held::held};
use axum::{
    Router,
    routing::{MethodRouter, get},
};
use std::sync::Arc;
use throng_http::{Gateway, Limits};
use tokio::sync::Notify;

/// Returns a handler that waits until it is released.
fn waits() -> (MethodRouter, Arc<Notify>) {
    let released = Arc::new(Notify::new());
    let waits = {
        let released = released.clone();
        get(async move || {
            released.notified().await;
            "done"
        })
    };
    (waits, released)
}

fn add(student: &str) -> String {
    request(
        "POST",
        "/api/section/S1/add-student",
        &[],
        &format!(r#"{{"student":"{student}"}}"#),
    )
}

fn students(client: &mut Client) -> usize {
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["students"].as_array().unwrap().len()
}

#[test]
fn requests_of_every_sort_are_answered_in_order() {
    let engine = engine();
    let routes = Router::new()
        .route("/now", get(async || "now"))
        .route(
            "/later",
            get(async || {
                tokio::task::yield_now().await;
                "later"
            }),
        )
        .route("/large", get(async || "x".repeat(300_000)));
    let gateway = Gateway::builder(engine).routes(routes).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    let round: [(&str, String); 9] = [
        ("added", add("new")),
        ("now", request("GET", "/now", &[], "")),
        ("added", add("new")),
        ("later", request("GET", "/later", &[], "")),
        ("unknown", request("POST", "/api/section/S1/fly", &[], "{}")),
        ("added", add("new")),
        ("large", request("GET", "/large", &[], "")),
        (
            "nobody",
            request("POST", "/api/section/S9/add-student", &[], r#"{"student":"x"}"#),
        ),
        ("seen", request("GET", "/api/section/S1", &[], "")),
    ];
    const ROUNDS: usize = 40;
    let mut all = String::new();
    for number in 0..ROUNDS {
        for (at, (_, bytes)) in round.iter().enumerate() {
            all += &bytes.replace("new", &format!("{:03}", number * 10 + at));
        }
    }
    // The answers do not fit into the socket, so this client writes and reads at the same time.
    let mut writer = client.stream().try_clone().unwrap();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut writer, all.as_bytes()).unwrap());
    let mut added = 0;
    for _ in 0..ROUNDS {
        for (what, _) in &round {
            match *what {
                "added" => {
                    added += 1;
                    assert_eq!(students(&mut client), added);
                }
                "seen" => assert_eq!(students(&mut client), added),
                "unknown" => drop(client.answer().problem(404, "unknown-command")),
                "nobody" => drop(client.answer().problem(404, "unknown-entity")),
                "large" => assert_eq!(client.answer().body.len(), 300_000),
                text => assert_eq!(client.answer().text(), text),
            }
        }
    }
    sending.join().unwrap();
}

#[test]
fn a_client_waiting_for_a_handler_holds_up_no_other() {
    let (waits, released) = waits();
    let gateway = Gateway::builder(engine())
        .routes(Router::new().route("/waits", waits))
        .start()
        .unwrap();
    let (mut one, mut other) = (Client::new(&gateway), Client::new(&gateway));
    other.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    one.send(request("GET", "/waits", &[], "") + &add("last"));
    for count in 1..=50 {
        other.send(add(&count.to_string()));
        assert_eq!(students(&mut other), count);
    }
    released.notify_one();
    assert_eq!(one.answer().text(), "done");
    assert_eq!(students(&mut one), 51);
    for count in 52..60 {
        one.send(add(&count.to_string()));
        assert_eq!(students(&mut one), count);
    }
}

#[test]
fn a_client_that_goes_takes_no_other_answer_along() {
    let (gateway, hold) = held(Limits::default());
    let mut clients: Vec<_> = (0..8).map(|_| Client::new(&gateway)).collect();
    clients[0].post("/api/section/S1/open", r#"{"capacity":1000}"#);
    // After this request the gateway knows each connection and reads from it.
    for client in &mut clients {
        assert_eq!(client.get("/health/live").status, 200);
    }
    hold.send_replace(true);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(add(&format!("a{number}")) + &add(&format!("b{number}")));
    }
    // Half of the clients leave while their answers wait, and others take their places.
    clients.truncate(4);
    let mut late: Vec<_> = (0..4).map(|_| Client::new(&gateway)).collect();
    for (number, client) in late.iter_mut().enumerate() {
        assert_eq!(client.get("/health/live").status, 200);
        client.send(add(&format!("c{number}")));
    }
    hold.send_replace(false);
    for client in &mut clients {
        assert!(
            students(client) < students(client),
            "each has its own two answers, in order"
        );
    }
    for client in &mut late {
        assert!(students(client) > 0);
        assert_eq!(client.get("/health/live").status, 200);
    }
    clients[0].send(add("end"));
    let all = students(&mut clients[0]);
    assert!((4 * 2 + 4 + 1..=8 * 2 + 4 + 1).contains(&all), "{all}");
}

#[test]
fn a_wait_beyond_the_deadline_is_of_unknown_outcome() {
    let limits = Limits {
        deadline: std::time::Duration::from_millis(300),
        ..Limits::default()
    };
    let (gateway, hold) = held(limits);
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    hold.send_replace(true);
    client.send(add("1") + &add("2"));
    for _ in 0..2 {
        client.answer().problem(504, "outcome-unknown");
    }
    hold.send_replace(false);
    client.send(add("3"));
    assert_eq!(students(&mut client), 3, "it was done after all");
}

#[test]
fn a_stop_answers_requests_that_wait_for_the_journal() {
    let (gateway, hold) = held(Limits::default());
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    assert_eq!(client.get("/health/live").status, 200);
    hold.send_replace(true);
    client.send(add("1"));
    let mut idle = Client::new(&gateway);
    assert_eq!(idle.get("/health/live").status, 200);
    let stopping = std::thread::spawn(move || gateway.stop_blocking());
    idle.is_closed();
    hold.send_replace(false);
    assert_eq!(students(&mut client), 1);
    client.is_closed();
    stopping.join().unwrap();
}

#[test]
fn a_stop_answers_requests_in_a_handler() {
    let (waits, released) = waits();
    let routes = Router::new().route("/waits", waits);
    let gateway = Gateway::builder(engine()).routes(routes).start().unwrap();
    let (mut client, mut idle) = (Client::new(&gateway), Client::new(&gateway));
    client.send(request("GET", "/waits", &[], ""));
    // This later request is answered while the other one is in its handler.
    assert_eq!(idle.get("/health/live").status, 200);
    let stopping = std::thread::spawn(move || gateway.stop_blocking());
    idle.is_closed();
    released.notify_one();
    assert_eq!(client.answer().text(), "done");
    client.is_closed();
    stopping.join().unwrap();
}

#[test]
fn a_handler_that_answers_a_gone_client_disturbs_no_other() {
    let (waits, released) = waits();
    let routes = Router::new().route("/waits", waits);
    let gateway = Gateway::builder(engine()).routes(routes).start().unwrap();
    let mut gone = Client::new(&gateway);
    gone.send(request("GET", "/waits", &[], ""));
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    drop(gone);
    released.notify_one();
    for count in 1..=20 {
        client.send(add(&count.to_string()));
        assert_eq!(students(&mut client), count);
    }
}

#[test]
fn requests_before_the_end_of_input_are_answered() {
    let gateway = Gateway::builder(engine())
        .routes(Router::new().route("/now", get(async || "now")))
        .start()
        .unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    let now = request("GET", "/now", &[], "");
    client.send(now.clone() + &now + &add("1") + &now);
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.answer().text(), "now");
    assert_eq!(client.answer().text(), "now");
    assert_eq!(students(&mut client), 1);
    assert_eq!(client.answer().text(), "now");
    client.is_closed();
}

#[test]
fn an_answer_behind_one_without_commit_leaves_by_itself() {
    let gateway = Gateway::builder(engine())
        .routes(Router::new().route("/now", get(async || "now")))
        .start()
        .unwrap();
    let mut client = Client::new(&gateway);
    let nobody = request("POST", "/api/section/S9/add-student", &[], r#"{"student":"x"}"#);
    client.send(nobody + &request("GET", "/now", &[], ""));
    client.answer().problem(404, "unknown-entity");
    assert_eq!(client.answer().text(), "now");
}

#[test]
fn an_answer_does_not_wait_for_a_slow_handler_asked_after_it() {
    let (waits, released) = waits();
    let routes = Router::new().route("/waits", waits).route("/now", get(async || "now"));
    let gateway = Gateway::builder(engine()).routes(routes).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1000}"#);
    let now = request("GET", "/now", &[], "");
    client.send(now.clone() + &request("GET", "/waits", &[], "") + &now + &add("1"));
    assert_eq!(client.answer().text(), "now");
    released.notify_one();
    assert_eq!(client.answer().text(), "done");
    assert_eq!(client.answer().text(), "now");
    assert_eq!(students(&mut client), 1);
}

#[test]
fn a_client_that_takes_nothing_for_a_while_misses_nothing() {
    let block = "x".repeat(20_000);
    let routes = Router::new().route("/block", get(async move || block));
    let gateway = Gateway::builder(engine()).routes(routes).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":10000}"#);
    const ROUNDS: usize = 2_000;
    let full = request("POST", "/api/section/S2/add-student", &[], r#"{"student":"x"}"#);
    let block = request("GET", "/block", &[], "");
    let all: String = (0..ROUNDS)
        .map(|number| block.clone() + &block + &add(&number.to_string()) + &full + &block)
        .collect();
    let mut writer = client.stream().try_clone().unwrap();
    writer.set_nonblocking(true).unwrap();
    let mut written = 0;
    // Writes until the buffers are full: the gateway cannot send, and so stops reading.
    while written < all.len() {
        match std::io::Write::write(&mut writer, &all.as_bytes()[written..]) {
            Ok(count) => written += count,
            Err(_) => break,
        }
    }
    writer.set_nonblocking(false).unwrap();
    let sending =
        std::thread::spawn(move || std::io::Write::write_all(&mut writer, &all.as_bytes()[written..]).unwrap());
    for number in 1..=ROUNDS {
        assert_eq!(client.answer().body.len(), 20_000);
        assert_eq!(client.answer().body.len(), 20_000);
        assert_eq!(students(&mut client), number);
        client.answer().problem(404, "unknown-entity");
        assert_eq!(client.answer().body.len(), 20_000);
    }
    sending.join().unwrap();
}
