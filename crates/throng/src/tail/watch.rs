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

/// A window this many commits before a cursor comes there soon, whether or not it is up to date: those who begin to follow one after
/// the other, while commits go on, do not move it away from each other.
const NEAR: u64 = 1_024;

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
        let comes_there = self.window.as_ref().is_some_and(|window| {
            let (next, end) = (from.commit, window.end());
            let is_near = next.writer == end.writer && next.commit.0 - end.commit.0 <= NEAR;
            is_near || self.live && self.watchers.are_waiting()
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tail::watchers::Watchers;
    use throng_journal::{CommitNo, Position, WriterId};

    const BOUNDS: Bounds = Bounds {
        bytes_max: 1 << 20,
        commits_max: 100,
    };

    fn cursor(writer: u64, commit: u64) -> Cursor {
        let position = Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        };
        Cursor {
            commit: position,
            records: 0,
        }
    }

    #[test]
    fn the_window_moves_only_to_whom_it_would_not_reach_soon() {
        let everything = Interest { kind: 0, entity: None };
        for (to, is_live, moves) in [
            (cursor(1, 10), false, false),
            (cursor(1, 9 + NEAR), false, false),
            (cursor(1, 10 + NEAR), false, true),
            (cursor(2, 1), false, true),
            (cursor(1, 10 + NEAR), true, false),
            (cursor(2, 1), true, false),
        ] {
            let mut watchers = Watchers::new(1);
            let number = watchers.add(&everything);
            let waits_at = cursor(1, 10);
            watchers.wait(&everything, number, waits_at, Waker::noop());
            let mut state = State {
                window: Some(Window::new(waits_at.commit, BOUNDS)),
                live: is_live,
                watchers,
            };
            let mut woken = Vec::new();
            state.reach(to, BOUNDS, &mut woken);
            let begins_there = state.window.as_ref().unwrap().covers(waits_at);
            assert_eq!(
                (!begins_there, woken.len()),
                (moves, usize::from(moves)),
                "{to:?}, {is_live}"
            );
            assert_eq!(state.watchers.are_waiting(), !moves);
            let outcome = state.watchers.outcome(&everything, number);
            assert!(
                matches!(outcome, Outcome::Found(at) if moves && at == waits_at)
                    || matches!(outcome, Outcome::Waits(_) if !moves),
                "{outcome:?}"
            );
        }
    }
}
