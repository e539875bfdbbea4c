//! WebSockets that are served together with plain requests, those that leave that path, and those that return to it.

use crate::support::{
    Client,
    client::PATIENCE,
    held::held,
    impatient,
    socket::{Socket, command, query},
    start,
};
use serde_json::{Value, json};
use std::{collections::HashSet, io::Write, thread, time::Duration};
use throng_http::{Limits, Running};
use throng_testing::blocking_pause;
use tokio_tungstenite::tungstenite::{
    Message, WebSocket,
    protocol::{
        Role,
        frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

/// A generator of pseudo-random numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Returns the bytes of a client's frames.
fn bytes(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    let mut socket = WebSocket::from_raw_socket(std::io::Cursor::new(Vec::new()), Role::Client, None);
    messages.into_iter().for_each(|message| socket.send(message).unwrap());
    socket.get_ref().get_ref().clone()
}

/// Returns a text message in two frames, with a ping between them.
fn in_pieces(text: &str) -> Vec<Message> {
    let (first, second) = text.split_at(text.len() / 2);
    let piece =
        |text: &str, opcode, is_last| Message::Frame(Frame::message(text.to_owned(), OpCode::Data(opcode), is_last));
    vec![
        piece(first, Data::Text, false),
        Message::Ping("between".into()),
        piece(second, Data::Continue, true),
    ]
}

/// The messages of one client, and the expected answers.
struct Talk {
    numbers: Numbers,
    next: usize,
    /// The ids of commands in order; of queries; and of invalid messages.
    commands: Vec<usize>,
    others: HashSet<usize>,
}

impl Talk {
    fn id(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn command(&mut self) -> Value {
        let id = self.id();
        self.commands.push(id);
        command(id, "S1", "add-student", &json!({ "student": id.to_string() }))
    }

    fn other(&mut self) -> Value {
        let id = self.id();
        self.others.insert(id);
        match self.numbers.below(2) {
            0 => query(id, "S1", "enrolled", &json!({ "student": "1" })),
            _ => json!({ "type": "command", "id": id, "kind": "nobody" }),
        }
    }

    fn several(&mut self, has_others: bool, most: usize) -> Value {
        let count = 1 + self.numbers.below(most);
        let one = |talk: &mut Self| match has_others && talk.numbers.below(6) == 0 {
            true => talk.other(),
            false => talk.command(),
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// Returns the bytes of a few or many frames, mostly of commands.
    fn frames(&mut self) -> Vec<u8> {
        match self.numbers.below(12) {
            0 => bytes([Message::text(self.other().to_string())]),
            1 => bytes([Message::Ping("are you there?".into())]),
            2 => {
                let command = self.command().to_string();
                bytes(in_pieces(&command))
            }
            3 => bytes([Message::text(self.several(true, 40).to_string())]),
            4 => bytes([Message::text(self.several(false, 40).to_string())]),
            // Too long for the fast path, and longer than a batch.
            5 => {
                let spaces = " ".repeat(70_000);
                bytes([Message::text(spaces + &self.several(false, 400).to_string())])
            }
            6 => {
                let frames: Vec<Message> = (0..5).map(|_| Message::text(self.command().to_string())).collect();
                bytes(frames)
            }
            _ => bytes([Message::text(self.command().to_string())]),
        }
    }
}

/// Sends bytes, all at once or with delays like from afar.
fn send(socket: &mut Socket, numbers: &mut Numbers, mut bytes: &[u8]) {
    let stream = socket.inner.get_mut();
    while !bytes.is_empty() {
        let count = match numbers.below(4) {
            0 => 1 + numbers.below(bytes.len()),
            _ => bytes.len(),
        };
        stream.write_all(&bytes[..count]).unwrap();
        bytes = &bytes[count..];
        if !bytes.is_empty() {
            blocking_pause();
        }
    }
}

fn talks(gateway: &Running, seed: u64) {
    let mut socket = Socket::new(gateway);
    let mut talk = Talk {
        numbers: Numbers(seed),
        next: 0,
        commands: Vec::new(),
        others: HashSet::new(),
    };
    let mut answered = Vec::new();
    let mut told = 0;
    for _ in 0..80 {
        let frames = talk.frames();
        send(&mut socket, &mut talk.numbers, &frames);
        // The client usually waits for its answers.
        if talk.numbers.below(5) == 0 {
            continue;
        }
        while told < talk.next {
            told += 1;
            let one = socket.next();
            let id = usize::try_from(one["id"].as_u64().unwrap()).unwrap();
            if talk.others.remove(&id) {
                continue;
            }
            assert_eq!(one["type"], "reply", "seed {seed}: {one}");
            answered.push(id);
        }
    }
    while told < talk.next {
        told += 1;
        let id = usize::try_from(socket.next()["id"].as_u64().unwrap()).unwrap();
        if !talk.others.remove(&id) {
            answered.push(id);
        }
    }
    assert!(
        talk.others.is_empty(),
        "seed {seed}: {:?} are not answered",
        talk.others
    );
    assert_eq!(answered, talk.commands, "seed {seed}");
    let seen: Value = serde_json::from_str(Client::new(gateway).get("/api/section/S1").text()).unwrap();
    let students: Vec<String> = talk.commands.iter().map(usize::to_string).collect();
    assert_eq!(
        seen["students"],
        json!(students),
        "seed {seed}: all took effect once, in their order"
    );
}

#[test]
fn commands_run_in_order_and_are_answered_once_amid_others() {
    for seed in 0..12 {
        let batch = Duration::from_micros(if seed % 2 == 0 { 100 } else { 5_000 });
        let limits = Limits {
            batch,
            // Long enough for many frames on a busy machine.
            deadline: PATIENCE,
            ..Limits::default()
        };
        let gateway = start(|gateway| gateway.limits(limits));
        Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":100000}"#);
        talks(&gateway, seed);
        gateway.stop_blocking();
    }
}

#[test]
fn overloaded_sockets_are_refused_before_any_work() {
    let gateway = impatient();
    Client::new(&gateway).post("/api/section/hot/open", r#"{"capacity":1}"#);
    let asks = |number: usize| {
        let gateway = &gateway;
        move || {
            let mut socket = Socket::new(gateway);
            let mut answers = Vec::new();
            for round in 0..200 {
                let id = format!("{number}-{round}");
                socket.send(&command("p", "hot", "ponder", &json!({ "ms": 3 })));
                socket.next();
                socket.send(&command(id.clone(), &id, "open", &json!({ "capacity": 1 })));
                let told = socket.next();
                assert_eq!(told["id"], id, "{told}");
                let is_refused = told["type"] == "problem";
                if is_refused {
                    assert_eq!(told["problem"]["type"], "/problems/overloaded", "{told}");
                    assert_eq!(told["problem"]["retry_after_s"], 1, "{told}");
                }
                answers.push((id, is_refused));
                if is_refused {
                    break;
                }
            }
            answers
        }
    };
    let answers: Vec<(String, bool)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|number| scope.spawn(asks(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().any(|(_, is_refused)| *is_refused), "nobody was refused");
    let mut client = Client::new(&gateway);
    for (id, is_refused) in answers {
        let seen = client.get(&format!("/api/section/{id}"));
        assert_eq!(seen.status, if is_refused { 404 } else { 200 }, "{id}");
    }
}

#[test]
fn a_long_deadline_keeps_no_other_connection_from_its_own() {
    let limits = Limits {
        deadline: Duration::from_millis(300),
        ..Limits::default()
    };
    let (gateway, hold) = held(limits);
    let mut other = Client::new(&gateway);
    other.post("/api/section/S1/open", r#"{"capacity":100}"#);
    let mut patient = Socket::new(&gateway);
    patient.command("S1", "add-student", &json!({ "student": "1" }));
    hold.send(true).unwrap();
    let mut long = command("long", "S1", "add-student", &json!({ "student": "2" }));
    long["timeout_ms"] = json!(120_000);
    patient.send(&long);
    // The loop has checked its sockets since.
    assert_eq!(other.get("/health/live").status, 200);
    other
        .post("/api/section/S1/add-student", r#"{"student":"3"}"#)
        .problem(504, "outcome-unknown");
    hold.send(false).unwrap();
    patient.expect("reply", "long");
}

#[test]
fn a_client_held_up_by_its_requests_is_not_taken_for_gone() {
    let limits = Limits {
        socket_ping: Duration::from_millis(50),
        socket_requests_max: 1,
        ..Limits::default()
    };
    let (gateway, hold) = held(limits);
    let mut socket = Socket::new(&gateway);
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    hold.send(true).unwrap();
    socket.send(&command("held", "S1", "add-student", &json!({ "student": "1" })));
    for _ in 0..6 {
        assert!(matches!(socket.inner.read().unwrap(), Message::Ping(_)));
        socket.inner.flush().unwrap();
    }
    hold.send(false).unwrap();
    socket.expect("reply", "held");
}
