//! Messages nobody can take, on their way to the dead letters.

use super::Part;
use crate::{Error, topology::short};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    message::Delivery,
    options::{BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions},
    types::{AMQPValue, ShortString},
};
use std::future::Future;
use std::time::Duration;
use throng_breaker::Pauses;

/// Why nobody could take it.
const REASON: &str = "x-throng-reason";
/// The queue it came from.
const QUEUE: &str = "x-throng-queue";
/// Of a frame: which of its messages, counted from 0; the others have taken effect.
const REFUSED: &str = "x-throng-refused";
/// Longest reason in a header, in bytes.
const REASON_BYTES_MAX: usize = 4 << 10;

/// Where dead letters go.
#[derive(Clone)]
pub(super) struct Letters {
    /// The exchange, and a channel with confirms.
    to: Option<(ShortString, Channel)>,
    queue: String,
}

/// Why a message is dead.
pub(super) struct Verdict {
    pub(super) reason: String,
    /// The commands that were refused, of how many.
    pub(super) refused: Vec<usize>,
    pub(super) commands: usize,
}

impl Letters {
    pub(super) async fn open(part: &Part, connection: &Connection) -> Result<Self, Error> {
        let to = match &part.options.dead_letters {
            None => None,
            Some(exchange) => {
                let failed = || Error::broker("opening a channel for dead letters");
                let channel = connection.create_channel().await.map_err(failed())?;
                let confirms = ConfirmSelectOptions::default();
                channel.confirm_select(confirms).await.map_err(failed())?;
                Some((short(exchange)?, channel))
            }
        };
        Ok(Self {
            to,
            queue: part.options.queue.clone(),
        })
    }

    /// Puts a message aside. The broker has it elsewhere then, or has been told to reject it: that also settles it, and `true` says so.
    pub(super) fn send(
        &self,
        delivery: Delivery,
        verdict: &Verdict,
    ) -> impl Future<Output = lapin::Result<bool>> + Send + use<> {
        let reason = &verdict.reason[..verdict.reason.floor_char_boundary(REASON_BYTES_MAX)];
        tracing::warn!("a message of the queue {:?} is dead: {reason}", self.queue);
        let properties = self.properties(&delivery, verdict, reason);
        let to = self.to.clone();
        async move {
            let Some((exchange, channel)) = to else {
                delivery.acker.reject(BasicRejectOptions { requeue: false }).await?;
                return Ok(true);
            };
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(30));
            loop {
                let (exchange, key) = (exchange.clone(), delivery.routing_key.clone());
                let sent = channel.basic_publish(exchange.clone(), key, options, &delivery.data, properties.clone());
                match sent.await?.await? {
                    Confirmation::Ack(None) => return Ok(false),
                    // Better none is taken from here on than one is lost.
                    _ => {
                        tracing::error!("no queue takes the dead letters of the exchange {exchange:?}: bind one to it")
                    }
                }
                pauses.pause().await;
            }
        }
    }

    /// Those of the message, and why it is dead. It keeps its id: sent again, what has taken effect does not do so twice.
    fn properties(&self, delivery: &Delivery, verdict: &Verdict, reason: &str) -> BasicProperties {
        let mut headers = delivery.properties.headers().clone().unwrap_or_default();
        let mut set = |name: &str, value: &str| {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        };
        set(REASON, reason);
        set(QUEUE, &self.queue);
        if verdict.commands > 1 {
            let refused: Vec<String> = verdict.refused.iter().map(usize::to_string).collect();
            set(REFUSED, &refused.join(","));
        }
        delivery.properties.clone().with_headers(headers)
    }
}
