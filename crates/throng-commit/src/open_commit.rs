//! The open commit, and the tasks that wait for it to be durable.

use crate::{
    relay::{Parked, Relay},
    sync::{AtomicU64, Mutex, Ordering, lock},
};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The place of records that were put into the open commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCommit<R> {
    /// The number of the open commit.
    pub number: u64,
    /// The records are the first in it: somebody has to lead it.
    pub first: bool,
    /// The return value of `put`.
    pub put: R,
}

/// The writer has ended, and the awaited commit is not in the journal and never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The open commit, the commits in flight, and the tasks that wait for them.
pub struct OpenCommit<B> {
    inner: Mutex<Inner<B>>,
    /// Everything up to this commit is durable. [`landed`](Self::landed) raises it under the lock of `inner`, so it never goes back;
    /// [`end`](Self::end) raises it for the last time. Both take the lock of `waiters` afterwards, so that no waiter misses the change.
    durable: AtomicU64,
    /// [`RUNNING`], or the writer's last commit. Only [`end`](Self::end) writes it, once, after it has raised `durable`.
    end: AtomicU64,
    waiters: Mutex<Vec<Waiter>>,
    relay: Arc<Relay>,
}

struct Inner<B> {
    batch: B,
    /// True while nothing was put into the batch.
    empty: bool,
    /// The number the open commit will have.
    number: u64,
    /// Commits on their way, in order, and whether they have landed.
    in_flight: VecDeque<(u64, bool)>,
}

struct Waiter {
    number: u64,
    deadline: u64,
    task: Parked,
}

const RUNNING: u64 = u64::MAX;

