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
mod common;
mod dead;
mod decide_again;
mod decision;
mod entities;
mod erasures;
mod execute;
mod filter;
mod hot;
mod inspect;
mod key;
mod key_rows;
mod keys;
mod kind_check;
mod kinds;
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
mod rows;
mod slot;
mod system_row;
mod table;
mod timekeeping;
mod timers;
mod unloadable;
mod views;

#[cfg(test)]
mod tests;

/// For the driver of a shard, the engine in the crate `throng`, and for what checks its journals.
#[doc(hidden)]
pub use self::{
    call::{Call, Cause, Forward, ForwardAgain, Forwarder, Input, Output, QueryCall, Ran, Stage, Staged},
    dead::{KnownDead, dead_command, dead_row, dead_rows, taken_reason},
    decide_again::Again,
    decision::is_by_hand,
    erasures::{BegunErasure, Erasure, ErasureNote, Recorded, Recording},
    key::is_key_over,
    kind_check::KindCheck,
    messages::{Delivery, Died, Envelope, MessageCounts, OUTCOME_NAME, Parcel, RequestOutcome, Taking},
    outcome::{JsonReply, Outcome},
    records::is_refused_key,
    replay::{RESTORED, shard_of_row},
    retain::undoes_what_was_left,
    rows::Rows,
    slot::{TailEvent, decode_event, ended_by_state, state_json},
    system_row::{SystemRow, base_row, ended_row, family_row},
    table::{LoadOutcome, Recalled},
    timers::{
        DUE_ROWS, MARKED_ROWS, TIMER_ROWS, TimersMark, TimersPage, TimersRead, TimersSet, TimersStored, due_rows,
        stored_timer_print, timer_print,
    },
    unloadable::unloadable_row,
    views::Unloadable,
};
pub use self::{
    common::Load,
    dead::DeadMessage,
    decide_again::{Decision, Effect},
    decision::ByHand,
    hot::HotEntity,
    key::KeyLife,
    kind_check::Supposed,
    outcome::JsonRejection,
    registry::{Kind, QueryKind, Registry},
    timers::{Due, TimerView},
    views::{ChildrenPage, Glance, Inspect, Inspected, Quarantined, Whereabouts},
};

use self::{
    common::{Change, Common},
    entities::Entities,
    erasures::ERASED,
    keys::KeyRows,
    messages::Asks,
    outcome::Answered,
    table::{LoadRequest, Table},
    timers::{QUARANTINE, TimerRows},
    views::QuarantinedEntities,
};
use crate::model::{Published, Timestamp};
use std::{any::Any, sync::Arc};
use throng_journal::{ShardId, WriterId};

/// One shard of the key space, with everything that lives in it.
pub struct Shard {
    registry: Arc<Registry>,
    tables: Vec<Box<dyn Table>>,
    others: others::Others,
    common: Common,
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
            common: Common::new(id, writer, now),
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
