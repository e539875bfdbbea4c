//! Sends dead letters back to the queues they came from.

use crate::{
    Broker, Error, PublishError, Publisher, PublisherOptions,
    properties::republished,
    source::{QUEUE, REASON, REFUSED},
    topology::short,
};
use futures_util::future::join_all;
use lapin::{
    BasicProperties, Channel,
    message::BasicGetMessage,
    options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::timeout;

/// Header that counts how often a dead letter was sent again.
const RESENT: &str = "x-throng-resent";
/// Header with the original routing key of a dead letter, which is sent to its queue by the queue's name.
pub(crate) const ROUTING_KEY: &str = "x-throng-routing-key";
/// Headers that only a dead letter has.
const OF_DEATH: [&str; 5] = [REASON, QUEUE, REFUSED, "x-death", "x-delivery-count"];
const OF_DEATH_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];
/// The most dead letters, and bytes of them, published before the first one is confirmed.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 8 << 20;

/// Which dead letters are sent again.
#[derive(Clone, Debug)]
pub struct ResendOptions {
    /// The broker, and the user who sends them. The user must be able to read the queue of dead letters, and to write to the default
    /// exchange.
    pub broker: Broker,
    /// The queue of the dead letters. It must be a classic one, as [`Topology::with_dead_letters`](crate::Topology::with_dead_letters)
    /// declares it. A quorum queue may drop messages that are read too often.
    pub queue: String,
    /// Sends only those whose reason contains this text.
    pub reason: Option<String>,
    /// The most dead letters sent again.
    pub sent_max: usize,
    /// A dead letter that was sent again this often stays.
    pub times_max: u32,
    /// Reports what would be done, without doing it.
    pub dry_run: bool,
}

impl ResendOptions {
    /// Returns the options to send all dead letters of a queue, each once.
    #[must_use]
    pub fn new(broker: Broker, queue: impl Into<String>) -> Self {
        Self {
            broker,
            queue: queue.into(),
            reason: None,
            sent_max: usize::MAX,
            times_max: 1,
            dry_run: false,
        }
    }
}

/// The numbers of dead letters sent again and left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResendReport {
    /// Dead letters sent again, by queue.
    pub sent: BTreeMap<String, u64>,
    /// Dead letters left in place, by cause.
    pub left: BTreeMap<String, u64>,
}

/// A dead letter to be sent again.
struct Outgoing {
    tag: u64,
    to: ShortString,
    properties: BasicProperties,
    body: Vec<u8>,
}

/// Sends dead letters again, each to the queue it came from. It takes as many as the queue holds at the start, and none that comes back
/// meanwhile.
///
/// A dead letter is acknowledged after the broker confirmed the message. So none is lost. If the program ends in between, the message
/// exists twice under the same id, and takes effect once. Dead letters that stay are taken from the queue while this runs, and returned
/// afterwards.
///
/// # Errors
/// The broker cannot be reached, or the connection was lost. Dead letters that were not confirmed are still in their queue.
pub async fn resend(options: &ResendOptions) -> Result<ResendReport, Error> {
    let connection = options.broker.connect("throng dead letters").await?;
    let channel = connection
        .create_channel()
        .await
        .map_err(Error::broker("opening a channel"))?;
    let report = resend_on(&channel, options).await;
    // Closing also returns the dead letters that stay.
    let _ = timeout(Duration::from_secs(5), connection.close(200, "done".into())).await;
    report
}

async fn resend_on(channel: &Channel, options: &ResendOptions) -> Result<ResendReport, Error> {
    let publisher = Publisher::start(PublisherOptions {
        name: format!("{} again", options.queue),
        mandatory: true,
        unconfirmed_max: BATCH,
        confirm_max: Duration::from_secs(30),
        ..PublisherOptions::new(options.broker.clone(), "")
    })?;
    let queue = short(&options.queue)?;
    let looked = channel.queue_declare(
        queue.clone(),
        QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        },
        FieldTable::default(),
    );
    let waiting = looked
        .await
        .map_err(Error::broker("looking at the dead letters"))?
        .message_count();
    let mut report = ResendReport::default();
    let (mut chosen, mut batch, mut batch_bytes) = (0, Vec::new(), 0);
    for _ in 0..waiting {
        if chosen == options.sent_max {
            break;
        }
        let got = channel.basic_get(queue.clone(), BasicGetOptions { no_ack: false });
        let got = got.await.map_err(Error::broker("taking a dead letter"))?;
        // Another program has taken the rest.
        let Some(letter) = got else { break };
        match outgoing(letter, options) {
            Err(why) => *report.left.entry(why).or_default() += 1,
            Ok(letter) => {
                chosen += 1;
                batch_bytes += letter.body.len();
                batch.push(letter);
            }
        }
        if batch.len() == BATCH || batch_bytes >= BATCH_BYTES {
            send(channel, &publisher, options, std::mem::take(&mut batch), &mut report).await?;
            batch_bytes = 0;
        }
    }
    send(channel, &publisher, options, batch, &mut report).await?;
    Ok(report)
}

