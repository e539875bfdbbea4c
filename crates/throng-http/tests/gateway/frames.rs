//! Messages of WebSockets that are large, or arrive in parts: the memory they may take together, and for how long.

use crate::support::{
    Client, engine_with, metric,
    socket::{Socket, command},
    start,
};
use serde_json::json;
use std::{io::Write, thread, time::Duration};
use throng::Options;
use throng_http::{Gateway, Limits, Running};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

/// The memory of the engine, and the part for messages.
const MEMORY: usize = 4 << 20;
const SHARE: u64 = 512 << 10;

fn with(limits: Limits) -> Running {
    let options = Options {
        memory_bytes_max: MEMORY,
        ..Options::default()
    };
    Gateway::builder(engine_with(options)).limits(limits).start().unwrap()
}

fn held(gateway: &Running) -> u64 {
    metric(gateway, "throng_held_bytes{owner=\"frames\"}")
}

fn refused(gateway: &Running) -> u64 {
    metric(gateway, "throng_http_limited_total{limit=\"frames\"}")
}

/// Sends the first bytes of a text frame.
fn begin_frame(socket: &mut Socket, length: u64) {
    let mut bytes = vec![0x81, 0xff];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[b' '; 1_000]);
    socket.inner.get_mut().write_all(&bytes).unwrap();
}

/// Sends the first fragment of a message.
fn begin_message(socket: &mut Socket, length: usize) {
    let frame = Frame::message(" ".repeat(length), OpCode::Data(Data::Text), false);
    socket.inner.send(Message::Frame(frame)).unwrap();
}

#[test]
fn unfinished_messages_take_no_more_than_their_share() {
    for in_fragments in [false, true] {
        let gateway = with(Limits::default());
        let mut sockets: Vec<_> = (0..24).map(|_| Socket::new(&gateway)).collect();
        for socket in &mut sockets {
            match in_fragments {
                true => begin_message(socket, 40_000),
                false => begin_frame(socket, 100_000),
            }
        }
        while refused(&gateway) < 18 {
            thread::yield_now();
        }
        let taken = held(&gateway);
        assert!((100_000..=SHARE).contains(&taken), "{taken}");
        assert_eq!(Client::new(&gateway).get("/health/live").status, 200);
        // A small message needs no share of the memory.
        let mut other = Socket::new(&gateway);
        other.command("S1", "open", &json!({ "capacity": 1 }));
        let mut closed = 0;
        for mut socket in sockets {
            socket.inner.get_mut().set_nonblocking(true).unwrap();
            closed +=
                u64::from(matches!(socket.inner.read(), Ok(Message::Close(Some(frame))) if frame.code == 1013.into()));
        }
        assert_eq!(closed, refused(&gateway));
        while held(&gateway) > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn memory_of_a_large_message_is_given_back_when_it_is_done() {
    let gateway = with(Limits::default());
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 1 }));
    let title = "x".repeat(100_000);
    for id in 0..8 {
        // Together they exceed the share.
        let rename = command(id, "S1", "rename", &json!({ "title": title }));
        match id % 2 {
            0 => drop(socket.send(&rename)),
            _ => {
                let text = rename.to_string();
                let (first, second) = text.split_at(100);
                for (part, opcode, is_last) in [(first, Data::Text, false), (second, Data::Continue, true)] {
                    let frame = Frame::message(part.to_owned(), OpCode::Data(opcode), is_last);
                    socket.inner.send(Message::Frame(frame)).unwrap();
                }
            }
        }
        socket.expect("reply", id);
        while held(&gateway) > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn message_that_does_not_come_in_its_time_ends_its_socket() {
    let gateway = start(|gateway| {
        gateway.limits(Limits {
            body_wait: Duration::from_millis(40),
            ..Limits::default()
        })
    });
    let (mut frame, mut message) = (Socket::new(&gateway), Socket::new(&gateway));
    begin_frame(&mut frame, 100_000);
    begin_message(&mut message, 10);
    message.inner.send(Message::Pong("here".into())).unwrap();
    assert_eq!((frame.close_code(), message.close_code()), (4408, 4408));
    assert_eq!(metric(&gateway, "throng_http_limited_total{limit=\"message_wait\"}"), 2);
}
