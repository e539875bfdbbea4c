//! Frames sent by programs of each protocol can be read, and this program sends the same bytes.
//!
//! A fixture is written once, by the program of its protocol, and never changes:
//! `cargo test -p throng-cluster --test frames -- --ignored write_frames`.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::{fs, path::PathBuf, time::Duration};
use throng::{
    PruneReport,
    driver::{
        KeyLife,
        peers::{
            Ask as EntityAsk, Asked, OperatorAction, OperatorActionKind, PeerMessage, RemoteError, RemoteEvent, Reply,
            Request, TakenAs,
        },
    },
};
use throng_cluster::frame::{Ask, FRAME_BYTES_MAX, Frame, Hello, PROTOCOL, Role, Secret, decode, encode};

/// All protocols read by this program.
const PROTOCOLS: [u16; 1] = [PROTOCOL];

fn fixture(protocol: u16) -> PathBuf {
    let name = format!("protocol-{protocol}.json");
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn secret() -> Secret {
    Secret::new(b"known to all nodes")
}

fn hello(node: u64) -> Hello {
    Hello {
        protocol: PROTOCOL,
        cluster: "98fc6e2e-b422-4bab-b141-d6cdb80b0d9c".into(),
        node,
        shards: 256,
        nonce: [node as u8; 32],
    }
}

fn message(number: u64) -> PeerMessage {
    PeerMessage {
        from: 17,
        number,
        sender: ("account".into(), "ann".into()),
        name: "Deposit".into(),
        body: br#"{"to":["account","bob"],"command":{"amount":7}}"#.to_vec(),
        wants_answer: number == 1,
    }
}

fn action(what: OperatorActionKind) -> OperatorAction {
    OperatorAction {
        what,
        kind: "account".into(),
        id: "ann".into(),
        by: "an operator".into(),
        reason: "for the fixture".into(),
    }
}

fn requests() -> Vec<Request> {
    let (kind, id) = (|| "account".to_owned(), || "ann".to_owned());
    let ask = |what, caller| {
        Request::Ask(EntityAsk {
            kind: kind(),
            id: id(),
            what,
            caller,
        })
    };
    let command = |key, life, forwarded| Asked::Command {
        name: "Deposit".into(),
        body: br#"{"amount":7}"#.to_vec(),
        key,
        life,
        forwarded,
    };
    let query = Asked::Query {
        name: "Look".into(),
        arguments: "of=all".into(),
    };
    let forwarded = Some((kind(), "bob".into(), true));
    let traced = EntityAsk {
        kind: kind(),
        id: id(),
        what: command(None, KeyLife::default(), None),
        caller: None,
    };
    let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = Request::AskTraced(traced, span.into());
    vec![
        ask(command(None, KeyLife::default(), None), None),
        ask(
            command(Some("a key".into()), KeyLife::MAX, forwarded),
            Some("a client".into()),
        ),
        ask(query, None),
        Request::Take(vec![message(1), message(2)]),
        Request::History {
            kind: kind(),
            id: id(),
            after: 3,
            limit: 100,
        },
        Request::List {
            kind: kind(),
            after: Some(id()),
            limit: 100,
        },
        Request::Erase { kind: kind(), id: id() },
        Request::Record { kind: kind(), id: id() },
        Request::Prune { is_dry: true },
        Request::Operate(action(OperatorActionKind::Quarantine)),
        Request::Operate(action(OperatorActionKind::Release)),
        Request::DropSent(action(OperatorActionKind::DropMessages)),
        Request::DropMessages {
            messages: vec![message(3)],
            by: "an operator".into(),
            reason: "for the fixture".into(),
        },
        traced,
        Request::Fields {
            kind: kind(),
            ids: vec![id(), "bob".into()],
        },
    ]
}

fn errors() -> Vec<RemoteError> {
    let (text, wait) = (|| "a reason".to_owned(), Duration::from_micros(1_500));
    let address = || ("account".to_owned(), "ann".to_owned());
    vec![
        RemoteError::Rejected {
            code: "short".into(),
            status: 409,
            field: Some("amount".into()),
            message: text(),
            body: br#"{"balance":3}"#.to_vec(),
        },
        RemoteError::Unknown(address().0, address().1),
        RemoteError::Ended(address().0, address().1),
        RemoteError::Malformed(text()),
        RemoteError::TooLarge("command".into(), 2_000_000, 1_048_576),
        RemoteError::KeyReused(text()),
        RemoteError::KeyRefused(text()),
        RemoteError::Overloaded(wait),
        RemoteError::StorageFull(wait),
        RemoteError::Unavailable(text()),
        RemoteError::Expired,
        RemoteError::OutcomeUnknown,
        RemoteError::Crashed(text()),
        RemoteError::Quarantined("account/ann".into(), 7, text()),
    ]
}

fn replies() -> Vec<Reply> {
    let shards = || vec![0b1010_0001, 1];
    let taken = [TakenAs::Done, TakenAs::Refused, TakenAs::Dead, TakenAs::Waits].map(|outcome| (outcome, None));
    let with_answers = vec![
        (TakenAs::Done, Some(Ok(b"42".to_vec().into()))),
        (TakenAs::Refused, Some(Err(RemoteError::Expired))),
    ];
    let event = RemoteEvent {
        seq: 4,
        position: (3, 1_071),
        at_micros: 1_795_694_400_000_000,
        name: "Deposited".into(),
        version: 1,
        payload: br#"{"amount":7}"#.to_vec(),
    };
    let report = PruneReport {
        is_dry: true,
        entities: 1,
        gone: 2,
        records: 3,
        commits: 4,
        bytes: 5,
        upto: Some("3.1071".into()),
        upto_micros: 1_795_694_400_000_000,
        held_by: vec!["balances".into()],
        is_cut_short: true,
    };
    let mut replies = vec![
        Reply::Done(b"42".to_vec()),
        Reply::Taken(taken.to_vec()),
        Reply::Taken(with_answers),
        Reply::NotHere,
        Reply::Unknown,
        Reply::History {
            events: vec![event],
            more: true,
            removed: 3,
        },
        Reply::Listed {
            shards: shards(),
            heads: vec![("ann".into(), 9)],
        },
        Reply::Erased { records: 5, bytes: 600 },
        Reply::Recorded { shards: shards() },
        Reply::Pruned {
            shards: shards(),
            report,
        },
        Reply::Operated(1),
        Reply::Dropped {
            shards: shards(),
            messages: 2,
        },
    ];
    replies.extend(errors().into_iter().map(Reply::Refused));
    replies.push(Reply::Fields {
        shards: shards(),
        rows: vec![("ann".into(), Some(b"her row".to_vec().into())), ("bob".into(), None)],
    });
    replies
}

/// Returns a frame of each kind, with each kind of request and reply.
fn frames() -> Vec<Frame> {
    let (client, server) = (hello(1), hello(2));
    let proof = |role| secret().proof(role, &client, &server);
    let mut frames = vec![
        Frame::Hello(client.clone()),
        Frame::Welcome {
            hello: server.clone(),
            proof: proof(Role::Server),
        },
        Frame::Proof(proof(Role::Client)),
        Frame::Refused("another cluster's node".into()),
    ];
    let asks = requests().into_iter().zip(1..).map(|(request, id)| Ask {
        id,
        shard: 17,
        within_micros: 5_000_000,
        request,
    });
    frames.extend(asks.map(|ask| Frame::Asks(vec![ask])));
    let answers = replies().into_iter().zip(1..);
    frames.extend(answers.map(|(reply, id)| Frame::Answers(vec![(id, reply)])));
    frames
}

fn sent(frame: &Frame) -> String {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn recorded(protocol: u16) -> Vec<(String, Vec<u8>)> {
    let recorded: Vec<Value> = serde_json::from_slice(&fs::read(fixture(protocol)).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let recorded = recorded.iter();
    recorded
        .map(|frame| (text(&frame["frame"]), bytes_of(&text(&frame["bytes"]))))
        .collect()
}

#[test]
fn frames_of_each_protocol_are_read() {
    for protocol in PROTOCOLS {
        let mut welcome = None;
        for (text, bytes) in recorded(protocol) {
            let (frame, used) = decode(&bytes, FRAME_BYTES_MAX).unwrap().unwrap();
            assert_eq!((format!("{frame:?}"), used), (text, bytes.len()));
            match frame {
                Frame::Welcome { hello, proof } => {
                    assert!(secret().is_proved(&proof, Role::Server, &self::hello(1), &hello));
                    welcome = Some(hello);
                }
                Frame::Proof(proof) => {
                    let server = welcome.as_ref().unwrap();
                    assert!(secret().is_proved(&proof, Role::Client, &hello(1), server));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn frames_are_sent_as_they_were_recorded() {
    let (recorded, frames) = (recorded(PROTOCOL), frames());
    assert_eq!(recorded.len(), frames.len());
    for ((text, bytes), frame) in recorded.iter().zip(&frames) {
        assert_eq!(bytes_of(&sent(frame)), *bytes, "{text}");
    }
}

#[test]
#[ignore = "writes the fixture of a new protocol, once"]
fn write_frames() {
    let to = fixture(PROTOCOL);
    assert!(!to.exists(), "{} is there: it stays as it is", to.display());
    let frames: Vec<_> = frames()
        .iter()
        .map(|frame| json!({"frame": format!("{frame:?}"), "bytes": sent(frame)}))
        .collect();
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(to, serde_json::to_string_pretty(&frames).unwrap() + "\n").unwrap();
}
