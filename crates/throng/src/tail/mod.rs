//! The end of history, read and decoded once for all who follow it.
//!
//! A [`Tail`] keeps the last durable commits decoded in a [`Window`]: contiguous, bounded by bytes and by number. One task
//! ([`pump`]) reads on while somebody waits at the window's end, at most every 20 ms, and wakes those for whose kind or entity something
//! has happened; while nobody follows, nothing is read and nothing kept. A follower inside the window reads nothing but the
//! window. One behind it reads the journal page by page, a few of them at a time and not on its own thread, until it gets there.
//!
//! The window begins where the first follower waits. One that waits beyond it moves it, since those who are up to date are the
//! many; whoever is left behind by that reads the journal by itself.

mod decode;
mod ends;
mod follower;
mod pump;
mod watch;
mod watchers;
mod window;

pub use decode::EntityEvent;
pub use follower::{Follow, Follower};

pub(crate) use ends::Ends;
pub(crate) use pump::task;

use crate::{
    context::Signal,
    feed::{Cursor, Feed, FeedError, FeedEvent},
    host::Host,
    ledger::unreadable,
};
use decode::Decoded;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};
use throng_core::{model::Error, shard::Registry};
use throng_journal::{Journal, Position};
use tokio::sync::{Semaphore, oneshot};
use watch::{Next, Watch};
use watchers::Watchers;
use window::{Bounds, Interest, Window};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 1 << 20;
/// Decoded commits kept, in bytes and by number.
const BOUNDS: Bounds = Bounds {
    bytes_max: 8 << 20,
    commits_max: 8_192,
};
/// Followers behind the window that read the journal at a time, each a megabyte.
const READS_MAX: usize = 2;

/// The end of history, decoded.
pub(crate) struct Tail {
    journal: Arc<dyn Journal>,
    host: Arc<dyn Host>,
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
    /// The window reached to the end of what was durable when it was read on last; not known while nobody waits.
    live: bool,
    watchers: Watchers,
}

/// What reading on has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    /// There is more that is durable.
    More,
    /// The window reaches to the end of what is durable.
    Live,
}

impl Tail {
    pub(crate) fn new(journal: Arc<dyn Journal>, host: Arc<dyn Host>, registry: &Registry) -> Self {
        let kinds: Arc<[&'static str]> = registry.kinds().iter().map(|kind| kind.name).collect();
        let state = State {
            window: None,
            live: false,
            watchers: Watchers::new(kinds.len()),
        };
        Self {
            journal,
            host,
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

    /// The durable events of a kind from a cursor on, as many as one page holds: from the window, else from the journal.
    ///
    /// # Errors
    /// There is no such place in this history, or the journal cannot be read.
    pub(crate) async fn page(
        &self,
        kind: usize,
        from: Cursor,
        limit: usize,
        ends: &Ends<'_>,
    ) -> Result<Feed, FeedError> {
        if !from.is_in(ends) {
            return Err(FeedError::Lost(from.to_string()));
        }
        let interest = Interest { kind, entity: None };
        let mut feed = match self.decoded(&interest, from, limit) {
            Some(feed) => feed,
            None => self.read(&interest, from, limit, ends).await?,
        };
        feed.more |= ends.after(feed.next.before()).is_some();
        Ok(feed)
    }

    /// From the window; `None` if it does not reach there.
    fn decoded(&self, interest: &Interest, from: Cursor, limit: usize) -> Option<Feed> {
        let state = self.state();
        let window = state.window.as_ref()?;
        (window.covers(from) && !window.is_before(from)).then(|| window.page(interest, from, limit))
    }

    /// From the journal; what is read is kept if it reaches the window.
    async fn read(&self, interest: &Interest, from: Cursor, limit: usize, ends: &Ends<'_>) -> Result<Feed, FeedError> {
        let Some(stretch) = ends.after(from.before()) else {
            let (events, more) = (Vec::new(), false);
            return Ok(Feed {
                events,
                next: from,
                more,
            });
        };
        // Never closed.
        let permit = self.reads.clone().acquire_owned().await;
        // Another follower may have read it meanwhile.
        if let Some(feed) = self.decoded(interest, from, limit) {
            return Ok(feed);
        }
        let (sender, receiver) = oneshot::channel();
        let (journal, kinds) = (self.journal.clone(), self.kinds.clone());
        // A journal may read at once, on whatever thread it is asked: not on a gateway's loop.
        self.host.spawn(Box::pin(async move {
            let commits = stretch.read(&*journal, READ_BYTES).await;
            let decoded = commits.map(|commits| commits.iter().map(|commit| Decoded::new(commit, &kinds)).collect());
            // Whoever asked may have gone; the next may read only now.
            let _ = sender.send(decoded);
            drop(permit);
        }));
        let decoded: Vec<Decoded> = match receiver.await {
            Ok(Ok(decoded)) => decoded,
            Ok(Err(error)) => return Err(FeedError::Engine(unreadable(UNREADABLE.into(), &error))),
            Err(_) => return Err(unavailable("the engine has stopped".into())),
        };
        let feed = window::page(decoded.iter(), interest, from, limit);
        if let Some(window) = &mut self.state().window {
            window.extend_back(decoded);
        }
        Ok(feed)
    }

    /// Reads on from the window's end, if somebody waits there.
    async fn advance(&self, ends: &Ends<'_>) -> Advance {
        let Some(end) = self.awaited_after() else {
            return Advance::Live;
        };
        let Some(stretch) = ends.after(end) else {
            self.state().live = true;
            return Advance::Live;
        };
        let commits = match stretch.read(&*self.journal, READ_BYTES).await {
            Ok(commits) => commits,
            Err(error) => {
                tracing::error!("{UNREADABLE}: {error}");
                self.fail(UNREADABLE);
                return Advance::Live;
            }
        };
        let decoded: Vec<Decoded> = commits.iter().map(|commit| Decoded::new(commit, &self.kinds)).collect();
        let mut woken = Vec::new();
        let advance = {
            let state = &mut *self.state();
            // Unless it was moved meanwhile.
            let Some(window) = state.window.as_mut().filter(|window| window.end() == end) else {
                return Advance::More;
            };
            for commit in decoded {
                state.watchers.found(&commit, &mut woken);
                window.push(commit);
            }
            state.live = ends.after(window.end()).is_none();
            if state.live { Advance::Live } else { Advance::More }
        };
        woken.into_iter().for_each(Waker::wake);
        advance
    }

    /// The window's end, if somebody waits for what follows it.
    fn awaited_after(&self) -> Option<Position> {
        let state = self.state();
        let window = state.window.as_ref()?;
        state.watchers.are_waiting().then(|| window.end())
    }

    /// Tells all who wait that there is nothing to wait for.
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

/// What is told when it is not.
const UNREADABLE: &str = "the log cannot be read";

fn unavailable(reason: String) -> FeedError {
    FeedError::Engine(Error::Unavailable { reason })
}
