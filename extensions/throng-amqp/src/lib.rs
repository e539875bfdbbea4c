//! A broker before and behind an engine, over AMQP 0-9-1: RabbitMQ.
//!
//! - [`QueueSource`]: the messages of a queue, for an [`Ingress`] that makes commands of them. A message is acknowledged once what it came to is
//!   durable; a redelivery takes effect once.
//! - [`ExchangeTarget`]: an exchange, for an [`Egress`] that makes messages of an entity's events, none lost, duplicates marked by their message ids.
//! - [`Publisher`] and [`Frames`]: a server in front of a broker, which answers once the broker has confirmed.
//! - [`resend()`]: dead letters go back to the queues they were in, once what was wrong is mended.
//!
//! ```no_run
//! use throng_amqp::{EntityCommand, Ingress, IngressOptions, Message, QueueOptions, QueueSource};
//!
//! # fn consume(engine: &throng::Engine) -> Result<Ingress, throng_amqp::Error> {
//! let queue = QueueSource::new(QueueOptions::new("amqp://consumer:secret@localhost".parse()?, "hits"));
//! let ingress = Ingress::start(engine, queue, IngressOptions::default(), |message: &Message| {
//!     let counter = String::from_utf8(message.body.clone()).map_err(|error| error.to_string())?;
//!     Ok(vec![EntityCommand::new("counter", counter, "hit", Vec::new())])
//! })?;
//! # Ok(ingress)
//! # }
//! ```
//!
//! Each connects by itself, and again with growing, jittered pauses when the connection is lost; declares the [`Topology`] it is told, or checks
//! it where it exists; speaks TLS at `amqps://` addresses.
//!
//! # What is promised
//!
//! A message is acknowledged only after the commit its commands are in is durable. So every message of a durable queue takes effect at least once, and with a
//! [message id](Message::id) exactly once: the id is the commands' idempotency key, kept for [`IngressOptions::keys`], which has to be at least
//! as long as a message may wait in its queue (and wander through dead letters back into it). A message without an id takes effect twice if the
//! process or the connection ends between the commit and the acknowledgement.
//!
//! A queue has a single active consumer; another one stands by ([`QueueOptions::single_active`]).
//!
//! What nobody can take (it cannot be read, its entity says no, it crashes the entity) goes to the dead-letter exchange with the reason in its headers. What the
//! engine has no room for stays with the broker: nothing is acknowledged, so the broker sends no more, and the queue grows there.

mod connection;
mod error;
mod frames;
mod metrics;
mod properties;
mod publisher;
mod repair;
mod resend;
mod seldom;
mod source;
mod target;
mod topology;

pub use connection::Broker;
pub use error::Error;
pub use frames::{FrameOptions, Frames};
pub use metrics::Metrics;
pub use publisher::{PublishError, Publisher, PublisherOptions};
pub use resend::{ResendOptions, ResendReport, resend};
pub use source::{Arrived, QueueOptions, QueueSource};
pub use target::ExchangeTarget;
/// The pair that makes commands of messages, and the pair that makes messages of events.
pub use throng_connectors::{
    Egress, EntityCommand, Ingress, IngressOptions, Intake, Message, Metrics as SourceMetrics, Outbound, frame,
};
pub use topology::{Exchange, Overflow, Queue, QueueType, Routing, Topology};