async fn send(
    channel: &Channel,
    publisher: &Publisher,
    options: &ResendOptions,
    batch: Vec<Outgoing>,
    report: &mut ResendReport,
) -> Result<(), Error> {
    if options.dry_run {
        for letter in batch {
            *report.sent.entry(letter.to.to_string()).or_default() += 1;
        }
        return Ok(());
    }
    let sent = batch.iter().map(|letter| {
        let Outgoing {
            to, properties, body, ..
        } = letter;
        publisher.publish_as(to.clone(), properties.clone(), body)
    });
    let sent = join_all(sent).await;
    let mut lost = None;
    for (letter, sent) in batch.into_iter().zip(sent) {
        match sent {
            Ok(()) => {
                let acknowledged = channel.basic_ack(letter.tag, BasicAckOptions { multiple: false });
                acknowledged
                    .await
                    .map_err(Error::broker("acknowledging a dead letter"))?;
                *report.sent.entry(letter.to.to_string()).or_default() += 1;
            }
            Err(error @ (PublishError::Refused(_) | PublishError::NotTaken | PublishError::Violation(_))) => {
                let why = format!("for the queue {:?}: {error}", letter.to.as_str());
                *report.left.entry(why).or_default() += 1;
            }
            Err(error) => lost = Some(error),
        }
    }
    match lost {
        None => Ok(()),
        Some(error) => Err(Error::Broker {
            doing: "sending dead letters again",
            why: error.to_string(),
        }),
    }
}

/// Returns the message to send, or why the dead letter stays.
fn outgoing(letter: BasicGetMessage, options: &ResendOptions) -> Result<Outgoing, String> {
    let delivery = letter.delivery;
    let properties = republished(&delivery.properties);
    let headers = properties.headers().clone().unwrap_or_default();
    let reason = said(&headers, REASON, "reason").unwrap_or_default();
    if options.reason.as_ref().is_some_and(|part| !reason.contains(part)) {
        return Err("it died for another reason".into());
    }
    let times = match headers.inner().get(RESENT) {
        Some(AMQPValue::LongLongInt(times)) => u32::try_from(*times).unwrap_or(u32::MAX),
        _ => 0,
    };
    if times >= options.times_max {
        return Err(format!("it was sent again before (times: {times}), and is dead again"));
    }
    let Some(queue) = said(&headers, QUEUE, "queue") else {
        return Err("its headers do not say in which queue it died".into());
    };
    let to = ShortString::try_new(queue.as_str()).map_err(|error| error.to_string())?;
    let mut kept = FieldTable::default();
    for (name, value) in headers.inner() {
        let is_of_death = OF_DEATH.contains(&name.as_str())
            || OF_DEATH_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
        if !is_of_death {
            kept.insert(name.clone(), value.clone());
        }
    }
    kept.insert(RESENT.into(), AMQPValue::LongLongInt(i64::from(times) + 1));
    if !kept.contains_key(ROUTING_KEY) {
        let routing_key = AMQPValue::LongString(delivery.routing_key.as_str().into());
        kept.insert(ROUTING_KEY.into(), routing_key);
    }
    Ok(Outgoing {
        tag: delivery.delivery_tag,
        to,
        properties: properties.with_headers(kept),
        body: delivery.data,
    })
}

/// Returns a text about the cause: from this crate's header, or from the broker's header if the broker dead-lettered the message.
fn said(headers: &FieldTable, own: &str, of_broker: &str) -> Option<String> {
    let first = format!("x-first-death-{of_broker}");
    let death = || match headers.inner().get("x-death")? {
        AMQPValue::FieldArray(deaths) => match deaths.as_slice().first()? {
            AMQPValue::FieldTable(death) => text(death, of_broker),
            _ => None,
        },
        _ => None,
    };
    text(headers, own).or_else(|| text(headers, &first)).or_else(death)
}

/// Returns a header as a text.
pub(crate) fn text(headers: &FieldTable, name: &str) -> Option<String> {
    match headers.inner().get(name)? {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).ok(),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    }
}
