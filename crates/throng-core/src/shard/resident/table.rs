//! The table of a kind, with its type erased. A command costs one virtual call.

use super::slot::TailEvent;
use crate::shard::{
    Call, Common, Erasure, Glance, Indexed, Inspect, Inspected, Quarantined, QueryCall, Ran, Recorded, Recording, Rows,
    Stage, Unloadable,
};
use std::{any::Any, collections::BTreeMap};
use throng_journal::{Loaded, Position, Record};

/// The reads that bring an entity back to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRequest {
    /// The version of states to ask the store for.
    pub state_version: u16,
    /// Events the store may not have indexed.
    pub tail: Vec<TailEvent>,
    /// Read only once this commit is durable.
    pub rests_on: u64,
}

/// The data that was read to load an entity.
#[derive(Debug, Default)]
pub struct Recalled {
    /// The store's part.
    pub stored: Loaded,
    /// The events that only the log has, with their payloads.
    pub tail: Vec<(TailEvent, Vec<u8>)>,
    /// The row of its family ([`crate::shard::family_row`]), needed only if the store has no state.
    pub family: Option<Vec<u8>>,
    /// The row of its end ([`crate::shard::ended_row`]), needed only if the store has no state.
    pub ended: Option<Vec<u8>>,
}

/// The result of bringing an entity back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The entity is in memory.
    Resident,
    /// Its stored state cannot be read, for this reason. The entity is not in memory, and has to be loaded again without that state.
    UnreadableState(String),
    /// The entity is quarantined, for this reason.
    Quarantined(String),
}

