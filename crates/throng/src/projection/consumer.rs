//! The consumers of a batch of commits: a projection changes a read model's rows, a sink delivers events.

use super::{
    DurableEvent, EventOffset, Projection, Sink, SinkError,
    fold::{Decoded, FoldResult, Poison, decode, fold},
    rows::RowCache,
};
use crate::{model::Entity as _, spans::TraceContext};
use std::future::ready;
use throng_journal::{Commit, Later, Position, Views};

/// The most rounds of fetching rows for one batch. A projection that asks for other rows each time is stopped.
const FETCHES_MAX: usize = 10_000;

/// A projection or a sink, of whatever kind.
pub(crate) trait Consumer: Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> &'static str;
    fn version(&self) -> u32;
    /// True for a projection, which only changes rows; false for a sink.
    fn is_projection(&self) -> bool;
    /// True if its position has to be durable before it goes on.
    fn is_to_sync(&self) -> bool {
        false
    }

    /// Handles a batch without the events in `skipped`, as far as possible. A sink's events carry the spans of `traced` commits. A
    /// projection's changes are in `cache` afterwards. An error is retried.
    fn handle<'a>(
        &'a self,
        commits: &'a [Commit],
        skipped: &'a [EventOffset],
        traced: &'a [(Position, TraceContext)],
        cache: &'a mut RowCache,
        views: &'a dyn Views,
    ) -> Later<'a, Result<Handled, String>>;

    /// Works like [`Sink::compare`], [`Sink::clear`] and [`Sink::complete`]; a projection's rows are the engine's own.
    fn compare(&self, _delivered: Option<EventOffset>) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(ready(Ok(())))
    }

    fn clear(&self) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(ready(Ok(())))
    }

    fn complete(&self) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(ready(Ok(())))
    }
}

/// The reason why nothing was delivered.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// Another attempt may succeed.
    Retry(String),
    /// The receiver has only the events up to this one.
    Behind(Option<EventOffset>),
    Unusable(String),
}

impl From<SinkError> for Obstacle {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Retry(why) => Self::Retry(why),
            SinkError::Behind { reached } => Self::Behind(reached),
            SinkError::Unusable(why) => Self::Unusable(why),
            poison @ SinkError::Poison { .. } => Self::Unusable(poison.to_string()),
        }
    }
}

/// The part of a batch that was handled.
#[derive(Debug, Default)]
pub(crate) struct Handled {
    /// The number of commits, from the first, that count as handled.
    pub(super) commits: usize,
    /// Events in them.
    pub(super) events: usize,
    /// The last event that a sink delivered.
    pub(super) delivered: Option<EventOffset>,
    /// The reason why nothing was delivered.
    pub(super) obstacle: Option<Obstacle>,
    /// The reason why the consumer stops, if it does, and the event at which it stops.
    pub(crate) poison: Option<(String, Option<EventOffset>)>,
}

pub(crate) struct ProjectionConsumer<P>(pub(crate) P);

impl<P: Projection> Consumer for ProjectionConsumer<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn kind(&self) -> &'static str {
        P::Of::KIND
    }

    fn version(&self) -> u32 {
        P::VERSION
    }

    fn is_projection(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        commits: &'a [Commit],
        skipped: &'a [EventOffset],
        _traced: &'a [(Position, TraceContext)],
        cache: &'a mut RowCache,
        views: &'a dyn Views,
    ) -> Later<'a, Result<Handled, String>> {
        Box::pin(async move {
            let Decoded { mut events, mut poison } = decode::<P::Of>(commits, skipped);
            let (mut next, mut fetches) = (0, 0);
            loop {
                let missing = match fold(&self.0, &events, &mut next, cache) {
                    FoldResult::Done => break,
                    FoldResult::Missing(missing) => missing,
                    FoldResult::Poison(found) => {
                        // The commits before it count. They are applied again without it, on the stored rows.
                        events.retain(|(commit, _)| *commit < found.commit);
                        poison = Some(found);
                        next = 0;
                        cache.clear();
                        continue;
                    }
                };
                fetches += 1;
                if fetches > FETCHES_MAX {
                    let (commit, event) = events
                        .get(next)
                        .map_or((0, None), |(at, seen)| (*at, Some(seen.offset)));
                    let reason = format!("it asks for other rows each time it is called, {FETCHES_MAX} times by now");
                    cache.clear();
                    return Ok(Handled {
                        poison: Some((format!("at commit {}: {reason}", commits[commit].position()), event)),
                        ..Handled::default()
                    });
                }
                let values = views.get(P::NAME, missing.clone()).await;
                let values = values.map_err(|error| format!("its rows cannot be read: {error}"))?;
                for (key, value) in missing.into_iter().zip(values) {
                    cache.fetched(key, value);
                }
            }
            Ok(handled(commits.len(), events.len(), poison))
        })
    }
}

