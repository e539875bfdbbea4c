//! Read models in Redis, kept from an entity's events.
//!
//! A [`Mapping`] says which commands an event becomes; a [`RedisSink`] with it is given to an engine. What has gathered since the last batch goes to Redis in one
//! transaction (`MULTI`), with the place in history of the last event of each writer beside it. So each event takes effect once: what is delivered again after
//! a crash, a lost answer or a rebuild is known by its place and left out. Two engines on one Redis, of which one has just taken over, do
//! not both write: the place is watched.
//!
//! ```
//! use redis::Pipeline;
//! use throng::projection::Seen;
//! use throng_redis::Mapping;
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
//! impl Mapping for Hits {
//!     const NAME: &'static str = "hits-in-redis";
//!     type Of = Counter;
//!
//!     fn owns(&self, key: &str) -> bool {
//!         key == "hits"
//!     }
//!
//!     fn map(&self, seen: &Seen<Counter>, commands: &mut Pipeline) {
//!         commands.hincr("hits", &seen.id, 1);
//!     }
//! }
//!
//! # fn main() -> Result<(), throng_redis::Error> {
//! let sink = throng_redis::RedisSink::new(Hits, "redis://127.0.0.1:6379")?;
//! let builder = throng::Engine::builder().with::<Counter>().sink(sink);
//! # drop(builder);
//! # Ok(())
//! # }
//! ```
//!
//! # What is lost
//!
//! At each start, with every batch and every ten seconds the sink compares the place in Redis with the last event it has delivered. A Redis that lost data (a
//! restart with less than `appendfsync always`, a removed database, another one) is behind: what it has lost is delivered again, from its own place on. Data and place are
//! one transaction, so nothing counts twice. One that lost its place has lost all: the mapping's [own keys](Mapping::owns) are removed, and
//! everything is delivered again. Until then the key `throng:NAME:VERSION:filling` is there, and [`Reader::ask_complete`] answers nothing.
//!
//! Redis has no rollback: a command it refuses within a transaction (a key that holds a value of another type) stops the sink, with the reason, but the
//! others of its batch count. A rebuild of the sink helps: it removes the mapping's own keys first.

mod place;
mod reader;
mod sink;
mod watch;

pub use reader::{ReadError, Reader};
/// The driver, whose [`Pipeline`](redis::Pipeline) a mapping writes to.
pub use redis;
pub use sink::{Error, Mapping, RedisSink};
pub use watch::{ReadModel, Watch};
