//! The turn's gate: every request passes it after it was read and before anything is decided. What does not fit into the
//! turn waits here, read and counted, so that overload is seen and refused in time.

mod clients;
mod pass;
mod turns;

pub(crate) use clients::{Client, LOCAL};
pub(crate) use pass::Pass;
pub(crate) use turns::Place;

use crate::limits::Limits;
use clients::Clients;
use prometheus_client::metrics::gauge::Gauge;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use turns::{Entry, Turns};

/// The gate of one loop.
pub(crate) struct Gate {
    turns: RefCell<Turns>,
    /// Whose requests wait.
    clients: RefCell<Clients>,
    wait_max: Duration,
    /// Those that wait, by number from `first` on; `None` has no waker yet, or has gone away.
    queue: RefCell<VecDeque<Option<Waker>>>,
    first: Cell<u64>,
    released: Cell<u64>,
    /// The task that ends turns.
    ender: RefCell<Option<Waker>>,
    pass: Arc<Pass>,
    /// Those that wait, over all loops, for metrics.
    waiting: Gauge,
}

/// A request may go.
pub(crate) struct Admitted {
    /// When it can have arrived at the earliest.
    pub(crate) arrived: Instant,
    /// Now.
    pub(crate) now: Instant,
}

/// A request would wait too long, or its client has its share of those that wait.
pub(crate) struct Refused {
    /// How long.
    pub(crate) wait: Duration,
    /// Others find room.
    pub(crate) by_share: bool,
}

impl Gate {
    pub(crate) fn new(limits: &Limits, pass: Arc<Pass>, waiting: Gauge) -> Self {
        Self {
            turns: RefCell::new(Turns::new(
                limits.turn,
                limits.turn_bytes_max,
                limits.wait_max,
                Instant::now(),
            )),
            clients: RefCell::default(),
            wait_max: limits.wait_max,
            queue: RefCell::default(),
            first: Cell::new(0),
            released: Cell::new(0),
            ender: RefCell::default(),
            pass,
            waiting,
        }
    }

    /// Lets a request of so many bytes go, in this turn or a later one. One look at the clock, for one that goes at once; whose
    /// it is is asked only of one that waits.
    pub(crate) async fn enter(
        &self,
        place: &Place,
        bytes: usize,
        client: impl FnOnce() -> Client,
    ) -> Result<Admitted, Refused> {
        let now = Instant::now();
        let (entry, arrived) = self.look(now, |turns| turns.enter(now, bytes, place));
        match entry {
            Entry::Go => Ok(Admitted { arrived, now }),
            Entry::Refuse(wait) => Err(Refused { wait, by_share: false }),
            Entry::Wait(number) => {
                self.queue.borrow_mut().push_back(None);
                let client = client();
                if let Some(wait) = self.beyond_share(client) {
                    return Err(Refused { wait, by_share: true });
                }
                self.waiting.inc();
                Ticket {
                    gate: self,
                    client,
                    number,
                    gone: false,
                }
                .await;
                let now = Instant::now();
                self.turns.borrow_mut().resume(now, bytes, place);
                Ok(Admitted { arrived, now })
            }
        }
    }

    /// Lets a request of so many bytes go if it goes at once.
    pub(crate) fn enter_now(&self, place: &Place, bytes: usize) -> Option<Admitted> {
        let now = Instant::now();
        let (goes, arrived) = self.look(now, |turns| turns.enter_now(now, bytes, place));
        goes.then_some(Admitted { arrived, now })
    }

    /// Asks the turns for a request, which can have arrived at the time returned at the earliest.
    fn look<R>(&self, now: Instant, ask: impl FnOnce(&mut Turns) -> R) -> (R, Instant) {
        let mut turns = self.turns.borrow_mut();
        let is_first = !turns.is_open();
        let ended = turns.ended();
        let arrived = self.pass.woken().map_or(ended, |woken| woken.max(ended)).min(now);
        let asked = ask(&mut turns);
        drop(turns);
        if is_first {
            self.wake_ender();
        }
        (asked, arrived)
    }

    /// Counts one that has begun to wait to its client; if that has its share already, it waits no more.
    fn beyond_share(&self, client: Client) -> Option<Duration> {
        let mut turns = self.turns.borrow_mut();
        let (wait, waiting) = (turns.wait(), turns.waiting() as u64);
        if self.clients.borrow_mut().enter(client, waiting, wait, self.wait_max) {
            return None;
        }
        turns.leave();
        Some(wait)
    }

