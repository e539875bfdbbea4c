//! What a direct connection asks: commands are executed in place, anything else is answered at once or becomes a task.

use super::{Direct, Handled, Pending};
use crate::{
    answer::Answer,
    connection::Verdict,
    lane::{
        TOGETHER_MAX, Work,
        next::{Else, Next, Other, look},
        outgoing::{Outgoing, Written},
        wire::ReadOutcome,
    },
    request::headers,
    routes,
};
use http::Response;
use std::{
    future::Future,
    task::{Context, Poll, Waker},
};

impl Direct {
    /// Reads and executes what a connection asks for, up to a request that is no command.
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
        // What it asked before is answered first.
        if member.is_busy() {
            return None;
        }
        let is_answered = member.answered_in == self.pass;
        let mut context = Context::from_waker(&member.waker);
        while member.waiting < TOGETHER_MAX {
            let next = match look(&member.wire.input, self.event_loop.server.limits()) {
                // Its answer leaves on its own, after those that have not left yet.
                Next::Command(_) if is_answered => {
                    self.send_done();
                    return self.next(key);
                }
                Next::Command(command) if headers::is_plain(&command.headers) => {
                    let (server, end, closes) = (&self.event_loop.server, command.end, command.closes);
                    let Some(staged) = routes::try_now(server, connection, &command.head(), command.body) else {
                        break;
                    };
                    if member.waiting == 0 {
                        connection.begins();
                    }
                    member.waiting += 1;
                    member.may_be_urgent = false;
                    member.wire.advance(end);
                    // What was asked behind one that has to wait is executed after it.
                    let waits = staged.is_waited_for();
                    if waits && member.waiting == 1 {
                        connection.ends();
                        self.hand_over(key, Work::Settle(vec![staged], closes));
                        return None;
                    }
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
                Next::Command(_) => break,
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
                Else::ReadTo(_) | Else::HandOver => break,
                Else::Other(other) => return Some(other),
            }
        }
        if member.waiting == 0 {
            self.hand_over(key, Work::Nothing);
        } else if let Some(last) = self.pending.back() {
            // What comes next waits until these are answered.
            last.is_last = true;
        }
        None
    }

    /// Answers a request for any other route; `false`: the connection has nothing more to do now.
    pub(super) fn answer(&mut self, key: usize, other: Other) -> bool {
        if self.send_done_of_others(key) {
            // It may be a task after this, and asks again.
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
        let (server, connection) = (self.event_loop.server.clone(), member.open.connection.clone());
        member.may_be_urgent = routes::is_urgent(request.uri().path());
        connection.begins();
        member.wire.advance(end);
        let handled = if says_timeout {
            Err(request)
        } else {
            routes::handle_now(&server, &connection, request)
        };
        let request = match handled {
            Ok(handling) => return self.handle(key, Box::new(Handled { handling, closes })),
            Err(request) => request,
        };
        let mut answer = Box::pin(routes::answer(&server, &connection, *request));
        // Whoever waits is asked again at once, by a task that can be woken.
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => self.respond(key, response, closes),
            Poll::Pending => {
                self.begins_anew(key, Work::Answer(answer, closes));
                false
            }
        }
    }

    /// Has an app's handler go on; `false`: it waits, or the connection is not direct any more.
    pub(in crate::lane) fn handle(&mut self, key: usize, mut handled: Box<Handled>) -> bool {
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        let mut context = Context::from_waker(&member.waker);
        match handled.handling.poll(&self.event_loop.server, &mut context) {
            Poll::Ready(response) => self.respond(key, response, handled.closes),
            Poll::Pending => {
                member.is_armed = member.is_armed || member.wire.arm(&mut context);
                member.handled = Some(handled);
                false
            }
        }
    }

    /// Writes a response down; `false`: the connection is not direct any more.
    fn respond(&mut self, key: usize, response: Response<Answer>, closes: bool) -> bool {
        let Some(member) = self.members.get(key) else {
            return false;
        };
        let mut outgoing = Outgoing::begin(
            &self.event_loop,
            &member.open.connection,
            response,
            closes,
            &mut self.output,
        );
        match outgoing.poll(&mut self.output, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Written::All)) => {
                self.is_answered(key, outgoing.closes);
                !outgoing.closes && self.members.contains(key)
            }
            Poll::Ready(Err(error)) => {
                tracing::debug!("a connection ended early: {error}");
                self.output.truncate(self.done.last().map_or(0, |done| done.end));
                self.end(key);
                false
            }
            // What is written of it goes along.
            Poll::Ready(Ok(Written::Full)) | Poll::Pending => {
                self.begins_anew(key, Work::Respond(outgoing));
                false
            }
        }
    }

    /// A request that was begun here is a task's.
    fn begins_anew(&mut self, key: usize, work: Work) {
        if let Some(member) = self.members.get(key) {
            member.open.connection.ends();
        }
        self.hand_over(key, work);
    }
}
