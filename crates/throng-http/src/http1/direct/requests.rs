//! The requests of a connection: commands are executed, anything else is answered at once or becomes its work.

use super::{
    Direct, Pending,
    work::{Maker, Work},
};
use crate::{
    connection::Verdict,
    http1::{
        TOGETHER_MAX,
        next::{Else, Next, Other, look, look_beyond_command},
        wire::ReadOutcome,
    },
    routes,
};
use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

impl Direct {
    /// Reads and executes a connection's requests, up to one that is no command.
    pub(super) fn next(&mut self, key: usize) -> Option<Other> {
        let member = self.members.get_mut(key)?;
        let connection = &member.open.connection;
        if connection.verdict() == Verdict::Drop {
            self.end(key);
            return None;
        }
        if member.socket.is_some() {
            self.next_of_socket(key);
            return None;
        }
        // Earlier requests are answered first.
        if member.is_busy() {
            return None;
        }
        let is_answered = member.answered_in == self.pass;
        let mut context = Context::from_waker(&member.waker);
        while member.waiting < TOGETHER_MAX {
            let next = match look(&member.wire.input, connection.known_host(), self.server.limits()) {
                // Its answer is sent separately, after those that were not sent yet.
                Next::Command(_) if is_answered => {
                    self.send_done();
                    return self.next(key);
                }
                Next::Command(command) => {
                    let (end, closes) = (command.end, command.closes);
                    let staged = routes::try_now(&self.server, connection, &command.head(), command.body);
                    match staged {
                        None if member.waiting > 0 => break,
                        None => look_beyond_command(&member.wire.input, self.server.limits()),
                        Some(staged) => {
                            if member.waiting == 0 && member.body.take().is_none() {
                                connection.begins();
                            }
                            member.may_be_urgent = false;
                            member.wire.advance(end);
                            // Requests behind a command that has to wait are executed after it.
                            let waits = staged.is_waited_for();
                            if waits && member.waiting == 0 {
                                let together = VecDeque::from([staged]);
                                self.begins(key, Work::Settle { together, closes });
                                return None;
                            }
                            member.waiting += 1;
                            let is_last = closes || waits || member.wire.input.is_empty();
                            self.pending.push(Pending {
                                key,
                                number: member.open.number,
                                id: None,
                                staged,
                                is_last,
                                closes,
                            });
                            if is_last {
                                member.is_armed = member.is_armed || member.wire.arm(&mut context);
                                return None;
                            }
                            continue;
                        }
                    }
                }
                Next::Else(next) => next,
            };
            if member.waiting > 0 {
                break;
            }
            match next {
                Else::Read if connection.is_ending() => {
                    self.end(key);
                    return None;
                }
                Else::Read if member.is_armed => return None,
                Else::Read => match member.wire.poll_read(&mut context) {
                    Poll::Pending => {
                        member.is_armed = true;
                        return None;
                    }
                    Poll::Ready(Ok(ReadOutcome::Bytes)) => {}
                    Poll::Ready(Ok(ReadOutcome::End)) => {
                        self.end(key);
                        return None;
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::debug!("a connection ended early: {error}");
                        self.end(key);
                        return None;
                    }
                },
                Else::ReadTo(end) => {
                    connection.begins();
                    let body = member.wire.body(end);
                    self.begins(key, Work::Body(body));
                    return None;
                }
                Else::HandOver => {
                    self.departs(key);
                    return None;
                }
                Else::Other(other) => return Some(other),
            }
        }
        if let Some(last) = self.pending.back() {
            // Requests behind these wait until they are answered.
            last.is_last = true;
        }
        None
    }

    /// Answers a request for any other route; `false`: there is nothing more to do for the connection now.
    pub(super) fn answer(&mut self, key: usize, other: Other) -> bool {
        if self.send_done_of_others(key) {
            // The connection may have to wait after this, and comes here again.
            return self.members.contains(key);
        }
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        let Other {
            request,
            says_timeout,
            end,
            closes,
        } = other;
        let connection = &member.open.connection;
        member.may_be_urgent = routes::is_urgent(request.uri().path());
        let body = member.body.take();
        if body.is_none() {
            connection.begins();
        }
        member.wire.advance(end);
        let handled = match says_timeout {
            true => Err(request),
            false => routes::handle_now(&self.server, connection, request),
        };
        let maker = match handled {
            Ok(handling) => Maker::Handler(handling),
            Err(request) => Maker::Route(routes::answer(&self.server, connection, *request)),
        };
        let work = Work::Answer {
            maker,
            closes,
            _body: body,
        };
        self.polls(key, Box::new(work))
    }
}
