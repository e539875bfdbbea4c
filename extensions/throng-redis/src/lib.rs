//! Read models in Redis, written from an entity's events.
//!
//! A [`RedisTarget`] takes commands, an [`Outbound`] maps an event to commands, and an [`Egress`] of both is given to an engine. The events
//! since the last batch are written in one transaction (`MULTI`), together with the last event of each writer. So each event takes effect
//! once: an event delivered again after a crash, a lost answer or a rebuild is recognized by its position and left out. The position is
//! watched (`WATCH`), so that two engines on one Redis never both write.
//!
//! ```
//! use throng::projection::DurableEvent;
//! use throng_redis::{Egress, Outbound, ReadModel, RedisTarget, redis::Cmd};
//! # use throng::model::*;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Default, Serialize, Deserialize)] struct Counter { hits: u64 }
//! # #[derive(Serialize, Deserialize, JsonSchema)] enum Command { Hit }
//! # #[derive(Serialize, Deserialize, JsonSchema)] enum CounterEvent { Hit }
//! # impl Event for CounterEvent {}
//! # #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)] #[error("never")] struct Never;
//! # impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//! # impl Entity for Counter {
//! #     const KIND: &'static str = "counter";
//! #     type Id = String; type Command = Command; type Event = CounterEvent; type Reply = u64; type Rejection = Never;
//! #     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
//! #         turn.emit(CounterEvent::Hit); Ok(CommandAnswer::after(|counter: &Counter| counter.hits)) }
//! #     fn evolve(&mut self, _: &CounterEvent) { self.hits += 1 }
//! # }
//! /// How often each counter was hit, as the fields of a hash.
//! struct Hits;
//!
//! impl Outbound for Hits {
//!     const NAME: &'static str = "hits-in-redis";
//!     type Of = Counter;
//!     type Item = Vec<Cmd>;
//!
//!     fn map(&self, seen: &DurableEvent<Counter>) -> Option<Vec<Cmd>> {
//!         Some(vec![Cmd::hincr("hits", &seen.id, 1)])
//!     }
//! }
//!
//! # fn main() -> Result<(), throng_redis::Error> {
//! let target = RedisTarget::new(ReadModel::of::<Hits>(), |key| key == "hits", "redis://127.0.0.1:6379")?;
//! let builder = throng::Engine::builder().with::<Counter>().sink(Egress::new(Hits, target));
//! # drop(builder);
//! # Ok(())
//! # }
//! ```
//!
//! # What is lost
//!
//! At each start, with every batch and every ten seconds, the sink compares the position in Redis with the last event it delivered. A Redis
//! that lost data (a restart with less than `appendfsync always`, a removed database, another server) is behind. Then events are delivered
//! again from its position on. Data and position are written in one transaction, so nothing counts twice. If the position is lost, the read
//! model counts as lost: the [keys it owns](RedisTarget::new) are removed, and everything is delivered again. Until that is done the key
//! `throng:NAME:VERSION:filling` exists, and [`Reader::ask_complete`] answers nothing.
//!
//! Redis has no rollback. If it refuses a command of a transaction (the key holds a value of another type), the sink stops with the reason,
//! but the other commands took effect. A rebuild of the sink repairs this: it removes the read model's keys first.

mod reader;
mod target;
mod watch;

pub use reader::{ReadError, Reader};
/// The driver. An event is mapped to its [`Cmd`](redis::Cmd)s.
pub use redis;
pub use target::{Error, ReadModel, RedisTarget};
/// The pair that writes a read model.
pub use throng_connectors::{Egress, Outbound};
pub use watch::Watch;
