//! An exchange as a target of events.

use crate::{Message, PublishError, Publisher, source::REASON};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::{Mutex, PoisonError};
use throng::projection::EventOffset;
use throng_connectors::{Batch, SinkError, TRACEPARENT, Target};

/// The longest routing key.
const ROUTING_KEY_BYTES_MAX: usize = 255;

/// Publishes messages to an exchange, for an [`Egress`](throng_connectors::Egress). Every durable event is published at least once, in
/// order. The offset advances after the broker confirmed the whole batch. After a crash or a partly confirmed batch, messages of the last
/// batch are published again, with the same [message id](Message::id): the event's [offset](EventOffset), `writer.commit.record`.
#[derive(Debug)]
pub struct ExchangeTarget {
    publisher: Publisher,
    dead_letters: Option<Publisher>,
    /// Set after the broker closed the channel over a message of the last batch. Messages are then sent one at a time, to find that
    /// message.
    careful: Mutex<Option<Careful>>,
}

/// The state while messages are published one at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Careful {
    /// The event whose message was in flight alone when the channel was closed.
    suspect: Option<EventOffset>,
}

impl ExchangeTarget {
    /// Returns a target over this publisher. A message that the broker refuses permanently stops the egress at its event.
    #[must_use]
    pub fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            dead_letters: None,
            careful: Mutex::default(),
        }
    }

    /// Publishes a message that the broker refuses permanently to another publisher's exchange, with the reason in the header
    /// `x-throng-reason`, and continues. That publisher should be [`mandatory`](crate::PublisherOptions::mandatory), so that a message
    /// without a queue is an error.
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
        tracing::error!("the message of the event at {offset} goes to the dead letters: {why}");
        let mut letter = message;
        if letter.routing_key.len() > ROUTING_KEY_BYTES_MAX {
            letter.routing_key.clear();
        }
        letter.headers.push((REASON.into(), why));
        let kept = match dead_letters.publish(letter.clone()).await {
            // Its own headers may be the reason for the refusal.
            Err(PublishError::Refused(_)) => {
                letter.headers.retain(|(name, _)| name == REASON);
                dead_letters.publish(letter).await
            }
            kept => kept,
        };
        kept.map_err(|error| SinkError::Retry(format!("a dead letter is not kept: {error}")))
    }

    /// Tells whether the channel was closed over this event before, while it was in flight alone.
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

impl Target for ExchangeTarget {
    type Item = Message;

    async fn deliver(&mut self, batch: Batch<Message>) -> Result<(), SinkError> {
        let is_careful = self.careful.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        // Half of the room, since others may share the publisher.
        let window = match is_careful {
            true => 1,
            false => (self.publisher.unconfirmed_max() / 2).max(1),
        };
        let target = &*self;
        stream::iter(batch.items)
            .map(|outgoing| {
                let id = Some(outgoing.id());
                let mut message = Message { id, ..outgoing.item };
                if let Some(trace) = outgoing.trace.filter(|_| message.header(TRACEPARENT).is_none()) {
                    message.headers.push((TRACEPARENT.into(), trace.to_string()));
                }
                target.send(outgoing.offset, message)
            })
            .buffered(window)
            .try_collect::<()>()
            .await?;
        *self.careful.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}
