//! The feed: the end of history, read and decoded once for all followers.
//!
//! A [`SharedFeed`] keeps the last durable commits decoded in a [`Window`]: contiguous, bounded by bytes and by number. While a follower
//! waits at the window's end, one task ([`pump`]) reads on, at most every 20 ms, and wakes the followers of the affected kinds and
//! entities. Without followers nothing is read or kept. A follower inside the window reads only the window. A follower behind it reads the
//! journal page by page, on another thread and only a few followers at a time, until it reaches the window.
//!
//! The window begins where the first follower waits. A follower that waits beyond the window moves it, because most followers are up to
//! date; a follower that this leaves behind reads the journal.

mod cursor;
mod decode;
mod pump;
mod watch;
mod watchers;
mod window;

pub use cursor::{Cursor, FeedError};
pub use decode::EntityEvent;
pub use window::Feed;

pub(crate) use pump::task;
pub(crate) use watch::{Next, Watch};
pub(crate) use watchers::Reached;
pub(crate) use window::{Interest, PageLimit, Spot};

use crate::{
    commit::unreadable,
    epoch::{self, Epoch, Epochs},
    host::Signal,
};
use decode::Decoded;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};
use throng_core::model::Error;
use throng_journal::{Later, Position, Positions, Stream, Stretch, WriterId};
use tokio::sync::{Semaphore, oneshot};
use watchers::Watchers;
use window::{Bounds, Window};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 1 << 20;
/// Decoded commits kept, in bytes and by number.
const BOUNDS: Bounds = Bounds {
    bytes_max: 8 << 20,
    commits_max: 8_192,
};
/// The most followers behind the window that read the journal at a time, a megabyte each.
const READS_MAX: usize = 2;

/// The end of history, decoded.
pub(crate) struct SharedFeed {
    epochs: Arc<Epochs>,
    /// The names of the kinds, by their indices.
    kinds: Arc<[&'static str]>,
    bounds: Bounds,
    state: Mutex<State>,
    reads: Arc<Semaphore>,
    /// Wakes the task that reads on.
    wake: Signal,
}

struct State {
    /// While somebody follows.
    window: Option<Window>,
    /// The number of windows so far.
    windows: u64,
    /// True if the window reached the end of the durable log at its last extension. Unknown, and false, while no follower waits.
    live: bool,
    watchers: Watchers,
}

/// The result of reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    /// More commits are durable.
    More,
    /// The window reaches the end of the durable log.
    Live,
    /// The journal cannot be read.
    Failed,
    /// The window ends at a position that is no longer in the history: the database was rolled back.
    Lost,
}

/// The window's end, where a follower waits.
struct Waited {
    /// The window's id, the first stream it names, and its end.
    window: u64,
    first: WriterId,
    end: Positions,
    /// The next stretch of the log, if known.
    next: Option<Stretch>,
}

/// Returns the stretch to read next. Of several streams it is the one with the most left, so that none waits for another.
fn longest(next: Vec<Stretch>) -> Option<Stretch> {
    next.into_iter()
        .max_by_key(|stretch| stretch.upto.0.saturating_sub(stretch.after.commit.0))
}