/// The entities of one kind in one shard.
pub(crate) trait Table: Any + Send {
    /// Runs a command.
    fn execute(&mut self, common: &mut Common, call: &mut Call<'_>, stage: &mut dyn Stage) -> Ran;

    /// Answers a named query.
    fn query(&mut self, common: &mut Common, call: &mut QueryCall<'_>) -> Ran;

    /// Returns what has to be read to load this entity; `None` if it is in memory.
    fn load_request(&mut self, hash: u64, id: &str) -> Option<LoadRequest>;

    /// Loads an entity from what was read: the store's part, the payloads of the tail, and the family's row.
    fn loaded(&mut self, common: &mut Common, hash: u64, id: &str, read: Recalled) -> LoadOutcome;

    /// Quarantines an entity that cannot be loaded; `false` if it is in memory.
    fn quarantine(&mut self, common: &mut Common, hash: u64, id: &str, why: &Unloadable<'_>) -> bool;

    /// Ends a quarantine; `false` if there is none.
    fn release(&mut self, common: &mut Common, hash: u64, id: &str) -> bool;

    /// Returns quarantined entities in memory, at most `limit`.
    fn quarantined(&self, limit: usize) -> Vec<Quarantined>;

    /// Returns what is known of an entity without loading it.
    fn glance(&self, hash: u64, id: &str) -> Option<Glance>;

    /// An entity, as it is; `None`: it has to be loaded.
    fn inspect(
        &mut self,
        common: &mut Common,
        entity: (u64, &str),
        wanted: &Inspect,
    ) -> Option<Result<Inspected, String>>;

    /// The indexed fields of an entity.
    fn indexed(&mut self, common: &mut Common, hash: u64, id: &str) -> Indexed;

    /// About how many entities there are, in memory or not.
    fn known(&self) -> usize;

    /// True if an id of this hash may have events or relatives.
    fn may_know(&self, hash: u64) -> bool;

    /// The number of entities in memory, and the number of these that are quarantined.
    fn resident(&self) -> (usize, usize);

    /// Takes over a row of known ids of this kind; `false` if it cannot be read.
    fn restore_known(&mut self, common: &mut Common, name: &[u8], value: &[u8]) -> bool;

    /// Takes over an event or family record from before this engine's start.
    fn replay(
        &mut self,
        common: &mut Common,
        hash: u64,
        record: &Record<'_>,
        name: &'static str,
    ) -> serde_json::Result<()>;

    /// Notes that the records [replayed](Self::replay) for an entity came from a note in the store.
    fn has_note(&mut self, common: &mut Common, hash: u64, id: &str);

    /// Returns the events of this entity that the store may not have indexed, and its recorded state among them.
    fn tail(&self, hash: u64, id: &str) -> Vec<TailEvent>;

    /// Adds the first ids of this kind after an id that have events which the store may not have indexed, with their last number.
    fn fresh(&mut self, after: Option<&str>, limit: usize, found: &mut BTreeMap<Box<str>, u64>, durable: Position);

    /// Adds the rows and states of this kind that the store does not have yet.
    fn checkpoint(&mut self, common: &mut Common, rows: &mut Rows);

    /// Returns entities (hash and id) that have to be in memory before a checkpoint.
    fn families_to_load(&self) -> Vec<(u64, Box<str>)>;

    /// Completes a checkpoint, which covers everything up to here.
    fn checkpointed(&mut self, common: &mut Common, upto: Position);

    /// Records the present state of an entity.
    fn record_state(
        &mut self,
        common: &mut Common,
        entity: (u64, &str),
        how: Recording,
        stage: &mut dyn Stage,
    ) -> Recorded;

    /// Ends an entity, of which nothing is kept.
    fn erase(&mut self, common: &mut Common, entity: (u64, &str), known: u64, stage: &mut dyn Stage)
    -> Option<Erasure>;

    /// Passivates the entity that was not used for the longest time; `false` if there is none.
    fn passivate(&mut self, common: &mut Common) -> bool;

    /// True if the entity used last has at least this many bytes.
    fn has_large(&self, bytes_min: usize) -> bool;

    /// Passivates the entity used last, if it has at least this many bytes.
    fn passivate_large(&mut self, common: &mut Common, bytes_min: usize);
}

impl<E: crate::model::Entity> Table for super::Entities<E> {
    fn execute(&mut self, common: &mut Common, call: &mut Call<'_>, stage: &mut dyn Stage) -> Ran {
        self.run(common, call, stage)
    }

    fn query(&mut self, common: &mut Common, call: &mut QueryCall<'_>) -> Ran {
        self.ask(common, call)
    }

    fn load_request(&mut self, hash: u64, id: &str) -> Option<LoadRequest> {
        Self::load_request(self, hash, id)
    }

    fn loaded(&mut self, common: &mut Common, hash: u64, id: &str, read: Recalled) -> LoadOutcome {
        self.bring_back(common, (hash, id), read)
    }

    fn quarantine(&mut self, common: &mut Common, hash: u64, id: &str, why: &Unloadable<'_>) -> bool {
        self.set_aside(common, hash, id, why)
    }

    fn release(&mut self, common: &mut Common, hash: u64, id: &str) -> bool {
        self.end_quarantine(common, hash, id)
    }

    fn has_note(&mut self, common: &mut Common, hash: u64, id: &str) {
        if let Some(at) = self.find(hash, id) {
            self.trace(common, at).note.stands = true;
        }
    }

    fn quarantined(&self, limit: usize) -> Vec<Quarantined> {
        let quarantined = self.quarantined.iter().filter_map(|at| Quarantined::of(self.peek(*at)));
        quarantined.take(limit).collect()
    }

    fn glance(&self, hash: u64, id: &str) -> Option<Glance> {
        Self::glance(self, hash, id)
    }

    fn inspect(
        &mut self,
        common: &mut Common,
        entity: (u64, &str),
        wanted: &Inspect,
    ) -> Option<Result<Inspected, String>> {
        Self::inspect(self, common, entity, wanted)
    }

    fn indexed(&mut self, common: &mut Common, hash: u64, id: &str) -> Indexed {
        Self::indexed(self, common, hash, id)
    }

    fn known(&self) -> usize {
        self.known.len()
    }

    fn may_know(&self, hash: u64) -> bool {
        Self::may_know(self, hash)
    }

    fn resident(&self) -> (usize, usize) {
        (self.resident, self.quarantined.len())
    }

    fn restore_known(&mut self, common: &mut Common, name: &[u8], value: &[u8]) -> bool {
        let grown = self.known.restore(name, value);
        common.known_bytes += grown.unwrap_or_default();
        grown.is_some()
    }

    fn replay(
        &mut self,
        common: &mut Common,
        hash: u64,
        record: &Record<'_>,
        name: &'static str,
    ) -> serde_json::Result<()> {
        self.replay_record(common, hash, record, name)
    }

    fn tail(&self, hash: u64, id: &str) -> Vec<TailEvent> {
        let trace = self.find(hash, id).and_then(|at| self.peek(at).trace.as_ref());
        trace.map(|trace| trace.tail.clone()).unwrap_or_default()
    }

    fn fresh(&mut self, after: Option<&str>, limit: usize, found: &mut BTreeMap<Box<str>, u64>, durable: Position) {
        self.fresh_ids(after, limit, found, durable);
    }

    fn checkpoint(&mut self, common: &mut Common, rows: &mut Rows) {
        self.checkpoint(common, rows);
    }

    fn families_to_load(&self) -> Vec<(u64, Box<str>)> {
        Self::families_to_load(self)
    }

    fn checkpointed(&mut self, common: &mut Common, upto: Position) {
        Self::checkpointed(self, common, upto);
    }

    fn record_state(
        &mut self,
        common: &mut Common,
        entity: (u64, &str),
        how: Recording,
        stage: &mut dyn Stage,
    ) -> Recorded {
        self.record(common, entity, how, stage)
    }

    fn erase(
        &mut self,
        common: &mut Common,
        entity: (u64, &str),
        known: u64,
        stage: &mut dyn Stage,
    ) -> Option<Erasure> {
        self.erase_one(common, entity, known, stage)
    }

    fn passivate(&mut self, common: &mut Common) -> bool {
        let Some(at) = self.recency.victim() else { return false };
        self.passivate_at(common, at);
        true
    }

    fn has_large(&self, bytes_min: usize) -> bool {
        self.large(bytes_min).is_some()
    }

    fn passivate_large(&mut self, common: &mut Common, bytes_min: usize) {
        if let Some(at) = self.large(bytes_min) {
            self.passivate_at(common, at);
        }
    }
}
