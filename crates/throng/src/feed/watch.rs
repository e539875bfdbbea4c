//! A follower's access to the feed: it reads the window, and waits at its end.

use super::{
    SharedFeed, State,
    cursor::Cursor,
    watchers::{Outcome, Reached},
    window::{Bounds, Feed, Interest, PageLimit, Spot, Window},
};
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

/// The number of commits within which a window is expected to reach a cursor soon, even if it is not up to date. So followers that begin
/// one after the other, while commits go on, do not keep moving the window.
const NEAR: u64 = 1_024;

impl SharedFeed {
    /// Follows a kind, or one entity of it.
    pub(crate) fn watch(self: &Arc<Self>, interest: Interest) -> Watch {
        let number = self.state().watchers.add(&interest);
        Watch {
            feed: self.clone(),
            interest,
            number,
        }
    }
}

/// A follower's registration, until it is dropped.
pub(crate) struct Watch {
    feed: Arc<SharedFeed>,
    interest: Interest,
    number: u64,
}

/// The next step of a follower.
pub(crate) enum Next {
    /// Reads what there is, from here on if known.
    Read(Option<Reached>),
    /// Goes on waiting: nothing decoded since was for this follower.
    Wait,
}

impl Watch {
    /// Returns the follower's next step, or why it cannot read on.
    pub(crate) fn next(&self) -> Result<Next, Arc<str>> {
        let mut state = self.feed.state();
        match state.watchers.outcome(&self.interest, self.number) {
            Outcome::None => Ok(Next::Read(None)),
            Outcome::Found(reached) => Ok(Next::Read(reached)),
            Outcome::Waits => Ok(Next::Wait),
            Outcome::Failed(why) => Err(why),
        }
    }

    /// Returns the decoded events from a cursor on, and the spot after them; `None` if the window begins after the cursor.
    pub(crate) fn page(&self, from: &Cursor, spot: Option<Spot>, limit: PageLimit) -> Option<(Feed, Option<Spot>)> {
        match &self.feed.state().window {
            Some(window) if !window.covers(from, spot) => None,
            Some(window) => {
                let (feed, spot) = window.page(&self.interest, from, spot, limit);
                Some((feed, Some(spot)))
            }
            None => {
                let feed = Feed {
                    events: Vec::new(),
                    next: from.clone(),
                    more: false,
                };
                Some((feed, None))
            }
        }
    }