impl SharedFeed {
    pub(crate) fn new(epochs: Arc<Epochs>) -> Self {
        let kinds: Arc<[&'static str]> = epochs.context.registry.kinds().iter().map(|kind| kind.name).collect();
        let state = State {
            window: None,
            windows: 0,
            live: false,
            watchers: Watchers::new(kinds.len()),
        };
        Self {
            epochs,
            kinds,
            bounds: BOUNDS,
            state: Mutex::new(state),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            wake: Signal::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the durable events of a kind from a cursor on, at most a page. They come from the window, or from these streams of the
    /// journal, which begin with the cursor's first.
    ///
    /// # Errors
    /// [`FeedError::Lost`] if this history has no such position; [`FeedError::Engine`] if the journal cannot be read.
    pub(crate) async fn page(
        &self,
        kind: usize,
        mut from: Cursor,
        limit: PageLimit,
        streams: &[Stream],
    ) -> Result<Feed, FeedError> {
        from.check(streams)?;
        from.told.drop_ended(streams);
        let interest = Interest { kind, entity: None };
        let mut feed = match self.decoded(&interest, &from, limit) {
            Some(feed) => feed,
            None => self.read(&interest, from, limit, streams).await?,
        };
        feed.more |= !feed.next.told.next(streams).is_empty();
        Ok(feed)
    }

    /// Returns a page from the window; `None` if the window does not reach there.
    fn decoded(&self, interest: &Interest, from: &Cursor, limit: PageLimit) -> Option<Feed> {
        let state = self.state();
        let window = state.window.as_ref()?;
        (window.covers(from, None) && !window.is_before(from, None)).then(|| window.page(interest, from, None, limit).0)
    }

    /// Reads a page from the journal, and keeps what was read if it adjoins the window.
    async fn read(
        &self,
        interest: &Interest,
        from: Cursor,
        limit: PageLimit,
        streams: &[Stream],
    ) -> Result<Feed, FeedError> {
        let Some(stretch) = longest(from.told.next(streams)) else {
            let (events, more) = (Vec::new(), false);
            return Ok(Feed {
                events,
                next: from,
                more,
            });
        };
        // The semaphore is never closed.
        let permit = self.reads.clone().acquire_owned().await;
        // Another follower may have read it meanwhile.
        if let Some(feed) = self.decoded(interest, &from, limit) {
            return Ok(feed);
        }
        let (sender, receiver) = oneshot::channel();
        let (journal, kinds) = (self.epochs.context.journal.clone(), self.kinds.clone());
        // A journal may block the thread that reads it, which must not be a gateway's loop.
        self.epochs.context.host.spawn(Box::pin(async move {
            let commits = stretch.read(&*journal, READ_BYTES).await;
            let decoded = commits.map(|commits| commits.iter().map(|commit| Decoded::new(commit, &kinds)).collect());
            // The reader may have gone away; the permit is released only now.
            let _ = sender.send(decoded);
            drop(permit);
        }));
        let decoded: Vec<Decoded> = match receiver.await {
            Ok(Ok(decoded)) => decoded,
            Ok(Err(error)) => return Err(FeedError::Engine(unreadable(UNREADABLE.into(), &error))),
            Err(_) => return Err(unavailable("the engine has stopped".into())),
        };
        let (feed, _) = window::page(decoded.iter(), interest, &from, limit, streams);
        if let Some(window) = &mut self.state().window {
            window.extend_back(&from.told, decoded, streams);
        }
        Ok(feed)
    }

    /// Extends the window if a follower waits at its end. A node of a cluster reads the streams it knows, then looks for more.
    async fn advance(&self, epoch: Option<&Epoch>) -> Advance {
        match self.read_on(epoch).await {
            Ok(advance) => advance,
            Err(error) => {
                tracing::error!("{UNREADABLE}: {error}");
                Advance::Failed
            }
        }
    }

    fn read_on<'a>(&'a self, epoch: Option<&'a Epoch>) -> Later<'a, Result<Advance, throng_journal::Error>> {
        Box::pin(async move {
            let context = &self.epochs.context;
            let Some(waited) = self.waited_for() else {
                return Ok(Advance::Live);
            };
            let Waited {
                window,
                first,
                end,
                mut next,
            } = waited;
            if next.is_none() || context.peers.is_none() {
                let streams = epoch::streams(context, epoch, first).await?;
                if !Cursor::from(end.clone()).is_in(&streams) {
                    return Ok(Advance::Lost);
                }
                next = longest(end.next(&streams));
                let state = &mut *self.state();
                // The window may have been moved meanwhile.
                let Some(window) = state.window.as_mut().filter(|now| now.id() == window) else {
                    return Ok(Advance::More);
                };
                window.streams = streams;
                state.live = next.is_none();
            }
            let Some(stretch) = next else {
                return Ok(Advance::Live);
            };
            let commits = stretch.read(&*context.journal, READ_BYTES).await?;
            let decoded: Vec<Decoded> = commits.iter().map(|commit| Decoded::new(commit, &self.kinds)).collect();
            let mut woken = Vec::new();
            let advance = {
                let state = &mut *self.state();
                let Some(window) = state.window.as_mut().filter(|now| now.id() == window) else {
                    return Ok(Advance::More);
                };
                for commit in decoded {
                    state.watchers.found(&commit, window, &mut woken);
                    window.push(commit);
                }
                state.live = window.end().next(&window.streams).is_empty();
                if state.live { Advance::Live } else { Advance::More }
            };
            woken.into_iter().for_each(Waker::wake);
            Ok(advance)
        })
    }

    /// Returns the stretch to read next; `None` while no follower waits at the window's end.
    fn waited_for(&self) -> Option<Waited> {
        let state = self.state();
        let window = state.window.as_ref()?;
        state.watchers.are_waiting().then(|| Waited {
            window: window.id(),
            first: window.begin().first(),
            end: window.end().clone(),
            next: longest(window.end().next(&window.streams)),
        })
    }

    /// True if a follower waits at the window's end.
    fn are_waiting(&self) -> bool {
        self.state().watchers.are_waiting()
    }

    /// True if the window has come to this commit, the last durable one of an engine without peers.
    fn is_at(&self, durable: Position) -> bool {
        let state = self.state();
        state
            .window
            .as_ref()
            .is_some_and(|window| *window.end() == Positions::from(durable))
    }

    /// Ends all waits with this reason.
    fn fail(&self, why: &str) {
        let mut woken = Vec::new();
        {
            let state = &mut *self.state();
            state.window = None;
            state.watchers.release(Some(&why.into()), &mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The reason that followers get when the journal cannot be read.
const UNREADABLE: &str = "the log cannot be read";
/// The reason that followers get when the last commit read is lost. Each follower then checks its own position.
pub(crate) const LOST: &str = "the end of the history is lost";

pub(crate) fn unavailable(reason: String) -> FeedError {
    FeedError::Engine(Error::Unavailable { reason })
}
