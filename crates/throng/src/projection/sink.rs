//! Events on their way elsewhere, at least once.

use super::{DurableEvent, EventOffset};
use crate::model::Entity;
use throng_journal::Later;

/// Takes a kind's events elsewhere: another database, a broker, a search index. At least once and in order: after a crash
/// between delivery and the note of it, the same events come again. Whoever must not count twice remembers the
/// [`EventOffset`] of the last one, which only grows; in a cluster only within one writer, so that the last one of each writer is needed.
pub trait Sink: Send + Sync + 'static {
    /// 1 to 64 of `[a-z0-9-]`, unlike any other sink's or projection's: its offset is kept under this name.
    const NAME: &'static str;
    /// Raise it to have everything delivered again from the first event.
    const VERSION: u32 = 1;
    /// The receiver leaves out what it has taken already. Otherwise how far it has come is made durable with every batch: an engine that is
    /// killed then delivers no more than its last batch again.
    const IS_IDEMPOTENT: bool = false;
    /// The entity whose events it takes.
    type Of: Entity;

    /// Delivers a batch, in order. It grows with what has gathered meanwhile, up to 1 MiB of commits.
    ///
    /// # Errors
    /// What is to be done about it; nothing of the batch counts as delivered then.
    fn deliver(&self, batch: Vec<DurableEvent<Self::Of>>) -> Later<'_, Result<(), SinkError>>;

    /// Compares what the receiver has taken with the last event it was delivered; `None`: none is known. For a receiver that remembers an
    /// [`EventOffset`] and may lose its data. Asked before the first delivery, and every ten seconds.
    ///
    /// # Errors
    /// [`SinkError::Behind`] if it has lost some.
    fn compare(&self, _delivered: Option<EventOffset>) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes what was delivered: a rebuild was asked for, and delivers everything again from the first event.
    ///
    /// # Errors
    /// The repair; nothing is delivered before it has succeeded.
    fn clear(&self) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Every durable event is delivered, after a start from the first event, a rebuild, or a return to an earlier event.
    ///
    /// # Errors
    /// The repair; it is told again.
    fn complete(&self) -> Later<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A batch could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The receiver cannot be reached or said no for now: the batch is tried again, after a pause that grows.
    #[error("{0}")]
    Retry(String),
    /// The receiver will never take this event: the sink stops before the event's commit.
    #[error("the event at {offset} cannot be delivered: {reason}")]
    Poison {
        /// The event's place in history.
        offset: EventOffset,
        /// The reason why it cannot be delivered, for people.
        reason: String,
    },
    /// The receiver has lost events it had taken: those after the one it has come to are delivered again. In a cluster, where one event does not say how
    /// far it had come in the stream of each node, the receiver is [cleared](Sink::clear) and all of them are.
    #[error("the receiver has lost events it had taken; it has come to {}", .reached.map_or_else(|| "none".to_owned(), |reached| reached.to_string()))]
    Behind {
        /// The last event it has; `None`: none.
        reached: Option<EventOffset>,
    },
    /// Nothing can be delivered, whatever the event: the sink stops until it is told to go on.
    #[error("{0}")]
    Unusable(String),
}
