//! Targets of events.

use crate::{SinkError, TargetPosition};
use std::future::{Future, ready};
use throng::{projection::EventOffset, spans::TraceContext};

type Done = Result<(), SinkError>;

/// A target of items made from events: an exchange, a database, a file. It gets one call at a time, on a tokio runtime of its own.
///
/// A target that stores the [position](Batch::position) atomically with the items gets each event once, also after a crash. It sets
/// [`STORES_POSITION`](Self::STORES_POSITION). Any other target gets each event at least once; a copy has the same [id](Outgoing::id).
/// The example `lines` of this crate is a target.
pub trait Target: Send + 'static {
    /// The form of an event at the target: a message, commands, a line.
    type Item: Send + 'static;
    /// True if the target stores the position with the items and can return it.
    const STORES_POSITION: bool = false;

    /// Takes a batch as a whole. If it fails, a target that stores the position has taken nothing. A batch may have no items, because no
    /// event in it was mapped; its position is stored nevertheless.
    ///
    /// # Errors
    /// [`SinkError::Retry`]: the batch is delivered again. [`SinkError::Poison`] and [`SinkError::Unusable`] stop the egress.
    fn deliver(&mut self, batch: Batch<Self::Item>) -> impl Future<Output = Done> + Send;

    /// Returns the position last stored. `None` means that nothing was ever delivered or that everything was lost.
    ///
    /// # Errors
    /// The target cannot be read for now, or stores no position.
    fn position(&mut self) -> impl Future<Output = Result<Option<TargetPosition>, SinkError>> + Send {
        ready(Ok(None))
    }

    /// Checks that a target without a position holds no foreign items, before it is cleared for the first time.
    ///
    /// # Errors
    /// [`SinkError::Unusable`]: there are foreign items.
    fn check_empty(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Removes all delivered items and the position. Then an empty batch with the position [`TargetPosition::default`] is delivered, and
    /// everything after it.
    ///
    /// # Errors
    /// The egress tries again.
    fn clear(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Marks the target as incomplete for its readers, because it lost items. They are delivered again afterwards.
    ///
    /// # Errors
    /// The egress tries again.
    fn mark_incomplete(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Marks the target as complete, once everything is delivered.
    ///
    /// # Errors
    /// The egress tries again.
    fn complete(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }
}

/// Items in the order of their events.
#[derive(Clone, Debug)]
pub struct Batch<I> {
    /// The items in the order of their events. Empty if only the position advances.
    pub items: Vec<Outgoing<I>>,
    /// Everything that is delivered with this batch, to be stored with it.
    pub position: TargetPosition,
}

/// An item on its way.
#[derive(Clone, Debug)]
pub struct Outgoing<I> {
    /// The event's place in history.
    pub offset: EventOffset,
    /// The form that the event has at the target.
    pub item: I,
    /// The span of the event's commit, if its trace is recorded.
    pub trace: Option<TraceContext>,
}

impl<I> Outgoing<I> {
    /// The id by which a copy is recognised: `writer.commit.record`.
    #[must_use]
    pub fn id(&self) -> String {
        self.offset.to_string()
    }
}
