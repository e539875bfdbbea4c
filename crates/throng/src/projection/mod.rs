//! Projections: read models derived from events, and sinks for events.
//!
//! A [`Projection`] folds the events of a kind into a read model: rows of bytes. The rows and the projection's position are written
//! in one transaction, so every event counts exactly once. A [`Sink`] carries events to another system, at least once;
//! each event has an [`EventOffset`] by which a second delivery is recognized.
//!
//! ```
//! use throng::projection::{DurableEvent, Interrupt, Projection, Rows};
//! # use throng::{Engine, journal::{MemoryJournal, MemoryStore, ViewRange}, model::*};
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
//! /// How often each counter was hit, for those who do not want to ask every one of them.
//! struct Hits;
//!
//! impl Projection for Hits {
//!     const NAME: &'static str = "hits";
//!     type Of = Counter;
//!
//!     fn apply(&self, seen: &DurableEvent<Counter>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
//!         let hits: u64 = rows.json(&seen.id)?.unwrap_or(0);
//!         rows.put_json(&seen.id, &(hits + 1))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = Engine::builder().with::<Counter>().projection(Hits).start(journal, store).await?;
//! engine.entity::<Counter>("front-page").ask(Command::Hit).await?;
//! engine.entity::<Counter>("front-page").ask(Command::Hit).await?;
//!
//! let hits = engine.read_model::<Hits>();
//! hits.caught_up().await;
//! assert_eq!(hits.get("front-page").await?.as_deref(), Some(&b"2"[..]));
//! assert_eq!(hits.scan(ViewRange::default()).await?.len(), 1);
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it sees
//!
//! Only durable events, each once, in the order of their commits over all epochs of the engine (in a cluster, in each entity's order),
//! upcast to the program's present shape. An entity's events come in the order of their sequence numbers. A projection runs behind the
//! journal, on the engine's threads. A durable commit wakes it, it takes what has gathered since (up to 1 MiB of commits at a time), and
//! looks again after 100 ms at the earliest. Without new commits it reads nothing.
//!
//! # In a cluster
//!
//! Each projection runs on one node, the owner of the shard that its name belongs to, and takes the events of all nodes there. If the shard
//! moves, it continues at the position stored with its rows. All nodes read the same rows if they share the views. Events of one entity,
//! and of all entities of one shard, come in order; between entities of different nodes no order is promised.
//!
//! # When something is wrong
//!
//! - If a read model cannot be written, or a sink fails, the batch is retried after a pause that doubles from 100 ms to 30 s.
//! - An event that cannot be read or applied (a panic included) stops the projection before its commit, but never the engine. Its
//!   [`ProjectionState`] and a metric show the event and the reason. Once the cause is mended, it goes on after a restart,
//!   [`Engine::resume_projection`](crate::Engine::resume_projection) or a rebuild. Otherwise
//!   [`Engine::skip_event`](crate::Engine::skip_event) has it skip exactly that event. A skip is recorded with the rows ([`Skipped`]) until
//!   they are rebuilt.
//! - An offset that the journal does not hold stops it, too: the journal was restored from an older copy, or lost its end at a weaker
//!   durability. Only a rebuild mends such a read model.
//! - Another [`Projection::VERSION`] than the one that wrote the rows rebuilds them from the first event.
//! - A second or outdated runner changes nothing: a batch only counts on the offset it was made for.

mod consumer;
mod fold;
mod key;
mod metrics;
mod place;
mod progress;
mod projector;
mod read_model;
mod report;
mod rows;
mod runner;
mod sink;
mod skip;
mod source;
mod table;
mod traced;

pub use key::OrderedKey;
pub use place::begin_anew;
pub use progress::{Progress, ProjectionState};
pub use read_model::ReadModel;
pub use rows::{Interrupt, Rows};
pub use sink::{Sink, SinkError};
pub use skip::{SkipError, Skipped};
pub use table::{RowPage, Table, row_key};

pub(crate) use consumer::{Consumer, ProjectionConsumer, SinkConsumer};
pub(crate) use progress::BEHIND_SECONDS_NORMAL;
pub(crate) use projector::Projections;
pub(crate) use rows::RowCache;
pub(crate) use runner::start;

use crate::{
    model::{Entity, Timestamp},
    spans::TraceContext,
};
use throng_journal::Position;

/// A read model of a kind's events.
pub trait Projection: Send + Sync + 'static {
    /// The projection's name, 1 to 64 of `[a-z0-9-]`, unique among projections and sinks. Its offset and rows are stored under it.
    const NAME: &'static str;
    /// The version of the rows. Raise it when their meaning changes: they are then rebuilt from the first event.
    const VERSION: u32 = 1;
    /// The entity whose events it takes.
    type Of: Entity;

    /// Applies one event to the rows. It must be a pure function of both, because it may be called again for the same event: after a row it
    /// asked for has been fetched ([`Rows::get`] interrupts it for that), or after a batch could not be written. The rows it sees are
    /// always those that all earlier events have left.
    ///
    /// # Errors
    /// The [`Interrupt`] of a row, passed on with `?`, or the poison of an event that cannot be applied.
    fn apply(&self, seen: &DurableEvent<Self::Of>, rows: &mut Rows<'_>) -> Result<(), Interrupt>;

    /// Returns the keys of rows that applying this event will read, if known beforehand. The rows of many events are then fetched at
    /// once. The first row that [`apply`](Self::apply) asks for need not be included.
    fn reads(&self, _seen: &DurableEvent<Self::Of>) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// An event that is durable.
#[derive(Clone, Debug)]
pub struct DurableEvent<E: Entity> {
    /// The entity it happened to.
    pub id: E::Id,
    /// Its number among that entity's events: 1, 2, 3, …
    pub seq: u64,
    /// Its unique position in history.
    pub offset: EventOffset,
    /// The time when it was recorded.
    pub at: Timestamp,
    /// The event, in the program's present shape.
    pub event: E::Event,
    /// The span of its commit, if this is a sink's event, its trace is recorded, and this engine made the commit recently.
    pub trace: Option<TraceContext>,
}

/// An event's unique position in history. A receiver remembers it to recognize a second delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventOffset {
    /// The commit it stands in.
    pub position: Position,
    /// Its place among that commit's records, from 0.
    pub record: u32,
}

/// Written `writer.commit.record`, for example `3.1071.0`.
impl std::fmt::Display for EventOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.position, self.record)
    }
}

impl std::str::FromStr for EventOffset {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = text
            .rsplit_once('.')
            .and_then(|(position, record)| Some((position.parse().ok()?, record.parse().ok()?)));
        let (position, record) = read.ok_or("write an event's place as `3.1071.0`: writer, commit, record")?;
        Ok(Self { position, record })
    }
}
