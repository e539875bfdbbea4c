//! Admission: every request passes it before anything is decided.
//!
//! A loop works in batches. Ready requests go in until the batch is full.
//! Then the engine commits, the answers leave, and the loop looks at its sockets again.
//! A request that is ready and finds no room waits in one [queue], in the order of arrival.
//! A connection waits unread, so that waiting costs nothing.
//! A task (HTTP/2, WebSocket, anything that cannot be answered in place) waits with its request.
//! The [policy] says how many may wait; further ones are refused. [Clients] have fair shares of the queue.
//!
//! A connection has one place in a batch, which counts only while that batch is open: its next request is no older than itself.
//!
//! Health, metrics and administration do not come here: they always have a place.

mod clients;
mod clock;
mod policy;
mod queue;
#[cfg(test)]
mod simulation;
mod ticket;
mod wait_times;

pub(crate) use clients::{Client, LOCAL};
pub(crate) use ticket::{Admitted, BatchSlot, Reason, Ticket};
pub(crate) use wait_times::WaitTimes;

use crate::limits::Limits;
use clients::Clients;
use clock::{Clock, ThreadClock};
use prometheus_client::metrics::gauge::Gauge;
use queue::Queue;
use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use ticket::{TicketState, Waiter};

/// The admission of one loop.
pub(crate) struct Admission<C = ThreadClock> {
    clock: C,
    queue: RefCell<Queue<Rc<Ticket>>>,
    /// The clients whose requests wait.
    clients: RefCell<Clients>,
    /// The end of the last batch. Requests that are ready later have arrived after it.
    ended: Cell<Instant>,
    /// The task that begins batches.
    driver: RefCell<Option<Waker>>,
    wait_times: Arc<WaitTimes>,
    /// The metric of waiting requests, over all loops.
    waiting: Gauge,
}

/// A request is refused.
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    /// The expected time to work off the queue.
    pub(crate) wait: Duration,
}

impl Admission {
    pub(crate) fn new(limits: &Limits, wait_times: Arc<WaitTimes>, waiting: Gauge) -> Self {
        Self::with_clock(limits, wait_times, waiting, ThreadClock)
    }
}

impl<C: Clock> Admission<C> {
    fn with_clock(limits: &Limits, wait_times: Arc<WaitTimes>, waiting: Gauge, clock: C) -> Self {
        let now = clock.now();
        Self {
            clock,
            queue: RefCell::new(Queue::new(limits, now)),
            clients: RefCell::default(),
            ended: Cell::new(now),
            driver: RefCell::default(),
            wait_times,
            waiting,
        }
    }

