//! Followers: first the past events, then new ones, from the feed that all followers share.

use crate::{
    commit::unreadable,
    engine::Engine,
    epoch::removals,
    feed::{Cursor, EntityEvent, FeedError, Interest, LOST, Next, PageLimit, Reached, Spot, Watch, unavailable},
    history::History,
};
use std::{fmt, sync::Arc, time::Duration};
use throng_journal::{Position, StoredEvent};

/// The number of fruitless looks after which a follower pauses. In a cluster two cursors may be equal without being recognizable as such,
/// as long as nothing is committed.
const LOOKS_IN_VAIN: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);
/// The interval at which an entity's owner is asked for new events in a cluster.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The entities to follow, and the place to begin after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// All entities of a kind.
    Kind {
        /// The kind's index.
        kind: usize,
        /// The position from which on events are wanted.
        from: Cursor,
    },
    /// The events of one entity.
    Entity {
        /// The kind's index.
        kind: usize,
        /// The entity's id.
        id: String,
        /// The events after this sequence number, which is one of the entity's, or 0.
        after: u64,
        /// The commit of that event. It shows whether a restore has lost history.
        at: Option<Position>,
    },
}

/// Writes the position at which to follow again: a kind's cursor, or an entity's `seq` or `seq@writer.commit`.
impl fmt::Display for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { from, .. } => from.fmt(f),
            Self::Entity {
                after, at: Some(at), ..
            } => write!(f, "{after}@{at}"),
            Self::Entity { after, .. } => after.fmt(f),
        }
    }
}

/// Follows a kind or an entity, event by event and in order. It costs nothing while there are no new events. Events are
/// decoded once for all followers, which are woken at most every 20 ms. In a cluster, followers of a kind get the commits of all nodes
/// ten times a second, in order for each entity; followers of an entity ask its owner four times a second.
pub struct Follower {
    engine: Engine,
    place: FollowerPosition,
    watch: Watch,
    removed_upto: Option<Position>,
    /// Set if the last look found nothing; true if it reached the end.
    nothing: Option<bool>,
    /// The number of fruitless looks in a row.
    looks: u32,
}

/// The place of a follower.
#[derive(Clone, Debug)]
struct FollowerPosition {
    follow: Follow,
    /// The position in the feed at which an entity's follower continues after the history.
    feed: Option<Cursor>,
    /// The spot in the feed's window, if known.
    spot: Option<Spot>,
}

/// The events that a look found.
struct Found {
    events: Vec<Arc<EntityEvent>>,
    /// The place after them.
    place: FollowerPosition,
    /// True if there are no further events before that position in the log, which is where to wait.
    is_end: bool,
}

impl Engine {
    /// Follows a kind or an entity. All events it returns are durable.
    ///
    /// # Errors
    /// [`FeedError::Lost`] if this history has no such position; [`FeedError::Engine`] with `Unknown` if there is no such entity, or with
    /// the engine's error.
    pub async fn follow(&self, follow: Follow) -> Result<Follower, FeedError> {
        let mut removed_upto = None;
        let interest = match &follow {
            Follow::Kind { kind, from } => {
                let streams = self.core.streams(from.told.first()).await?;
                let name = self.core.context.registry.kinds()[*kind].name;
                let removed = removals::removed_upto(&self.core.epochs, name).await;
                let removed = removed
                    .map_err(|error| unreadable(format!("what is left of {name} is not known"), &error))
                    .map_err(FeedError::Engine)?;
                removed_upto = removed.into_iter().filter(|upto| !from.told.has(*upto)).max();
                if let Some(upto) = removed_upto {
                    tracing::info!("who follows {name} from {from} misses what was removed up to commit {upto}");
                }
                from.check(&streams)?;
                let (kind, entity) = (*kind, None);
                Interest { kind, entity }
            }
            Follow::Entity { kind, id, .. } => {
                self.check_place(&follow).await?;
                let (kind, entity) = (*kind, Some(id.as_str().into()));
                Interest { kind, entity }
            }
        };
        Ok(Follower {
            engine: self.clone(),
            place: FollowerPosition {
                follow,
                feed: None,
                spot: None,
            },
            watch: self.core.feed.watch(interest),
            removed_upto,
            nothing: None,
            looks: 0,
        })
    }

