//! Events on their way elsewhere.

use crate::{SinkError, TargetPosition};
use std::future::{Future, ready};
use throng::{projection::EventOffset, spans::TraceContext};

type Done = Result<(), SinkError>;

/// Takes items that events become: an exchange, a database, a file. One call at a time, on a tokio runtime of its own.
///
/// A target that stores the [position](Batch::position) in one step with the items has each event once, also after a crash, and sets
/// [`STORES_POSITION`](Self::STORES_POSITION). Any other has each event at least once; a copy has the [id](Outgoing::id) of the first.
/// The example `lines` of this crate is a target.
pub trait Target: Send + 'static {
    /// The form that an event has there: a message, commands, a line.
    type Item: Send + 'static;
    /// The target stores the position with the items, and tells it.
    const STORES_POSITION: bool = false;

    /// Takes a batch: all of it or, where the target stores the position, none of it. There are no items where events are nobody's
    /// business; the position moves all the same.
    ///
    /// # Errors
    /// [`SinkError::Retry`]: the batch comes again. [`SinkError::Poison`] and [`SinkError::Unusable`] stop the egress.
    fn deliver(&mut self, batch: Batch<Self::Item>) -> impl Future<Output = Done> + Send;

    /// The position that was stored last; `None`: there is none, so that everything was lost or nothing was ever delivered.
    ///
    /// # Errors
    /// The target cannot be read for now, or holds no position.
    fn position(&mut self) -> impl Future<Output = Result<Option<TargetPosition>, SinkError>> + Send {
        ready(Ok(None))
    }

    /// Finds items of unknown origin, before a target without a position is cleared of them for the first time.
    ///
    /// # Errors
    /// [`SinkError::Unusable`]: there are some.
    fn check_empty(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Removes what was delivered, and the position. Everything is delivered again, after an empty batch with the position
    /// [`TargetPosition::default`].
    ///
    /// # Errors
    /// It is tried again.
    fn clear(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Takes note that it has lost items, for those who read it. They are delivered again.
    ///
    /// # Errors
    /// It is tried again.
    fn mark_incomplete(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }

    /// Takes note that everything is delivered.
    ///
    /// # Errors
    /// It is tried again.
    fn complete(&mut self) -> impl Future<Output = Done> + Send {
        ready(Ok(()))
    }
}

/// Items in the order of their events.
#[derive(Clone, Debug)]
pub struct Batch<I> {
    /// Items in the order of their events; none, where only the position moves on.
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
