//! The shard: a state machine without I/O. Commands, loads, deliveries, clock and entropy go in; records, answers and
//! deliveries come out.
//!
//! A command's path: find the slot (or request a load), read the command, look its idempotency key up. Then, under one guard: `decide`,
//! encode and check sizes, `evolve`, reply. Last, stage the records. If any of these fails, nothing is staged.

mod checkpoint;
mod common;
mod dedup;
mod execute;
mod inspect;
mod kinds;
mod messages;
mod registry;
mod resident;
#[cfg(test)]
mod tests;
mod timers;

/// The interface for the driver of a shard, which is the engine in the crate `throng`, and for the checks of journals.
#[doc(hidden)]
pub use self::{
    checkpoint::{
        erasures::{BegunErasure, Erasure, ErasureNote, Recorded, Recording},
        index::{Indexed, read_indexed},
        replay::{RESTORED, UnreadableRecord, shard_of_row},
        retain::undoes_what_was_left,
        rows::Rows,
        system_row::{SystemRow, base_row, ended_row, family_row, index_row},
    },
    dedup::key::is_key_over,
    execute::{
        call::{Call, Cause, Forward, ForwardAgain, Forwarder, Input, Output, QueryCall, Ran, Stage, Staged},
        outcome::{JsonReply, Outcome},
        records::is_refused_key,
    },
    inspect::{decide_again::Again, kind_check::KindCheck, views::Unloadable},
    messages::{
        Delivery, Died, Envelope, MessageContent, MessageCounts, OUTCOME_NAME, RequestOutcome, Taking,
        dead::{KnownDead, dead_command, dead_row, dead_rows, taken_reason},
        decision::is_operator_action,
    },
    resident::{
        slot::{TailEvent, decode_event, ended_by_state, state_json},
        table::{LoadOutcome, Recalled},
        unloadable::unloadable_row,
    },
    timers::{
        DUE_ROWS, MARKED_ROWS, TIMER_ROWS, TimersCount, TimersMark, TimersPage, TimersRead, TimersSet, TimersStored,
        due_rows, stored_timer_print, timer_print,
    },
};
pub use self::{
    common::Load,
    dedup::key::KeyLife,
    execute::{
        observer::{CommandObserver, DecidedCommand},
        outcome::JsonRejection,
    },
    inspect::{
        decide_again::{Decision, Effect},
        kind_check::Supposed,
        views::{ChildrenPage, Glance, Inspect, Inspected, Quarantined, Whereabouts},
    },
    messages::{dead::DeadMessage, decision::OperatorDecision},
    registry::{Kind, QueryKind, Registry},
    resident::hot::HotEntity,
    timers::{Due, TimerView},
};

use self::{
    checkpoint::others::Others,
    common::{Change, Common},
    resident::{Entities, table::Table},
};
use crate::model::{Published, Timestamp};
use std::{any::Any, sync::Arc};
use throng_journal::{ShardId, WriterId};

/// A shard of the key space, with its entities, messages, timers and idempotency keys.
pub struct Shard {
    registry: Arc<Registry>,
    tables: Vec<Box<dyn Table>>,
    others: Others,
    common: Common,
}

impl Shard {
    /// Returns an empty shard of these kinds. Recorded and stored data are then added with [`row`](Self::row) and [`replay`](Self::replay),
    /// which ignore what has expired.
    #[must_use]
    pub fn new(id: ShardId, writer: WriterId, registry: Arc<Registry>, now: Timestamp) -> Self {
        let common = Common {
            id,
            writer,
            kinds: registry.kinds().iter().map(|kind| kind.name).collect(),
            shards: registry.shards(),
            restored_at: registry.restored_at(),
            now,
            ..Common::default()
        };
        Self {
            tables: registry.kinds().iter().map(|kind| (kind.table)(kind)).collect(),
            registry,
            others: Others::default(),
            common,
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

    /// True if this load differs from the one [booked](Self::book) last in the number of entities, or by more than `bytes` bytes.
    #[must_use]
    pub fn differs(&self, load: Load, bytes: usize) -> bool {
        let booked = &self.common.booked;
        load.entities != booked.entities
            || load.pending_bytes.abs_diff(booked.pending_bytes) > bytes
            || load.bytes.abs_diff(booked.bytes) > bytes
    }

    /// Returns the change since the last call, for the driver's totals. `load` is the result of [`load`](Self::load).
    pub fn book(&mut self, load: Load) -> Change {
        let booked = std::mem::replace(&mut self.common.booked, load);
        let delta = |new: usize, old: usize| new as i64 - old as i64;
        Change {
            entities: delta(load.entities, booked.entities),
            bytes: delta(load.bytes, booked.bytes),
            pending_bytes: delta(load.pending_bytes, booked.pending_bytes),
        }
    }

    /// True if the set of dead messages or quarantined entities has changed since the last call.
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

    /// Returns the values published since the last call, in order, each with the number of the commit it rests on.
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