    /// Admits a request of this many bytes in this batch or a later one. From now on it is in the queue. The client is determined only if
    /// the request waits.
    pub(crate) fn enter<'a>(
        &'a self,
        place: &'a BatchSlot,
        bytes: usize,
        client: impl FnOnce() -> Client,
    ) -> Entering<'a, C> {
        match self.go(place, bytes) {
            Some(admitted) => Entering::Goes(admitted),
            None => Entering::Waits(Waits {
                admission: self,
                place,
                bytes,
                ticket: self.wait(Waiter::Task(RefCell::default()), client()),
            }),
        }
    }

    /// Admits a request of this many bytes, if that is possible at once.
    fn go(&self, place: &BatchSlot, bytes: usize) -> Option<Admitted> {
        if let Some(admitted) = self.enter_now(place, bytes) {
            self.queue.borrow_mut().goes_along();
            return Some(admitted);
        }
        let read_before = self.read_in_last_batch(place);
        self.open_batch();
        let arrived = read_before.unwrap_or_else(|| self.arrived());
        let mut queue = self.queue.borrow_mut();
        if !queue.goes_at_once(&self.clock) {
            return None;
        }
        queue.charge(bytes);
        let now = queue.now();
        Some(place.take_for(queue.open(), Admitted { arrived, now }, bytes, &self.clock))
    }

    /// Admits a request of this many bytes, if its connection has a place in this batch.
    pub(crate) fn enter_now(&self, place: &BatchSlot, bytes: usize) -> Option<Admitted> {
        let mut queue = self.queue.borrow_mut();
        let admitted = place.go(queue.open(), bytes, &self.clock);
        if admitted.is_some() {
            queue.charge(bytes);
        }
        admitted
    }

    /// Returns the earliest time at which a request seen now can have arrived.
    fn arrived(&self) -> Instant {
        self.wait_times.since().max(self.ended.get())
    }

    /// Returns the arrival of bytes that a connection has read in the batch that has just ended, for a task that handles them after it.
    /// `None` if the loop has looked at its sockets since.
    fn read_in_last_batch(&self, place: &BatchSlot) -> Option<Instant> {
        let last = self.queue.borrow().closed()?;
        let has_looked = self.wait_times.since() > self.ended.get();
        place.arrived_in(last).filter(|_| !has_looked)
    }

    fn take(&self, place: &BatchSlot, arrived: Instant) {
        let queue = self.queue.borrow();
        let now = queue.now();
        place.take(queue.open(), Admitted { arrived, now });
    }

    /// A batch has begun and not ended: connections have places in it.
    pub(crate) fn is_open(&self) -> bool {
        self.queue.borrow().open().is_some()
    }

    /// Begins a batch for the first task in it, and has the driver end it after all tasks that were ready.
    fn open_batch(&self) {
        if self.is_open() {
            return;
        }
        self.begin_batch();
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    fn wait(&self, waiter: Waiter, client: Client) -> Rc<Ticket> {
        let ticket = Ticket::new(waiter, client, self.arrived());
        let mut queue = self.queue.borrow_mut();
        let mut clients = self.clients.borrow_mut();
        let reason = if !clients.enter(client, queue.room()) {
            Reason::Share
        } else if queue.is_crowded() {
            clients.leave(client);
            Reason::Overload
        } else {
            self.waiting.inc();
            queue.push(ticket.clone());
            return ticket;
        };
        ticket.state.set(TicketState::Excess(reason));
        queue.refuse(ticket.clone());
        ticket
    }

    /// Counts a request that no longer waits.
    fn waited(&self, ticket: &Ticket) {
        self.waiting.dec();
        self.clients.borrow_mut().leave(ticket.client);
    }

    /// Removes a request from the queue, because its client is gone or the connection is leaving.
    pub(crate) fn leave(&self, ticket: &Ticket) {
        match ticket.state.get() {
            TicketState::Waits => {
                self.queue.borrow_mut().left();
                self.waited(ticket);
            }
            TicketState::Excess(_) => {}
            TicketState::Goes | TicketState::Refused(_) | TicketState::Gone => return,
        }
        ticket.state.set(TicketState::Gone);
    }
}

