//! The shard: a state machine without I/O. Commands, loads, deliveries, clock and entropy go in; records, answers and
//! deliveries come out.
//!
//! One command's way: find the slot (or ask for a load) → read the command → look the idempotency key up → under one
//! guard `decide`, encode and check sizes, `evolve`, reply → stage the records. Nothing is staged when any of it fails.

mod accept;
mod by_hand;
mod call;
mod check;
mod checkpoint;
mod dead;
mod decide_again;
mod entities;
mod execute;
mod filter;
mod hot;
mod inspect;
mod key_rows;
mod keys;
mod known;
mod listing;
mod load;
mod messages;
mod notes;
mod operator_quarantine;
mod others;
mod outcome;
mod quarantine;
mod query;
mod read;
mod recency;
mod records;
mod registry;
mod replay;
mod retain;
mod slot;
mod table;
mod timers;
mod unloadable;

#[cfg(test)]
mod tests;

pub use by_hand::{ByHand, is_by_hand};
pub use call::{Call, Cause, Forward, ForwardAgain, Forwarder, Input, Output, QueryCall, Ran, Stage, Staged};
pub use check::{KindCheck, Supposed};
pub use checkpoint::{Rows, SystemRow, ended_row, family_row};
pub use dead::{DeadMessage, KnownDead, dead_command, dead_row, dead_rows, taken_reason};
pub use decide_again::{Again, Decision, Effect};
pub use entities::Entities;
pub use hot::HotEntity;
pub use inspect::{ChildrenPage, Glance, Inspect, Inspected, Whereabouts};
pub use keys::{KeyLife, KeyRows, is_key_over};
pub use messages::{Asks, Delivery, Envelope, MessageCounts, OUTCOME_NAME, Parcel, RequestOutcome, Taking};
pub use operator_quarantine::QUARANTINE;
pub use outcome::{Answered, JsonRejection, JsonReply, Outcome};
pub use quarantine::{Quarantined, QuarantinedEntities, Unloadable};
pub use records::is_refused_key;
pub use registry::{Kind, QueryKind, Registry};
pub use replay::{RESTORED, shard_of_row};
pub use retain::{
    BegunErasure, ERASED, Erasure, ErasureNote, Recorded, Recording, base_row, stored_timer_print, timer_print,
    undoes_what_was_left,
};
pub use slot::{TailEvent, decode_event, ended_by_state, state_json};
pub use table::{LoadOutcome, LoadRequest, Recalled, Table};
pub use timers::{
    DUE_ROWS, Due, MARKED_ROWS, TIMER_ROWS, TimerRows, TimerView, TimersAway, TimersMark, TimersPage, TimersRead,
    TimersSet, TimersStored, due_rows,
};
pub use unloadable::unloadable_row;

use crate::{
    limits,
    model::{Published, Timestamp},
};
use std::{any::Any, sync::Arc};
use throng_journal::{CommitBuilder, ShardId, WriterId, scratch};

/// One shard of the key space, with everything that lives in it.
pub struct Shard {
    registry: Arc<Registry>,
    tables: Vec<Box<dyn Table>>,
    others: others::Others,
    common: Common,
}

/// What all kinds of a shard share.
pub struct Common {
    id: ShardId,
    writer: WriterId,
    /// The records of the command at hand, until they are staged.
    records: CommitBuilder,
    /// Scratch for one payload.
    payload: Vec<u8>,
    /// The latest time seen: a shard's clock never goes back.
    now: Timestamp,
    messages: messages::Numbers,
    keys: keys::Keys,
    timers: timers::Timers,
    dead: dead::DeadMessages,
    unloadables: unloadable::Unloadables,
    erasures: retain::Erasures,
    /// Messages the last command sent, for the driver to deliver.
    outbox: Vec<Delivery>,
    /// What the last command published, and what that rests on.
    published: Vec<(u64, Published)>,
    /// Bytes of all resident entities of this shard.
    resident_bytes: usize,
    resident: usize,
    /// Bytes of what is known of ids that are not in memory.
    known_bytes: usize,
    /// Bytes of states on their way to the store.
    pending_bytes: usize,
    /// What the driver has counted of it.
    booked: Load,
    hot: hot::Hot,
    /// An entity was set aside, or is no more, since the last look.
    has_set_aside: bool,
}

/// Counts and sizes of a shard, for metrics and for the memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Entities in memory.
    pub entities: usize,
    /// Bytes of them, of timers in memory, and of what finds ids and idempotency keys in the store.
    pub bytes: usize,
    /// Bytes of what is on its way to the store: states, idempotency keys, dead messages, notes on timers that changed.
    pub pending_bytes: usize,
    /// The number of timers that are set; at the last checkpoint, where not all are in memory.
    pub timers: usize,
}

