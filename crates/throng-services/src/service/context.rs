//! The context of a running service: what it can do besides changing itself.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use throng_queue::TrySendError;

use super::timers::{ASKS_AND_TIMERS_MAX, Due, TimerId, Timers};
use crate::{
    address::Address,
    reply::{AskError, Reply},
};

/// The service has reached its limit of timers or requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a service has at most {ASKS_AND_TIMERS_MAX} timers and asks at a time; cancel some, or ask less at once")]
pub struct TooMany;

/// A service's timers, and its requests to others.
pub struct Context<M> {
    pub(super) timers: Timers<M>,
    pub(super) outcomes: Arc<Outcomes<M>>,
    pub(super) now: Instant,
    pub(super) is_stopping: bool,
}

/// Answers that have arrived, to be received as messages. There are at most as many as requests.
pub(super) struct Outcomes<M> {
    /// Any thread adds; the runner takes all of them.
    come: Mutex<Vec<Outcome<M>>>,
    /// Set once, when the service starts. Called without the lock held, because waking may run the service.
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

/// The request's deadline, and a function that makes a message of its answer on the asker's own thread.
type Outcome<M> = (TimerId, Box<dyn FnOnce() -> M + Send>);

impl<M> Outcomes<M> {
    fn add(&self, outcome: Outcome<M>) {
        self.come.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    pub(super) fn take(&self) -> Vec<Outcome<M>> {
        mem::take(&mut *self.come.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(wake));
    }
}

/// Takes the handler of an ask's outcome; the first caller gets it.
fn taken<F>(then: &Mutex<Option<F>>) -> Option<F> {
    then.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<M: Send + 'static> Context<M> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            timers: Timers::default(),
            outcomes: Arc::new(Outcomes {
                come: Mutex::default(),
                wake: Mutex::default(),
            }),
            now,
            is_stopping: false,
        }
    }

    /// Returns when the present batch began, or the timers were checked.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Has the service receive the message once, after this time. A service in place receives it not before its next message or
    /// [`Running::turn`](super::Running::turn).
    ///
    /// # Errors
    /// [`TooMany`]: there are too many timers.
    pub fn after(&mut self, time: Duration, message: M) -> Result<TimerId, TooMany> {
        self.timers.set(self.now, time, Due::Once(message)).ok_or(TooMany)
    }

    /// Has the service receive a message at this interval, of at least a millisecond. After a delay of several intervals it comes once.
    ///
    /// # Errors
    /// [`TooMany`]: there are too many timers.
    pub fn every(&mut self, interval: Duration, make: impl FnMut() -> M + Send + 'static) -> Result<TimerId, TooMany> {
        self.timers.every(self.now, interval, Box::new(make)).ok_or(TooMany)
    }

    /// Cancels a timer; returns true if it was still to come.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// Ends the service once all messages sent so far have been received.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Sends a request to another service without waiting. It results in exactly one message to this service, made by `then` on this
    /// service's own thread, from the answer, or from the reason why there is none, at the latest after `limit`.
    ///
    /// # Errors
    /// [`TooMany`]: there are too many requests; nothing was sent.
    pub fn ask<N, T>(
        &mut self,
        address: &mut Address<N>,
        limit: Duration,
        make: impl FnOnce(Reply<T>) -> N,
        then: impl FnOnce(Result<T, AskError>) -> M + Send + 'static,
    ) -> Result<(), TooMany>
    where
        N: Send + 'static,
        T: Send + 'static,
    {
        let then = Arc::new(Mutex::new(Some(then)));
        let expired = {
            let then = Arc::clone(&then);
            move || taken(&then).map(|then| then(Err(AskError::TimedOut)))
        };
        let deadline = Due::Deadline(Box::new(expired));
        let timer = self.timers.set(self.now, limit, deadline).ok_or(TooMany)?;
        let reply = {
            let (then, outcomes) = (Arc::clone(&then), Arc::clone(&self.outcomes));
            Reply::heard_by(move |answer: Option<T>| {
                if let Some(then) = taken(&then) {
                    outcomes.add((timer, Box::new(move || then(answer.ok_or(AskError::Gone)))));
                }
            })
        };
        if let Err(TrySendError::Full(unsent)) = address.try_tell(make(reply)) {
            if let Some(then) = taken(&then) {
                let full = Box::new(move || then(Err(AskError::Full)));
                self.outcomes.add((timer, full));
            }
            // Its reply reports the missing answer, which is ignored.
            drop(unsent);
        }
        Ok(())
    }
}
