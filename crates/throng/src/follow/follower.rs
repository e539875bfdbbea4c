//! Following: first what has happened, then what happens, from the one feed all share.

use crate::{
    commit::unreadable,
    engine::Engine,
    epoch::removals,
    feed::{Cursor, EntityEvent, FeedError, Interest, LOST, Next, PageLimit, Reached, Spot, Watch, unavailable},
    history::History,
};
use std::{fmt, sync::Arc, time::Duration};
use throng_journal::{Position, StoredEvent};

/// In a cluster two places may be the same though neither says so, as long as nothing is committed: whoever has looked there in vain, again and
/// again, pauses.
const LOOKS_IN_VAIN: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);
/// In a cluster an entity's owner is asked this often what has happened.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The entities to follow, and the place to begin after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// All entities of a kind.
    Kind {
        /// The kind's index.
        kind: usize,
        /// The events from here on.
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
        /// The commit the event of that number stands in, to notice a history that was lost by a restore.
        at: Option<Position>,
    },
}

/// Written as a cursor to come back with: that of a kind, or an entity's `seq` or `seq@writer.commit`.
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

/// Follows a kind or an entity, event by event and in order. While nothing happens to it, it costs nothing; what happens is
/// decoded once for all followers, and they are woken at most every 20 ms. In a cluster a kind's followers are told what all nodes have
/// committed, ten times a second, an entity's in its order; an entity's own followers ask its owner, four times a second.
pub struct Follower {
    engine: Engine,
    place: FollowerPosition,
    watch: Watch,
    removed_upto: Option<Position>,
    /// The last look found nothing; whether it came to the end of what there is.
    nothing: Option<bool>,
    /// Looks in a row that found nothing.
    looks: u32,
}

/// The place of a follower.
#[derive(Clone, Debug)]
struct FollowerPosition {
    follow: Follow,
    /// An entity's follower that has seen its history goes on from here in the feed.
    feed: Option<Cursor>,
    /// In the feed's window, where that is known.
    spot: Option<Spot>,
}

/// The events that a look found.
struct Found {
    events: Vec<Arc<EntityEvent>>,
    /// The place after them.
    place: FollowerPosition,
    /// There is no more than these before that place in the log, which is where to wait for it.
    is_end: bool,
}

impl Engine {
    /// Follows a kind or an entity. What it sees is durable.
    ///
    /// # Errors
    /// This history has no such place, there is no such entity, or the engine's.
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

    /// Refuses a place that is not in the history, or not any more.
    async fn check_place(&self, follow: &Follow) -> Result<(), FeedError> {
        match follow {
            Follow::Kind { from, .. } => from.check(&self.core.streams(from.told.first()).await?),
            Follow::Entity { kind, id, after, at } => {
                let seen = match *after {
                    // There has to be such an entity.
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
    /// A kind's follower began before this commit, up to which history of the kind was removed: it is not told all that happened.
    #[must_use]
    pub fn removed_upto(&self) -> Option<Position> {
        self.removed_upto
    }

    /// Returns its place: to follow again from here.
    #[must_use]
    pub fn place(&self) -> &Follow {
        &self.place.follow
    }

    /// The next events, at least one and at most so many; waits until there are some. Nothing is lost if it is not waited for to
    /// the end.
    ///
    /// # Errors
    /// The history has lost its place by a restore, or the engine's.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        self.next_within(limit, usize::MAX).await
    }

    /// The same, of at most so many bytes of payloads after the first event.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn next_within(&mut self, limit: usize, bytes: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        let events = limit.max(1);
        let found = self.find(PageLimit { events, bytes }).await?;
        self.place = found.place;
        Ok(found.events)
    }

    /// The same as far as there are some now: none where the next ones have to be [waited](Self::wait) for.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn next_now(&mut self, limit: usize, bytes: usize) -> Result<Vec<Arc<EntityEvent>>, FeedError> {
        let events = limit.max(1);
        let found = self.look(PageLimit { events, bytes }).await?;
        self.place = found.place;
        Ok(found.events)
    }

    /// Waits until there may be a next event, and reads none.
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

    /// Goes back to a place where it has been: what was told since is read again.
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

    /// Its entity may be another node's, now or later: only the history says what happens to it.
    fn is_of_cluster(&self) -> bool {
        self.engine.core.context.peers.is_some()
    }

    /// The next events. What was looked through in vain is behind it, whatever becomes of this.
    async fn find(&mut self, limit: PageLimit) -> Result<Found, FeedError> {
        loop {
            self.wait().await?;
            let found = self.look(limit).await?;
            if !found.events.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Looks once. What was looked through in vain is behind it.
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

    /// A look found nothing.
    fn in_vain(&mut self, is_end: bool) {
        self.looks = self.looks.saturating_add(1);
        self.nothing = Some(is_end);
    }

    /// Goes on where it waited for. A lost end of the history ends it only if its place is in what is lost.
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

    /// Reads events from the window of the feed. The window may have gone on without this follower.
    /// Then a kind's follower reads the journal until it gets there, and an entity's reads its history.
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
                // Its numbers have no gaps: the history knows what is between.
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
        // Before the history is read: what happens meanwhile is seen twice, never missed.
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
    /// Returns its place in the log; `None` while an entity's follower still reads its history.
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

    /// An entity's follower comes back after the last event it has seen.
    fn seen(&mut self, last: Option<&StoredEvent>) {
        if let (Some(last), Follow::Entity { after, at, .. }) = (last, &mut self.follow) {
            (*after, *at) = (last.seq, Some(last.position));
        }
    }
}
