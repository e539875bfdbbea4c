//! Messages to a client, gathered into frames, without I/O.

use super::{CREDIT_MAX, FRAME_BYTES, frame, message::Id};
use crate::{Limits, access::PROTOCOL, follow, problem::Problem};
use bytes::Bytes;
use serde::Serialize;
use std::{collections::VecDeque, sync::Arc};
use throng::{EntityEvent, journal::scratch};

/// Messages for a client, in frames. Messages that gather while the socket is busy leave in one frame.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Full frames, which leave before the open one.
    full: VecDeque<Bytes>,
    full_bytes: usize,
    /// `[`, then messages with commas between them.
    open: Vec<u8>,
    messages: usize,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message<'a> {
    Hello {
        protocol: &'static str,
        /// Requests of this socket at a time; more are not read.
        requests_max: usize,
        subscriptions_max: usize,
        frame_bytes_max: usize,
        credit_max: u32,
        ping_ms: u128,
        kinds: &'a [&'static str],
    },
    Problem {
        id: Option<&'a Id>,
        problem: &'a Problem,
    },
    Subscribed {
        id: &'a Id,
        cursor: &'a str,
    },
    Paused {
        id: &'a Id,
        cursor: &'a str,
    },
    Ended {
        id: &'a Id,
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<&'a Problem>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cursor: Option<&'a str>,
    },
}

