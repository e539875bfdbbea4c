//! A service without a thread: the senders run it.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, ThreadId},
    time::Instant,
};
use throng_queue::{SendError, TrySendError};

use crate::service::{Runner, Service};

/// An in-place service, as an address uses it.
pub(crate) trait Local<M>: Send + Sync {
    fn send(&self, message: M) -> Result<(), SendError<M>>;
    fn try_send(&self, message: M) -> Result<(), TrySendError<M>>;
    /// Handles due timers and answers.
    fn turn(&self);
    fn stop(&self);
}

/// The service, and the messages for its present runner. The runner handles all waiting messages before it gives the service back, so no
/// message is left behind, and never two threads run it.
pub(crate) struct InPlace<S: Service> {
    state: Mutex<State<S>>,
    room: Condvar,
    waiting_max: usize,
}

struct State<S: Service> {
    waiting: VecDeque<S::Message>,
    /// Empty, to be swapped with `waiting`.
    spare: VecDeque<S::Message>,
    holder: Option<ThreadId>,
    /// The service while nobody runs it. `None` without a runner means that it has ended.
    runner: Option<Box<Runner<S>>>,
    /// True if an answer or a timer became due while somebody was running it. Callers set it; the runner clears it.
    is_called: bool,
    is_stopping: bool,
    /// The number of senders that wait for room. Notifying them is a system call, even if there are none.
    in_line: usize,
}

impl<S: Service> InPlace<S> {
    pub(crate) fn start(mut runner: Box<Runner<S>>, waiting_max: usize) -> Arc<Self> {
        let place = Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            runner.wake_by(move || {
                if let Some(this) = this.upgrade() {
                    this.turn();
                }
            });
            runner.start(Instant::now());
            Self {
                state: Mutex::new(State {
                    waiting: VecDeque::new(),
                    spare: VecDeque::new(),
                    holder: None,
                    runner: Some(runner),
                    is_called: false,
                    is_stopping: false,
                    in_line: 0,
                }),
                room: Condvar::new(),
                waiting_max,
            }
        });
        // Requests made at its start may have been answered before there was a place to report that.
        place.turn();
        place
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it with this message and all that wait, if nobody is running it.
    fn drive<'a>(&'a self, mut state: MutexGuard<'a, State<S>>, mut first: Option<S::Message>) {
        let Some(mut runner) = state.runner.take() else {
            return;
        };
        state.holder = Some(thread::current().id());
        loop {
            let mut batch = match first.is_some() {
                true => None,
                false => {
                    let spare = mem::take(&mut state.spare);
                    Some(mem::replace(&mut state.waiting, spare))
                }
            };
            state.is_called = false;
            let is_waited_for = state.in_line > 0;
            drop(state);
            if is_waited_for {
                self.room.notify_all();
            }
            let now = Instant::now();
            runner.turn(now);
            match &mut batch {
                None => runner.batch(first.take().into_iter(), 1, 0, now),
                Some(batch) if !batch.is_empty() => {
                    let items = batch.len();
                    runner.batch(batch.drain(..), items, 0, now);
                }
                Some(_) => {}
            }
            runner.empty(now);
            state = self.lock();
            if let Some(batch) = batch {
                state.spare = batch;
            }
            if state.waiting.is_empty() && !state.is_called {
                break;
            }
        }
        state.holder = None;
        if runner.is_alive() && !runner.is_stopping() && !state.is_stopping {
            state.runner = Some(runner);
            return;
        }
        state.is_stopping = true;
        drop(state);
        self.room.notify_all();
        runner.stop();
    }
}

impl<S: Service> Local<S::Message> for InPlace<S> {
    fn send(&self, message: S::Message) -> Result<(), SendError<S::Message>> {
        let mut state = self.lock();
        // A service that sends to itself cannot wait for itself.
        let waits = |state: &State<S>| {
            state.waiting.len() >= self.waiting_max
                && !state.is_stopping
                && state.holder != Some(thread::current().id())
        };
        while waits(&state) {
            state.in_line += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.in_line -= 1;
        }
        if state.is_stopping {
            return Err(SendError { unsent: vec![message] });
        }
        if state.runner.is_some() && state.waiting.is_empty() {
            self.drive(state, Some(message));
        } else {
            state.waiting.push_back(message);
            self.drive(state, None);
        }
        Ok(())
    }

    fn try_send(&self, message: S::Message) -> Result<(), TrySendError<S::Message>> {
        let state = self.lock();
        if !state.is_stopping && state.runner.is_none() && state.waiting.len() >= self.waiting_max {
            return Err(TrySendError::Full(message));
        }
        drop(state);
        self.send(message).map_err(|error| TrySendError::Closed(error.unsent))
    }

    fn turn(&self) {
        let mut state = self.lock();
        state.is_called = true;
        self.drive(state, None);
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        self.drive(state, None);
    }
}
