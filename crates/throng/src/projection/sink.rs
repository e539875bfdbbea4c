//! Sinks: events carried to other systems, at least once.

use super::{DurableEvent, EventOffset};
use crate::model::Entity;
use throng_journal::Later;

/// Carries a kind's events to another database, a broker, or a search index, at least once and in order. After a crash
/// between a delivery and its record, the same events come again. A receiver that must not count twice remembers the
/// [`EventOffset`] of the last one, which only grows. In a cluster it only grows within one writer, so one for each writer is needed.
pub trait Sink: Send + Sync + 'static {
    /// The sink's name, 1 to 64 of `[a-z0-9-]`, unique among sinks and projections. Its offset is stored under it.
    const NAME: &'static str;
    /// Raise it to have everything delivered again from the first event.
    const VERSION: u32 = 1;
    /// True if the receiver ignores repeated events. If false, the position is made durable with every batch, so that a killed
    /// engine repeats at most its last batch.
    const IS_IDEMPOTENT: bool = false;
    /// The entity whose events it takes.
    type Of: Entity;

    /// Delivers a batch, in order. A batch holds what has gathered meanwhile, up to 1 MiB of commits.
    ///
    /// # Errors
    /// The [`SinkError`] variant says what to do next. Nothing of the batch counts as delivered.
    fn deliver(&self, batch: Vec<DurableEvent<Self::Of>>) -> Later<'_, Result<(), SinkError>>;

    /// Compares the receiver with the last delivered event, if known. Implement it for a receiver that remembers an
    /// [`EventOffset`] and may lose its data. Called before the first delivery, and every ten seconds.
    ///
    /// # Errors
    /// [`SinkError::Behind`] if it has lost some.
    fn compare(&self, _delivered: Option<EventOffset>) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes everything delivered, because a rebuild delivers it again from the first event.
    ///
    /// # Errors
    /// [`SinkError`]: nothing is delivered before this has succeeded.
    fn clear(&self) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called once every durable event has been delivered after a start from the first event, a rebuild, or a return to an earlier event.
    ///
    /// # Errors
    /// [`SinkError`]: it is called again.
    fn complete(&self) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A batch could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The receiver cannot be reached, or refuses for now. The batch is retried after a growing pause.
    #[error("{0}")]
    Retry(String),
    /// The receiver will never accept this event. The sink stops before the event's commit.
    #[error("the event at {offset} cannot be delivered: {reason}")]
    Poison {
        /// The event's place in history.
        offset: EventOffset,
        /// The reason why it cannot be delivered, for people.
        reason: String,
    },
    /// The receiver has lost events: those after its last one are delivered again. In a cluster, where one event does not determine its
    /// position in the stream of each node, the receiver is [cleared](Sink::clear) and all events are delivered again.
    #[error("the receiver has lost events it had taken; it has come to {}", .reached.map_or_else(|| "none".to_owned(), |reached| reached.to_string()))]
    Behind {
        /// The last event it has; `None`: none.
        reached: Option<EventOffset>,
    },
    /// Nothing can be delivered, whatever the event. The sink stops until it is resumed.
    #[error("{0}")]
    Unusable(String),
}
