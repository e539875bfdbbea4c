//! WebSockets that send only commands which wait for nothing but their commit.
//!
//! Anything else, or more input before the answers, moves the WebSocket into a task, together with all that was begun here.

use super::{ConnectionSlot, Departure, Direct, Pending};
use crate::{
    admission::Reason,
    http1::{TOGETHER_MAX, next::BODY_BYTES_MAX, wire::ReadOutcome},
    metrics::Route,
    websocket::{
        Left, PLAIN_MIN, Staged,
        frame::{self, Frame},
        message::{self, CommandMessage, Id, Message},
        request,
    },
};
use std::{
    collections::VecDeque,
    ops::Range,
    task::{Context, Poll},
};

/// The next frame of a WebSocket, as far as it has arrived.
enum Came {
    Text(Range<usize>, [u8; 4]),
    /// Nothing more, for now.
    Nothing,
    /// A frame that the fast path does not handle.
    Odd,
    /// The client is gone.
    End,
}

impl ConnectionSlot {
    fn frame(&mut self, most: usize) -> Came {
        loop {
            match frame::look(&self.wire.input, most) {
                Frame::Text(payload, mask) => return Came::Text(payload, mask),
                Frame::Odd => return Came::Odd,
                Frame::Partial if self.is_armed => return Came::Nothing,
                Frame::Partial => {}
            }
            let is_in_pieces = !self.wire.input.is_empty();
            match self.wire.poll_read(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(ReadOutcome::Bytes)) => {}
                Poll::Ready(Ok(ReadOutcome::End) | Err(_)) => return Came::End,
                // The rest of the frame may take long.
                Poll::Pending if is_in_pieces => return Came::Odd,
                Poll::Pending => {
                    self.is_armed = true;
                    return Came::Nothing;
                }
            }
        }
    }
}

impl Direct {
    fn frame_bytes_max(&self) -> usize {
        let limits = self.server.limits();
        limits.socket_frame_bytes_max.min(BODY_BYTES_MAX)
    }

