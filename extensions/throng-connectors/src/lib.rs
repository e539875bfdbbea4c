//! Sources and targets of an engine: whatever gives it messages, and whatever takes its events.
//!
//! - A [`Source`] gives batches of messages with positions; [`Ingress`] makes commands of them. A message is settled once its commands are
//!   durable. Its id is the commands' idempotency key, so that a message that comes again takes effect once.
//! - A [`Target`] takes batches of items with ids and positions; [`Egress`] makes the items of an entity's events. A target that stores the
//!   position with the batch has each event once. Any other has each event at least once, and the ids mark copies.
//!
//! `throng-amqp` and `throng-redis` are a source and two targets. `examples/lines` is one of each over files, in 100 lines.

mod egress;
pub mod frame;
mod ingress;
mod message;
mod metrics;
mod pace;
mod position;
mod runner;
mod source;
mod target;

pub use egress::{Egress, Outbound};
pub use ingress::{EntityCommand, Ingress, IngressOptions, Intake};
pub use message::{Message, TRACEPARENT};
pub use metrics::Metrics;
pub use pace::Pace;
pub use position::{MalformedPosition, TargetPosition};
pub use runner::{Runner, Stop};
pub use source::{Dead, Outcome, Received, Settled, Source};
pub use target::{Batch, Outgoing, Target};
/// Why a target does not take a batch, and what is to be done about it.
pub use throng::projection::SinkError;
