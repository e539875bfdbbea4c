//! Following what happens, to an entity or to all of a kind: the one source of live streams, over whatever they go.

use crate::problem::Problem;
use std::time::{Duration, Instant};
use throng::{
    Cursor, Engine, FeedError,
    journal::{Position, StoredEvent},
};

/// A follower looks for new events at most this often, however many commits there are.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whom to follow, and what was seen last.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Entity {
        kind: usize,
        id: String,
        after: u64,
        /// The commit of the last event seen, if one was.
        at: Option<Position>,
    },
    Kind {
        kind: usize,
        from: Cursor,
    },
}

/// An event that was seen.
pub(crate) struct Seen {
    /// Whose, where that is not clear.
    pub(crate) id: Option<Box<str>>,
    pub(crate) event: StoredEvent,
}

/// Follows.
pub(crate) struct Follower {
    engine: Engine,
    source: Source,
    /// The durable commit that was looked at last.
    looked_at: Option<Position>,
    looked: Option<Instant>,
    /// There was more than the last look took.
    more: bool,
}

impl Follower {
    /// From here on. A cursor that names a commit is held to it.
    pub(crate) async fn new(engine: Engine, source: Source) -> Result<Self, Box<Problem>> {
        if let Source::Entity {
            kind,
            id,
            after,
            at: Some(at),
        } = &source
            && *after > 0
        {
            let page = engine.history(*kind, id, after - 1, 1).await.map_err(engine_problem)?;
            if page.events.first().is_none_or(|event| event.position != *at) {
                return Err(lost(&cursor(&source)));
            }
        }
        let mut follower = Self {
            engine,
            source,
            looked_at: None,
            looked: None,
            more: true,
        };
        // Whether there is such an entity, and such a place.
        follower.look(1).await?;
        follower.more = true;
        Ok(follower)
    }

    /// Where it is: what to come back with.
    pub(crate) fn cursor(&self) -> String {
        cursor(&self.source)
    }

    /// The next events, at most so many; waits until there are some. Nothing is lost if it is not waited for to the end.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Seen>, Box<Problem>> {
        loop {
            self.wait().await;
            let (seen, source, more) = self.look(limit).await?;
            self.source = source;
            self.more = more;
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
    }

    /// Waits until there is a next event, without taking it.
    pub(crate) async fn waits(&mut self) -> Result<(), Box<Problem>> {
        loop {
            self.wait().await;
            let (seen, source, more) = self.look(1).await?;
            if !seen.is_empty() {
                self.more = true;
                return Ok(());
            }
            // What was looked through in vain is behind it.
            self.source = source;
            self.more = more;
        }
    }

    /// Waits until there may be something new, and it is time to look.
    async fn wait(&mut self) {
        if self.more {
            return;
        }
        self.engine.changed(self.looked_at).await;
        if let Some(left) = self.looked.and_then(|looked| LOOK_EVERY.checked_sub(looked.elapsed())) {
            tokio::time::sleep(left).await;
        }
    }

    /// What there is after the place it is at, the place after that, and whether there is more.
    async fn look(&mut self, limit: usize) -> Result<(Vec<Seen>, Source, bool), Box<Problem>> {
        self.looked_at = self.engine.durable();
        self.looked = Some(Instant::now());
        let mut source = self.source.clone();
        match &mut source {
            Source::Entity { kind, id, after, at } => {
                let page = self
                    .engine
                    .history(*kind, id, *after, limit)
                    .await
                    .map_err(engine_problem)?;
                if let Some(last) = page.events.last() {
                    (*after, *at) = (last.seq, Some(last.position));
                }
                let seen = page.events.into_iter().map(|event| Seen { id: None, event }).collect();
                Ok((seen, source, page.more))
            }
            Source::Kind { kind, from } => {
                let feed = self
                    .engine
                    .feed(*kind, *from, limit)
                    .await
                    .map_err(|error| match error {
                        FeedError::Lost(cursor) => lost(&cursor.to_string()),
                        FeedError::Engine(error) => engine_problem(error),
                    })?;
                *from = feed.next;
                let seen = feed
                    .events
                    .into_iter()
                    .map(|(id, event, _)| Seen { id: Some(id), event });
                Ok((seen.collect(), source, feed.more))
            }
        }
    }
}

fn engine_problem(error: throng::model::Error<throng::JsonRejection>) -> Box<Problem> {
    Problem::of_engine(error).boxed()
}

fn lost(cursor: &str) -> Box<Problem> {
    Problem::history_lost(cursor).boxed()
}

fn cursor(source: &Source) -> String {
    match source {
        Source::Entity {
            after, at: Some(at), ..
        } => format!("{after}@{at}"),
        Source::Entity { after, .. } => after.to_string(),
        Source::Kind { from, .. } => from.to_string(),
    }
}
