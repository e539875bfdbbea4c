//! Throng: an engine for stateful services that must survive a surge.
//!
//! A service consists of small single-threaded, event-sourced [`Entity`](model::Entity) types. The [`Engine`] runs
//! millions of them: it executes commands under their shard's lock, gathers their records in the open
//! commit, writes and syncs it with one call each, and only then answers.
//!
//! ```
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}, model::*};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Counter { hits: u64 }
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! enum Command { Hit }
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! enum CounterEvent { Hit }
//! impl Event for CounterEvent {}
//! #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
//! #[error("a counter never says no")]
//! struct Never;
//! impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//!
//! impl Entity for Counter {
//!     const KIND: &'static str = "counter";
//!     type Id = String;
//!     type Command = Command;
//!     type Event = CounterEvent;
//!     type Reply = u64;
//!     type Rejection = Never;
//!     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
//!         turn.emit(CounterEvent::Hit);
//!         Ok(CommandAnswer::after(|counter: &Counter| counter.hits))
//!     }
//!     fn evolve(&mut self, _: &CounterEvent) { self.hits += 1 }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = Engine::builder().with::<Counter>().start(journal, store).await?;
//! assert_eq!(engine.entity::<Counter>("front-page").ask(Command::Hit).await?, 1);
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All are on unless said otherwise; `default-features = false` is the bare engine.
//!
//! | feature | |
//! |---|---|
//! | `projections` | read models kept from events, and sinks that carry events elsewhere |
//! | `schemas` | JSON schemas of all messages, for what documents routes; they derive `schemars::JsonSchema` then |
//! | `services` | actors, topics, and services of an app's own on queues |

#[cfg(feature = "services")]
mod actors;
mod budget;
mod builder;
pub mod causes;
pub mod check;
mod commit;
mod context;
mod delivery;
mod disk;
pub mod driver;
mod engine;
mod epoch;
mod error;
mod executor;
mod feed;
mod filter;
mod follow;
mod handle;
mod hex;
pub mod histogram;
mod history;
pub mod host;
pub mod inspect;
mod listing;
mod metrics;
mod operator;
mod options;
#[cfg(feature = "services")]
mod outside;
#[cfg(feature = "projections")]
pub mod projection;
mod remote;
mod retention;
pub mod spans;
mod statistics;
mod travel;

#[cfg(feature = "services")]
pub use actors::ActorKind;
pub use builder::Builder;
pub use context::{OTHER_CAUSES, Unresolved, UnresolvedWork};
pub use engine::{Engine, Health};
pub use epoch::LastCheckpoint;
pub use error::StartError;
pub use executor::{SAMPLED_ONE_IN, StuckEntity};
pub use filter::{ASKED_MAX, EXAMINED_MAX, Filter, FilterError, Match, MatchRange, Matches};
pub use follow::{Follow, Follower};
#[cfg(feature = "services")]
pub use handle::ActorHandle;
pub use handle::Handle;
pub use history::History;
pub use metrics::Metrics;
pub use operator::{DeadContent, DeadContents, DeadDone, DeadFilter, DeadPage, Retried};
pub use options::Options;
#[cfg(feature = "services")]
pub use outside::{Answering, MakesCalls};
pub use remote::PruneReport;
pub use retention::Erased;
pub use statistics::Statistics;

pub use feed::{Cursor, EntityEvent, Feed, FeedError};
pub use throng_core::{
    layout, limits, model,
    shard::{
        CommandObserver, DeadMessage, DecidedCommand, Decision, Due, Effect, JsonRejection, Kind, OperatorDecision,
        Quarantined, QueryKind, Registry, Supposed,
    },
    subject::{Done, Subject},
};
/// Journals and stores.
pub use throng_journal as journal;
pub use travel::{AsOf, TravelError};

/// The examples of the page on services are run, too.
#[cfg(all(doctest, feature = "services"))]
#[doc = include_str!("../../../docs/services.md")]
struct ServicesPage;
/// Services on queues, for work that is neither an entity nor an actor. Their statistics and checks are reported by
/// [`Engine::stats`] and [`Engine::checks`].
#[cfg(feature = "services")]
pub use throng_services as services;