/// By how much a [`Load`] has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Entities in memory.
    pub entities: i64,
    /// Bytes, as in [`Load::bytes`].
    pub bytes: i64,
    /// Bytes of states on their way to the store.
    pub pending_bytes: i64,
}

impl Common {
    /// Hands the records of the command at hand over, all of them.
    fn stage(&mut self, stage: &mut dyn Stage) -> Staged {
        let bytes = self.records.bytes();
        assert!(
            bytes <= limits::STAGED_BYTES_MAX,
            "a call stages {bytes} bytes, of {} at most",
            limits::STAGED_BYTES_MAX
        );
        let staged = stage.stage(&mut self.records);
        self.discard();
        self.timers.staged(staged.commit);
        staged
    }

    /// Drops the records of the command at hand. Large buffers give their memory back: each of the many shards has its own.
    fn discard(&mut self) {
        self.records.clear();
        scratch::empty(&mut self.payload);
    }
}

impl Shard {
    /// An empty shard of these kinds. What was recorded earlier comes in through [`row`](Self::row) and
    /// [`replay`](Self::replay); what has expired by now is not taken over.
    #[must_use]
    pub fn new(id: ShardId, writer: WriterId, registry: Arc<Registry>, now: Timestamp) -> Self {
        let tables = registry.kinds().iter().map(|kind| (kind.table)()).collect();
        Self {
            registry,
            tables,
            others: others::Others::default(),
            common: Common {
                id,
                writer,
                records: CommitBuilder::default(),
                payload: Vec::new(),
                now,
                messages: messages::Numbers::default(),
                keys: keys::Keys::default(),
                timers: timers::Timers::default(),
                dead: dead::DeadMessages::default(),
                unloadables: unloadable::Unloadables::default(),
                erasures: retain::Erasures::default(),
                outbox: Vec::new(),
                published: Vec::new(),
                resident_bytes: 0,
                resident: 0,
                known_bytes: 0,
                pending_bytes: 0,
                booked: Load::default(),
                hot: hot::Hot::default(),
                has_set_aside: false,
            },
        }
    }

    /// The number that records and rows name it by.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.common.id
    }

    /// Counts and sizes.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            entities: self.common.resident,
            bytes: self.common.resident_bytes
                + self.common.known_bytes
                + self.others.bytes()
                + self.common.timers.bytes()
                + self.common.keys.bytes(),
            pending_bytes: self.common.pending_bytes
                + self.common.dead.bytes()
                + self.common.keys.pending_bytes()
                + self.common.timers.pending_bytes(),
            timers: self.common.timers.len(),
        }
    }

    /// Whether this is another load than the one [booked](Self::book) last, by an entity or more than so many bytes.
    #[must_use]
    pub fn differs(&self, load: Load, bytes: usize) -> bool {
        let booked = &self.common.booked;
        load.entities != booked.entities
            || load.pending_bytes.abs_diff(booked.pending_bytes) > bytes
            || load.bytes.abs_diff(booked.bytes) > bytes
    }

    /// What has changed since the last call with what [`load`](Self::load) says, for the driver's books.
    pub fn book(&mut self, load: Load) -> Change {
        let booked = std::mem::replace(&mut self.common.booked, load);
        let delta = |new: usize, old: usize| new as i64 - old as i64;
        Change {
            entities: delta(load.entities, booked.entities),
            bytes: delta(load.bytes, booked.bytes),
            pending_bytes: delta(load.pending_bytes, booked.pending_bytes),
        }
    }

    /// Tells whether other messages are dead or other entities quarantined than at the last call.
    pub fn take_unresolved_changed(&mut self) -> bool {
        let common = &mut self.common;
        let has_set_aside = std::mem::take(&mut common.has_set_aside);
        let is_other_quarantine = common.timers.quarantines.take_changed();
        common.dead.take_changed() || is_other_quarantine || has_set_aside
    }

    /// The messages sent since the last call, in order.
    pub fn take_outbox(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.common.outbox)
    }

    /// What was published since the last call, in order, each with the number of the commit it rests on.
    pub fn take_published(&mut self) -> Vec<(u64, Published)> {
        std::mem::take(&mut self.common.published)
    }

    /// The typed table of a kind.
    #[must_use]
    pub fn entities<E: crate::model::Entity>(&mut self, kind: usize) -> Option<(&mut Entities<E>, &mut Common)> {
        let table: &mut dyn Any = self.tables.get_mut(kind)?.as_mut();
        Some((table.downcast_mut()?, &mut self.common))
    }
}
