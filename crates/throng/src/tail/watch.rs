//! A follower's hold on the tail: it looks into the window, and waits at its end.

use super::{
    State, Tail,
    watchers::Outcome,
    window::{Bounds, Interest, Window},
};
use crate::feed::{Cursor, Feed};
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

impl Tail {
    /// Follows a kind, or one entity of it.
    pub(super) fn watch(self: &Arc<Self>, interest: Interest) -> Watch {
        let number = self.state().watchers.add(&interest);
        Watch {
            tail: self.clone(),
            interest,
            number,
        }
    }
}

/// A follower's place among those who follow, until it is dropped.
pub(super) struct Watch {
    tail: Arc<Tail>,
    interest: Interest,
    number: u64,
}

/// What a follower does next.
pub(super) enum Next {
    /// It looks at what stands from here on.
    Read(Cursor),
    /// It waits still: all that was decoded since it began to wait here is not for it.
    Wait(Cursor),
}

impl Watch {
    /// What is next for a follower that has come to this cursor.
    pub(super) fn next(&self, from: Cursor) -> Result<Next, Arc<str>> {
        let mut state = self.tail.state();
        match state.watchers.outcome(&self.interest, self.number) {
            Outcome::None => Ok(Next::Read(from)),
            Outcome::Found(at) => Ok(Next::Read(at.max(from))),
            Outcome::Waits(from) => Ok(Next::Wait(from)),
            Outcome::Failed(why) => Err(why),
        }
    }

    /// What is decoded from a cursor on; `None` if the window begins after it.
    pub(super) fn page(&self, from: Cursor, limit: usize) -> Option<Feed> {
        match &self.tail.state().window {
            Some(window) if !window.covers(from) => None,
            Some(window) => Some(window.page(&self.interest, from, limit)),
            None => Some(Feed {
                events: Vec::new(),
                next: from,
                more: false,
            }),
        }
    }

    /// Waits until there may be something from a cursor on, and says where to look for it.
    pub(super) async fn wait(&self, from: Cursor) -> Result<Cursor, Arc<str>> {
        poll_fn(|context| {
            let mut woken = Vec::new();
            let is_first = {
                let state = &mut *self.tail.state();
                match state.watchers.outcome(&self.interest, self.number) {
                    Outcome::Found(at) => return Poll::Ready(Ok(at.max(from))),
                    Outcome::Failed(why) => return Poll::Ready(Err(why)),
                    Outcome::Waits(_) => {}
                    Outcome::None if state.is_beyond(from) => return Poll::Ready(Ok(from)),
                    Outcome::None => state.reach(from, self.tail.bounds, &mut woken),
                }
                let is_first = !state.watchers.are_waiting();
                // Nobody knows how far it has fallen behind while nobody waited.
                state.live &= !is_first;
                state.watchers.wait(&self.interest, self.number, from, context.waker());
                is_first
            };
            if is_first {
                self.tail.wake.wake();
            }
            woken.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }
}

impl State {
    /// The window has come to this cursor already, or begins after it.
    fn is_beyond(&self, from: Cursor) -> bool {
        self.window.as_ref().is_some_and(|window| !window.is_before(from))
    }

    /// Makes the window one that will come to this cursor soon.
    fn reach(&mut self, from: Cursor, bounds: Bounds, woken: &mut Vec<Waker>) {
        let comes_there = match &self.window {
            Some(window) => self.live && self.watchers.are_waiting() || from.before() <= window.end(),
            None => false,
        };
        if !comes_there {
            self.window = Some(Window::new(from.commit, bounds));
            self.watchers.release(None, woken);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.tail.state();
        state.watchers.remove(&self.interest, self.number);
        let window = if state.watchers.is_empty() {
            state.window.take()
        } else {
            None
        };
        // Its commits are given back when others can go on.
        drop(state);
        drop(window);
    }
}
