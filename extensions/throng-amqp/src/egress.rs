//! Events to an exchange: an outbox whose offset is kept with the engine.

use crate::{
    Message, PublishError, Publisher,
    ingress::{REASON, TRACEPARENT},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::{Mutex, PoisonError};
use throng::{
    journal::Later,
    model::Entity,
    projection::{EventOffset, Seen, Sink, SinkError},
};

/// The longest routing key.
const ROUTING_KEY_BYTES_MAX: usize = 255;

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
/// broker has confirmed the whole batch. What comes twice (after a crash, or a batch of which only a part was confirmed) is of the last batch, and has the
/// same message id.
#[derive(Debug)]
pub struct Egress<O> {
    outbound: O,
    publisher: Publisher,
    dead_letters: Option<Publisher>,
    /// The broker has closed the channel over a message of the last batch: one at a time, until it is known over which.
    careful: Mutex<Option<Careful>>,
}

/// While messages are published one at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Careful {
    /// The event whose message the channel was closed over.
    suspect: Option<EventOffset>,
}

impl<O: Outbound> Egress<O> {
    /// Over this publisher. A message that the broker refuses for good stops the sink at its event.
    #[must_use]
    pub fn new(outbound: O, publisher: Publisher) -> Self {
        Self {
            outbound,
            publisher,
            dead_letters: None,
            careful: Mutex::default(),
        }
    }

    /// Publishes what the broker refuses for good to the exchange of another publisher, with the reason in the header `x-throng-reason`, and goes
    /// on. That one best finds it an error if no queue takes a message ([`mandatory`](crate::PublisherOptions::mandatory)).
    #[must_use]
    pub fn with_dead_letters(mut self, publisher: Publisher) -> Self {
        self.dead_letters = Some(publisher);
        self
    }

    async fn send(&self, offset: EventOffset, message: Message) -> Result<(), SinkError> {
        let why = match self.publisher.publish(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(PublishError::Refused(why)) => why,
            Err(PublishError::Violation(why)) if self.is_convicted(offset) => why,
            Err(error) => return Err(SinkError::Retry(error.to_string())),
        };
        let Some(dead_letters) = &self.dead_letters else {
            let reason = format!("the broker refuses its message: {why}");
            return Err(SinkError::Poison { offset, reason });
        };
        tracing::error!(
            "the message of the event at {offset} goes to the dead letters of {}: {why}",
            O::NAME
        );
        let mut letter = message;
        if letter.routing_key.len() > ROUTING_KEY_BYTES_MAX {
            letter.routing_key.clear();
        }
        letter.headers.push((REASON, why));
        let kept = match dead_letters.publish(letter.clone()).await {
            // Its own headers may be what is refused.
            Err(PublishError::Refused(_)) => {
                letter.headers.retain(|(name, _)| *name == REASON);
                dead_letters.publish(letter).await
            }
            kept => kept,
        };
        kept.map_err(|error| SinkError::Retry(format!("a dead letter is not kept: {error}")))
    }

    /// Tells whether the channel was closed over this very event before, while it was alone.
    fn is_convicted(&self, offset: EventOffset) -> bool {
        let mut careful = self.careful.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *careful {
            Some(careful) => careful.suspect.replace(offset) == Some(offset),
            none => {
                *none = Some(Careful::default());
                false
            }
        }
    }
}

impl<O: Outbound> Sink for Egress<O> {
    const NAME: &'static str = O::NAME;
    const VERSION: u32 = O::VERSION;
    type Of = O::Of;

    fn deliver(&self, batch: Vec<Seen<O::Of>>) -> Later<'_, Result<(), SinkError>> {
        let messages: Vec<(EventOffset, Message)> = batch
            .iter()
            .filter_map(|seen| {
                let message = self.outbound.message(seen)?;
                let id = Some(seen.offset.to_string());
                let mut message = Message { id, ..message };
                if let Some(trace) = seen
                    .trace
                    .filter(|_| !message.headers.iter().any(|(name, _)| *name == TRACEPARENT))
                {
                    message.headers.push((TRACEPARENT, trace.to_string()));
                }
                Some((seen.offset, message))
            })
            .collect();
        let is_careful = self.careful.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        // Half of the room there is: others may share the publisher.
        let window = match is_careful {
            true => 1,
            false => (self.publisher.unconfirmed_max() / 2).max(1),
        };
        Box::pin(async move {
            stream::iter(messages)
                .map(|(offset, message)| self.send(offset, message))
                .buffered(window)
                .try_collect::<()>()
                .await?;
            *self.careful.lock().unwrap_or_else(PoisonError::into_inner) = None;
            Ok(())
        })
    }
}
