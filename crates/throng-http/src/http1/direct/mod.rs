//! The task of a loop that serves all plain connections.
//!
//! In a batch the task reads each ready connection and executes its requests. Answers that depend on nothing new are sent together. The
//! loop's committer runs after it and makes the records durable. Then the other answers are sent, in the order of their requests. Meanwhile
//! a connection is an entry in a table, and its answer one in a queue: no task is woken or scheduled for a request. A request that waits
//! for more, such as an app's handler, is the [work](work::Work) of its entry. Its answer is sent with those of the pass in which it is
//! made.

mod answers;
mod queue;
mod requests;
mod sockets;
mod waiting;
mod work;

use super::{
    TOGETHER_MAX,
    calls::{BATCH, COMMIT, Calls},
    refusal::Refusals,
    wire::Wire,
};
use crate::{
    admission::Ticket,
    connection::{OpenConnection, Stream, Verdict},
    routes,
    server::Server,
    websocket::{self, Left, Opened, Outbox},
};
use bytes::Bytes;
use queue::Queue;
use slab::Slab;
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    vec,
};
use throng::driver::Charge;
use work::Work;

/// The queue through which connections enter the fast path.
#[derive(Default)]
pub(crate) struct Intake {
    came: RefCell<Vec<Newcomer>>,
    calls: Arc<Calls>,
}

/// A connection that leaves the fast path.
pub(crate) enum Departure {
    /// The next request is not plain; these bytes of it have arrived.
    Full(OpenConnection, Stream, Bytes),
    /// The WebSocket sends something other than commands, or its commands have to wait.
    Socket(OpenConnection, Stream, Opened, Left),
}

struct Newcomer {
    open: OpenConnection,
    wire: Wire,
    /// If it is a WebSocket.
    socket: Option<Box<Socket>>,
}

impl Intake {
    /// Adds a connection to the fast path.
    pub(crate) fn enter(&self, open: OpenConnection, wire: Wire) {
        let socket = None;
        self.enters(Newcomer { open, wire, socket });
    }

    /// Does the same for a WebSocket.
    pub(crate) fn enter_socket(&self, open: OpenConnection, wire: Wire, opened: websocket::Opened) {
        let socket = Some(Socket::new(opened));
        self.enters(Newcomer { open, wire, socket });
    }

    fn enters(&self, newcomer: Newcomer) {
        self.came.borrow_mut().push(newcomer);
        self.calls.wake();
    }
}

/// A WebSocket among the connections of the fast path.
pub(in crate::http1) struct Socket {
    opened: Opened,
    /// The messages of the current frame that are done with.
    done: usize,
    /// The position in the queue after its last command, by which its commands are found again.
    come: u64,
}

impl Socket {
    fn new(opened: Opened) -> Box<Self> {
        Box::new(Self {
            opened,
            done: 0,
            come: 0,
        })
    }
}

pub(super) struct ConnectionSlot {
    pub(super) wire: Wire,
    pub(super) open: OpenConnection,
    pub(super) waker: Waker,
    /// The state of its WebSocket, if it is one.
    pub(in crate::http1) socket: Option<Box<Socket>>,
    /// True if the waker is registered to be called when there is something to read.
    pub(super) is_armed: bool,
    /// Commands whose answers wait for their commit.
    pub(super) waiting: usize,
    /// Its first request waits for more than its commit.
    pub(in crate::http1) work: Option<Box<Work>>,
    /// The charge for its next request's body, which arrived in pieces and is complete. That request is in flight.
    pub(super) body: Option<Charge>,
    /// The pass in which it got an answer that leaves at the end of that pass.
    answered_in: u64,
    /// Its place in the queue of admission, while it waits.
    pub(super) ticket: Option<Rc<Ticket>>,
    /// True if its next request may be one that always has a place: it is new, or its last one was such.
    pub(super) may_be_urgent: bool,
}

impl ConnectionSlot {
    /// True while earlier requests are not answered yet.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting > 0 || self.work.is_some()
    }
}

/// A command that was executed.
struct Pending {
    key: usize,
    /// The connection's unique number: another connection may have its key by the time of the answer.
    number: u64,
    /// The id that a WebSocket's client gave the command.
    id: Option<websocket::message::Id>,
    staged: routes::Staged,
    /// True if the answers of its connection are sent with this one.
    is_last: bool,
    /// The connection closes after it.
    closes: bool,
}

pub(super) struct Direct {
    pub(super) server: Rc<Server>,
    intake: Rc<Intake>,
    /// The connections that have left the fast path in this batch.
    leaving: Vec<Departure>,
    pub(super) members: Slab<ConnectionSlot>,
    pending: Queue<Pending>,
    /// True if the commit's wake-up was requested.
    is_called: bool,
    commit: Waker,
    /// True if the wake-up for the next batch was requested.
    is_next_called: bool,
    next_batch: Waker,
    pub(super) calls: Arc<Calls>,
    pub(super) refusals: Refusals,
    /// The answers of the connection with the oldest pending command.
    answers: Vec<u8>,
    /// The same, if it is a WebSocket.
    outbox: Outbox,
    /// Connections that were answered between two batches and have sent more: they continue in the next.
    going_on: Vec<usize>,
    /// Answers to requests that waited for nothing. They are sent together, so that a sleeping client is woken once.
    pub(super) output: Vec<u8>,
    /// The connections of these answers, in order. Answers of one connection are consecutive.
    done: Vec<Done>,
    /// Counts the times they have left.
    pass: u64,
}

