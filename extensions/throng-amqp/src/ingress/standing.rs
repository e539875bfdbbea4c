//! The state of a queue's consumer, in the service's readiness.

use crate::Broker;
use std::sync::{Mutex, PoisonError};
use throng::services::health::{Health, Reason, Registered, Status};

/// A check of the service, named after the queue.
pub(super) struct Standing {
    check: Registered,
    place: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The broker was reached, and has the queue: what is wrong now may pass.
    was_reached: bool,
    consumer: Option<String>,
    letters: Option<String>,
}

impl Standing {
    pub(super) fn new(health: &Health, queue: &str, broker: &Broker) -> Self {
        Self {
            check: health.register(format!("queue {queue}"), None),
            place: format!("the queue {queue:?} of the broker at {broker}"),
            state: Mutex::default(),
        }
    }

    /// The broker has the queue.
    pub(super) fn is_reached(&self) {
        self.change(|state| state.was_reached = true);
    }

    /// Records that it consumes.
    pub(super) fn consumes(&self) {
        self.change(|state| state.consumer = None);
    }

    pub(super) fn stands_by(&self) {
        let why = format!("stands by: another consumer has {}", self.place);
        self.change(|state| state.consumer = Some(why));
    }

    /// Records that it does not consume for now.
    pub(super) fn is_lost(&self, why: &str) {
        let why = format!("{} is not consumed: {why}", self.place);
        self.change(|state| state.consumer = Some(why));
    }

    /// Why a dead letter waits, or that none does.
    pub(super) fn letters(&self, why: Option<&str>) {
        let why = why.map(|why| format!("dead letters of {} wait: {why}", self.place));
        self.change(|state| state.letters = why);
    }

    pub(super) fn end(&self) {
        self.check.clone().unregister();
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let troubles: Vec<&str> = [&state.consumer, &state.letters]
            .into_iter()
            .filter_map(|trouble| trouble.as_deref())
            .collect();
        let status = match (troubles.is_empty(), state.was_reached) {
            (true, true) => return self.check.pass(),
            (true, false) => return,
            (false, true) => Status::Warn,
            (false, false) => Status::Fail,
        };
        self.check.check_in(status, Reason::Other(troubles.join("; ")));
    }
}
