//! Declares exchanges and queues, or checks those that exist.

use crate::Error;
use lapin::{
    Connection, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable, ShortString},
};
use std::time::Duration;

/// The exchanges and queues a program needs.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The exchanges, declared before the queues that are bound to them.
    pub exchanges: Vec<Exchange>,
    /// The queues with their bindings.
    pub queues: Vec<Queue>,
    /// Declares nothing and requires that exchanges and queues exist.
    pub must_exist: bool,
}

/// The routing of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Routes to every queue bound to it.
    Fanout,
    /// Routes to the queues bound with the message's routing key.
    Direct,
    /// Routes to the queues bound with a pattern that matches the message's routing key.
    Topic,
}

/// An exchange as it is declared, or checked where it exists.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// 1 to 255 bytes, not beginning with `amq.`.
    pub name: String,
    /// Its routing.
    pub routing: Routing,
    /// True if the exchange survives a restart of the broker.
    pub durable: bool,
}

/// The broker's way to store a queue (`x-queue-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueType {
    /// The broker's default.
    #[default]
    Classic,
    /// A replicated log that is synced before a message is confirmed. Only for durable queues.
    Quorum,
}

/// A queue as it is declared, or checked where it exists.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// 1 to 255 bytes, not beginning with `amq.`.
    pub name: String,
    /// True if the queue and its persistent messages survive a restart of the broker.
    pub durable: bool,
    /// Its type. The broker refuses a queue that exists with another type.
    pub queue_type: QueueType,
    /// Exchange and routing key of each binding.
    pub bindings: Vec<(String, String)>,
    /// The longest time that a message may wait in the queue (`x-message-ttl`).
    pub message_ttl: Option<Duration>,
    /// The exchange for messages that expire or are rejected (`x-dead-letter-exchange`).
    pub dead_letters: Option<String>,
    /// The most messages that may wait in the queue (`x-max-length`).
    pub max_length: Option<u64>,
    /// The fate of messages beyond that (`x-overflow`).
    pub overflow: Option<Overflow>,
    /// The number of deliveries before a message becomes a dead letter (`x-delivery-limit`). Only for quorum queues.
    pub delivery_limit: Option<u32>,
    /// True if the broker gives messages to only one of several consumers (`x-single-active-consumer`).
    pub single_active_consumer: bool,
}

/// The behaviour of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest message is dropped, or becomes a dead letter.
    DropHead,
    /// New messages are refused: [`PublishError::NotTaken`](crate::PublishError::NotTaken).
    RejectPublish,
}

impl Topology {
    /// Returns durable queues of these names.
    #[must_use]
    pub fn durable<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let queue = |name: &str| Queue {
            name: name.to_owned(),
            durable: true,
            ..Queue::default()
        };
        Self {
            queues: names.into_iter().map(queue).collect(),
            ..Self::default()
        }
    }

    /// Adds an exchange of this name for dead letters, and a queue of the same name that stores them.
    #[must_use]
    pub fn with_dead_letters(mut self, name: &str) -> Self {
        self.exchanges.push(Exchange {
            name: name.to_owned(),
            routing: Routing::Fanout,
            durable: true,
        });
        self.queues.push(Queue {
            name: name.to_owned(),
            durable: true,
            bindings: vec![(name.to_owned(), String::new())],
            ..Queue::default()
        });
        self
    }

    /// Declares what is missing, and checks what is there.
    pub(crate) async fn apply(&self, connection: &Connection) -> Result<(), Error> {
        for exchange in &self.exchanges {
            exchange.apply(connection, self.must_exist).await?;
        }
        for queue in &self.queues {
            queue.apply(connection, self.must_exist).await?;
        }
        Ok(())
    }
}

impl Exchange {
    async fn apply(&self, connection: &Connection, passive: bool) -> Result<(), Error> {
        let kind = match self.routing {
            Routing::Fanout => ExchangeKind::Fanout,
            Routing::Direct => ExchangeKind::Direct,
            Routing::Topic => ExchangeKind::Topic,
        };
        let what = || format!("the exchange {:?}", self.name);
        let name = short(&self.name)?;
        let declared = checked(what, passive, async |passive| {
            // One channel each, since the broker closes it with an error.
            let channel = connection.create_channel().await?;
            let options = ExchangeDeclareOptions {
                passive,
                durable: self.durable,
                ..ExchangeDeclareOptions::default()
            };
            let declared = channel.exchange_declare(name.clone(), kind.clone(), options, FieldTable::default());
            declared.await?;
            channel.close(200, "done".into()).await
        });
        declared.await.map(drop)
    }
}