/// The answer to a request that waited for nothing.
struct Done {
    key: usize,
    number: u64,
    /// The end of the answer in the output.
    end: usize,
    closes: bool,
}

/// Serves the connections of a loop's fast path for ever. Connections that leave it are passed to `leave`.
pub(crate) async fn run(server: Rc<Server>, intake: Rc<Intake>, leave: impl Fn(Departure)) {
    let mut direct = Direct::new(server, intake);
    let mut keys = Vec::new();
    // Admission bounds a batch, not a count of socket calls.
    tokio::task::coop::unconstrained(poll_fn(move |context| {
        direct.batch(&mut keys, context);
        direct.leaving.drain(..).for_each(&leave);
        Poll::Pending
    }))
    .await
}

impl Direct {
    fn new(server: Rc<Server>, intake: Rc<Intake>) -> Self {
        let calls = intake.calls.clone();
        Self {
            server,
            intake,
            leaving: Vec::new(),
            members: Slab::new(),
            pending: Queue::new(),
            is_called: false,
            commit: calls.waker(COMMIT),
            is_next_called: false,
            next_batch: calls.waker(BATCH),
            calls,
            refusals: Refusals::default(),
            answers: Vec::new(),
            outbox: Outbox::default(),
            going_on: Vec::new(),
            output: Vec::new(),
            done: Vec::new(),
            pass: 1,
        }
    }

    fn batch(&mut self, keys: &mut Vec<usize>, context: &Context<'_>) {
        let server = self.server.clone();
        self.calls.take(keys, context.waker());
        server.admission.driven_by(context.waker());
        if keys.contains(&COMMIT) {
            self.is_called = false;
            self.settle();
        }
        if keys.contains(&BATCH) {
            self.is_next_called = false;
        }
        // While requests wait, the loop looks at its sockets between two batches.
        if !self.is_next_called || !server.admission.is_open() {
            server.admission.begin_batch();
        }
        let mut going_on = std::mem::take(&mut self.going_on);
        going_on.drain(..).for_each(|key| self.is_ready(key));
        self.going_on = going_on;
        for newcomer in self.intake.came.take() {
            let key = self.take_in(newcomer);
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
        if server.admission.end_batch() && !self.is_next_called {
            self.is_next_called = true;
            // The task runs again once the loop has looked at its sockets.
            let mut context = Context::from_waker(&self.next_batch);
            let _ = pin!(tokio::task::yield_now()).poll(&mut context);
        }
    }

    fn take_in(&mut self, newcomer: Newcomer) -> usize {
        let Newcomer { open, wire, socket } = newcomer;
        let place = self.members.vacant_entry();
        let key = place.key();
        let waker = self.calls.waker(key);
        open.connection.set_waker(&waker);
        open.connection.asks_if_silent(socket.is_some());
        place.insert(ConnectionSlot {
            wire,
            open,
            waker,
            is_armed: false,
            waiting: 0,
            work: None,
            body: None,
            answered_in: 0,
            ticket: None,
            may_be_urgent: socket.is_none(),
            socket,
        });
        key
    }

    /// Serves a connection. A panic ends only this one.
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
        // Requests that came before the client's end are answered.
        self.send_done();
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        // Bytes that could not be sent at once are still sent.
        if member.open.connection.verdict() != Verdict::Drop
            && let Some(Work::Flush { closes, then: None }) = member.work.as_deref_mut()
        {
            *closes = true;
            return;
        }
        if let Some(member) = self.members.try_remove(key) {
            self.leaves_queue(&member);
        }
    }

    fn leaves_queue(&self, member: &ConnectionSlot) {
        if let Some(ticket) = &member.ticket {
            self.server.admission.leave(ticket);
        }
    }

    /// Ends a connection whose last answer was sent.
    pub(super) fn linger(&mut self, key: usize) {
        if let Some(member) = self.members.try_remove(key) {
            self.leaves_queue(&member);
            let wait = self.server.limits().linger_wait;
            tokio::task::spawn_local(member.open.linger(member.wire.into_parts().0, wait));
        }
    }

    /// Passes a connection on whose next request is not for the fast path, after earlier requests are answered.
    pub(super) fn departs(&mut self, key: usize) {
        self.send_done();
        // Its last answer may not have been sent at once; then it comes here again.
        if self.members.get(key).is_none_or(ConnectionSlot::is_busy) {
            return;
        }
        let Some(mut member) = self.members.try_remove(key) else {
            return;
        };
        self.leaves_queue(&member);
        if member.body.take().is_some() {
            member.open.connection.ends();
        }
        let (stream, came) = member.wire.into_parts();
        self.leaving.push(Departure::Full(member.open, stream, came));
    }

    /// Removes the written answers of a connection from the output, so that they are not sent with the others. They must be the last of the
    /// output.
    fn take_written(&mut self, number: u64) -> vec::Drain<'_, u8> {
        while self.done.pop_if(|done| done.number == number).is_some() {}
        let begin = self.done.last().map_or(0, |done| done.end);
        self.output.drain(begin..)
    }

    /// Does everything possible for a connection now.
    fn step(&mut self, key: usize) {
        for _ in 0..TOGETHER_MAX {
            let Some(other) = self.next(key) else { return };
            if !self.answer(key, other) {
                return;
            }
        }
        // There is more, but other connections should not wait for it.
        self.calls.call(key);
    }
}
