//! The traffic of a worker's sockets: connects, writes, answers and failures.

use super::super::connection::{ConnectionState, Sent};
use super::super::parser::Fed;
use super::super::poll::EventFlags;
use super::super::tls::{TlsBroken, TlsSession};
use super::{READ_BYTES, REST_NANOS_MAX, REST_NANOS_MIN, Worker};
use crate::{ErrorKind, Outcome, ResponseParts, Source};

impl<S: Source> Worker<S> {
    pub(super) fn connect(&mut self, index: usize, now: u64) -> Result<(), ErrorKind> {
        self.follow_name();
        let Some(&address) = self.orders.addresses.get(self.address) else {
            return Err(ErrorKind::Dns);
        };
        let connection = &mut self.connections[index];
        connection.connect(address, self.orders.tls.as_ref())?;
        connection.deadline_nanos = connection
            .deadline_nanos
            .min(now.saturating_add(self.orders.connect_timeout_nanos));
        self.scan_nanos = self.scan_nanos.min(connection.deadline_nanos);
        let number = number(index, connection.generation);
        let Some(socket) = &connection.socket else {
            return Err(ErrorKind::Unreachable);
        };
        self.poll
            .add(socket, number, EventFlags::IN | EventFlags::OUT)
            .map_err(|_| ErrorKind::Unreachable)
    }

    /// Asks, for every new connection of a run, if the name has other addresses now.
    fn follow_name(&mut self) {
        let Some(resolver) = &self.orders.resolver else { return };
        if self.driving {
            resolver.refresh();
        }
        if let Some(addresses) = resolver.changed_since(&mut self.addresses_version) {
            self.orders.addresses = addresses;
            self.address = 0;
        }
    }

    pub(super) fn after_send(&mut self, index: usize, sent: Sent) {
        let connection = &mut self.connections[index];
        let wants_write = match sent {
            Sent::Failed(kind) => return self.fail(index, kind),
            Sent::Partly => true,
            Sent::All => false,
        };
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            let flags = if wants_write {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            let number = number(index, connection.generation);
            if let Some(socket) = &connection.socket
                && self.poll.modify(socket, number, flags).is_err()
            {
                self.fail(index, ErrorKind::Reset);
            }
        }
    }

    pub(super) fn ready(&mut self, number: u64, flags: EventFlags) {
        let index = (number & 0xffff_ffff) as usize;
        if self.connections[index].generation != (number >> 32) as u32 {
            return; // an event of an earlier socket in this slot
        }
        match self.connections[index].state {
            ConnectionState::Connecting if self.connections[index].http2.is_none() => self.finish_connect(index),
            ConnectionState::Connecting | ConnectionState::Open => {
                if flags.contains(EventFlags::OUT) {
                    let sent = self.connections[index].flush();
                    self.after_send(index, sent);
                    self.work(index);
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.read(index);
                }
            }
            ConnectionState::Closed | ConnectionState::Resting => {}
        }
    }

    fn finish_connect(&mut self, index: usize) {
        if let Err(kind) = self.connections[index].connect_result() {
            return self.fail(index, kind);
        }
        if let Some(streams) = self.orders.http2 {
            return self.shake_hands(index, streams);
        }
        self.open += 1;
        self.ever_connected = true;
        self.recorder.opened += 1;
        let timeout = self.orders.request_timeout_nanos;
        let connection = &mut self.connections[index];
        connection.deadline_nanos = connection
            .in_flight
            .front()
            .map_or(u64::MAX, |request| request.sent_nanos.saturating_add(timeout));
        connection.wants_write = true; // as it was registered for connecting
        let sent = connection.opened();
        self.scan_nanos = self.scan_nanos.min(self.connections[index].deadline_nanos);
        self.after_send(index, sent);
    }

    fn read(&mut self, index: usize) {
        loop {
            let connection = &mut self.connections[index];
            let Some(socket) = &connection.socket else { return };
            let received = match rustix::net::recv(socket, &mut self.buffer[..], rustix::net::RecvFlags::empty()) {
                Ok((0, _)) => return self.peer_closed(index),
                Ok((received, _)) => received,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return self.fail(index, ErrorKind::Reset),
            };
            if connection.tls.is_some() {
                if !self.read_tls(index, received) {
                    return;
                }
            } else {
                let buffer = std::mem::take(&mut self.buffer);
                self.answers(index, &buffer[..received]);
                self.buffer = buffer;
            }
            if received < READ_BYTES {
                return;
            }
        }
    }

    fn read_tls(&mut self, index: usize, received: usize) -> bool {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let connection = &mut self.connections[index];
        let Some(tls) = &mut connection.tls else { return false };
        let taken = tls.receive(&self.buffer[..received], &mut plain);
        tls.outgoing(&mut connection.out);
        let sent = if connection.out.is_empty() {
            Sent::All
        } else {
            connection.flush()
        };
        self.after_send(index, sent);
        let connection = &self.connections[index];
        if connection.state == ConnectionState::Connecting
            && connection.tls.as_ref().is_some_and(TlsSession::refuses_http2)
        {
            self.fail(index, ErrorKind::NoHttp2);
            return false;
        }
        self.answers(index, &plain);
        self.plain = plain;
        match taken {
            Ok(true) => true,
            Ok(false) => {
                self.peer_closed(index);
                false
            }
            Err(TlsBroken { kind, reason }) => {
                if kind == ErrorKind::Tls {
                    self.recorder.tls_failure.get_or_insert(reason);
                }
                self.fail(index, kind);
                false
            }
        }
    }