impl<B: Default> OpenCommit<B> {
    /// Returns an empty open commit, whose waiters are woken through this relay.
    #[must_use]
    pub fn new(relay: Arc<Relay>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                batch: B::default(),
                empty: true,
                number: 1,
                in_flight: VecDeque::new(),
            }),
            durable: AtomicU64::new(0),
            end: AtomicU64::new(RUNNING),
            waiters: Mutex::new(Vec::new()),
            relay,
        }
    }

    /// Puts records into the open commit.
    pub fn stage<R>(&self, put: impl FnOnce(&mut B) -> R) -> InCommit<R> {
        let mut inner = lock(&self.inner);
        let first = std::mem::replace(&mut inner.empty, false);
        InCommit {
            number: inner.number,
            first,
            put: put(&mut inner.batch),
        }
    }

    /// Looks at the open commit.
    pub fn peek<R>(&self, look: impl FnOnce(&B) -> R) -> R {
        look(&lock(&self.inner).batch)
    }

    /// Gives a buffer back to the open commit.
    pub fn give(&self, give: impl FnOnce(&mut B)) {
        give(&mut lock(&self.inner).batch);
    }

    /// Takes the open commit for its append, unless it is empty or `depth` commits are in flight. The next one is then open.
    pub fn take(&self, depth: usize) -> Option<(u64, B)> {
        let mut inner = lock(&self.inner);
        if !self.may_take(&inner, depth) {
            return None;
        }
        let number = inner.number;
        inner.number += 1;
        inner.empty = true;
        inner.in_flight.push_back((number, false));
        Some((number, std::mem::take(&mut inner.batch)))
    }

    /// True if [`take`](Self::take) would take a commit now.
    pub fn is_due(&self, depth: usize) -> bool {
        self.may_take(&lock(&self.inner), depth)
    }

    fn may_take(&self, inner: &Inner<B>, depth: usize) -> bool {
        !inner.empty && inner.in_flight.len() < depth && self.end.load(Ordering::Acquire) == RUNNING
    }

    /// Records that a commit is in the journal. `durable` advances over all commits that have landed without a gap.
    pub fn landed(&self, number: u64) {
        let mut durable = None;
        {
            let mut inner = lock(&self.inner);
            for flight in inner.in_flight.iter_mut().filter(|flight| flight.0 == number) {
                flight.1 = true;
            }
            while let Some((number, true)) = inner.in_flight.front().copied() {
                inner.in_flight.pop_front();
                durable = Some(number);
            }
            // Raised under the lock, so that it never goes back.
            if let Some(durable) = durable {
                self.durable.store(durable, Ordering::Release);
            }
        }
        if let Some(durable) = durable {
            self.wake(|waiter| waiter.number <= durable);
        }
    }

    /// Ends the writer: commits up to `last` are in the journal, all others are lost.
    pub fn end(&self, last: u64) {
        self.durable.fetch_max(last, Ordering::AcqRel);
        self.end.store(last, Ordering::Release);
        self.wake(|_| true);
    }

    /// Returns the newest commit up to which everything is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns the number of the open commit.
    pub fn number(&self) -> u64 {
        lock(&self.inner).number
    }

    /// Returns the number of the open commit if it holds records and `is_full` says so. It is certain to be taken, so a caller can wait for
    /// it.
    pub fn full(&self, is_full: impl FnOnce(&B) -> bool) -> Option<u64> {
        let inner = lock(&self.inner);
        (!inner.empty && is_full(&inner.batch)).then_some(inner.number)
    }

    /// Returns the newest commit that holds records.
    pub fn last(&self) -> u64 {
        let inner = lock(&self.inner);
        if inner.empty { inner.number - 1 } else { inner.number }
    }

    /// True if no commit is open or in flight.
    pub fn is_idle(&self) -> bool {
        let inner = lock(&self.inner);
        inner.empty && inner.in_flight.is_empty()
    }

    /// Returns the number of commits in flight.
    pub fn in_flight(&self) -> usize {
        lock(&self.inner).in_flight.len()
    }

    /// Returns the number of tasks that wait for a commit to be durable.
    pub fn waiting(&self) -> usize {
        lock(&self.waiters).len()
    }

    /// Returns a future that resolves once the commit is durable. `deadline` (of any clock) is only for [`sweep`](Self::sweep).
    pub fn wait(&self, number: u64, deadline: u64) -> Durable<'_, B> {
        Durable {
            open: self,
            number,
            deadline,
            registered: None,
        }
    }

    /// Wakes this waker once [`state`](Self::state) says more than now, and when its deadline is [swept](Self::sweep). Returns `false`, and
    /// wakes nobody, if the state is known already.
    pub fn wake_at(&self, number: u64, deadline: u64, waker: &Waker) -> bool {
        let mut waiters = lock(&self.waiters);
        // Checked under the lock: a thread that advances `durable` takes it afterwards, so no waiter misses the change.
        let is_open = self.state(number).is_pending();
        if is_open {
            waiters.push(Waiter {
                number,
                deadline,
                task: Parked::here(waker.clone()),
            });
        }
        is_open
    }

    /// Wakes the tasks whose deadline has passed, so that they look at the clock.
    pub fn sweep(&self, now: u64) {
        self.wake(|waiter| waiter.deadline <= now);
    }

    /// Returns whether the commit is durable or lost; `Pending` while it is open.
    pub fn state(&self, number: u64) -> Poll<Result<(), Lost>> {
        if number <= self.durable() {
            return Poll::Ready(Ok(()));
        }
        match self.end.load(Ordering::Acquire) {
            RUNNING => Poll::Pending,
            // `durable` was raised before the end was set.
            last if number <= last => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(Lost)),
        }
    }

    fn wake(&self, which: impl Fn(&Waiter) -> bool) {
        let woken: Vec<Waiter> = {
            let mut waiters = lock(&self.waiters);
            if waiters.iter().all(&which) {
                std::mem::take(&mut *waiters)
            } else {
                waiters.extract_if(.., |waiter| which(waiter)).collect()
            }
        };
        self.relay.wake(woken.into_iter().map(|waiter| waiter.task));
    }
}

/// Waits for a commit to be durable.
pub struct Durable<'a, B> {
    open: &'a OpenCommit<B>,
    number: u64,
    deadline: u64,
    registered: Option<Waker>,
}

impl<B: Default> Durable<'_, B> {
    /// True if the commit is durable already.
    pub fn is_durable(&self) -> bool {
        self.number <= self.open.durable()
    }
}

impl<B: Default> Future for Durable<'_, B> {
    type Output = Result<(), Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let open = self.open;
        if let Poll::Ready(state) = open.state(self.number) {
            return Poll::Ready(state);
        }
        let mut waiters = lock(&open.waiters);
        // Checked again under the lock: a thread that advances `durable` takes it afterwards, so no waiter misses the change.
        if let Poll::Ready(state) = open.state(self.number) {
            return Poll::Ready(state);
        }
        // Swept waiters register again, because the sweep removed them.
        let swept = self
            .registered
            .as_ref()
            .is_some_and(|waker| !waiters.iter().any(|at| at.task.waker.will_wake(waker)));
        let known = self
            .registered
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()));
        if !known || swept {
            let waker = context.waker().clone();
            waiters.push(Waiter {
                number: self.number,
                deadline: self.deadline,
                task: Parked::here(waker.clone()),
            });
            self.registered = Some(waker);
        }
        Poll::Pending
    }
}
