//! A WebSocket client that waits for each message.

use super::client::PATIENCE;
use serde_json::{Value, json};
use std::{collections::VecDeque, net::TcpStream, time::Instant};
use throng_http::Running;
use tokio_tungstenite::tungstenite::{
    Error, Message, WebSocket,
    client::{IntoClientRequest, client},
    handshake::client::Response,
    http::HeaderValue,
    protocol::CloseFrame,
};

/// A WebSocket, with the messages that arrived but were not requested yet.
pub(crate) struct Socket {
    pub(crate) inner: WebSocket<TcpStream>,
    told: VecDeque<Value>,
    /// The number of received frames with messages.
    pub(crate) frames: usize,
}

impl Socket {
    /// Opens a socket, and reads the hello.
    pub(crate) fn new(gateway: &Running) -> Self {
        let (mut socket, response) = Self::open(gateway, &[("sec-websocket-protocol", "other, throng.v1")]).unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "throng.v1");
        let hello = socket.next();
        assert_eq!(
            (&hello["type"], &hello["protocol"]),
            (&json!("hello"), &json!("throng.v1"))
        );
        socket
    }

    /// Requests a socket, with further header fields.
    pub(crate) fn open(gateway: &Running, fields: &[(&'static str, &str)]) -> Result<(Self, Response), u16> {
        Self::open_at(gateway, "/api/ws", fields)
    }

    /// Requests a socket at another path.
    pub(crate) fn open_at(
        gateway: &Running,
        path: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<(Self, Response), u16> {
        let stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("ws://{}{path}", gateway.address())
            .into_client_request()
            .unwrap();
        for (name, value) in fields {
            request
                .headers_mut()
                .insert(*name, HeaderValue::from_str(value).unwrap());
        }
        match client(request, stream) {
            Ok((inner, response)) => {
                let (told, frames) = (VecDeque::new(), 0);
                Ok((Self { inner, told, frames }, response))
            }
            Err(tokio_tungstenite::tungstenite::HandshakeError::Failure(Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a frame: a message, or an array of them.
    pub(crate) fn send(&mut self, frame: &Value) -> &mut Self {
        self.inner.send(Message::text(frame.to_string())).unwrap();
        self
    }

    /// Returns the next message.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        while self.told.is_empty() {
            match self.inner.read().unwrap() {
                Message::Text(text) => {
                    self.frames += 1;
                    match serde_json::from_str(&text).unwrap() {
                        Value::Array(told) => {
                            assert!(told.len() > 1, "an array of one");
                            self.told.extend(told);
                        }
                        one => self.told.push_back(one),
                    }
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
        self.told.pop_front().unwrap()
    }

    /// Returns the next message, which must have this type and id.
    #[track_caller]
    pub(crate) fn expect(&mut self, kind: &str, id: impl Into<Value>) -> Value {
        let told = self.next();
        assert_eq!((&told["type"], &told["id"]), (&json!(kind), &id.into()), "{told}");
        told
    }

    /// Returns the problem in the next message, which must be one.
    #[track_caller]
    pub(crate) fn problem(&mut self, id: impl Into<Value>, slug: &str) -> Value {
        let told = self.expect("problem", id);
        let problem = told["problem"].clone();
        assert_eq!(problem["type"], format!("/problems/{slug}"), "{problem}");
        assert!(problem["detail"].as_str().unwrap().ends_with('.'), "{problem}");
        problem
    }

    /// Runs a command and returns its reply.
    #[track_caller]
    pub(crate) fn command(&mut self, entity: &str, command: &str, body: &Value) -> Value {
        self.send(&self::command("c", entity, command, body));
        self.expect("reply", "c")["body"].clone()
    }

    /// Waits for the server to close the socket. Returns the code of the close frame.
    #[track_caller]
    pub(crate) fn close_code(&mut self) -> u16 {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "it is not closed");
            match self.inner.read() {
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    assert!(!reason.is_empty());
                    return code.into();
                }
                Ok(Message::Close(None)) => panic!("closed without a reason"),
                Ok(_) => {}
                Err(error) => panic!("cut off: {error}"),
            }
        }
    }
}

/// Returns a command to a section.
pub(crate) fn command(id: impl Into<Value>, entity: &str, command: &str, body: &Value) -> Value {
    json!({ "type": "command", "id": id.into(), "kind": "section", "entity": entity, "command": command, "body": body })
}

/// Returns a query of a section.
pub(crate) fn query(id: impl Into<Value>, entity: &str, query: &str, arguments: &Value) -> Value {
    json!({ "type": "query", "id": id.into(), "kind": "section", "entity": entity, "query": query, "arguments": arguments })
}
