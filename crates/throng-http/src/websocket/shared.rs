//! The state that the tasks of one socket share.

use super::{CREDIT_MAX, OUTBOX_BYTES_MAX, message::Id, opened::Staged, outbox::Outbox};
use crate::{
    access_log::Entry,
    answer::Reply,
    connection::Connection,
    metrics::Route,
    problem::{Answered, Problem},
    server::Server,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::StatusCode;
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Instant,
};
use throng::driver::Charge;
use tokio::{sync::Notify, task::AbortHandle};

/// The state that the tasks of one socket share.
pub(super) struct Shared {
    pub(super) server: Rc<Server>,
    pub(super) connection: Rc<Connection>,
    pub(super) out: RefCell<Outbox>,
    /// The charge for events and large answers in it, and in the frame that leaves.
    pub(super) told: RefCell<Charge>,
    /// Some of it has left.
    pub(super) left: Notify,
    pub(super) subscriptions: RefCell<HashMap<Id, Subscription>>,
    /// Executed commands, in order, whose answers wait for their commits.
    pub(super) staged: RefCell<VecDeque<Staged>>,
    /// The number of answered commands. Only [`settle`](Self::settle) raises it.
    pub(super) answered: Cell<u64>,
    /// Notified when commands were answered.
    pub(super) settled: Notify,
    /// Queries that wait.
    pub(super) asking: RefCell<FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>>>,
    /// The number of requests without an answer so far.
    pub(super) in_flight: Cell<usize>,
    /// True if anything has arrived since the last ping. The reader sets it; the pinger clears it.
    pub(super) alive: Cell<bool>,
    /// The number of further commands that wait for nothing after which the socket returns to the fast path.
    pub(super) plain: Cell<u32>,
    /// True while messages are being executed; nothing is read meanwhile.
    pub(super) executes: Cell<bool>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// A query, until it is answered.
pub(super) struct Asked {
    pub(super) id: Id,
    pub(super) arrived: Option<Instant>,
    pub(super) log: Option<Box<Entry>>,
}

/// Credit, as the client grants it.
#[derive(Default)]
pub(super) struct Credit {
    pub(super) left: Cell<u32>,
    pub(super) granted: Notify,
}

impl Credit {
    /// Adds to the credit, up to the maximum; the rest is not granted.
    pub(super) fn grant(&self, events: u32) {
        self.left.set(self.left.get().saturating_add(events).min(CREDIT_MAX));
        self.granted.notify_one();
    }
}

/// A socket's subscription, which ends when this is dropped.
pub(super) struct Subscription {
    pub(super) credit: Rc<Credit>,
    pub(super) task: AbortHandle,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Adds the answers of executed commands, in order, as far as they may leave.
    pub(super) fn settle(&self, context: &mut Context<'_>) {
        let mut staged = self.staged.borrow_mut();
        let before = self.answered.get();
        while let Some(front) = staged.front_mut() {
            let Poll::Ready(settled) = front.staged.poll_answer(&self.server, context) else {
                break;
            };
            match settled {
                Ok(Reply { body, charge, .. }) => {
                    self.out.borrow_mut().reply(&front.id, &body);
                    self.hold(charge);
                }
                Err(problem) => self.out.borrow_mut().problem(Some(&front.id), &problem),
            }
            staged.pop_front();
            self.in_flight.set(self.in_flight.get() - 1);
            self.answered.set(self.answered.get() + 1);
        }
        if self.answered.get() > before {
            self.settled.notify_waiters();
        }
    }

    /// Returns the number of executed commands, answered or not.
    pub(super) fn executed(&self) -> u64 {
        self.answered.get() + self.staged.borrow().len() as u64
    }

    /// Waits until this many commands are answered, successfully or not. Each is answered in time.
    pub(super) async fn answered(&self, commands: u64) {
        loop {
            let settled = self.settled.notified();
            if self.answered.get() >= commands {
                return;
            }
            settled.await;
        }
    }