    /// Waits until there may be something after a cursor, and returns where it is, if known.
    pub(crate) async fn wait(&self, from: &Cursor, spot: Option<Spot>) -> Result<Option<Reached>, Arc<str>> {
        poll_fn(|context| {
            let mut woken = Vec::new();
            let is_first = {
                let state = &mut *self.feed.state();
                match state.watchers.outcome(&self.interest, self.number) {
                    Outcome::Found(reached) => return Poll::Ready(Ok(reached)),
                    Outcome::Failed(why) => return Poll::Ready(Err(why)),
                    Outcome::Waits => {}
                    Outcome::None if state.is_beyond(from, spot) => return Poll::Ready(Ok(None)),
                    Outcome::None => state.reach(from, self.feed.bounds, &mut woken),
                }
                let is_first = !state.watchers.are_waiting();
                // While no follower waited, the window may have fallen behind by any amount.
                state.live &= !is_first;
                state.watchers.wait(&self.interest, self.number, from, context.waker());
                is_first
            };
            if is_first {
                self.feed.wake.wake();
            }
            woken.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }
}

impl State {
    /// True if the window has already come to this cursor, or begins after it.
    fn is_beyond(&self, from: &Cursor, spot: Option<Spot>) -> bool {
        self.window.as_ref().is_some_and(|window| !window.is_before(from, spot))
    }

    /// Makes sure that the window reaches this cursor soon.
    fn reach(&mut self, from: &Cursor, bounds: Bounds, woken: &mut Vec<Waker>) {
        let comes_there = self.window.as_ref().is_some_and(|window| {
            let is_near = from.told.more_than(window.end()).is_some_and(|commits| commits <= NEAR);
            is_near || self.live && self.watchers.are_waiting()
        });
        if !comes_there {
            self.windows += 1;
            self.window = Some(Window::new(self.windows, from.told.clone(), bounds));
            self.watchers.release(None, woken);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.feed.state();
        state.watchers.remove(&self.interest, self.number);
        let window = if state.watchers.is_empty() {
            state.window.take()
        } else {
            None
        };
        // The memory of its commits is freed without the lock.
        drop(state);
        drop(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{decode::Decoded, watchers::Watchers};
    use throng_journal::{Address, CommitBuilder, CommitNo, RecordKind, ShardId, Stamp, Stream, WriterId};

    const BOUNDS: Bounds = Bounds {
        bytes_max: 1 << 20,
        commits_max: 100,
    };

    fn cursor(text: &str) -> Cursor {
        text.parse().unwrap()
    }

    fn stream(writer: u64) -> Stream {
        Stream {
            writer: WriterId(writer),
            shards: Some([ShardId(u16::try_from(writer).unwrap())].into_iter().collect()),
            last: CommitNo(30),
            is_sealed: false,
        }
    }

    #[test]
    fn passed_commits_are_told_with_the_awaited_one() {
        let everything = Interest { kind: 0, entity: None };
        let from = cursor("1.5,2.5");
        let mut window = Window::new(0, from.told.clone(), BOUNDS);
        window.streams = vec![stream(1), stream(2)];
        let mut watchers = Watchers::new(1);
        let number = watchers.add(&everything);
        watchers.wait(&everything, number, &from, Waker::noop());
        let mut woken = Vec::new();
        // The second stream's commit has no event for the watcher, and the first stream's has one.
        for (writer, kinds) in [(2, &["other"]), (1, &["till"])] {
            let mut open = CommitBuilder::default();
            let till = Address::new("till", "a");
            open.push(RecordKind::Event, ShardId(0), &till, 1, "moved", 1, b"{}");
            let commit = open.finish(Stamp::new(WriterId(writer), CommitNo(5), 7));
            let decoded = Decoded::new(&commit, kinds);
            watchers.found(&decoded, &window, &mut woken);
            window.push(decoded);
        }
        let Outcome::Found(Some(reached)) = watchers.outcome(&everything, number) else {
            panic!("it is woken by the event");
        };
        assert_eq!((woken.len(), reached.told.to_string()), (1, "1.4,2.5".into()));
    }

    #[test]
    fn window_moves_only_to_a_follower_out_of_reach() {
        let everything = Interest { kind: 0, entity: None };
        for (to, is_live, moves) in [
            ("1.10", false, false),
            ("1.1034", false, false),
            ("1.1035", false, true),
            ("2.1", false, true),
            ("1.10,2.7", false, false),
            ("1.1035", true, false),
            ("2.1", true, false),
        ] {
            let mut watchers = Watchers::new(1);
            let number = watchers.add(&everything);
            let waits_at = cursor("1.10");
            watchers.wait(&everything, number, &waits_at, Waker::noop());
            let mut state = State {
                window: Some(Window::new(0, waits_at.told.clone(), BOUNDS)),
                windows: 0,
                live: is_live,
                watchers,
            };
            let mut woken = Vec::new();
            state.reach(&cursor(to), BOUNDS, &mut woken);
            let begins_there = state.window.as_ref().unwrap().begin() == &waits_at.told;
            assert_eq!(
                (!begins_there, woken.len()),
                (moves, usize::from(moves)),
                "{to:?}, {is_live}"
            );
            assert_eq!(state.watchers.are_waiting(), !moves);
            let outcome = state.watchers.outcome(&everything, number);
            assert!(
                matches!(outcome, Outcome::Found(None) if moves) || matches!(outcome, Outcome::Waits if !moves),
                "{outcome:?}"
            );
        }
    }
}