impl Outbox {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.full_bytes + self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0 && self.full.is_empty()
    }

    /// The next frame.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.full.is_empty() {
            self.seal();
        }
        let frame = self.full.pop_front()?;
        self.full_bytes -= frame.len();
        Some(frame)
    }

    /// Writes all messages in frames, and returns the number of frames.
    pub(crate) fn write(&mut self, output: &mut Vec<u8>) -> u64 {
        let mut frames = 0;
        let mut write = |payload: &[u8]| {
            frames += 1;
            frame::head(output, payload.len());
            output.extend_from_slice(payload);
        };
        self.full.drain(..).for_each(|payload| write(&payload));
        self.full_bytes = 0;
        match self.messages {
            0 => {}
            1 => write(&self.open[1..]),
            _ => {
                self.open.push(b']');
                write(&self.open);
            }
        }
        self.clear();
        frames
    }

    /// Drops all messages.
    pub(crate) fn clear(&mut self) {
        self.full.clear();
        self.full_bytes = 0;
        scratch::empty(&mut self.open);
        self.messages = 0;
    }

    fn seal(&mut self) {
        if self.messages == 0 {
            return;
        }
        let mut frame = std::mem::take(&mut self.open);
        let frame = if self.messages > 1 {
            frame.push(b']');
            Bytes::from(frame)
        } else {
            Bytes::from(frame).slice(1..)
        };
        self.messages = 0;
        self.full_bytes += frame.len();
        self.full.push_back(frame);
    }

    /// Makes room for one more message, in this frame or a new one.
    fn begin(&mut self) -> &mut Vec<u8> {
        if self.open.len() >= FRAME_BYTES {
            self.seal();
        }
        self.open.push(if self.messages == 0 { b'[' } else { b',' });
        self.messages += 1;
        &mut self.open
    }

    fn tell(&mut self, message: &Message<'_>) {
        let written = serde_json::to_vec(message).unwrap_or_else(|_| b"null".to_vec());
        self.begin().extend_from_slice(&written);
    }

    pub(super) fn hello(&mut self, limits: &Limits, kinds: &[&'static str]) {
        self.tell(&Message::Hello {
            protocol: PROTOCOL,
            requests_max: limits.socket_requests_max,
            subscriptions_max: limits.socket_subscriptions_max,
            frame_bytes_max: limits.socket_frame_bytes_max,
            credit_max: CREDIT_MAX,
            ping_ms: limits.socket_ping.as_millis(),
            kinds,
        });
    }

    /// The answer to a command or query, already JSON.
    pub(crate) fn reply(&mut self, id: &Id, body: &[u8]) {
        let out = self.begin();
        out.reserve(body.len() + 48);
        out.extend_from_slice(br#"{"type":"reply","id":"#);
        match id {
            Id::Number(number) => {
                let mut digits = [0; 20];
                let mut at = digits.len();
                let mut rest = *number;
                loop {
                    at -= 1;
                    digits[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        break;
                    }
                }
                out.extend_from_slice(&digits[at..]);
            }
            Id::Text(text) => out.extend(serde_json::to_vec(text).unwrap_or_default()),
        }
        out.extend_from_slice(br#","body":"#);
        out.extend_from_slice(if body.is_empty() { b"null" } else { body });
        out.push(b'}');
    }

    pub(crate) fn problem(&mut self, id: Option<&Id>, problem: &Problem) {
        self.tell(&Message::Problem { id, problem });
    }

    pub(super) fn subscribed(&mut self, id: &Id, cursor: &str) {
        self.tell(&Message::Subscribed { id, cursor });
    }

    /// Adds events of an entity, or of a kind's entities with their ids.
    pub(super) fn events(&mut self, id: &Id, events: &[Arc<EntityEvent>], with_entity: bool, cursor: &str) {
        let out = self.begin();
        out.extend_from_slice(br#"{"type":"events","id":"#);
        json(out, id);
        out.extend_from_slice(br#","events":["#);
        for (number, event) in events.iter().enumerate() {
            out.extend_from_slice(if number == 0 { b"{" } else { b",{" });
            if with_entity {
                out.extend_from_slice(br#""entity":"#);
                json(out, &event.id);
                out.push(b',');
            }
            out.extend_from_slice(follow::members(event));
            out.push(b'}');
        }
        out.extend_from_slice(br#"],"cursor":"#);
        json(out, cursor);
        out.push(b'}');
    }

    pub(super) fn paused(&mut self, id: &Id, cursor: &str) {
        self.tell(&Message::Paused { id, cursor });
    }

    /// Adds the failure of a subscription. The client may subscribe again after the cursor.
    pub(super) fn ended(&mut self, id: &Id, problem: &Problem, cursor: &str) {
        let (problem, cursor) = (Some(problem), Some(cursor));
        self.tell(&Message::Ended { id, problem, cursor });
    }

    /// Adds the end of a subscription by its client's request.
    pub(super) fn unsubscribed(&mut self, id: &Id) {
        let (problem, cursor) = (None, None);
        self.tell(&Message::Ended { id, problem, cursor });
    }
}

fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    out.extend(serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{CommitNo, Position, StoredEvent, WriterId};

    fn text(frame: Option<Bytes>) -> String {
        String::from_utf8(frame.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn one_message_is_an_object_and_several_are_an_array() {
        let mut outbox = Outbox::default();
        assert!(outbox.is_empty() && outbox.take().is_none());
        outbox.reply(&Id::Number(0), b"1");
        assert_eq!(text(outbox.take()), r#"{"type":"reply","id":0,"body":1}"#);
        outbox.reply(&Id::Number(u64::MAX), b"{}");
        outbox.reply(&Id::Text("a\"".into()), b"");
        outbox.problem(None, &Problem::malformed("No."));
        let frame = text(outbox.take());
        let told: Vec<serde_json::Value> = serde_json::from_str(&frame).unwrap();
        assert_eq!((&told[0]["id"], &told[1]["id"]), (&u64::MAX.into(), &"a\"".into()));
        assert_eq!((&told[1]["body"], &told[2]["id"]), (&().into(), &().into()));
        assert_eq!(told[2]["problem"]["type"], "/problems/malformed");
        assert!(outbox.is_empty() && outbox.take().is_none());
    }

    #[test]
    fn events_name_their_entity_only_where_it_is_not_clear() {
        let event = StoredEvent {
            seq: 3,
            position: Position {
                writer: WriterId(1),
                commit: CommitNo(7),
            },
            at_micros: 0,
            name: "added".into(),
            version: 1,
            payload: br#"{"student":"7"}"#.to_vec(),
        };
        let events = [Arc::new(EntityEvent::new("S \"1\"".into(), event))];
        let mut outbox = Outbox::default();
        outbox.events(&Id::Number(1), &events, true, "1.8");
        let members = r#""seq":3,"name":"added","version":1,"at":"1970-01-01T00:00:00Z","position":"1.7","payload":{"student":"7"}"#;
        let expected =
            format!(r#"{{"type":"events","id":1,"events":[{{"entity":"S \"1\"",{members}}}],"cursor":"1.8"}}"#);
        assert_eq!(text(outbox.take()), expected);
        outbox.events(&Id::Text("e".into()), &events, false, "3@1.7");
        let expected = format!(r#"{{"type":"events","id":"e","events":[{{{members}}}],"cursor":"3@1.7"}}"#);
        assert_eq!(text(outbox.take()), expected);
    }

    #[test]
    fn a_frame_that_is_full_goes_and_another_begins() {
        let mut outbox = Outbox::default();
        let body = format!("{:?}", "x".repeat(FRAME_BYTES / 2));
        (0..5).for_each(|number| outbox.reply(&Id::Number(number), body.as_bytes()));
        let mut replies = 0;
        while let Some(frame) = outbox.take() {
            assert!(frame.len() < 2 * FRAME_BYTES);
            let told: serde_json::Value = serde_json::from_slice(&frame).unwrap();
            replies += told.as_array().map_or(1, Vec::len);
        }
        assert_eq!((replies, outbox.bytes()), (5, 0));
    }
}
