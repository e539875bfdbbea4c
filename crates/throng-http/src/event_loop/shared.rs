//! The parts of a loop that its tasks share.

use super::protocols::Protocols;
use crate::{connection::Connections, lane::Door, server::Server};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};
use tokio::sync::Notify;

/// What the tasks that own a loop's connections share.
pub(super) struct EventLoop {
    pub(super) server: Rc<Server>,
    /// The way into the lane.
    pub(super) door: Rc<Door>,
    pub(super) connections: Rc<Connections>,
    pub(super) protocols: Protocols,
    pub(super) refusals: Refusals,
}

/// Connections over the limits that are looked at. There are never more than there may be: the oldest is told at once.
#[derive(Default)]
pub(super) struct Refusals {
    tasks: RefCell<VecDeque<(u64, Rc<Notify>)>>,
    next: Cell<u64>,
}

impl Refusals {
    pub(super) fn push(&self, gives_way: Rc<Notify>, most: usize) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        let mut tasks = self.tasks.borrow_mut();
        tasks.push_back((number, gives_way));
        while tasks.len() > most
            && let Some((_, oldest)) = tasks.pop_front()
        {
            oldest.notify_one();
        }
        number
    }

    pub(super) fn left(&self, number: u64) {
        self.tasks.borrow_mut().retain(|(other, _)| *other != number);
    }
}
