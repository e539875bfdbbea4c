//! Sending answers. Answers that wait for nothing are sent at the end of a pass, those of commands once they are durable.

use super::{Direct, Done, Pending, work::Work};
use crate::{
    answer::Reply,
    http1::{
        outgoing::{OUTPUT_BYTES_MAX, Outgoing},
        response,
    },
    problem::Answered,
    websocket,
};
use std::{collections::VecDeque, time::Instant};
use throng::journal::scratch;

impl Direct {
    /// Notes that a request which waited for nothing has its whole answer in the output.
    pub(in crate::http1) fn is_answered(&mut self, key: usize, closes: bool) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        if member.socket.is_none() {
            member.open.connection.ends();
        }
        member.answered_in = self.pass;
        self.done.push(Done {
            key,
            number: member.open.number,
            end: self.output.len(),
            closes,
        });
        // A small answer always finds room: it is no reason to wait.
        if closes || self.output.len() > OUTPUT_BYTES_MAX / 2 {
            self.send_done();
        }
    }

    /// Sends what there is before a connection gets another answer in a pass in which others were answered since.
    pub(in crate::http1) fn send_done_of_others(&mut self, key: usize) -> bool {
        let is_split = self.members.get(key).is_some_and(|member| {
            member.answered_in == self.pass && self.done.last().is_some_and(|last| last.number != member.open.number)
        });
        if is_split {
            self.send_done();
        }
        is_split
    }

    /// Sends the answers to requests that waited for nothing.
    pub(in crate::http1) fn send_done(&mut self) {
        if self.done.is_empty() {
            return;
        }
        self.pass += 1;
        let (mut output, mut done) = (std::mem::take(&mut self.output), std::mem::take(&mut self.done));
        let mut begin = 0;
        for (at, one) in done.iter().enumerate() {
            let is_last = done.get(at + 1).is_none_or(|next| next.number != one.number);
            if !is_last {
                continue;
            }
            if self
                .members
                .get(one.key)
                .is_some_and(|member| member.open.number == one.number)
            {
                self.send(one.key, &output[begin..one.end], one.closes);
            }
            begin = one.end;
        }
        scratch::empty(&mut output);
        scratch::empty(&mut done);
        (self.output, self.done) = (output, done);
    }

    /// Sends a connection's answers; `false`: it has ended, or not all were sent.
    fn send(&mut self, key: usize, bytes: &[u8], closes: bool) -> bool {
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        match member.wire.send(bytes) {
            Ok(count) if count == bytes.len() && !member.wire.has_backlog() => {
                member.wire.is_gone();
                if closes {
                    self.linger(key);
                }
                !closes
            }
            Ok(count) => {
                self.flushes(key, &bytes[count..], closes);
                false
            }
            Err(error) => {
                tracing::debug!("a connection ended early: {error}");
                self.end(key);
                false
            }
        }
    }

    /// Sends durable answers, and asks to be called for the others.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        while let Some(front) = self.pending.front() {
            let Some(settled) = front.staged.answer_now(&self.server, now) else {
                if front.staged.wake_at(&self.commit) {
                    self.is_called = true;
                    self.write_messages();
                    return;
                }
                if front.staged.is_waited_for() {
                    self.hand_over_front();
                }
                continue;
            };
            if let Some(front) = self.pending.pop() {
                self.answered(front, settled);
            }
        }
    }

    fn answered(&mut self, front: Pending, settled: Answered<Reply>) {
        let Pending {
            key,
            number,
            id,
            is_last,
            closes,
            ..
        } = front;
        let Some(member) = self.members.get_mut(key).filter(|member| member.open.number == number) else {
            self.answers.clear();
            self.outbox.clear();
            return;
        };
        let settled = settled.map(|Reply { body, charge, owner }| {
            member.wire.hold(charge);
            (body, owner)
        });
        let connection = &member.open.connection;
        let is_socket = id.is_some();
        let closes = closes || is_last && connection.is_ending() && !is_socket;
        match (id, settled) {
            (Some(id), Ok((body, _))) => self.outbox.reply(&id, &body),
            (Some(id), Err(problem)) => self.outbox.problem(Some(&id), &problem),
            (None, Ok((body, owner))) => self
                .server
                .date
                .with(|date| response::reply(&mut self.answers, &body, owner.as_deref(), date, closes)),
            (None, Err(problem)) => {
                Outgoing::write_problem(&self.server, connection, &problem, closes, &mut self.answers);
            }
        }
        member.waiting -= 1;
        if !is_last {
            return;
        }
        let is_done = if is_socket {
            let frames = self.outbox.write(&mut self.answers);
            self.server.metrics().frames_out.inc_by(frames);
            member.is_armed && member.wire.input.is_empty() && !connection.is_ending()
        } else {
            connection.ends();
            member.is_armed && member.wire.input.is_empty()
        };
        let mut answers = std::mem::take(&mut self.answers);
        let stays = self.send(key, &answers, closes);
        scratch::empty(&mut answers);
        self.answers = answers;
        if !stays || is_done {
            return;
        }
        match self.server.admission.is_open() {
            true => self.is_ready(key),
            false => self.going_on.push(key),
        }
    }

    /// Writes the answers of the WebSocket with the oldest pending command, in frames.
    pub(super) fn write_messages(&mut self) {
        let frames = self.outbox.write(&mut self.answers);
        self.server.metrics().frames_out.inc_by(frames);
    }

    /// Removes the oldest pending command, which was forwarded and is answered by another entity. Nothing waits for it here.
    fn hand_over_front(&mut self) {
        if let Some(front) = self.pending.front()
            && front.id.is_some()
        {
            let (key, number) = (front.key, front.number);
            match self.members.get(key) {
                Some(member) if member.open.number == number => self.leave(key, websocket::PLAIN_MIN),
                // Its connection has gone.
                _ => drop(self.pending.pop()),
            }
            return;
        }
        let Some(first) = self.pending.pop() else { return };
        let (key, number, mut closes) = (first.key, first.number, first.closes);
        let mut is_last = first.is_last;
        let mut together = VecDeque::from([first.staged]);
        while !is_last && let Some(next) = self.pending.pop() {
            (is_last, closes) = (next.is_last, next.closes);
            together.push_back(next.staged);
        }
        let answers = std::mem::take(&mut self.answers);
        if let Some(member) = self.members.get_mut(key).filter(|member| member.open.number == number) {
            member.wire.output().extend_from_slice(&answers);
            member.waiting = 0;
            self.guarded(key, |direct, key| direct.begins(key, Work::Settle { together, closes }));
        }
    }
}