    /// Handles a socket that is woken while some commands are not answered, or that is to be pinged or to end.
    pub(in crate::http1) fn asks_on(&mut self, key: usize) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let connection = &member.open.connection;
        let is_called = connection.is_ending() || connection.is_expired() || connection.is_silent();
        if !is_called && member.wire.arm(&mut Context::from_waker(&member.waker)) {
            member.is_armed = true;
        } else {
            self.leave(key, PLAIN_MIN);
        }
    }

    /// Reads and executes a socket's commands.
    pub(super) fn next_of_socket(&mut self, key: usize) {
        let most = self.frame_bytes_max();
        for _ in 0..TOGETHER_MAX {
            let Some(member) = self.members.get_mut(key) else {
                return;
            };
            let connection = &member.open.connection;
            if connection.is_ending() || connection.is_expired() || connection.is_silent() {
                return self.leave(key, 0);
            }
            let is_answered = member.answered_in == self.pass;
            match member.frame(most) {
                // Its answers are sent after those that were not sent yet.
                Came::Text(..) if is_answered => self.send_done(),
                Came::Text(payload, mask) => {
                    if !self.executes(key, payload, mask) {
                        break;
                    }
                }
                Came::Nothing => break,
                Came::Odd => return self.leave(key, PLAIN_MIN),
                Came::End => return self.end(key),
            }
        }
        let Some(member) = self.members.get(key) else {
            return;
        };
        if member.waiting > 0 {
            // Nothing of it waited before, so the last waiting entry is its own.
            if let Some(last) = self.pending.back() {
                last.is_last = true;
            }
        } else if !member.wire.input.is_empty() {
            // No message here needs an answer.
            self.calls.call(key);
        }
    }

    /// Executes the commands of a frame; `false`: the socket is left alone for now.
    fn executes(&mut self, key: usize, payload: Range<usize>, mask: [u8; 4]) -> bool {
        let server = &self.server;
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        let ConnectionSlot {
            wire,
            open,
            waiting,
            socket: Some(socket),
            ..
        } = member
        else {
            return false;
        };
        frame::mask(&mut wire.input[payload.clone()], mask);
        let limits = server.limits();
        let (mut done, mut stop) = (socket.done, Some(Stop::Odd));
        if let Ok(text) = std::str::from_utf8(&wire.input[payload.clone()])
            && let Ok(messages) = message::messages(text, limits.socket_messages_max)
        {
            stop = None;
            for (id, message) in messages.skip(done) {
                let (Some(id), Ok(Message::Command(command))) = (id, message) else {
                    stop = Some(Stop::Odd);
                    break;
                };
                let is_full = *waiting == limits.socket_requests_max;
                let staged = (!is_full).then(|| request::try_now(server, &open.connection, &command));
                let Some(staged) = staged.flatten() else {
                    stop = Some(Stop::NotNow);
                    break;
                };
                done += 1;
                *waiting += 1;
                let waits = staged.is_waited_for();
                socket.come = self.pending.push(Pending {
                    key,
                    number: open.number,
                    id: Some(id),
                    staged,
                    is_last: false,
                    closes: false,
                });
                if waits {
                    stop = Some(Stop::Waits);
                    break;
                }
            }
        }
        let Some(stop) = stop else {
            wire.advance(payload.end);
            socket.done = 0;
            server.metrics().frames_in.inc();
            return true;
        };
        let has_begun = *waiting > 0;
        frame::mask(&mut wire.input[payload], mask);
        socket.done = done;
        // Messages that cannot be executed now are examined again once the others are answered.
        match stop {
            Stop::Waits => self.leave(key, 1),
            Stop::NotNow if !has_begun => self.leave(key, 1),
            Stop::Odd if !has_begun => self.leave(key, PLAIN_MIN),
            Stop::NotNow | Stop::Odd => {}
        }
        false
    }

    /// Refuses the commands of a socket's next frame.
    pub(in crate::http1) fn refuse_socket(&mut self, key: usize, reason: Reason) {
        // The answers of one connection are sent together.
        self.send_done_of_others(key);
        let most = self.frame_bytes_max();
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let (payload, mask) = match member.frame(most) {
            Came::Text(payload, mask) => (payload, mask),
            Came::Nothing => return,
            Came::Odd => return self.leave(key, PLAIN_MIN),
            Came::End => return self.end(key),
        };
        let server = self.server.clone();
        let ConnectionSlot { wire, open, socket, .. } = member;
        let Some(socket) = socket else { return };
        frame::mask(&mut wire.input[payload.clone()], mask);
        let text = std::str::from_utf8(&wire.input[payload.clone()]).unwrap_or_default();
        let Some(commands) = commands(text, socket.done, server.limits().socket_messages_max) else {
            frame::mask(&mut wire.input[payload], mask);
            return self.leave(key, PLAIN_MIN);
        };
        let refusal = self.refusals.find(reason, server.admission.drain());
        for (id, command) in &commands {
            server.metrics().problem(refusal.problem.slug());
            server.metrics().answered(Route::Command, refusal.status, None);
            if let Some(entry) = request::log(&server, &open.connection, command) {
                entry.refused(&server, &refusal.problem, None);
            }
            self.outbox.problem(Some(id), &refusal.problem);
        }
        drop(commands);
        wire.advance(payload.end);
        socket.done = 0;
        server.metrics().frames_in.inc();
        server.metrics().frames_out.inc_by(self.outbox.write(&mut self.output));
        self.is_answered(key, false);
        self.goes_on(key);
    }

    /// Moves a socket into a task, which continues all that was begun. The socket returns after `plain` plain commands.
    pub(super) fn leave(&mut self, key: usize, plain: u32) {
        let Some(mut member) = self.members.try_remove(key) else {
            return;
        };
        let Some(socket) = member.socket.take() else { return };
        self.leaves_queue(&member);
        let number = member.open.number;
        // Answers that were written before, and could not be sent at once, go first.
        let (mut output, charge) = member.wire.take_output();
        output.extend(self.take_written(number));
        let mut staged = VecDeque::new();
        if member.waiting > 0 {
            // The answers gathered so far belong to the oldest pending connection.
            if self.pending.front().is_some_and(|front| front.number == number) {
                self.write_messages();
                output.append(&mut self.answers);
            }
            let own = self.pending.take(socket.come, member.waiting);
            staged.extend(own.filter_map(Pending::into_staged));
        }
        let (stream, came) = member.wire.into_parts();
        let left = Left {
            came,
            skip: socket.done,
            staged,
            output,
            charge,
            hello: false,
            plain,
        };
        self.leaving
            .push(Departure::Socket(member.open, stream, socket.opened, left));
    }
}

/// The obstacle to executing a frame's next message.
enum Stop {
    /// The message is no command, or cannot be read.
    Odd,
    /// The command has no place in this batch, or the fast path does not execute it.
    NotNow,
    /// The command before it has to wait before it is executed.
    Waits,
}

impl Pending {
    fn into_staged(self) -> Option<Staged> {
        let staged = self.staged;
        self.id.map(|id| Staged { id, staged })
    }
}

/// Returns the messages of a frame after the first `done`, if all are commands.
fn commands(text: &str, done: usize, most: usize) -> Option<Vec<(Id, CommandMessage<'_>)>> {
    let messages = message::messages(text, most).ok()?.skip(done);
    let commands = messages.map(|(id, message)| match (id, message) {
        (Some(id), Ok(Message::Command(command))) => Some((id, command)),
        _ => None,
    });
    commands.collect()
}
