//! The context of a service at work: its abilities beside changing itself.

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

/// A service has as many timers and asks as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a service has at most {ASKS_AND_TIMERS_MAX} timers and asks at a time; cancel some, or ask less at once")]
pub struct TooMany;

/// Timers, and asking others.
pub struct Context<M> {
    pub(super) timers: Timers<M>,
    pub(super) outcomes: Arc<Outcomes<M>>,
    pub(super) now: Instant,
    pub(super) is_stopping: bool,
}

/// Answers that have come meanwhile, to be received as messages. As many as there are asks at most.
pub(super) struct Outcomes<M> {
    /// Any thread adds; the runner takes all of them.
    come: Mutex<Vec<Outcome<M>>>,
    /// Set once, when the service starts. Called without a lock, because waking may run the service.
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

/// The ask's deadline, and how to make a message of its answer on the asker's own thread.
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

    /// When the batch at work began, or the timer was looked at.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Receives the message once, after this time. In place, not before the next message or
    /// [`Running::turn`](super::Running::turn).
    ///
    /// # Errors
    /// [`TooMany`]: there are too many timers.
    pub fn after(&mut self, time: Duration, message: M) -> Result<TimerId, TooMany> {
        self.timers.set(self.now, time, Due::Once(message)).ok_or(TooMany)
    }

    /// Receives a message every so often, at least a millisecond apart. One that is late by several intervals comes once.
    ///
    /// # Errors
    /// [`TooMany`]: there are too many timers.
    pub fn every(&mut self, interval: Duration, make: impl FnMut() -> M + Send + 'static) -> Result<TimerId, TooMany> {
        self.timers.every(self.now, interval, Box::new(make)).ok_or(TooMany)
    }

    /// Cancels a timer; says whether it was still to come.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// Ends the service when all that was sent so far has been received.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Asks another service without waiting: exactly one message comes of it, made by `then` on this service's own thread,
    /// with the answer, or why there is none, at the latest after `limit`.
    ///
    /// # Errors
    /// [`TooMany`]: there are too many asks; nothing was sent.
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
            // Its reply says now that there is no answer, and nobody hears it.
            drop(unsent);
        }
        Ok(())
    }
}