    /// Ends turns, for ever: the first request of a turn wakes it, and so it runs behind all that was ready.
    pub(crate) fn end_turns(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|context| {
            if !self
                .ender
                .borrow()
                .as_ref()
                .is_some_and(|waker| waker.will_wake(context.waker()))
            {
                *self.ender.borrow_mut() = Some(context.waker().clone());
            }
            let mut turns = self.turns.borrow_mut();
            if turns.is_open() {
                let released = turns.end(Instant::now());
                let more = turns.is_open();
                drop(turns);
                self.release(released);
                if more {
                    self.wake_ender();
                }
            }
            Poll::Pending
        })
    }

    fn wake_ender(&self) {
        if let Some(waker) = &*self.ender.borrow() {
            waker.wake_by_ref();
        }
    }

    fn release(&self, below: u64) {
        self.released.set(below);
        while self.first.get() < below {
            let waker = self.queue.borrow_mut().pop_front().flatten();
            self.first.set(self.first.get() + 1);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Waits for its turn.
struct Ticket<'a> {
    gate: &'a Gate,
    client: Client,
    number: u64,
    gone: bool,
}

impl Future for Ticket<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.number < self.gate.released.get() {
            self.gone = true;
            return Poll::Ready(());
        }
        let at = self.number - self.gate.first.get();
        if let Some(slot) = self.gate.queue.borrow_mut().get_mut(at as usize) {
            *slot = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.gate.waiting.dec();
        self.gate.clients.borrow_mut().leave(self.client);
        if self.gone {
            return;
        }
        self.gate.turns.borrow_mut().leave();
        if let Some(at) = self.number.checked_sub(self.gate.first.get())
            && let Some(slot) = self.gate.queue.borrow_mut().get_mut(at as usize)
        {
            *slot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use tokio::task::{LocalSet, yield_now};

    fn gate(turn: Duration, wait_max: Duration) -> Rc<Gate> {
        let limits = Limits {
            turn,
            wait_max,
            ..Limits::default()
        };
        Rc::new(Gate::new(&limits, Arc::default(), Gauge::default()))
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(LocalSet::new().run_until(test));
    }

    #[test]
    fn those_that_wait_go_in_the_order_they_came() {
        run(async {
            // No time at all: everybody waits for a turn of their own.
            let gate = gate(Duration::ZERO, Duration::from_secs(3_600));
            let went = Rc::new(RefCell::new(Vec::new()));
            let ender = tokio::task::spawn_local({
                let gate = gate.clone();
                async move { gate.end_turns().await }
            });
            let mut tasks = Vec::new();
            for number in 0..10 {
                let (gate, went) = (gate.clone(), went.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    assert!(gate.enter(&Place::default(), 1, || LOCAL).await.is_ok());
                    went.borrow_mut().push(number);
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*went.borrow(), (0..10).collect::<Vec<_>>());
            assert_eq!(gate.waiting.get(), 0);
            ender.abort();
        });
    }

    #[test]
    fn one_that_has_its_share_is_refused_and_holds_up_nobody() {
        run(async {
            // Nothing waits for long: each takes 20 µs, as far as is known, so 20 may wait.
            let gate = gate(Duration::ZERO, Duration::from_micros(400));
            let enter = |client| {
                let gate = gate.clone();
                tokio::task::spawn_local(async move {
                    gate.enter(&Place::default(), 1, || client)
                        .await
                        .map_err(|refused| refused.by_share)
                })
            };
            let many: Vec<_> = (0..30).map(|_| enter(1)).collect();
            yield_now().await;
            let other = enter(2);
            yield_now().await;
            let ender = tokio::task::spawn_local({
                let gate = gate.clone();
                async move { gate.end_turns().await }
            });
            let (mut went, mut refused) = (0, 0);
            for one in many {
                match one.await.unwrap() {
                    Ok(_) => went += 1,
                    Err(by_share) => {
                        assert!(by_share, "there was room, only not for this client");
                        refused += 1;
                    }
                }
            }
            assert_eq!((went, refused), (15, 15));
            assert!(other.await.unwrap().is_ok());
            ender.abort();
        });
    }

    #[test]
    fn one_that_goes_away_holds_up_nobody() {
        run(async {
            let gate = gate(Duration::ZERO, Duration::from_secs(3_600));
            let enter = |gate: Rc<Gate>| {
                tokio::task::spawn_local(async move { gate.enter(&Place::default(), 1, || LOCAL).await.is_ok() })
            };
            let (first, second) = (enter(gate.clone()), enter(gate.clone()));
            while gate.waiting.get() < 2 {
                yield_now().await;
            }
            first.abort();
            while gate.waiting.get() > 1 {
                yield_now().await;
            }
            let ender = tokio::task::spawn_local({
                let gate = gate.clone();
                async move { gate.end_turns().await }
            });
            assert!(second.await.unwrap());
            ender.abort();
        });
    }
}
