//! Sources give messages to an engine, and targets take its events.
//!
//! - A [`Source`] gives batches of messages with positions. [`Ingress`] turns them into commands. A message is settled once its commands are
//!   durable. Its id is the idempotency key of the commands, so that a message received again takes effect once.
//! - A [`Target`] takes batches of items with ids and positions. [`Egress`] turns the events of an entity into items. A target that stores
//!   the position with the batch gets each event once. Any other target gets each event at least once, and recognizes copies by their id.
//!
//! `throng-amqp` has a source and a target, `throng-redis` a target. `examples/lines` implements both over files, in 100 lines.

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
/// Why a target refuses a batch, and what the egress does about it.
pub use throng::projection::SinkError;
