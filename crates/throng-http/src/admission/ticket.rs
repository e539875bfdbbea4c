//! A place in the queue, and a place in a batch.

use super::{Client, clock::Clock, queue::Entry};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::Waker,
    time::Instant,
};

/// The most requests of one connection that are admitted with its first in a batch, and their bytes.
const TOGETHER: (usize, usize) = (31, 64 << 10);

/// A connection's place in a batch. Requests that were sent together are admitted together. If each had to wait for another batch, a loop
/// that is just saturated would make a batch and a commit for every few.
#[derive(Default)]
pub(crate) struct BatchSlot {
    /// The batch's number; 0 if the connection has no place.
    batch: Cell<u64>,
    /// Requests and bytes that may still go.
    left: Cell<(usize, usize)>,
    arrived: Cell<Option<Instant>>,
    /// The time when the connection got the place, until its first request goes.
    now: Cell<Option<Instant>>,
}

/// A request may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    /// The earliest time when the request can have arrived.
    pub(crate) arrived: Instant,
    pub(crate) now: Instant,
}

impl BatchSlot {
    /// Gives the connection its place in the open batch.
    pub(super) fn take(&self, open: Option<u64>, times: Admitted) {
        self.batch.set(open.unwrap_or(0));
        self.left.set((TOGETHER.0 + 1, usize::MAX));
        self.arrived.set(Some(times.arrived));
        self.now.set(Some(times.now));
    }

    /// Does the same for an admitted request of this many bytes.
    pub(super) fn take_for(&self, open: Option<u64>, times: Admitted, bytes: usize, clock: &impl Clock) -> Admitted {
        self.take(open, times);
        self.go(open, bytes, clock).unwrap_or(times)
    }

    /// Admits another request, if the place is in the open batch and has room for it. The first one needs no look at the clock.
    pub(super) fn go(&self, open: Option<u64>, bytes: usize, clock: &impl Clock) -> Option<Admitted> {
        let (requests, room) = self.left.get();
        if open != Some(self.batch.get()) || requests == 0 || bytes > room {
            return None;
        }
        // The first may be as large as it is.
        self.left
            .set((requests - 1, room.min(TOGETHER.1.saturating_add(bytes)) - bytes));
        Some(Admitted {
            arrived: self.arrived.get()?,
            now: self.now.take().unwrap_or_else(|| clock.now()),
        })
    }

    /// Returns the arrival of the bytes that the connection has read in this batch.
    pub(super) fn arrived_in(&self, batch: u64) -> Option<Instant> {
        self.arrived.get().filter(|_| self.batch.get() == batch)
    }
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The request would wait too long.
    Overload,
    /// The client's requests fill its share of the queue.
    Share,
}

pub(super) enum Waiter {
    /// A connection that is not read while it waits, by its key.
    Connection(usize),
    /// A task with a request.
    Task(RefCell<Option<Waker>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    Waits,
    /// To be refused, soon.
    Excess(Reason),
    Goes,
    Refused(Reason),
    /// The request has left the queue before its batch.
    Gone,
}

/// A place in the queue.
pub(crate) struct Ticket {
    pub(super) waiter: Waiter,
    pub(super) client: Client,
    /// The earliest time when its request can have arrived.
    pub(super) arrived: Instant,
    pub(super) state: Cell<TicketState>,
}

impl Ticket {
    pub(super) fn new(waiter: Waiter, client: Client, arrived: Instant) -> Rc<Self> {
        Rc::new(Self {
            waiter,
            client,
            arrived,
            state: Cell::new(TicketState::Waits),
        })
    }

    /// Returns the key of a waiting connection; a task is woken instead.
    pub(super) fn call(&self) -> Option<usize> {
        match &self.waiter {
            Waiter::Connection(key) => Some(*key),
            Waiter::Task(waker) => {
                if let Some(waker) = waker.borrow_mut().take() {
                    waker.wake();
                }
                None
            }
        }
    }
}

impl Entry for Rc<Ticket> {
    fn is_gone(&self) -> bool {
        self.state.get() == TicketState::Gone
    }

    fn is_task(&self) -> bool {
        matches!(self.waiter, Waiter::Task(_))
    }

    fn may_wait(&self) -> bool {
        self.state.get() == TicketState::Excess(Reason::Overload)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::clock::ThreadClock, *};

    fn times() -> Admitted {
        let now = Instant::now();
        Admitted { arrived: now, now }
    }

    #[test]
    fn requests_sent_together_go_in_one_turn() {
        let place = BatchSlot::default();
        let go = |batch, bytes| place.go(Some(batch), bytes, &ThreadClock).is_some();
        assert!(!go(1, 0), "it has none yet");
        place.take(Some(1), times());
        assert!(go(1, 1 << 20), "the first may be as large as it is");
        for _ in 0..TOGETHER.0 {
            assert!(go(1, 1));
        }
        assert!(!go(1, 1), "it has had as many as go together");
        place.take(Some(2), times());
        assert!(go(2, 1) && go(2, TOGETHER.1));
        assert!(!go(2, 1), "and as many bytes");
        place.take(Some(3), times());
        assert!(!go(4, 0), "that batch is over");
    }

    #[test]
    fn a_place_counts_only_while_its_turn_is_open() {
        let place = BatchSlot::default();
        place.take(Some(1), times());
        assert!(place.go(Some(1), 0, &ThreadClock).is_some());
        assert!(place.go(None, 0, &ThreadClock).is_none());
        place.take(None, times());
        for open in [None, Some(1), Some(2)] {
            assert!(place.go(open, 0, &ThreadClock).is_none(), "{open:?}");
        }
    }
}
