//! A broker before and behind an engine, over AMQP 0-9-1: RabbitMQ.
//!
//! - [`Ingress`]: messages of a queue become commands of any kind of entity. A message is acknowledged once what it came to is durable; a
//!   redelivery takes effect once.
//! - [`Egress`]: an entity's events become messages of an exchange, none lost, duplicates marked by their message ids.
//! - [`Publisher`] and [`Frames`]: a server in front of a broker, which answers once the broker has confirmed.
//! - [`resend()`]: dead letters go back to the queues they were in, once what was wrong is mended.
//!
//! ```no_run
//! use throng_amqp::{EntityCommand, Incoming, Ingress, IngressOptions};
//!
//! # fn consume(engine: &throng::Engine) -> Result<Ingress, throng_amqp::Error> {
//! let options = IngressOptions::new("amqp://consumer:secret@localhost".parse()?, "hits");
//! let ingress = Ingress::start(engine, options, |message: &Incoming<'_>| {
//!     let counter = String::from_utf8(message.body.to_vec()).map_err(|error| error.to_string())?;
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
//! [message id](Incoming::id) exactly once: the id is the commands' idempotency key, kept for [`IngressOptions::keys`], which has to be at least
//! as long as a message may wait in its queue (and wander through dead letters back into it). A message without an id takes effect twice if the
//! process or the connection ends between the commit and the acknowledgement.
//!
//! A queue has a single active consumer; another one stands by ([`IngressOptions::single_active`]).
//!
//! What nobody can take (it cannot be read, its entity says no, it crashes the entity) goes to the dead-letter exchange with the reason in its headers. What the
//! engine has no room for stays with the broker: nothing is acknowledged, so the broker sends no more, and the queue grows there.

mod connection;
mod egress;
mod error;
pub mod frame;
mod frames;
mod ingress;
mod metrics;
mod pace;
mod properties;
mod publisher;
mod repair;
mod resend;
mod runner;
mod seldom;
mod topology;

pub use connection::Broker;
pub use egress::{Egress, Outbound};
pub use error::Error;
pub use frames::{FrameOptions, Frames};
pub use ingress::{EntityCommand, Incoming, Ingress, IngressOptions, Intake};
pub use metrics::Metrics;
pub use publisher::{Message, PublishError, Publisher, PublisherOptions};
pub use resend::{ResendOptions, ResendReport, resend};
pub use topology::{Exchange, Overflow, Queue, QueueType, Routing, Topology};
