//! Publishes refused messages to the dead-letter exchange.

use super::{Arrived, QueueOptions};
use crate::{Error, PublishError, Publisher, PublisherOptions, properties::republished, rare_log::RareLog};
use lapin::{BasicProperties, types::AMQPValue};
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use throng_breaker::{Breaker, Pauses, Settings};
use throng_connectors::Dead;

/// Header with the reason why the message was refused.
pub(crate) const REASON: &str = "x-throng-reason";
/// Header with the queue the message came from.
pub(crate) const QUEUE: &str = "x-throng-queue";
/// Header with the indices of the refused commands, from 0. The others took effect.
pub(crate) const REFUSED: &str = "x-throng-refused";
/// The most bytes of a reason in a header, and the bound used if the message's own headers leave little room.
const REASON_BYTES_MAX: usize = 4 << 10;
const REASON_BYTES_FEW: usize = 200;
/// The most dead letters that wait for the broker's confirm, in addition to the prefetch.
pub(super) const WAITING_MAX: usize = 128;
/// After the broker closed the channel over a dead letter this many times, the message is rejected instead.
const VIOLATIONS_MAX: u32 = 3;
/// A dead letter waits for its confirm as long as the connection lives. Sent again earlier, it would exist twice.
const CONFIRM_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Publishes dead letters over a connection of its own, since a broker short of memory blocks connections that publish.
pub(super) struct DeadLetters {
    to: Option<Publisher>,
    queue: String,
    /// Why dead letters wait, if they do. Written by the tasks that send them, read by the source.
    trouble: Arc<Mutex<Option<String>>>,
    died: RareLog,
    waits: Arc<RareLog>,
}

/// The fate of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The broker confirmed the dead letter: the message itself can be acknowledged.
    Kept,
    /// The message is to be rejected: it goes to the queue's own dead-letter exchange, if there is one.
    Rejected,
}

impl DeadLetters {
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
            died: RareLog::default(),
            waits: Arc::default(),
        })
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes a refused message as a dead letter.
    pub(super) fn send(&self, arrived: Arrived, dead: Box<Dead>) -> impl Future<Output = Fate> + Send + use<> {
        let reason = cut(&dead.reason, REASON_BYTES_MAX);
        self.died
            .say(|more| tracing::warn!("a message of the queue {:?} is dead: {reason}{more}", self.queue));
        // The first of these that fits a frame is sent.
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
                // The message waits here rather than being lost.
                waits.say(|more| tracing::error!("a dead letter of the queue {queue:?} waits: {why}{more}"));
                troubled(Some(why));
                pauses.pause().await;
            }
        }
    }

    /// Returns the message's properties with the reason. The id stays the same: if the dead letter is sent again, commands that took effect
    /// do not take effect twice.
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