/// The part for the task that begins batches and serves connections.
impl<C: Clock> Admission<C> {
    /// Sets the waker of that task.
    pub(crate) fn driven_by(&self, waker: &Waker) {
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    /// Begins a batch. The loop has just looked at its sockets.
    pub(crate) fn begin_batch(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.begin(&self.clock);
        while let Some(ticket) = queue.pop_excess() {
            self.waited(&ticket);
            ticket.state.set(TicketState::Excess(Reason::Overload));
            queue.refuse(ticket);
        }
        while let Some(ticket) = queue.pop_recalled() {
            if self.clients.borrow_mut().enter(ticket.client, queue.room()) {
                self.waiting.inc();
                ticket.state.set(TicketState::Waits);
                queue.push(ticket);
            } else {
                ticket.state.set(TicketState::Excess(Reason::Share));
                queue.refuse(ticket);
            }
        }
    }

    /// Ends a batch: every ready request was admitted or waits. True if another batch has to begin after the next look at the sockets.
    pub(crate) fn end_batch(&self) -> bool {
        self.ended.set(self.clock.now());
        self.queue.borrow_mut().end()
    }

    /// Notes that the loop has looked at its sockets at that time, between batches. Requests that are ready later have arrived after it.
    pub(crate) fn looked(&self, then: Instant) {
        self.wait_times.looked(then);
    }

    /// Gives a ready connection its place in this batch; `false`: it has to [wait](Self::wait_unread).
    pub(crate) fn goes_at_once(&self, place: &BatchSlot) -> bool {
        let goes = self.queue.borrow_mut().goes_at_once(&self.clock);
        if goes {
            self.take(place, self.arrived());
        }
        goes
    }

    /// A connection waits, unread.
    pub(crate) fn wait_unread(&self, key: usize, client: Client) -> Rc<Ticket> {
        self.wait(Waiter::Connection(key), client)
    }

    /// Returns the next connection that is admitted in this batch, and wakes the tasks before it.
    pub(crate) fn next(&self) -> Option<usize> {
        loop {
            let ticket = self.queue.borrow_mut().pop(&self.clock)?;
            self.waited(&ticket);
            ticket.state.set(TicketState::Goes);
            if let Some(key) = ticket.call() {
                return Some(key);
            }
        }
    }

    /// Gives a connection its place in this batch, after its ticket was the next.
    pub(crate) fn admit(&self, place: &BatchSlot, ticket: &Ticket) {
        self.take(place, ticket.arrived);
    }

    /// Returns the next connection that is refused in this batch, and informs the tasks before it.
    pub(crate) fn next_refused(&self) -> Option<(usize, Reason)> {
        loop {
            let ticket = self.queue.borrow_mut().pop_refused(&self.clock)?;
            let TicketState::Excess(reason) = ticket.state.get() else {
                continue;
            };
            ticket.state.set(TicketState::Refused(reason));
            if let Some(key) = ticket.call() {
                return Some((key, reason));
            }
        }
    }

    /// Returns the expected time to work off the queue.
    pub(crate) fn drain(&self) -> Duration {
        self.queue.borrow().wait()
    }
}

/// A request that is admitted at once, or a task that waits for its batch.
pub(crate) enum Entering<'a, C: Clock = ThreadClock> {
    Goes(Admitted),
    Waits(Waits<'a, C>),
}

/// A task that waits for its batch.
pub(crate) struct Waits<'a, C: Clock = ThreadClock> {
    admission: &'a Admission<C>,
    place: &'a BatchSlot,
    bytes: usize,
    ticket: Rc<Ticket>,
}

impl<C: Clock> Future for Entering<'_, C> {
    type Output = Result<Admitted, Refused>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Goes(admitted) => Poll::Ready(Ok(*admitted)),
            Self::Waits(waits) => waits.poll(context),
        }
    }
}