    /// Continues the waiting queries.
    pub(super) fn ask_on(&self, context: &mut Context<'_>) {
        let mut asking = self.asking.borrow_mut();
        while !asking.is_empty() && asking.poll_next_unpin(context).is_ready() {}
    }

    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut own = self.waker.borrow_mut();
        if !own.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *own = Some(waker.clone());
        }
    }

    /// Gathers a message, and has it sent.
    pub(super) fn tell(&self, tell: impl FnOnce(&mut Outbox)) {
        tell(&mut self.out.borrow_mut());
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Waits until no more than this many bytes wait for the client.
    pub(super) async fn room(&self, bytes: usize) {
        loop {
            let left = self.left.notified();
            if self.out.borrow().bytes() <= bytes {
                return;
            }
            left.await;
        }
    }

    /// True if there is room to read one more request.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.get() < self.server.limits().socket_requests_max && self.takes_answers()
    }

    /// Not too much waits for the client to read it.
    pub(super) fn takes_answers(&self) -> bool {
        self.out.borrow().bytes() <= OUTBOX_BYTES_MAX
    }

    /// True if nothing is read until earlier requests are finished, so that the client's silence is not its fault.
    pub(super) fn is_busy(&self) -> bool {
        self.takes_answers() && (self.executes.get() || !self.has_room())
    }

    /// True if everything is answered.
    pub(super) fn is_done(&self) -> bool {
        self.in_flight.get() == 0 && self.out.borrow().is_empty()
    }

    /// The fast path may look after the socket.
    pub(super) fn is_plain(&self) -> bool {
        let is_at_rest = !self.executes.get() && self.is_done() && self.subscriptions.borrow().is_empty();
        is_at_rest && self.plain.get() == 0 && self.alive.get()
    }

    pub(super) fn refuse(&self, id: Option<&Id>, problem: &Problem) {
        self.server.metrics().problem(problem.slug());
        self.out.borrow_mut().problem(id, problem);
    }

    /// Holds the memory of messages to the client until they have left.
    pub(super) fn hold(&self, charge: Option<Charge>) {
        if let Some(charge) = charge {
            self.told.borrow_mut().join(charge);
        }
    }

    pub(super) fn answer(&self, asked: Asked, answered: Answered<Vec<u8>>) {
        let answered = answered.and_then(|body| {
            self.hold(self.server.charge(body.len())?);
            Ok(body)
        });
        let status = match &answered {
            Ok(body) => {
                self.out.borrow_mut().reply(&asked.id, body);
                StatusCode::OK
            }
            Err(problem) => {
                self.refuse(Some(&asked.id), problem);
                problem.http_status()
            }
        };
        let took = asked.arrived.map(|arrived| arrived.elapsed());
        self.server.metrics().answered(Route::Query, status, took);
        if let Some(entry) = asked.log {
            match &answered {
                Ok(_) => entry.answered(&self.server, status, took),
                Err(problem) => entry.refused(&self.server, problem, took),
            }
        }
    }

    /// Returns the entry of a message for the access log, if it is to be logged.
    pub(super) fn log(&self, message: &str, parts: &[&str]) -> Option<Box<Entry>> {
        let is_logged = self.server.logs_next();
        is_logged.then(|| Entry::message(&self.connection, message, parts))
    }

    /// Logs a message that is already answered, or was refused.
    pub(super) fn logged(&self, entry: Option<Box<Entry>>, refused: Option<&Problem>) {
        if let Some(entry) = entry {
            match refused {
                None => entry.answered(&self.server, StatusCode::OK, None),
                Some(problem) => entry.refused(&self.server, problem, None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_adds_up_to_its_most() {
        let credit = Credit::default();
        credit.grant(7);
        credit.grant(3);
        assert_eq!(credit.left.get(), 10);
        credit.grant(u32::MAX);
        assert_eq!(credit.left.get(), CREDIT_MAX);
    }
}
