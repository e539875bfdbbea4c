//! WebSockets whose clients send more than they receive, or more than is plausible.

use crate::support::{Client, client::PATIENCE, impatient, plain, socket::Socket};
use serde_json::Value;
use std::{
    io::{ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use tokio_tungstenite::tungstenite::Message;

/// Far more than the system buffers of both ends.
const FLOOD_BYTES: usize = 96 << 20;
/// The time without progress after which the service is assumed to have stopped reading.
const STANDSTILL: Duration = Duration::from_secs(2);

#[test]
fn a_client_that_pings_and_takes_no_pong_is_read_no_more() {
    let gateway = plain();
    let socket = Socket::new(&gateway);
    let mut stream = socket.inner.get_ref().try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    // Pings of 125 bytes, with a mask of zeros.
    let mut pings = Vec::new();
    for _ in 0..500 {
        pings.extend_from_slice(&[0x89, 0x80 | 125, 0, 0, 0, 0]);
        pings.extend_from_slice(&[b'x'; 125]);
    }
    let (mut sent, mut at, mut moved) = (0, 0, Instant::now());
    while moved.elapsed() < STANDSTILL {
        match stream.write(&pings[at..]) {
            Ok(count) => {
                sent += count;
                at = (at + count) % pings.len();
                moved = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
        assert!(sent < FLOOD_BYTES, "all of it is read");
    }
}

#[test]
fn a_frame_of_too_many_messages_is_refused_as_a_whole() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut socket = Socket::new(&gateway);
    let command =
        r#"{"type":"command","id":1,"kind":"section","entity":"S1","command":"add_student","body":{"student":"7"}},"#;
    let frame = format!("[{command}{}{{}}]", "{},".repeat(300_000));
    socket.inner.send(Message::text(frame)).unwrap();
    let told = socket.next();
    assert_eq!(
        (&told["type"], &told["id"]),
        (&"problem".into(), &Value::Null),
        "{told}"
    );
    assert!(
        told["problem"]["detail"].as_str().unwrap().contains("messages"),
        "{told}"
    );
    // There is no other effect, and the socket lives.
    socket
        .inner
        .send(Message::text(
            r#"{"type":"query","id":2,"kind":"section","entity":"S1"}"#,
        ))
        .unwrap();
    let told = socket.next();
    assert_eq!(told["id"], 2, "{told}");
    assert_eq!(told["body"]["students"].as_array().unwrap().len(), 0, "{told}");
}

#[test]
fn messages_that_are_refused_wait_for_their_turn_like_others() {
    let gateway = impatient();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..12 {
            let (gateway, is_over) = (&gateway, &is_over);
            scope.spawn(move || {
                let mut client = Client::new(gateway);
                client.post(&format!("/api/section/{number}/open"), r#"{"capacity":1}"#);
                while !is_over.load(Ordering::Relaxed) {
                    client.post(&format!("/api/section/{number}/ponder"), r#"{"ms":3}"#);
                }
            });
        }
        let mut socket = Socket::new(&gateway);
        let frame = format!("[{}{{}}]", "{},".repeat(63));
        let begun = Instant::now();
        // Even malformed messages wait for a turn. Otherwise all would be refused as malformed, and none as too many.
        loop {
            socket.inner.send(Message::text(frame.clone())).unwrap();
            let refused = (0..64).any(|_| socket.next()["problem"]["type"] != "/problems/malformed");
            if refused {
                break;
            }
            if begun.elapsed() > PATIENCE {
                is_over.store(true, Ordering::Relaxed);
                panic!("none of them waited for its turn");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