pub(crate) struct SinkConsumer<S>(pub(crate) S);

impl<S: Sink> Consumer for SinkConsumer<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn kind(&self) -> &'static str {
        S::Of::KIND
    }

    fn version(&self) -> u32 {
        S::VERSION
    }

    fn is_projection(&self) -> bool {
        false
    }

    fn is_to_sync(&self) -> bool {
        !S::IS_IDEMPOTENT
    }

    fn handle<'a>(
        &'a self,
        commits: &'a [Commit],
        skipped: &'a [EventOffset],
        traced: &'a [(Position, TraceContext)],
        _cache: &'a mut RowCache,
        _views: &'a dyn Views,
    ) -> Later<'a, Result<Handled, String>> {
        Box::pin(async move {
            let mut upto = commits.len();
            let mut refused = None;
            loop {
                let Decoded { events, poison } = decode::<S::Of>(&commits[..upto], skipped);
                let poison = poison.or(refused.take());
                let count = events.len();
                if count == 0 {
                    return Ok(handled(upto, 0, poison));
                }
                let delivered = events.last().map(|(_, seen)| seen.offset);
                let trace_of = |at| traced.iter().find(|(commit, _)| *commit == at).map(|(_, span)| *span);
                let seen = events.into_iter().map(|(_, seen)| DurableEvent {
                    trace: trace_of(seen.offset.position),
                    ..seen
                });
                let batch = seen.collect();
                match self.0.deliver(batch).await {
                    Ok(()) => {
                        return Ok(Handled {
                            delivered,
                            ..handled(upto, count, poison)
                        });
                    }
                    Err(SinkError::Retry(why)) => return Err(why),
                    Err(error @ (SinkError::Behind { .. } | SinkError::Unusable(_))) => {
                        return Ok(Handled {
                            obstacle: Some(error.into()),
                            ..Handled::default()
                        });
                    }
                    Err(SinkError::Poison { offset, reason }) => {
                        // The commits before it are delivered without it.
                        let before = commits.iter().position(|commit| commit.position() >= offset.position);
                        upto = before.unwrap_or(0).min(upto.saturating_sub(1));
                        refused = Some(Poison {
                            commit: upto,
                            reason: format!("the event at {offset} cannot be delivered: {reason}"),
                            event: Some(offset),
                        });
                    }
                }
            }
        })
    }

    fn compare(&self, delivered: Option<EventOffset>) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(async move { Ok(self.0.compare(delivered).await?) })
    }

    fn clear(&self) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(async move { Ok(self.0.clear().await?) })
    }

    fn complete(&self) -> Later<'_, Result<(), Obstacle>> {
        Box::pin(async move { Ok(self.0.complete().await?) })
    }
}

fn handled(commits: usize, events: usize, poison: Option<Poison>) -> Handled {
    Handled {
        commits: poison.as_ref().map_or(commits, |poison| poison.commit),
        events,
        poison: poison.map(|poison| (poison.reason, poison.event)),
        ..Handled::default()
    }
}
