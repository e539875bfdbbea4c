//! Properties that hold for any bytes on a WebSocket. `throng-fuzz` drives them.

use super::{
    frame::{self, Frame},
    message,
};
use serde_json::value::RawValue;
use std::io;
use tokio_tungstenite::tungstenite::{
    Message, WebSocket,
    protocol::{Role, WebSocketConfig},
};

/// Messages of a frame.
const MESSAGES_MAX: usize = 16;
/// Bytes of a frame.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// Checks that a frame has at most the allowed messages: those that a parser of all finds, or none.
pub fn messages(text: &str) {
    let Ok(messages) = message::messages(text, MESSAGES_MAX) else {
        return;
    };
    let mut count = 0;
    for (id, read) in messages {
        count += 1;
        assert!(id.is_some() || read.is_err(), "what was read can be answered");
    }
    assert!(count <= MESSAGES_MAX);
    if text.trim_start().starts_with('[') {
        let all: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(count, all.len());
    }
}

/// Checks that frames stay within their limits, whatever arrives, and that the fast path reads the same texts as the library.
pub fn frames(bytes: &[u8]) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let mut socket = WebSocket::from_partially_read(Nothing, bytes.to_vec(), Role::Server, Some(config));
    if let Frame::Text(payload, mask) = frame::look(bytes, FRAME_BYTES_MAX) {
        let mut payload = bytes[payload].to_vec();
        frame::mask(&mut payload, mask);
        match (socket.read(), std::str::from_utf8(&payload)) {
            (Ok(Message::Text(text)), Ok(own)) => assert_eq!(text.as_str(), own),
            (read, Ok(own)) => panic!("{own:?} is not {read:?}"),
            (read, Err(_)) => assert!(read.is_err()),
        }
    }
    while let Ok(frame) = socket.read() {
        assert!(frame.len() <= FRAME_BYTES_MAX);
        if let Message::Text(text) = frame {
            messages(&text);
        }
    }
}

/// A socket without input that drops its output.
struct Nothing;

impl io::Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl io::Write for Nothing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
