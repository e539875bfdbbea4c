//! Following: first what has happened, then what happens, from the one tail all share.

use super::{Ends, EntityEvent, Next, Watch, unavailable, window::Interest};
use crate::{
    engine::Engine,
    feed::{Cursor, FeedError},
    ledger::unreadable,
};
use std::{fmt, sync::Arc, time::Duration};
use throng_journal::{Position, StoredEvent};

/// In a cluster an entity's owner is asked this often what has happened.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// What is followed, and after what.
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
        /// The events after this sequence number.
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
/// decoded once for all followers, and they are woken at most every 20 ms. In a cluster each asks the entity's owner, four times a second.
pub struct Follower {
    engine: Engine,
    place: Place,
    watch: Watch,
    removed_upto: Option<Position>,
}

/// Where a follower is.
#[derive(Clone, Debug)]
struct Place {
    follow: Follow,
    /// An entity's follower that has seen its history goes on from here in the tail.
    tail: Option<Cursor>,
}

/// What was found.
struct Found {
    events: Vec<Arc<EntityEvent>>,
    /// The place after them.
    place: Place,
    /// There is no more than these before this cursor, which is where to wait for it.
    end: Option<Cursor>,
}

impl Engine {
    /// Follows a kind or an entity. What it sees is durable.
    ///
    /// # Errors
    /// This history has no such place, there is no such entity, or the engine's; a node of a cluster follows no kind.
    pub async fn follow(&self, follow: Follow) -> Result<Follower, FeedError> {
        let mut removed_upto = None;
        let interest = match &follow {
            Follow::Kind { kind, from } => {
                self.check_is_alone().map_err(FeedError::Engine)?;
                let life = self.core.lives.current().map_err(FeedError::Engine)?;
                let name = self.core.context.registry.kinds()[*kind].name;
                let removed = crate::retention::removed_upto(&self.core, &life, name).await;
                let removed = removed
                    .map_err(|error| unreadable(format!("what is left of {name} is not known"), &error))
                    .map_err(FeedError::Engine)?;
                removed_upto = removed.filter(|upto| *upto > from.before());
                if let Some(upto) = removed_upto {
                    tracing::info!("who follows {name} from {from} misses what was removed up to commit {upto}");
                }
                if !from.is_in(&Ends::of(&life)) {
                    return Err(FeedError::Lost(from.to_string()));
                }
                let (kind, entity) = (*kind, None);
                Interest { kind, entity }
            }
            Follow::Entity { kind, id, after, at } => {
                let at = at.filter(|_| *after > 0);
                let before = after - u64::from(at.is_some());
                let history = self.history(*kind, id, before, 1).await.map_err(FeedError::Engine)?;
                if at.is_some_and(|at| history.events.first().is_none_or(|event| event.position != at)) {
                    return Err(FeedError::Lost(follow.to_string()));
                }
                let (kind, entity) = (*kind, Some(id.as_str().into()));
                Interest { kind, entity }
            }
        };
        Ok(Follower {
            engine: self.clone(),
            place: Place { follow, tail: None },
            watch: self.core.tail.watch(interest),
            removed_upto,
        })
    }
}

impl Follower {
    /// A kind's follower began before this commit, up to which history of the kind was removed: it is not told all that happened.
    #[must_use]
    pub fn removed_upto(&self) -> Option<Position> {
        self.removed_upto
    }

