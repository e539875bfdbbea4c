//! HTTP/2 on a worker's connections: the handshake, the work on streams, and the ends of both.

use super::super::connection::{ConnectionState, Sent};
use super::super::http2::{Finished, Session};
use super::Worker;
use crate::{ErrorKind, Outcome, Source, Verdict};

/// The most repetitions of a request.
const GIVEN_BACK_MAX: u8 = 8;

impl<S: Source> Worker<S> {
    /// Starts HTTP/2 on a connected socket. The connection counts as made when the peer's settings arrive.
    pub(super) fn shake_hands(&mut self, index: usize, streams: usize) {
        let connection = &mut self.connections[index];
        connection.wants_write = true; // as it was registered for connecting
        let parked = std::mem::take(&mut connection.out);
        match Session::new(streams, parked) {
            Ok(session) => {
                connection.http2 = Some(Box::new(session));
                self.work(index);
            }
            Err(kind) => self.fail(index, kind),
        }
    }

    /// Lets a connection's session work, ends the requests that are answered or have failed, and sends the session's output.
    pub(super) fn work(&mut self, index: usize) {
        let Some(mut session) = self.connections[index].http2.take() else {
            return;
        };
        let mut sent;
        loop {
            session.work();
            if self.connections[index].state == ConnectionState::Connecting && session.is_ready() {
                self.made(index, &mut session);
            }
            while let Some(finished) = session.next_finished() {
                self.end_stream(finished);
            }
            let connection = &mut self.connections[index];
            if connection.out.is_empty() {
                session.outgoing(&mut self.frames);
                sent = connection.transmit(&self.frames);
                self.frames.clear();
            } else {
                sent = Sent::Partly; // the session continues once these bytes are sent, so the waiting bytes are bounded
            }
            if sent != Sent::All || !session.wants_work() {
                break;
            }
        }
        let over = session.over();
        let has_room = session.room() > 0;
        self.connections[index].http2 = Some(session);
        match (over, self.connections[index].state) {
            (Some(kind), ConnectionState::Connecting) => self.fail(index, kind),
            (Some(_), _) => {
                self.close(index);
                let now = self.now();
                self.set_free(index, now);
            }
            (None, state) => {
                if state == ConnectionState::Open && has_room {
                    let now = self.now();
                    self.set_free(index, now);
                }
                self.after_send(index, sent);
            }
        }
    }

    /// Marks the connection as made, because the peer's settings have arrived, and sends the request that waited for them.
    fn made(&mut self, index: usize, session: &mut Session) {
        self.open += 1;
        self.ever_connected = true;
        self.recorder.opened += 1;
        let timeout_nanos = self.orders.request_timeout_nanos;
        let connection = &mut self.connections[index];
        connection.state = ConnectionState::Open;
        connection.failed_connects = 0;
        connection.deadline_nanos = u64::MAX;
        if let Some(request) = connection.in_flight.pop_front() {
            connection.deadline_nanos = request.sent_nanos.saturating_add(timeout_nanos);
            let parked = std::mem::take(&mut session.parked);
            session.send(request, &parked, self.orders.tls.is_some(), &mut self.translator);
        }
        self.scan_nanos = self.scan_nanos.min(connection.deadline_nanos);
    }

    /// Gives up the requests that have waited too long. Their streams are reset, and the others continue.
    pub(super) fn expire(&mut self, index: usize, now: u64) {
        let timeout_nanos = self.orders.request_timeout_nanos;
        let Some(mut session) = self.connections[index].http2.take() else {
            return;
        };
        while let Some(finished) = session.next_expired(now.saturating_sub(timeout_nanos)) {
            self.end_stream(finished);
        }
        let oldest = session.oldest_nanos();
        let connection = &mut self.connections[index];
        connection.deadline_nanos = oldest.map_or(u64::MAX, |sent| sent.saturating_add(timeout_nanos));
        connection.http2 = Some(session);
        self.work(index);
    }

    /// Ends a request, or repeats it if the peer has returned it.
    fn end_stream(&mut self, mut finished: Finished) {
        let mut request = finished.in_flight;
        let bytes = finished
            .take_given_back()
            .filter(|_| request.given_back < GIVEN_BACK_MAX && !self.has_ended);
        self.in_flight -= 1;
        let outcome = Outcome {
            result: finished.result(),
            sent_nanos: request.sent_nanos,
            intended_nanos: request.intended_nanos.unwrap_or(request.sent_nanos),
            done_nanos: self.now(),
        };
        let verdict = match bytes {
            Some(_) => Verdict::Retried,
            None => self.source.answered(request.tag, &outcome),
        };
        self.recorder
            .ended(request.class, verdict, &outcome, finished.bytes_out, finished.bytes_in);
        if let Some(bytes) = bytes {
            request.given_back += 1;
            self.given_back.push_back((request, bytes));
        }
        self.ask_nanos = 0;
    }

    /// Counts the requests that the peer has returned and that cannot be sent again.
    pub(super) fn fail_given_back(&mut self, now: u64) {
        for (request, _) in std::mem::take(&mut self.given_back) {
            let outcome = Outcome {
                result: Err(ErrorKind::GoAway),
                sent_nanos: request.sent_nanos,
                intended_nanos: request.intended_nanos.unwrap_or(request.sent_nanos),
                done_nanos: now,
            };
            let verdict = self.source.answered(request.tag, &outcome);
            self.recorder.ended(request.class, verdict, &outcome, 0, 0);
        }
    }
}