impl Queue {
    fn arguments(&self) -> FieldTable {
        let number = |number: u64| AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX));
        let text = |text: &str| AMQPValue::LongString(text.into());
        let ttl = self
            .message_ttl
            .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let overflow = self.overflow.map(|overflow| match overflow {
            Overflow::DropHead => "drop-head",
            Overflow::RejectPublish => "reject-publish",
        });
        let given = [
            (
                "x-queue-type",
                (self.queue_type == QueueType::Quorum).then(|| text("quorum")),
            ),
            ("x-message-ttl", ttl.map(number)),
            ("x-dead-letter-exchange", self.dead_letters.as_deref().map(text)),
            ("x-max-length", self.max_length.map(number)),
            ("x-overflow", overflow.map(text)),
            (
                "x-delivery-limit",
                self.delivery_limit.map(|limit| number(limit.into())),
            ),
            (
                "x-single-active-consumer",
                self.single_active_consumer.then_some(AMQPValue::Boolean(true)),
            ),
        ];
        let mut arguments = FieldTable::default();
        for (name, value) in given {
            if let Some(value) = value {
                arguments.insert(name.into(), value);
            }
        }
        arguments
    }

    async fn apply(&self, connection: &Connection, passive: bool) -> Result<(), Error> {
        let arguments = self.arguments();
        let what = || format!("the queue {:?}", self.name);
        let name = short(&self.name)?;
        let is_own = checked(what, passive, async |passive| {
            let channel = connection.create_channel().await?;
            let options = QueueDeclareOptions {
                passive,
                durable: self.durable,
                ..QueueDeclareOptions::default()
            };
            channel.queue_declare(name.clone(), options, arguments.clone()).await?;
            channel.close(200, "done".into()).await
        })
        .await?;
        if passive {
            return Ok(());
        }
        for (exchange, key) in &self.bindings {
            let (exchange, key) = (short(exchange)?, short(key)?);
            let channel = connection
                .create_channel()
                .await
                .map_err(Error::broker("opening a channel"))?;
            let options = QueueBindOptions::default();
            let bound = channel.queue_bind(name.clone(), exchange, key, options, FieldTable::default());
            let bound = bound.await;
            // A user who may not declare the queue may not bind it either. In that case whoever declared it has bound it.
            if !is_own && soft(&bound) == Some(AMQPSoftError::ACCESSREFUSED) {
                return Ok(());
            }
            bound.map_err(Error::broker("binding a queue"))?;
            channel
                .close(200, "done".into())
                .await
                .map_err(Error::broker("closing a channel"))?;
        }
        Ok(())
    }
}

/// Declares, or only checks. Also checks if the user may not declare. Returns whether it was declared.
async fn checked(
    what: impl Fn() -> String,
    passive: bool,
    declare: impl AsyncFn(bool) -> lapin::Result<()>,
) -> Result<bool, Error> {
    let mut is_own = !passive;
    let mut declared = declare(passive).await;
    if is_own && soft(&declared) == Some(AMQPSoftError::ACCESSREFUSED) {
        is_own = false;
        declared = declare(true).await;
    }
    let refusal = soft(&declared);
    declared.map(|()| is_own).map_err(|error| {
        let (what, why) = (what(), error.to_string());
        match refusal {
            Some(AMQPSoftError::PRECONDITIONFAILED) => Error::Mismatch { what, why },
            Some(AMQPSoftError::NOTFOUND) => Error::Missing { what, why },
            _ => Error::Broker {
                doing: "declaring exchanges and queues",
                why: format!("{what}: {why}"),
            },
        }
    })
}

fn soft(declared: &lapin::Result<()>) -> Option<AMQPSoftError> {
    let Err(error) = declared else { return None };
    let ErrorKind::ProtocolError(error) = error.kind() else {
        return None;
    };
    match error.kind() {
        AMQPErrorKind::Soft(soft) => Some(soft.clone()),
        AMQPErrorKind::Hard(_) => None,
    }
}

pub(crate) fn short(text: &str) -> Result<ShortString, Error> {
    ShortString::try_new(text).map_err(|error| Error::Broker {
        doing: "writing a name",
        why: error.to_string(),
    })
}