impl<C: Clock> Waits<'_, C> {
    fn poll(&self, context: &Context<'_>) -> Poll<Result<Admitted, Refused>> {
        let is_over = match self.ticket.state.get() {
            TicketState::Waits | TicketState::Excess(_) => None,
            TicketState::Goes | TicketState::Gone => Some(Ok(())),
            TicketState::Refused(reason) => Some(Err(Refused {
                reason,
                wait: self.admission.drain(),
            })),
        };
        let Some(is_over) = is_over else {
            if let Waiter::Task(waker) = &self.ticket.waiter {
                *waker.borrow_mut() = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        Poll::Ready(is_over.map(|()| {
            let times = Admitted {
                arrived: self.ticket.arrived,
                now: self.admission.clock.now(),
            };
            let mut queue = self.admission.queue.borrow_mut();
            queue.charge(self.bytes);
            self.place
                .take_for(queue.open(), times, self.bytes, &self.admission.clock)
        }))
    }
}

impl<C: Clock> Drop for Waits<'_, C> {
    fn drop(&mut self) {
        self.admission.leave(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

    /// Returns an admission whose batches have room for one request each.
    fn admission() -> Rc<Admission> {
        let limits = Limits {
            batch: Duration::ZERO,
            ..Limits::default()
        };
        Rc::new(Admission::new(&limits, Arc::default(), Gauge::default()))
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(LocalSet::new().run_until(test));
    }

    fn drive(admission: &Rc<Admission>) -> JoinHandle<()> {
        let admission = admission.clone();
        spawn_local(poll_fn(move |context| {
            admission.driven_by(context.waker());
            admission.begin_batch();
            assert_eq!(admission.next(), None, "there are only tasks");
            if admission.end_batch() {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        }))
    }

    #[test]
    fn a_turn_is_full_with_its_bytes_however_quick_it_was() {
        run(async {
            let limits = Limits {
                batch: Duration::from_secs(3_600),
                batch_bytes_max: 10,
                ..Limits::default()
            };
            let admission = Admission::new(&limits, Arc::default(), Gauge::default());
            admission.begin_batch();
            let place = BatchSlot::default();
            assert!(admission.goes_at_once(&place) && admission.enter_now(&place, 9).is_some());
            let next = BatchSlot::default();
            assert!(admission.goes_at_once(&next), "a byte is left");
            assert!(admission.enter_now(&next, 1).is_some());
            assert!(!admission.goes_at_once(&BatchSlot::default()), "none is left");
            admission.begin_batch();
            assert!(admission.goes_at_once(&BatchSlot::default()));
        });
    }

    #[test]
    fn tasks_go_in_the_order_they_came() {
        run(async {
            let admission = admission();
            let went = Rc::new(RefCell::new(Vec::new()));
            let driver = drive(&admission);
            let mut tasks = Vec::new();
            for number in 0..10 {
                let (admission, went) = (admission.clone(), went.clone());
                tasks.push(spawn_local(async move {
                    assert!(admission.enter(&BatchSlot::default(), 1, || LOCAL).await.is_ok());
                    went.borrow_mut().push(number);
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*went.borrow(), (0..10).collect::<Vec<_>>());
            assert_eq!(admission.waiting.get(), 0);
            driver.abort();
        });
    }

    #[test]
    fn connections_and_tasks_stand_in_one_queue() {
        run(async {
            let admission = admission();
            admission.begin_batch();
            let first = BatchSlot::default();
            assert!(admission.goes_at_once(&first) && admission.enter_now(&first, 1).is_some());
            assert!(!admission.goes_at_once(&BatchSlot::default()), "the batch is full");
            let one = admission.wait_unread(1, LOCAL);
            let task = spawn_local({
                let admission = admission.clone();
                async move { admission.enter(&BatchSlot::default(), 1, || LOCAL).await.is_ok() }
            });
            while admission.waiting.get() < 2 {
                yield_now().await;
            }
            drop(admission.wait_unread(2, LOCAL));
            admission.begin_batch();
            assert_eq!(admission.next(), Some(1));
            admission.admit(&first, &one);
            assert!(admission.enter_now(&first, 1).is_some());
            assert_eq!(admission.next(), None, "one a batch");
            admission.begin_batch();
            assert_eq!(admission.next(), None);
            assert!(task.await.unwrap());
            admission.begin_batch();
            assert_eq!(admission.next(), Some(2));
            assert!(!admission.end_batch());
        });
    }

    #[test]
    fn a_client_that_goes_away_holds_up_nobody() {
        run(async {
            let admission = admission();
            let enter = |admission: Rc<Admission>| {
                spawn_local(async move { admission.enter(&BatchSlot::default(), 1, || LOCAL).await.is_ok() })
            };
            admission.begin_batch();
            assert!(admission.goes_at_once(&BatchSlot::default()));
            let connection = admission.wait_unread(7, LOCAL);
            let (first, second) = (enter(admission.clone()), enter(admission.clone()));
            while admission.waiting.get() < 3 {
                yield_now().await;
            }
            first.abort();
            admission.leave(&connection);
            while admission.waiting.get() > 1 {
                yield_now().await;
            }
            let driver = drive(&admission);
            assert!(second.await.unwrap());
            driver.abort();
        });
    }
}
