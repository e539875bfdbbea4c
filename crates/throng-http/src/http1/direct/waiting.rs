//! Connections whose first request waits for more than its commit.

use super::{
    ConnectionSlot, Direct,
    work::{Done, Work},
};
use crate::{
    answer::ResponseBody,
    http1::outgoing::{Outgoing, Written},
};
use http::Response;
use std::task::{Context, Poll, Waker};

impl Direct {
    /// Begins the work on a connection's first request, which has to wait. Earlier answers are sent first.
    pub(super) fn begins(&mut self, key: usize, work: Work) {
        self.send_done();
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let mut work = Box::new(work);
        if let Some(Work::Flush { then, .. }) = member.work.as_deref_mut() {
            *then = Some(work);
            return;
        }
        if member.wire.has_output() {
            member.open.connection.begins();
            let then = Some(work);
            work = Box::new(Work::Flush { closes: false, then });
        }
        if self.polls(key, work) {
            self.goes_on(key);
        }
    }

    /// Sends the rest that could not be sent at once. The connection's work continues after it.
    pub(super) fn flushes(&mut self, key: usize, rest: &[u8], closes: bool) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        member.wire.output().extend_from_slice(rest);
        if member.socket.is_some() {
            return self.leave(key, 1);
        }
        member.open.connection.begins();
        let then = member.work.take();
        member.work = Some(Box::new(Work::Flush { closes, then }));
        // Not now: the answers of others are being sent, and these would be mixed with them.
        self.calls.call(key);
    }

    /// Has a connection's work go on.
    pub(in crate::http1) fn works_on(&mut self, key: usize) {
        // The answers of one connection are sent together.
        self.send_done_of_others(key);
        let work = self.members.get_mut(key).and_then(|member| member.work.take());
        if work.is_some_and(|work| self.polls(key, work)) {
            self.goes_on(key);
        }
    }

    /// Does what is possible now; returns true if the connection's next request may be read.
    pub(super) fn polls(&mut self, key: usize, mut work: Box<Work>) -> bool {
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        let ConnectionSlot {
            wire,
            open,
            waker,
            is_armed,
            ..
        } = &mut *member;
        let mut context = Context::from_waker(waker);
        match work.poll(&self.server, &open.connection, wire, &mut context) {
            Poll::Pending => {
                if matches!(*work, Work::Answer { .. }) {
                    *is_armed = *is_armed || wire.arm(&mut context);
                }
                member.work = Some(work);
                false
            }
            Poll::Ready(Ok(Done::More)) => {
                member.work = Some(work);
                self.calls.call(key);
                false
            }
            Poll::Ready(Ok(Done::Body)) => {
                if let Work::Body(body) = *work {
                    member.body = body.into_charge();
                }
                self.calls.call(key);
                false
            }
            Poll::Ready(Ok(Done::Response(response, closes))) => self.respond(key, response, closes),
            Poll::Ready(Ok(Done::Gone(closes))) => {
                member.open.connection.ends();
                match *work {
                    Work::Flush { then: Some(then), .. } => self.polls(key, then),
                    _ if closes || member.open.connection.is_ending() => {
                        self.linger(key);
                        false
                    }
                    _ => true,
                }
            }
            Poll::Ready(Err(error)) => {
                tracing::debug!("a connection ended early: {error}");
                self.end(key);
                false
            }
        }
    }

    /// Writes a response; `false`: there is nothing more to do for the connection now.
    pub(super) fn respond(&mut self, key: usize, response: Response<ResponseBody>, closes: bool) -> bool {
        let Some(member) = self.members.get(key) else {
            return false;
        };
        let mut outgoing = Outgoing::begin(
            &self.server,
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
            polled @ (Poll::Ready(Ok(Written::Full)) | Poll::Pending) => {
                let (is_full, number) = (polled.is_ready(), member.open.number);
                // The written part is sent along, with the answers before it.
                let written: Vec<u8> = self.take_written(number).collect();
                if let Some(member) = self.members.get_mut(key) {
                    member.answered_in = 0;
                    member.wire.output().extend_from_slice(&written);
                }
                if self.polls(key, Box::new(Work::Respond { outgoing, is_full })) {
                    self.goes_on(key);
                }
                false
            }
        }
    }
}