    /// Where it is: to follow again from here.
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
        let found = self.find(limit.max(1)).await?;
        self.place = found.place;
        Ok(found.events)
    }

    /// Waits until there is a next event, without taking it.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn ready(&mut self) -> Result<(), FeedError> {
        self.find(1).await.map(drop)
    }

    /// Its entity may be another node's, now or later: only the history says what happens to it.
    fn is_of_cluster(&self) -> bool {
        self.engine.core.context.peers.is_some()
    }

    /// The next events. What was looked through in vain is behind it, whatever becomes of this.
    async fn find(&mut self, limit: usize) -> Result<Found, FeedError> {
        loop {
            let found = match (&self.place.follow, &self.place.tail) {
                (Follow::Entity { kind, id, after, .. }, None) => self.in_history(*kind, id, *after, limit).await?,
                (Follow::Kind { from, .. }, _) | (Follow::Entity { .. }, Some(from)) => {
                    let from = match self.watch.next(*from).map_err(failed)? {
                        Next::Read(from) => from,
                        Next::Wait(from) => self.watch.wait(from).await.map_err(failed)?,
                    };
                    self.place.set_cursor(from);
                    self.in_log(from, limit).await?
                }
            };
            if !found.events.is_empty() {
                return Ok(found);
            }
            self.place = found.place;
            if let Some(end) = found.end {
                let from = self.watch.wait(end).await.map_err(failed)?;
                self.place.set_cursor(from);
            } else if self.is_of_cluster() {
                self.engine.core.context.host.sleep(ASK_EVERY).await;
            }
        }
    }

    /// From the window. If that has gone on without this follower, a kind's reads the journal until it gets there, an entity's
    /// its history.
    async fn in_log(&self, from: Cursor, limit: usize) -> Result<Found, FeedError> {
        let mut place = self.place.clone();
        let feed = match (self.watch.page(from, limit), &place.follow) {
            (Some(feed), _) => feed,
            (None, Follow::Kind { kind, .. }) => self.engine.feed(*kind, from, limit).await?,
            (None, Follow::Entity { .. }) => {
                place.tail = None;
                return Ok(Found {
                    events: Vec::new(),
                    place,
                    end: None,
                });
            }
        };
        place.set_cursor(feed.next);
        let mut events: Vec<Arc<EntityEvent>> = feed.events.into_iter().map(|event| event.event).collect();
        if let Follow::Entity { after, .. } = place.follow {
            // What its history has shown already.
            events.retain(|event| event.event.seq > after);
            if events.first().is_some_and(|event| event.event.seq != after + 1) {
                // Its numbers have no gaps: the history knows what is between.
                events.clear();
                place.tail = None;
            }
        }
        place.seen(events.last().map(|event| &event.event));
        let end = place.cursor().filter(|_| !feed.more);
        Ok(Found { events, place, end })
    }

    /// An entity's events from its history, to its end.
    async fn in_history(&self, kind: usize, id: &str, after: u64, limit: usize) -> Result<Found, FeedError> {
        // Before the history is read: what happens meanwhile is seen twice, never missed.
        let tail = match self.is_of_cluster() {
            true => None,
            false => Some(self.engine.place(false).map_err(FeedError::Engine)?),
        };
        let history = self.engine.history(kind, id, after, limit).await;
        let history = history.map_err(FeedError::Engine)?;
        let mut place = self.place.clone();
        place.tail = tail.filter(|_| !history.more);
        place.seen(history.events.last());
        let event = |event: StoredEvent| Arc::new(EntityEvent::new(id.into(), event));
        Ok(Found {
            events: history.events.into_iter().map(event).collect(),
            end: place.tail,
            place,
        })
    }
}

impl Place {
    /// Where it is in the log; an entity's follower is in its history first.
    fn cursor(&self) -> Option<Cursor> {
        match &self.follow {
            Follow::Kind { from, .. } => Some(*from),
            Follow::Entity { .. } => self.tail,
        }
    }

    fn set_cursor(&mut self, cursor: Cursor) {
        match &mut self.follow {
            Follow::Kind { from, .. } => *from = cursor,
            Follow::Entity { .. } => self.tail = Some(cursor),
        }
    }

    /// An entity's follower comes back after the last event it has seen.
    fn seen(&mut self, last: Option<&StoredEvent>) {
        if let (Some(last), Follow::Entity { after, at, .. }) = (last, &mut self.follow) {
            (*after, *at) = (last.seq, Some(last.position));
        }
    }
}

fn failed(why: Arc<str>) -> FeedError {
    unavailable(why.to_string())
}
