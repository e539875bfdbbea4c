//! Connections that are ready: they are admitted at once, wait unread for a batch, or are refused.

use super::{
    direct::Direct,
    head::{self, Head, Parsed, Room},
    next::BODY_BYTES_MAX,
    wire::ReadOutcome,
};
use crate::{
    access_log::Entry,
    admission::{Client, Reason},
    connection::{AcceptedBy, Verdict},
    guard::Names,
    metrics::Route,
    request::headers,
    routes,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::task::{Context, Poll};

/// The bytes that suffice to see whether a request is urgent.
const PEEK_BYTES: usize = 48;

impl Direct {
    /// Handles a connection with received bytes, or one that may have to end.
    pub(super) fn is_ready(&mut self, key: usize) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let connection = &member.open.connection;
        if connection.verdict() != Verdict::Drop && member.work.is_some() {
            self.guarded(key, Self::works_on);
            return;
        }
        if connection.verdict() == Verdict::Drop || connection.is_ending() && member.ticket.is_none() {
            self.look_after(key);
            return;
        }
        let is_called = member.waiting > 0 || connection.is_expired() || connection.is_silent();
        if member.socket.is_some() && is_called {
            self.guarded(key, Self::asks_on);
            return;
        }
        // Earlier requests are answered first.
        if member.is_busy() || member.ticket.is_some() {
            return;
        }
        let is_here = member.body.is_some();
        if self.server.admission.goes_at_once(&connection.place) || is_here || self.is_urgent(key) {
            self.look_after(key);
        } else {
            self.guarded(key, Self::wait);
        }
    }

    /// True if the received bytes begin a request that never waits.
    fn is_urgent(&mut self, key: usize) -> bool {
        let Some(member) = self.members.get_mut(key).filter(|member| member.may_be_urgent) else {
            return false;
        };
        // Under TLS only reading shows it.
        if member.wire.is_tls() && member.wire.input.is_empty() {
            let _ = member.wire.poll_read(&mut Context::from_waker(&member.waker));
        }
        let mut first = [0; PEEK_BYTES];
        let line = member.wire.peek(&mut first).split(|byte| matches!(byte, b' ' | b'?'));
        let path = line.into_iter().nth(1).and_then(|path| std::str::from_utf8(path).ok());
        path.is_some_and(routes::is_urgent)
    }

    /// Puts a connection into the queue, if anything has arrived.
    fn wait(&mut self, key: usize) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let mut context = Context::from_waker(&member.waker);
        if member.wire.input.is_empty() && member.wire.arm(&mut context) {
            member.is_armed = true;
            return;
        }
        let Some(client) = self.client(key) else { return };
        if let Some(member) = self.members.get_mut(key) {
            member.ticket = Some(self.server.admission.wait_unread(key, client));
        }
    }

    /// Returns the client of the next request; `None` if its head does not show it yet, or the connection has left.
    fn client(&mut self, key: usize) -> Option<Client> {
        let member = self.members.get(key)?;
        let connection = &member.open.connection;
        if member.socket.is_some() {
            return Some(connection.client());
        }
        let own = connection.client();
        let Some(name) = self.server.shared().client_header(connection).cloned() else {
            return Some(own);
        };
        // Only the head can name it.
        self.read_head(key, |head| headers::client(&only(head, &name), &name).unwrap_or(own))
    }

    /// Reads the head of a connection's next request; `None` if it is incomplete, or the connection has left.
    fn read_head<R>(&mut self, key: usize, look: impl Fn(&Head<'_, '_>) -> R) -> Option<R> {
        loop {
            let member = self.members.get_mut(key)?;
            let limits = self.server.limits();
            let body_bytes_max = limits.body_bytes_max.min(BODY_BYTES_MAX);
            match head::parse(
                &member.wire.input,
                &mut Room::new(member.open.connection.known_host()),
                limits.header_bytes_max,
                body_bytes_max,
            ) {
                Parsed::Plain(head) => return Some(look(&head)),
                Parsed::Odd => {
                    self.departs(key);
                    return None;
                }
                Parsed::Partial => {}
            }
            match member.wire.poll_read(&mut Context::from_waker(&member.waker)) {
                Poll::Ready(Ok(ReadOutcome::Bytes)) => {}
                Poll::Pending => {
                    member.is_armed = true;
                    return None;
                }
                Poll::Ready(Ok(ReadOutcome::End) | Err(_)) => {
                    self.end(key);
                    return None;
                }
            }
        }
    }

    /// Serves the connections that are admitted to this batch, and refuses those that would wait too long.
    pub(super) fn work_off_queue(&mut self) {
        let server = self.server.clone();
        while let Some(key) = server.admission.next() {
            if let Some(member) = self.members.get_mut(key) {
                if let Some(ticket) = member.ticket.take() {
                    server.admission.admit(&member.open.connection.place, &ticket);
                }
                self.look_after(key);
            }
        }
        while let Some((key, reason)) = server.admission.next_refused() {
            if let Some(member) = self.members.get_mut(key) {
                member.ticket = None;
                self.guarded(key, |direct, key| direct.refuse(key, reason));
            }
        }
    }

    /// Refuses a connection's next request, without reading its body.
    fn refuse(&mut self, key: usize, reason: Reason) {
        if self.members.get(key).is_some_and(|member| member.socket.is_some()) {
            return self.refuse_socket(key, reason);
        }
        let (server, connection) = match self.members.get(key) {
            Some(member) => (self.server.clone(), member.open.connection.clone()),
            None => return,
        };
        let seen = self.read_head(key, |head| {
            let is_urgent = routes::is_urgent(head.path);
            let is_logged = !is_urgent && server.logs_next();
            Seen {
                end: head.body.end,
                closes: head.closes,
                is_urgent,
                route: route(head),
                origin: allowed(head, &server.shared().guard.names, connection.accepted_by()),
                log: is_logged.then(|| {
                    let shared = server.shared();
                    let fields = shared.client_header(&connection).map(|name| only(head, name));
                    let client = shared.client_address(&connection, &fields.unwrap_or_default());
                    Entry::new(&connection, head.method, head.path).from(client)
                }),
            }
        });
        let Some(seen) = seen else { return };
        if seen.is_urgent {
            self.look_after(key);
            return;
        }
        // The answers of one connection are sent together.
        self.send_done_of_others(key);
        // Its last answer may not have been sent at once; then it comes here again.
        let Some(member) = self.members.get_mut(key).filter(|member| !member.is_busy()) else {
            return;
        };
        let closes = seen.closes || connection.is_ending();
        connection.begins();
        member.wire.pass_over(seen.end);
        member.may_be_urgent = false;
        let refusal = self.refusals.find(reason, server.admission.drain());
        server
            .date
            .with(|date| refusal.write(&mut self.output, seen.origin, date, closes));
        server.metrics().problem(refusal.problem.slug());
        server.metrics().answered(seen.route, refusal.status, None);
        if let Some(entry) = seen.log {
            entry.refused(&server, &refusal.problem, None);
        }
        self.is_answered(key, closes);
        self.goes_on(key);
    }

    /// Has an answered connection woken by its next request.
    pub(super) fn goes_on(&mut self, key: usize) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let mut context = Context::from_waker(&member.waker);
        member.is_armed = member.wire.input.is_empty() && member.wire.arm(&mut context);
        if !member.is_armed {
            self.calls.call(key);
        }
    }
}

