//! Events to an exchange: an outbox whose offset is kept with the engine.

use crate::{Message, PublishError, Publisher};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use throng::{
    journal::Later,
    model::Entity,
    projection::{Seen, Sink, SinkError},
};

/// Says which message an event becomes.
pub trait Outbound: Send + Sync + 'static {
    /// 1 to 64 of `[a-z0-9-]`, unlike any other sink's or projection's: the offset is kept under this name.
    const NAME: &'static str;
    /// Raise it to have everything published again from the first event.
    const VERSION: u32 = 1;
    /// The entity whose events are published.
    type Of: Entity;

    /// The message of an event; `None`: nobody is to hear of it. Its [id](Message::id) is set to the event's
    /// [offset](throng::projection::EventOffset), `writer.commit.record`: a second copy of it has the same.
    fn message(&self, seen: &Seen<Self::Of>) -> Option<Message>;
}

/// Publishes a kind's events: a [`Sink`], to be given to an engine. Every durable event is published at least once, in order; the offset moves on once the
/// broker has confirmed the whole batch. What comes twice (after a crash, or a batch of which only a part was confirmed) has the same
/// message id.
#[derive(Debug)]
pub struct Egress<O> {
    outbound: O,
    publisher: Publisher,
}

impl<O: Outbound> Egress<O> {
    /// Over this publisher.
    #[must_use]
    pub fn new(outbound: O, publisher: Publisher) -> Self {
        Self { outbound, publisher }
    }
}

impl<O: Outbound> Sink for Egress<O> {
    const NAME: &'static str = O::NAME;
    const VERSION: u32 = O::VERSION;
    type Of = O::Of;

    fn deliver(&self, batch: Vec<Seen<O::Of>>) -> Later<'_, Result<(), SinkError>> {
        let messages: Vec<Message> = batch
            .iter()
            .filter_map(|seen| {
                let message = self.outbound.message(seen)?;
                Some(Message {
                    id: Some(seen.offset.to_string()),
                    ..message
                })
            })
            .collect();
        // Half of the room there is: others may share the publisher.
        let window = (self.publisher.unconfirmed_max() / 2).max(1);
        Box::pin(async move {
            stream::iter(messages)
                .map(|message| self.publisher.publish(message))
                .buffered(window)
                .try_collect::<()>()
                .await
                .map_err(|error: PublishError| SinkError::Retry(error.to_string()))
        })
    }
}
