//! Read models in Redis, kept from an entity's events.
//!
//! A [`RedisTarget`] takes commands; an [`Outbound`] says which ones an event becomes; an
//! [`Egress`] of both is given to an engine. Events that have gathered since the last batch go to Redis in one
//! transaction (`MULTI`), with the last event of each writer beside them. So each event takes effect once: what is delivered again after
//! a crash, a lost answer or a rebuild is known by its position and left out. Two engines on one Redis, of which one has just taken over, do
//! not both write: the position is watched.
//!
//! ```
//! use throng::projection::DurableEvent;
//! use throng_redis::{Egress, Outbound, ReadModel, RedisTarget, redis::Cmd};
//! # use throng::model::*;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Default, Serialize, Deserialize)] struct Counter { hits: u64 }
//! # #[derive(Serialize, Deserialize, JsonSchema)] enum Command { Hit }
//! # #[derive(Serialize, Deserialize, JsonSchema)] enum Happened { Hit }
//! # impl Event for Happened {}
//! # #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)] #[error("never")] struct Never;
//! # impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//! # impl Entity for Counter {
//! #     const KIND: &'static str = "counter";
//! #     type Id = String; type Command = Command; type Event = Happened; type Reply = u64; type Rejection = Never;
//! #     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
//! #         turn.emit(Happened::Hit); Ok(Answer::after(|counter: &Counter| counter.hits)) }
//! #     fn evolve(&mut self, _: &Happened) { self.hits += 1 }
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
//! At each start, with every batch and every ten seconds the sink compares the place in Redis with the last event it has delivered. A Redis that lost data (a
//! restart with less than `appendfsync always`, a removed database, another one) is behind: what it has lost is delivered again, from its own place on. Data and place are
//! one transaction, so nothing counts twice. One that lost its place has lost all: the [keys it owns](RedisTarget::new) are removed, and
//! everything is delivered again. Until then the key `throng:NAME:VERSION:filling` is there, and [`Reader::ask_complete`] answers nothing.
//!
//! Redis has no rollback: a command it refuses within a transaction (a key that holds a value of another type) stops the sink, with the reason, but the
//! others of its batch count. A rebuild of the sink helps: it removes the read model's own keys first.

mod reader;
mod target;
mod watch;

pub use reader::{ReadError, Reader};
/// The driver, whose [`Cmd`](redis::Cmd)s an event becomes.
pub use redis;
pub use target::{Error, ReadModel, RedisTarget};
/// The pair that writes a read model.
pub use throng_connectors::{Egress, Outbound};
pub use watch::Watch;
