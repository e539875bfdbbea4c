//! The base of a Throng engine: the [`Journal`], and the [`Store`] and [`Views`], which can be rebuilt from it.
//!
//! A journal holds, for every **writer** (one epoch of one node), one ordered, gapless stream of **commits**. A [`Commit`] is a
//! micro-batch: everything that one batch of the engine decided, in one buffer, written with one write and made durable with one sync. The
//! module [`commit`] describes its format byte by byte.
//!
//! ```
//! use throng_journal::{Address, CommitBuilder, RecordKind, Stamp, WriterId, CommitNo, ShardId};
//!
//! let mut open = CommitBuilder::default();
//! open.push(RecordKind::Event, ShardId(3), &Address::new("section", "C S 142-1"), 1, "Opened", 1, br#"{"capacity":30}"#);
//! let commit = open.finish(Stamp::new(WriterId(1), CommitNo(1), 0));
//! let record = commit.records().next().unwrap().unwrap();
//! assert_eq!((record.id, record.seq, record.name), ("C S 142-1", 1, "Opened"));
//! ```
//!
//! Every backend passes the suites in `conformance` (a feature of that name).
//!
//! # Who does what
//!
//! The engine numbers commits, appends them in order, and never has more than [`Journal::depth`] in flight. The journal
//! makes them durable, in order. At a checkpoint the engine hands the store what only it knows (states, system rows);
//! the store indexes the events by itself, reading the journal's commits up to the checkpoint's position.

pub mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod directory;
mod error;
pub mod features;
mod ids;
mod inventory;
mod journal;
mod loss;
mod memory;
mod missing;
mod pace;
mod place;
pub mod scratch;
mod shards;
mod store;
mod streams;
mod text;
pub mod tools;
mod views;

pub use commit::{
    COMMIT_BYTES_MAX, Commit, CommitBuilder, Damage, HEADER_BYTES, Record, RecordKind, Removal, Rest, Stamp,
};
pub use directory::{Apart, Directory, FEATURES, Floor, Join, Node, NodeId, NodeState, View};
pub use error::{AppendError, Error};
pub use ids::{Address, CommitNo, Position, ShardId, WriterId};
pub use inventory::{Inventory, PartEntry, WriterEntry};
pub use journal::{Append, Appended, Durability, Journal, Judge, Later, Maybe, Opened, Prune, PruneHow, Pruned, Taken};
pub use loss::{ACCEPTED_LOSS_NODE, Loss, Witness};
pub use memory::{MemoryDirectory, MemoryJournal, MemoryStore, MemoryViews};
pub use missing::{MissingEvents, history_base};
pub use pace::Pace;
pub use place::Place;
pub use shards::ShardSet;
pub use store::{
    Checkpoint, Compacted, Covered, Cut, EntityHead, Loaded, Store, StoredEvent, StoredState, begin_of_rows,
};
pub use streams::{Positions, Stream, Stretch};
pub use text::byte_order_mark;
pub use views::{Applied, ViewBatch, ViewOffset, ViewRange, ViewRow, Views};