/// The facts about a request that its refusal needs.
struct Seen {
    end: usize,
    closes: bool,
    is_urgent: bool,
    route: Route,
    /// A page of this other origin asks, and may.
    origin: Option<HeaderValue>,
    log: Option<Box<Entry>>,
}

/// The fields of this name.
fn only(head: &Head<'_, '_>, name: &HeaderName) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let named = head
        .fields()
        .filter(|(field, _)| name.as_str().eq_ignore_ascii_case(field));
    for value in named.filter_map(|(_, value)| HeaderValue::from_bytes(value).ok()) {
        fields.append(name.clone(), value);
    }
    fields
}

/// The other origin whose page asks, if its pages may.
fn allowed(head: &Head<'_, '_>, names: &Names, accepted_by: AcceptedBy) -> Option<HeaderValue> {
    let origin = head.sender.origin.filter(|_| !accepted_by.is_admin);
    let origin = origin.filter(|origin| names.is_allowed(origin))?;
    HeaderValue::from_bytes(origin).ok()
}

/// Guesses the route of a request from its path and method.
fn route(head: &Head<'_, '_>) -> Route {
    match (head.path.starts_with("/api/"), head.method) {
        (true, "POST") => Route::Command,
        (true, _) => Route::Query,
        (false, _) => Route::App,
    }
}
