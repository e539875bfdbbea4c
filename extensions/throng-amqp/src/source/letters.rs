//! Messages nobody can take, on their way to the dead letters.

use super::{Arrived, QueueOptions};
use crate::{Error, PublishError, Publisher, PublisherOptions, properties::republished, seldom::Seldom};
use lapin::{BasicProperties, types::AMQPValue};
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use throng_breaker::{Breaker, Pauses, Settings};
use throng_connectors::Dead;

/// Why nobody could take it.
pub(crate) const REASON: &str = "x-throng-reason";
/// The queue it came from.
pub(crate) const QUEUE: &str = "x-throng-queue";
/// The messages of a frame that were refused, counted from 0; the others have taken effect.
pub(crate) const REFUSED: &str = "x-throng-refused";
/// Longest reason in a header, in bytes; and where the message's own headers leave little room.
const REASON_BYTES_MAX: usize = 4 << 10;
const REASON_BYTES_FEW: usize = 200;
/// Letters that wait for the broker's confirm, beside the prefetch.
pub(super) const WAITING_MAX: usize = 128;
/// A letter is rejected after the broker has closed the channel over it so often.
const VIOLATIONS_MAX: u32 = 3;
/// A letter waits for its confirm for as long as the connection lives: sent again, it would be there twice.
const CONFIRM_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Dead letters leave over a connection of their own, since a broker that is short of memory stops connections that publish.
pub(super) struct Letters {
    to: Option<Publisher>,
    queue: String,
    /// Why a letter waits, or that none does. Letters write it as they are sent, the source reads it.
    trouble: Arc<Mutex<Option<String>>>,
    died: Seldom,
    waits: Arc<Seldom>,
}

/// The fate of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The broker has it among the dead letters: the message itself can be acknowledged.
    Kept,
    /// The message is to be rejected: the queue's own dead-letter exchange has it, if there is one.
    Rejected,
}

impl Letters {
    pub(super) fn start(options: &QueueOptions) -> Result<Self, Error> {
        let publisher = |exchange: &String| {
            Publisher::start_behind(PublisherOptions {
                name: format!("{} dead letters", options.queue),
                mandatory: true,
                unconfirmed_max: WAITING_MAX,
                confirm_max: CONFIRM_MAX,
                breaker: Breaker::new("the dead letters", Settings::default()),
                metrics: options.metrics.clone(),
                ..PublisherOptions::new(options.broker.clone(), exchange)
            })
        };
        Ok(Self {
            to: options.dead_letters.as_ref().map(publisher).transpose()?,
            queue: options.queue.clone(),
            trouble: Arc::default(),
            died: Seldom::default(),
            waits: Arc::default(),
        })
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a message aside.
    pub(super) fn send(&self, arrived: Arrived, dead: Box<Dead>) -> impl Future<Output = Fate> + Send + use<> {
        let reason = cut(&dead.reason, REASON_BYTES_MAX);
        self.died
            .say(|more| tracing::warn!("a message of the queue {:?} is dead: {reason}{more}", self.queue));
        // The first that fits a frame.
        let forms = [
            self.properties(&arrived, &dead, Some(reason)),
            self.properties(&arrived, &dead, Some(cut(reason, REASON_BYTES_FEW))),
            self.properties(&arrived, &dead, None),
        ];
        let (to, queue) = (self.to.clone(), self.queue.clone());
        let (waits, trouble) = (self.waits.clone(), self.trouble.clone());
        let troubled = move |why: Option<String>| *trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
        async move {
            let Some(publisher) = to else { return Fate::Rejected };
            let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(5));
            let mut violations = 0;
            loop {
                let Some(properties) = forms.iter().find(|form| publisher.fits(form)) else {
                    tracing::error!(
                        "a dead letter of the queue {queue:?} is rejected: its headers are longer than a frame"
                    );
                    return Fate::Rejected;
                };
                let routing_key = arrived.routing_key.clone();
                let sent = publisher.publish_as(routing_key, properties.clone(), &dead.message.body);
                let why = match sent.await {
                    Ok(()) => {
                        troubled(None);
                        return Fate::Kept;
                    }
                    Err(PublishError::Violation(why)) if violations + 1 == VIOLATIONS_MAX => {
                        tracing::error!("a dead letter of the queue {queue:?} is rejected: {why}");
                        return Fate::Rejected;
                    }
                    Err(error) => {
                        violations += u32::from(matches!(error, PublishError::Violation(_)));
                        error.to_string()
                    }
                };
                // Better it waits here than it is lost.
                waits.say(|more| tracing::error!("a dead letter of the queue {queue:?} waits: {why}{more}"));
                troubled(Some(why));
                pauses.pause().await;
            }
        }
    }

    /// Returns the message's properties with the reason why it is dead. It keeps its id: sent again, the part that has taken effect does
    /// not do so twice.
    fn properties(&self, arrived: &Arrived, dead: &Dead, reason: Option<&str>) -> BasicProperties {
        let properties = republished(&arrived.properties);
        let Some(reason) = reason else { return properties };
        let mut headers = properties.headers().clone().unwrap_or_default();
        let mut set = |name: &str, value: &str| {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        };
        set(REASON, reason);
        set(QUEUE, &self.queue);
        if dead.commands > 1 {
            let refused: Vec<String> = dead.refused.iter().map(usize::to_string).collect();
            set(REFUSED, &refused.join(","));
        }
        properties.with_headers(headers)
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
