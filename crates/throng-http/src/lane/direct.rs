//! Connections whose requests wait for nothing but their commit: one task of the loop looks after all of them.
//!
//! A turn: what is ready is read and executed in place, one connection after the other; answers that rest on nothing new
//! leave together; the loop's committer, which runs behind, makes the records durable; then the other answers go out, in the
//! order of their requests. Between the two a connection is a place in a table and its answer one in a queue: no task is
//! woken for a request, none is scheduled.

use super::{
    TOGETHER_MAX, Work,
    calls::{COMMIT, Calls, TURN},
    next::{Command, Else, Next, Other, look},
    outgoing::{OUTPUT_BYTES_MAX, Outgoing, Written},
    refusal::Refusals,
    response,
    wire::{ReadOutcome, Wire},
};
use crate::{
    connection::Verdict,
    event_loop::{self, EventLoop, OpenConnection, serve},
    gate::Ticket,
    request::headers,
    routes::{self, Answered, Asked},
};
use slab::Slab;
use std::{
    cell::RefCell,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

/// Where connections come in.
#[derive(Default)]
pub(crate) struct Door {
    came: RefCell<Vec<(OpenConnection, Wire)>>,
    calls: Arc<Calls>,
}

impl Door {
    /// A connection becomes direct.
    pub(crate) fn enter(&self, open: OpenConnection, wire: Wire) {
        self.came.borrow_mut().push((open, wire));
        self.calls.wake();
    }
}

pub(super) struct Member {
    pub(super) wire: Wire,
    pub(super) open: OpenConnection,
    pub(super) waker: Waker,
    /// It calls when there is something to read.
    pub(super) is_armed: bool,
    /// Commands whose answers wait for their commit.
    pub(super) waiting: usize,
    /// The pass in which it got an answer that leaves at the end of that pass.
    answered_in: u64,
    /// It waits for its turn.
    pub(super) ticket: Option<Rc<Ticket>>,
    /// Its next request may be one that always has a place: it is new, or its last one was such.
    pub(super) may_be_urgent: bool,
}

/// A command that was executed.
struct Pending {
    key: usize,
    /// The connection's own number: its key may be another's by the time it is answered.
    number: u64,
    staged: routes::Staged,
    /// The answers of its connection leave with this one.
    is_last: bool,
    /// The connection closes after it.
    closes: bool,
}

pub(super) struct Direct {
    pub(super) event_loop: Rc<EventLoop>,
    pub(super) members: Slab<Member>,
    /// In the order of execution.
    pending: VecDeque<Pending>,
    /// The commit's call is asked for.
    is_called: bool,
    commit: Waker,
    /// The next turn's call is asked for.
    is_next_called: bool,
    next_turn: Waker,
    pub(super) calls: Arc<Calls>,
    pub(super) refusals: Refusals,
    /// Answers of the connection whose first is the oldest pending.
    answers: Vec<u8>,
    /// Answers to requests that waited for nothing: they leave together, so that a client that sleeps is woken once.
    pub(super) output: Vec<u8>,
    /// Whose they are, in order; those of one connection follow each other.
    done: Vec<Done>,
    /// Counts the times they have left.
    pass: u64,
}

/// The answer to a request that waited for nothing.
struct Done {
    key: usize,
    number: u64,
    /// Where it ends in the output.
    end: usize,
    closes: bool,
}

/// Looks after the direct connections of a loop, for ever.
pub(crate) async fn run(event_loop: Rc<EventLoop>) {
    let mut direct = Direct::new(event_loop);
    let mut keys = Vec::new();
    // A turn is bounded by the gate, not by a count of socket calls.
    tokio::task::coop::unconstrained(poll_fn(move |context| {
        direct.turn(&mut keys, context);
        Poll::Pending
    }))
    .await
}

impl Direct {
    fn new(event_loop: Rc<EventLoop>) -> Self {
        let calls = event_loop.door.calls.clone();
        Self {
            event_loop,
            members: Slab::new(),
            pending: VecDeque::new(),
            is_called: false,
            commit: calls.waker(COMMIT),
            is_next_called: false,
            next_turn: calls.waker(TURN),
            calls,
            refusals: Refusals::default(),
            answers: Vec::new(),
            output: Vec::new(),
            done: Vec::new(),
            pass: 1,
        }
    }

    fn turn(&mut self, keys: &mut Vec<usize>, context: &Context<'_>) {
        let event_loop = self.event_loop.clone();
        self.calls.take(keys, context.waker());
        event_loop.server.gate.driven_by(context.waker());
        if keys.contains(&COMMIT) {
            self.is_called = false;
            self.settle();
        }
        if keys.contains(&TURN) {
            self.is_next_called = false;
        }
        // While some wait, the sockets are looked at between two turns.
        if !self.is_next_called {
            event_loop.server.gate.begin_turn();
        }
        for (open, wire) in event_loop.door.came.take() {
            let key = self.take_in(open, wire);
            self.is_ready(key);
        }
        for key in keys.drain(..) {
            if let Some(member) = self.members.get_mut(key) {
                member.is_armed = false;
                self.is_ready(key);
            }
        }
        self.work_off_queue();
        self.send_done();
        if !self.is_called {
            self.settle();
            self.send_done();
        }
        if event_loop.server.gate.end_turn() && !self.is_next_called {
            self.is_next_called = true;
            // It is woken when the loop has looked at its sockets.
            let mut context = Context::from_waker(&self.next_turn);
            let _ = pin!(tokio::task::yield_now()).poll(&mut context);
        }
    }

    fn take_in(&mut self, open: OpenConnection, wire: Wire) -> usize {
        let place = self.members.vacant_entry();
        let key = place.key();
        let waker = self.calls.waker(key);
        open.connection.set_waker(&waker);
        place.insert(Member {
            wire,
            open,
            waker,
            is_armed: false,
            waiting: 0,
            answered_in: 0,
            ticket: None,
            may_be_urgent: true,
        });
        key
    }

    /// A panic ends one connection, not all.
    pub(super) fn look_after(&mut self, key: usize) {
        self.guarded(key, Self::step);
    }

    pub(super) fn guarded(&mut self, key: usize, work: impl FnOnce(&mut Self, usize)) {
        if catch_unwind(AssertUnwindSafe(|| work(self, key))).is_err() {
            tracing::error!("the gateway panicked over a request; its connection is closed");
            self.output.truncate(self.done.last().map_or(0, |done| done.end));
            self.end(key);
        }
    }

    pub(super) fn end(&mut self, key: usize) {
        // What was asked before the client said all it will is answered.
        self.send_done();
        if let Some(member) = self.members.try_remove(key) {
            self.leaves_queue(&member);
        }
    }

    fn leaves_queue(&self, member: &Member) {
        if let Some(ticket) = &member.ticket {
            self.event_loop.server.gate.leave(ticket);
        }
    }

    /// The connection becomes a task of its own, and takes along what has not left yet.
    pub(super) fn hand_over(&mut self, key: usize, work: Work) {
        if let Some(mut member) = self.members.try_remove(key) {
            self.leaves_queue(&member);
            let number = member.open.number;
            while self.done.pop_if(|done| done.number == number).is_some() {}
            let begin = self.done.last().map_or(0, |done| done.end);
            if begin < self.output.len() {
                member.wire.output().extend_from_slice(&self.output[begin..]);
                self.output.truncate(begin);
            }
            tokio::task::spawn_local(serve(member.open, member.wire, work));
        }
    }

    /// Does all that can be done for a connection now.
    fn step(&mut self, key: usize) {
        for _ in 0..TOGETHER_MAX {
            let Some(other) = self.next(key) else { return };
            if !self.answer(key, other) {
                return;
            }
        }
        // It has more than others should wait for.
        self.calls.call(key);
    }

    /// Reads and executes what a connection asks for, up to a request that is no command.
    fn next(&mut self, key: usize) -> Option<Other> {
        let member = self.members.get_mut(key)?;
        let connection = &member.open.connection;
        if connection.verdict() == Verdict::Drop {
            self.end(key);
            return None;
        }
        // What it asked before is answered first.
        if member.waiting > 0 {
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
                    let Command {
                        path,
                        place,
                        sender,
                        headers,
                        body,
                        end,
                        closes,
                    } = command;
                    let asked = Asked {
                        path,
                        place,
                        headers: &headers,
                        sender,
                    };
                    let Some(staged) = routes::try_now(&self.event_loop.server, connection, &asked, body) else {
                        break;
                    };
                    if member.waiting == 0 {
                        connection.begins();
                    }
                    member.waiting += 1;
                    member.may_be_urgent = false;
                    member.wire.advance(end);
                    // What was asked behind one that has to wait is executed after it.
                    let waits = staged.waits();
                    if waits && member.waiting == 1 {
                        connection.ends();
                        self.hand_over(key, Work::Settle(vec![staged], closes));
                        return None;
                    }
                    let is_last = closes || waits || member.wire.input.is_empty();
                    self.pending.push_back(Pending {
                        key,
                        number: member.open.number,
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
        } else if let Some(last) = self.pending.back_mut() {
            // What comes next waits until these are answered.
            last.is_last = true;
        }
        None
    }

    /// Answers a request for any other route; `false`: the connection is not direct any more.
    fn answer(&mut self, key: usize, other: Other) -> bool {
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
        // Whoever waits is asked again at once, by a task that can be woken.
        let mut nobody = Context::from_waker(Waker::noop());
        let handled = if says_timeout {
            Err(request)
        } else {
            routes::handle_now(&server, &connection, request)
        };
        let answer: Result<_, Pin<Box<dyn Future<Output = _>>>> = match handled {
            Ok(mut handling) => match handling.poll(&server, &mut nobody) {
                Poll::Ready(response) => Ok(response),
                Poll::Pending => Err(Box::pin(poll_fn(move |context| handling.poll(&server, context)))),
            },
            Err(request) => {
                let connection = connection.clone();
                let mut answer = Box::pin(async move { routes::answer(&server, &connection, *request).await });
                match answer.as_mut().poll(&mut nobody) {
                    Poll::Ready(response) => Ok(response),
                    Poll::Pending => Err(answer),
                }
            }
        };
        let work = match answer {
            Err(answer) => Work::Answer(answer, closes),
            Ok(response) => {
                let mut outgoing = Outgoing::begin(&self.event_loop, &connection, response, closes, &mut self.output);
                match outgoing.poll(&mut self.output, &mut nobody) {
                    Poll::Ready(Ok(Written::All)) => {
                        self.is_answered(key, outgoing.closes);
                        return !outgoing.closes;
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::debug!("a connection ended early: {error}");
                        self.output.truncate(self.done.last().map_or(0, |done| done.end));
                        self.end(key);
                        return false;
                    }
                    // What is written of it goes along.
                    Poll::Ready(Ok(Written::Full)) | Poll::Pending => Work::Respond(outgoing),
                }
            }
        };
        connection.ends();
        self.hand_over(key, work);
        false
    }

    /// A request that waited for nothing has its whole answer in the output.
    pub(super) fn is_answered(&mut self, key: usize, closes: bool) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        member.open.connection.ends();
        member.answered_in = self.pass;
        self.done.push(Done {
            key,
            number: member.open.number,
            end: self.output.len(),
            closes,
        });
        // A small answer always finds room: it is no reason to become a task.
        if closes || self.output.len() > OUTPUT_BYTES_MAX / 2 {
            self.send_done();
        }
    }

    /// Before a connection is answered once more in a pass in which others were answered since: sends what there is.
    pub(super) fn send_done_of_others(&mut self, key: usize) -> bool {
        let is_split = self.members.get(key).is_some_and(|member| {
            member.answered_in == self.pass && self.done.last().is_some_and(|last| last.number != member.open.number)
        });
        if is_split {
            self.send_done();
        }
        is_split
    }

    /// Sends the answers to requests that waited for nothing.
    pub(super) fn send_done(&mut self) {
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
        output.clear();
        done.clear();
        (self.output, self.done) = (output, done);
    }

    /// Sends a connection's answers; `false`: it is not direct any more.
    fn send(&mut self, key: usize, bytes: &[u8], closes: bool) -> bool {
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        match member.wire.send(bytes) {
            Ok(count) if count == bytes.len() && !member.wire.has_backlog() => {
                if closes && let Some(member) = self.members.try_remove(key) {
                    self.leaves_queue(&member);
                    tokio::task::spawn_local(event_loop::end(member.open, member.wire.into_parts().0));
                }
                !closes
            }
            Ok(count) => {
                member.wire.output().extend_from_slice(&bytes[count..]);
                self.hand_over(key, Work::Flush(closes));
                false
            }
            Err(error) => {
                tracing::debug!("a connection ended early: {error}");
                self.end(key);
                false
            }
        }
    }

    /// Answers what is durable, and asks to be called for the rest.
    fn settle(&mut self) {
        let now = Instant::now();
        while let Some(front) = self.pending.front_mut() {
            let Some(settled) = front.staged.answer_now(&self.event_loop.server, now) else {
                if front.staged.wake_at(&self.commit) {
                    self.is_called = true;
                    return;
                }
                if front.staged.is_waited_for() {
                    self.hand_over_front();
                }
                continue;
            };
            if let Some(front) = self.pending.pop_front() {
                self.answered(front, settled);
            }
        }
    }

    fn answered(&mut self, front: Pending, settled: Answered<Vec<u8>>) {
        let Pending {
            key,
            number,
            is_last,
            closes,
            ..
        } = front;
        let Some(member) = self.members.get_mut(key).filter(|member| member.open.number == number) else {
            self.answers.clear();
            return;
        };
        let connection = &member.open.connection;
        let closes = closes || is_last && connection.is_ending();
        match settled {
            Ok(body) => self
                .event_loop
                .date
                .with(|date| response::reply(&mut self.answers, &body, date, closes)),
            Err(problem) => {
                let mut outgoing = Outgoing::begin(
                    &self.event_loop,
                    connection,
                    problem.response(),
                    closes,
                    &mut self.answers,
                );
                // A problem is whole.
                let _ = outgoing.poll(&mut self.answers, &mut Context::from_waker(Waker::noop()));
            }
        }
        member.waiting -= 1;
        if !is_last {
            return;
        }
        connection.ends();
        let is_done = member.is_armed && member.wire.input.is_empty();
        let mut answers = std::mem::take(&mut self.answers);
        let stays = self.send(key, &answers, closes);
        answers.clear();
        self.answers = answers;
        if stays && !is_done {
            self.is_ready(key);
        }
    }

    /// The oldest pending command was forwarded and is answered elsewhere: nobody behind it waits for that.
    fn hand_over_front(&mut self) {
        let Some(first) = self.pending.pop_front() else { return };
        let (key, number, mut closes) = (first.key, first.number, first.closes);
        let mut is_last = first.is_last;
        let mut together = vec![first.staged];
        while !is_last && let Some(next) = self.pending.pop_front() {
            (is_last, closes) = (next.is_last, next.closes);
            together.push(next.staged);
        }
        let answers = std::mem::take(&mut self.answers);
        if let Some(member) = self.members.get_mut(key).filter(|member| member.open.number == number) {
            member.open.connection.ends();
            member.wire.output().extend_from_slice(&answers);
            self.hand_over(key, Work::Settle(together, closes));
        }
    }
}