    /// Refuses a position that is not, or is no longer, in the history.
    async fn check_place(&self, follow: &Follow) -> Result<(), FeedError> {
        match follow {
            Follow::Kind { from, .. } => from.check(&self.core.streams(from.told.first()).await?),
            Follow::Entity { kind, id, after, at } => {
                let seen = match *after {
                    // Checks that the entity exists.
                    0 => Some(self.history(*kind, id, 0, 1).await?),
                    seq => self.history_at(*kind, id, seq).await?,
                };
                let at = at.filter(|_| *after > 0);
                let is_there = |history: &History| {
                    at.is_none_or(|at| history.events.first().is_some_and(|event| event.position == at))
                };
                match seen.as_ref().is_some_and(is_there) {
                    true => Ok(()),
                    false => Err(FeedError::Lost(follow.to_string())),
                }
            }
        }
    }
}

impl Follower {
    /// Returns the commit up to which history of the kind was removed, if a kind's follower began before it. It has missed events.
    #[must_use]
    pub fn removed_upto(&self) -> Option<Position> {
        self.removed_upto
    }

    /// Returns its position, to follow again from there.
    #[must_use]
    pub fn place(&self) -> &Follow {
        &self.place.follow
    }

    /// Waits for and returns the next events, at least one and at most `limit`. Dropping the future before its end loses
    /// nothing.
    ///
    /// # Errors
    /// [`FeedError::Lost`] if a restore has lost its position; [`FeedError::Engine`] otherwise.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        self.next_within(limit, usize::MAX).await
    }

    /// The same, with at most this many bytes of payloads after the first event.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn next_within(&mut self, limit: usize, bytes: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        let events = limit.max(1);
        let found = self.find(PageLimit { events, bytes }).await?;
        self.place = found.place;
        Ok(found.events)
    }

    /// The same without waiting: returns none if the next events have to be [waited](Self::wait) for.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn next_now(&mut self, limit: usize, bytes: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        let events = limit.max(1);
        let found = self.look(PageLimit { events, bytes }).await?;
        self.place = found.place;
        Ok(found.events)
    }

    /// Waits until there may be a next event, without reading it.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn wait(&mut self) -> Result<(), FeedError> {
        let Some(is_end) = self.nothing else { return Ok(()) };
        if self.looks >= LOOKS_IN_VAIN && self.is_of_cluster() {
            self.engine.core.context.host.sleep(PAUSE).await;
        }
        if let Some(from) = self.place.cursor().filter(|_| is_end) {
            let reached = self.watch.wait(from, self.place.spot).await;
            self.reach(reached).await?;
        } else if self.is_of_cluster() && matches!(self.place.follow, Follow::Entity { .. }) {
            self.engine.core.context.host.sleep(ASK_EVERY).await;
        }
        self.nothing = None;
        Ok(())
    }

    /// Goes back to an earlier position: events since then are returned again.
    pub fn go_back(&mut self, to: Follow) {
        self.place = FollowerPosition {
            follow: to,
            feed: None,
            spot: None,
        };
        self.nothing = None;
    }

    /// Waits until there is a next event, without taking it.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn ready(&mut self) -> Result<(), FeedError> {
        self.find(PageLimit::of(1)).await.map(drop)
    }

    /// True in a cluster. There the entity may belong to another node now or later, so only its history tells its events.
    fn is_of_cluster(&self) -> bool {
        self.engine.core.context.peers.is_some()
    }

    /// Finds the next events. Events that it skipped are not read again, even if it fails.
    async fn find(&mut self, limit: PageLimit) -> Result<Found, FeedError> {
        loop {
            self.wait().await?;
            let found = self.look(limit).await?;
            if !found.events.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Looks once. Events that it skipped are not read again.
    async fn look(&mut self, limit: PageLimit) -> Result<Found, FeedError> {
        let found = match (&self.place.follow, &self.place.feed) {
            (Follow::Entity { kind, id, after, .. }, None) => self.in_history(*kind, id, *after, limit).await?,
            (Follow::Kind { .. }, _) | (Follow::Entity { .. }, Some(_)) => {
                let reached = match self.watch.next() {
                    Ok(Next::Wait) => {
                        self.in_vain(true);
                        return Ok(Found::nothing(self.place.clone()));
                    }
                    Ok(Next::Read(reached)) => Ok(reached),
                    Err(why) => Err(why),
                };
                self.reach(reached).await?;
                self.in_log(limit).await?
            }
        };
        match found.events.is_empty() {
            true => {
                self.place = found.place.clone();
                self.in_vain(found.is_end);
            }
            false => (self.looks, self.nothing) = (0, None),
        }
        Ok(found)
    }

    /// Notes a fruitless look.
    fn in_vain(&mut self, is_end: bool) {
        self.looks = self.looks.saturating_add(1);
        self.nothing = Some(is_end);
    }

    /// Continues after a wait. A lost end of the history ends the follower only if its own position is in the lost part.
    async fn reach(&mut self, reached: Result<Option<Reached>, Arc<str>>) -> Result<(), FeedError> {
        match reached {
            Ok(reached) => self.place.reach(reached),
            Err(why) if *why == *LOST => {
                self.engine.check_place(&self.place.follow).await?;
                (self.place.spot, self.place.feed) = (None, None);
            }
            Err(why) => return Err(unavailable(why.to_string())),
        }
        Ok(())
    }

    /// Reads events from the feed's window. If the window has moved on without this follower, a kind's follower reads the journal until it
    /// reaches the window, and an entity's follower reads the entity's history.
    async fn in_log(&self, limit: PageLimit) -> Result<Found, FeedError> {
        let mut place = self.place.clone();
        let Some(from) = place.cursor() else {
            return Ok(Found::nothing(place));
        };
        let (feed, spot) = match (self.watch.page(from, place.spot, limit), &place.follow) {
            (Some(found), _) => found,
            (None, Follow::Kind { kind, .. }) => (self.engine.feed_within(*kind, from.clone(), limit).await?, None),
            (None, Follow::Entity { .. }) => {
                place.feed = None;
                return Ok(Found::nothing(place));
            }
        };
        place.set_cursor(feed.next);
        place.spot = spot;
        let mut events = feed.events;
        if let Follow::Entity { after, .. } = place.follow {
            // The history has shown the events up to `after` already.
            events.retain(|event| event.event.seq > after);
            if events.first().is_some_and(|event| event.event.seq != after + 1) {
                // The numbers have no gaps, so the events in between are in the history.
                events.clear();
                place.feed = None;
            }
        }
        place.seen(events.last().map(|event| &event.event));
        let is_end = !feed.more && place.cursor().is_some();
        Ok(Found { events, place, is_end })
    }

    /// An entity's events from its history, to its end.
    async fn in_history(&self, kind: usize, id: &str, after: u64, limit: PageLimit) -> Result<Found, FeedError> {
        // Determined before the history is read: new events are then seen twice, never missed.
        let feed = match self.is_of_cluster() {
            true => None,
            false => Some(self.engine.place(false).await?),
        };
        let history = self.engine.history_after(kind, id, after, limit).await;
        let history = history.map_err(FeedError::Engine)?;
        let mut place = self.place.clone();
        place.feed = feed.filter(|_| !history.more);
        place.seen(history.events.last());
        let event = |event: StoredEvent| Arc::new(EntityEvent::new(id.into(), event));
        Ok(Found {
            events: history.events.into_iter().map(event).collect(),
            is_end: place.feed.is_some(),
            place,
        })
    }
}

impl Found {
    fn nothing(place: FollowerPosition) -> Self {
        let (events, is_end) = (Vec::new(), false);
        Self { events, place, is_end }
    }
}

impl FollowerPosition {
    /// Returns its position in the log; `None` while an entity's follower still reads the entity's history.
    fn cursor(&self) -> Option<&Cursor> {
        match &self.follow {
            Follow::Kind { from, .. } => Some(from),
            Follow::Entity { .. } => self.feed.as_ref(),
        }
    }

    /// Moves to the place that it has waited for.
    fn reach(&mut self, reached: Option<Reached>) {
        let Some(Reached { spot, told }) = reached else { return };
        self.spot = Some(spot);
        match (&mut self.follow, &mut self.feed) {
            (Follow::Kind { from, .. }, _) | (Follow::Entity { .. }, Some(from)) => from.join(&told),
            (Follow::Entity { .. }, None) => {}
        }
    }

    fn set_cursor(&mut self, cursor: Cursor) {
        match &mut self.follow {
            Follow::Kind { from, .. } => *from = cursor,
            Follow::Entity { .. } => self.feed = Some(cursor),
        }
    }

    /// Sets the position of an entity's follower after its last event.
    fn seen(&mut self, last: Option<&StoredEvent>) {
        if let (Some(last), Follow::Entity { after, at, .. }) = (last, &mut self.follow) {
            (*after, *at) = (last.seq, Some(last.position));
        }
    }
}