    /// Parses received bytes and ends the answered requests.
    fn answers(&mut self, index: usize, mut data: &[u8]) {
        if let Some(session) = &mut self.connections[index].http2 {
            session.receive(data);
            return self.work(index);
        }
        while !data.is_empty() {
            let connection = &mut self.connections[index];
            if connection.socket.is_none() {
                return;
            }
            let Some(&request) = connection.in_flight.front() else {
                // The connection is out of step, because no request asked for this answer.
                return self.close(index);
            };
            let mut parser = std::mem::take(&mut connection.parser);
            match parser.feed(data, request.no_body) {
                Fed::More => {
                    connection.bytes_in += data.len() as u64;
                    connection.parser = parser;
                    return;
                }
                Fed::Broken(kind) => return self.fail(index, kind),
                Fed::Done {
                    used,
                    answer,
                    keep_alive,
                } => {
                    let bytes_in = std::mem::take(&mut connection.bytes_in) + used as u64;
                    // Bytes that no request asked for would be taken for the next request's answer.
                    let is_surplus = used < data.len() && connection.in_flight.len() == 1;
                    let now = self.now();
                    let result = if is_surplus {
                        Err(ErrorKind::Surplus)
                    } else {
                        Ok(answer)
                    };
                    self.end_first(index, result, now, bytes_in);
                    parser.reset();
                    self.connections[index].parser = parser;
                    if is_surplus || !keep_alive || !self.orders.keep_alive {
                        self.close(index);
                        self.fail_in_flight(index, ErrorKind::Closed, now);
                    }
                    if self.connections[index].in_flight.len() < self.orders.pipeline {
                        self.set_free(index, now);
                    }
                    data = &data[used..];
                }
            }
        }
    }

    fn peer_closed(&mut self, index: usize) {
        if let Some(session) = &mut self.connections[index].http2 {
            session.receive_end();
            return self.work(index);
        }
        let now = self.now();
        let mut parser = std::mem::take(&mut self.connections[index].parser);
        let bytes_in = self.connections[index].bytes_in;
        let kind = if parser.is_fresh() {
            ErrorKind::Closed
        } else {
            ErrorKind::ClosedMidway
        };
        if let Some(answer) = parser.closed()
            && !self.connections[index].in_flight.is_empty()
        {
            self.end_first(index, Ok(answer), now, bytes_in);
        }
        parser.reset();
        self.close(index);
        self.connections[index].parser = parser;
        self.fail_in_flight(index, kind, now);
        self.set_free(index, now);
    }

    /// Ends the oldest request in flight on a connection.
    fn end_first(&mut self, index: usize, result: Result<ResponseParts<'_>, ErrorKind>, now: u64, bytes_in: u64) {
        let connection = &mut self.connections[index];
        let Some(request) = connection.in_flight.pop_front() else {
            return;
        };
        self.in_flight -= 1;
        connection.deadline_nanos = connection.in_flight.front().map_or(u64::MAX, |next| {
            next.sent_nanos.saturating_add(self.orders.request_timeout_nanos)
        });
        let outcome = Outcome {
            result,
            sent_nanos: request.sent_nanos,
            intended_nanos: request.intended_nanos.unwrap_or(request.sent_nanos),
            done_nanos: now,
        };
        let verdict = self.source.answered(request.tag, &outcome);
        self.recorder
            .ended(request.class, verdict, &outcome, request.bytes.into(), bytes_in);
        self.ask_nanos = 0;
    }

    pub(super) fn fail_in_flight(&mut self, index: usize, kind: ErrorKind, now: u64) {
        let mut bytes_in = self.connections[index].bytes_in;
        while !self.connections[index].in_flight.is_empty() {
            self.end_first(index, Err(kind), now, std::mem::take(&mut bytes_in));
        }
    }

    /// Closes a failed connection and fails all requests in flight on it.
    pub(super) fn fail(&mut self, index: usize, kind: ErrorKind) {
        let now = self.now();
        let was_connecting = self.connections[index].state != ConnectionState::Open;
        if was_connecting && kind.is_connect() && !self.ever_connected && self.address + 1 < self.orders.addresses.len()
        {
            // The host's next address may accept connections. The requests in flight go there.
            self.address += 1;
            let connection = &mut self.connections[index];
            let waiting = std::mem::take(&mut connection.out);
            self.close(index);
            self.connections[index].out = waiting;
            match self.connect(index, now) {
                Ok(()) => return,
                Err(_) => self.close(index),
            }
        }
        let connection = &self.connections[index];
        let kind = connection.http2.as_ref().map_or(kind, |session| session.reason(kind));
        let bytes_in = connection.bytes_in;
        self.close(index);
        self.connections[index].bytes_in = bytes_in;
        self.fail_in_flight(index, kind, now);
        self.connections[index].bytes_in = 0;
        if was_connecting {
            // No attempt is made at once, because the loop would then only count refusals.
            self.failed_connects += 1;
            self.last_failed_connect = Some(kind);
            let connection = &mut self.connections[index];
            let rest = (REST_NANOS_MIN << connection.failed_connects.min(10)).min(REST_NANOS_MAX);
            connection.failed_connects += 1;
            connection.state = ConnectionState::Resting;
            connection.deadline_nanos = now + rest;
            self.scan_nanos = self.scan_nanos.min(connection.deadline_nanos);
        } else {
            self.set_free(index, now);
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        if self.connections[index].state == ConnectionState::Open {
            self.open -= 1;
        }
        self.connections[index].close();
    }
}

fn number(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}
