//! AMQP 0-9-1 (RabbitMQ) as a source of commands and a target of events.
//!
//! - [`QueueSource`] gives the messages of a queue to an [`Ingress`], which turns them into commands. A message is acknowledged once its
//!   commands are durable. A redelivery takes effect once.
//! - [`ExchangeTarget`] publishes to an exchange for an [`Egress`], which turns an entity's events into messages. None is lost, and
//!   duplicates have the same message id.
//! - [`Publisher`] and [`Frames`] are for a server in front of a broker, which answers after the broker's confirm.
//! - [`resend()`] sends dead letters back to the queues they came from, once the cause was removed.
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
//! Each connects on its own, and reconnects with growing, jittered pauses. Each declares its [`Topology`], or checks what exists, and uses
//! TLS for `amqps://` addresses.
//!
//! # What is promised
//!
//! A message is acknowledged after the commit of its commands is durable. So every message of a durable queue takes effect at least once,
//! and with a [message id](Message::id) exactly once. The id is the idempotency key of the commands and is kept for
//! [`IngressOptions::keys`]. That must be as long as a message may wait in its queue, including the way through dead letters. A message
//! without an id takes effect twice if the process or the connection ends between commit and acknowledgement.
//!
//! A queue has one active consumer; another one stands by ([`QueueOptions::single_active`]).
//!
//! A message that cannot be read, that its entity rejects or that makes its entity panic goes to the dead-letter exchange with the reason
//! in its headers. If the engine is full, messages are not acknowledged. So the broker sends no more, and they wait in its queue.

mod connection;
mod error;
mod frames;
mod metrics;
mod properties;
mod publisher;
mod rare_log;
mod repair;
mod resend;
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
/// The traits and types to turn messages into commands, and events into messages.
pub use throng_connectors::{
    Egress, EntityCommand, Ingress, IngressOptions, Intake, Message, Metrics as SourceMetrics, Outbound, frame,
};
pub use topology::{Exchange, Overflow, Queue, QueueType, Routing, Topology};
