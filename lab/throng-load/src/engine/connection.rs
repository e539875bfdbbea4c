//! A connection: its socket, the requests in flight on it, and the bytes to be sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use super::http2::Session;
use super::parser::Parser;
use super::tls::{TlsClient, TlsSession};
use crate::ErrorKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Closed,
    Connecting,
    Open,
    /// A failed attempt came before. The next one is made at the deadline.
    Resting,
}

/// A request that was sent and not yet answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) sent_nanos: u64,
    pub(crate) intended_nanos: Option<u64>,
    pub(crate) bytes: u32,
    pub(crate) class: u16,
    pub(crate) no_body: bool,
    /// The number of connections that have returned it unprocessed.
    pub(crate) given_back: u8,
}

/// A slot for a connection. It is connected again after a close.
pub(crate) struct Connection {
    pub(crate) state: ConnectionState,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) tls: Option<TlsSession>,
    /// The session that interprets the bytes of HTTP/2. It holds the requests in flight on its streams.
    pub(crate) http2: Option<Box<Session>>,
    /// The requests in flight. With HTTP/1.1 they are in the order of their answers. With HTTP/2 there is at most one, which waits for the
    /// connection.
    pub(crate) in_flight: VecDeque<InFlight>,
    pub(crate) parser: Parser,
    /// Bytes that the socket has not taken yet, from `out_at` on.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    pub(crate) wants_write: bool,
    /// The deadline of what it waits for (connect, answer, rest); `u64::MAX` if it waits for nothing.
    pub(crate) deadline_nanos: u64,
    /// The time since when it could have taken a request.
    pub(crate) free_nanos: u64,
    /// Bytes of the current answer so far.
    pub(crate) bytes_in: u64,
    /// Distinguishes events of this socket from those of earlier sockets in the same slot.
    pub(crate) generation: u32,
    /// True while it is in the queue of free connections.
    pub(crate) queued: bool,
    /// The number of failed connects in a row.
    pub(crate) failed_connects: u32,
}

/// The result of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Partly,
    Failed(ErrorKind),
}

impl Connection {
    pub(crate) fn new() -> Self {
        Connection {
            state: ConnectionState::Closed,
            socket: None,
            tls: None,
            http2: None,
            in_flight: VecDeque::with_capacity(1),
            parser: Parser::default(),
            out: Vec::new(),
            out_at: 0,
            wants_write: false,
            deadline_nanos: u64::MAX,
            free_nanos: 0,
            bytes_in: 0,
            generation: 0,
            queued: false,
            failed_connects: 0,
        }
    }

    /// Opens a socket to `address`. Its readiness tells whether the connect succeeded.
    pub(crate) fn connect(&mut self, address: SocketAddr, tls: Option<&TlsClient>) -> Result<(), ErrorKind> {
        self.generation = self.generation.wrapping_add(1);
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(|_| ErrorKind::Unreachable)?;
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(connect_error(error)),
        }
        self.tls = match tls {
            Some(client) => Some(client.session().map_err(|_| ErrorKind::Tls)?),
            None => None,
        };
        self.socket = Some(socket);
        self.state = ConnectionState::Connecting;
        Ok(())
    }

    /// Returns the error of a connect that has become ready, if it failed.
    pub(crate) fn connect_result(&self) -> Result<(), ErrorKind> {
        let Some(socket) = &self.socket else {
            return Err(ErrorKind::Unreachable);
        };
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(connect_error(error)),
        }
    }

    /// Drops the socket and its state, except the requests in flight.
    pub(crate) fn close(&mut self) {
        if let Some(session) = self.http2.take() {
            self.in_flight.extend(session.into_in_flight());
        }
        self.socket = None;
        self.tls = None;
        self.state = ConnectionState::Closed;
        self.parser.reset();
        self.out.clear();
        self.out_at = 0;
        self.wants_write = false;
        self.deadline_nanos = u64::MAX;
        self.bytes_in = 0;
    }

    /// Returns the number of requests it takes now. With HTTP/1.1 at most `pipeline` are in flight.
    pub(crate) fn room(&self, pipeline: usize) -> usize {
        match &self.http2 {
            Some(session) => session.room(),
            None => pipeline.saturating_sub(self.in_flight.len()),
        }
    }

    /// Sends a request, or queues it until the connection is open.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        if self.state != ConnectionState::Open {
            self.out.extend_from_slice(bytes);
            return Sent::All; // flushed when the connection is made
        }
        self.transmit(bytes)
    }

    /// Sends bytes, encrypted if the connection uses TLS. What the socket does not take is queued.
    pub(crate) fn transmit(&mut self, bytes: &[u8]) -> Sent {
        if let Some(tls) = &mut self.tls {
            if tls.send(bytes).is_err() {
                return Sent::Failed(ErrorKind::Tls);
            }
            tls.outgoing(&mut self.out);
            return self.flush();
        }
        if self.out_at < self.out.len() {
            self.out.extend_from_slice(bytes);
            return Sent::Partly;
        }
        let Some(socket) = &self.socket else {
            return Sent::Failed(ErrorKind::Closed);
        };
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == bytes.len() => Sent::All,
            Ok(sent) => {
                self.out.extend_from_slice(&bytes[sent..]);
                Sent::Partly
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.out.extend_from_slice(bytes);
                Sent::Partly
            }
            Err(_) => Sent::Failed(ErrorKind::Reset),
        }
    }

    /// Marks the connection as open and sends the queued requests.
    pub(crate) fn opened(&mut self) -> Sent {
        self.state = ConnectionState::Open;
        self.failed_connects = 0;
        if let Some(tls) = &mut self.tls {
            let plain = std::mem::take(&mut self.out);
            if tls.send(&plain).is_err() {
                return Sent::Failed(ErrorKind::Tls);
            }
            tls.outgoing(&mut self.out);
        }
        self.flush()
    }

    /// Sends the queued bytes, as far as the socket takes them.
    pub(crate) fn flush(&mut self) -> Sent {
        let Some(socket) = &self.socket else {
            return Sent::Failed(ErrorKind::Closed);
        };
        while self.out_at < self.out.len() {
            match rustix::net::send(socket, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.out_at += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Sent::Partly,
                Err(_) => return Sent::Failed(ErrorKind::Reset),
            }
        }
        self.out.clear();
        self.out_at = 0;
        Sent::All
    }
}

fn connect_error(error: Errno) -> ErrorKind {
    match error {
        Errno::CONNREFUSED => ErrorKind::Refused,
        Errno::TIMEDOUT => ErrorKind::ConnectTimeout,
        Errno::CONNRESET => ErrorKind::Reset,
        _ => ErrorKind::Unreachable,
    }
}
