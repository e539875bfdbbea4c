//! The entities of one kind in one shard.

mod filter;
pub(super) mod hot;
pub(super) mod known;
pub(super) mod load;
#[cfg(test)]
mod memory;
mod quarantine;
mod recency;
pub(super) mod slot;
pub(super) mod table;
pub(super) mod unloadable;

use super::{
    Common, Rows,
    checkpoint::notes::{Noted, row_of},
    ended_row,
    execute::{
        call::{HearFn, QueryFn},
        observer::CommandObserver,
    },
    family_row, index_row,
};
use crate::model::{Effects, Entity, Error};
use hashbrown::HashTable;
use known::Known;
use recency::{Linked, Links, Recency};
use slot::{
    Body, Broken, EventShape, Pending, Resident, SetAside, Slot, TRACE_BYTES, Trace, encode_state, parse_id, parts_of,
};
use std::collections::{BTreeMap, BTreeSet};
use throng_journal::{Address, Position, StoredState};

/// The entities of one kind in one shard.
#[derive(Default)]
pub struct Entities<E: Entity> {
    slots: Slots<E>,
    index: HashTable<u32>,
    known: Known,
    recency: Recency,
    /// The number of entities in memory.
    resident: usize,
    /// The slots of quarantined entities. Entities that cannot be loaded are listed only while in memory.
    quarantined: BTreeSet<u32>,
    /// The slots with a trace, which a checkpoint has to visit.
    traced: Vec<u64>,
    pub(super) listing: Listing,
    generation: u64,
    /// The number of the last state that the checkpoint under way took.
    given: u64,
    pub(super) effects: Effects<E>,
    /// The events of the current command. The buffer is reused.
    pub(super) shapes: Vec<EventShape>,
    /// The queries it answers, by name.
    pub(super) queries: Vec<(&'static str, QueryFn<E>)>,
    /// The kinds whose outcomes it takes.
    pub(super) hears: Vec<(&'static str, HearFn<E>)>,
    /// Sees its commands, in a simulation.
    pub(super) observer: Option<CommandObserver>,
}

/// The ids of a table's traces, sorted, as far as a listing has requested them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Id and hash.
    pub(super) ids: BTreeMap<Box<str>, u64>,
    /// The number of the table's traces that are in it.
    pub(super) traces: usize,
}

/// The result of looking an entity up.
pub(super) enum Lookup<R> {
    /// The entity is in this slot, which was made just now if `is_new`.
    Found { at: u32, is_new: bool },
    /// The entity is not in memory.
    Load,
    /// The text is not an id of this kind, so there is no such entity.
    Refused(Error<R>),
}

#[cfg(test)]
std::thread_local! {
    /// The number of slots that this thread has looked at.
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Default)]
pub(super) struct Slots<E: Entity> {
    /// Each slot is allocated by itself. Otherwise the table's largest size would be kept for good, and up to half of it never used.
    slots: Vec<Option<Box<Slot<E>>>>,
    free: Vec<u32>,
}

impl<E: Entity> Slots<E> {
    pub(super) fn at(&mut self, at: u32) -> &mut Slot<E> {
        self.slots[at as usize]
            .as_mut()
            .expect("the index names only slots in use")
    }

    fn get(&self, at: u32) -> &Slot<E> {
        #[cfg(test)]
        LOOKED_AT.with(|looked| looked.set(looked.get() + 1));
        self.slots[at as usize]
            .as_ref()
            .expect("the index names only slots in use")
    }
}

impl<E: Entity> Linked for Slots<E> {
    fn links(&mut self, at: u32) -> &mut Links {
        &mut self.at(at).links
    }
}

/// Returns the bits of the hash that select the table's entry. The low bits chose the shard.
fn spread(hash: u64) -> u64 {
    hash.rotate_right(20)
}

impl<E: Entity> Entities<E> {
    pub(super) fn of(
        queries: Vec<(&'static str, QueryFn<E>)>,
        hears: Vec<(&'static str, HearFn<E>)>,
        observer: Option<CommandObserver>,
    ) -> Self {
        Self {
            queries,
            hears,
            observer,
            ..Self::default()
        }
    }

    pub(super) fn find(&self, hash: u64, id: &str) -> Option<u32> {
        let same = |at: &u32| {
            let slot = self.slots.get(*at);
            slot.hash == hash && &*slot.text == id
        };
        self.index.find(spread(hash), same).copied()
    }

    pub(super) fn peek(&self, at: u32) -> &Slot<E> {
        self.slots.get(at)
    }

    /// Returns the slots of this hash: nearly always one.
    pub(super) fn slots_of(&self, hash: u64) -> impl Iterator<Item = &Slot<E>> {
        let alike = self.index.iter_hash(spread(hash)).map(|at| self.slots.get(*at));
        alike.filter(move |slot| slot.hash == hash)
    }

    /// Returns the hashes of the slots that have, or had, a trace since the last checkpoint.
    pub(super) fn traces(&self) -> &[u64] {
        &self.traced
    }

    pub(super) fn slot(&mut self, at: u32) -> &mut Slot<E> {
        self.slots.at(at)
    }

    pub(super) fn slot_and_effects(&mut self, at: u32) -> (&mut Slot<E>, &mut Effects<E>) {
        (self.slots.at(at), &mut self.effects)
    }

    pub(super) fn may_know(&self, hash: u64) -> bool {
        self.known.contains(hash)
    }

    /// Quarantines an entity. `last` is the last of its events that were read.
    pub(super) fn quarantine_at(&mut self, common: &mut Common, at: u32, broken: Broken, last: u64) {
        let slot = self.slots.at(at);
        let address = Address::new(E::KIND, slot.text.clone());
        let since = common.unloadables.quarantined_since(&address).unwrap_or(common.now);
        common.unloadables.note(address, &broken.reason);
        let in_log = slot.trace.iter().flat_map(|trace| &trace.tail).map(|event| event.seq);
        slot.body = Body::Quarantined(Box::new(SetAside {
            seq: broken.seq,
            last: in_log.fold(last.max(broken.seq).max(slot.ended), u64::max),
            reason: broken.reason,
            since,
            refused: 0,
        }));
        self.quarantined.insert(at);
        common.has_set_aside = true;
        self.used(common, at);
    }

    /// Adds the id to the known ones: the entity has its first event or its first relative.
    pub(super) fn know(&mut self, common: &mut Common, hash: u64) {
        common.known_bytes += self.known.insert(hash);
    }

    /// Finds an entity for a command or a query. An unknown id gets a temporary slot.
    pub(super) fn look_up(&mut self, common: &mut Common, hash: u64, id: &str) -> Lookup<E::Rejection> {
        if let Some(at) = self.find(hash, id) {
            let passivated = matches!(self.slot(at).body, Body::Passivated(_));
            return if passivated && !self.revive(common, at) {
                Lookup::Load
            } else {
                Lookup::Found { at, is_new: false }
            };
        }
        if self.may_know(hash) {
            return Lookup::Load;
        }
        let typed = match parse_id::<E>(id) {
            Ok(typed) => typed,
            Err(why) => {
                return Lookup::Refused(Error::Malformed(format!("{id:?} is not an id of a {}: {why}", E::KIND)));
            }
        };
        let nothing = Resident {
            id: typed,
            state: E::default(),
            seq: 0,
            stored_seq: 0,
            is_gone: false,
        };
        let at = self.insert(common, hash, id, Body::Resident(nothing));
        Lookup::Found { at, is_new: true }
    }

    pub(super) fn insert(&mut self, common: &mut Common, hash: u64, id: &str, body: Body<E>) -> u32 {
        let slot = Box::new(Slot {
            hash,
            text: id.into(),
            rests_on: 0,
            ended: 0,
            body,
            trace: None,
            family: None,
            links: Links::default(),
            bytes: 0,
        });
        common.pending_bytes += slot.own_bytes();
        let at = match self.slots.free.pop() {
            Some(at) => {
                self.slots.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.slots.push(Some(slot));
                u32::try_from(self.slots.slots.len() - 1).expect("a shard's table holds fewer than 2^32 entities")
            }
        };
        let slots = &self.slots;
        self.index
            .insert_unique(spread(hash), at, |at| spread(slots.get(*at).hash));
        at
    }

    pub(super) fn remove(&mut self, common: &mut Common, at: u32) {
        self.leave(common, at);
        let slot = self.slots.slots[at as usize]
            .take()
            .expect("the index names only slots in use");
        common.pending_bytes -= slot.own_bytes() + slot.trace.as_ref().map_or(0, |trace| trace.bytes());
        if let Ok(entry) = self.index.find_entry(spread(slot.hash), |found| *found == at) {
            entry.remove();
        }
        self.slots.free.push(at);
    }

    /// Notes that an entity is in memory and was just used, and updates the count of its bytes.
    pub(super) fn used(&mut self, common: &mut Common, at: u32) {
        self.recency.used(&mut self.slots, at);
        let slot = self.slots.at(at);
        let (new, old) = (slot.weigh(), slot.bytes);
        slot.bytes = new;
        if old == 0 {
            common.pending_bytes -= slot.own_bytes();
        }
        self.resident += usize::from(old == 0);
        common.resident += usize::from(old == 0);
        common.resident_bytes = common.resident_bytes + new as usize - old as usize;
    }

    /// Removes an entity from the counts of what is in memory.
    fn leave(&mut self, common: &mut Common, at: u32) {
        self.recency.remove(&mut self.slots, at);
        common.has_set_aside |= self.quarantined.remove(&at);
        let slot = self.slots.at(at);
        if slot.bytes > 0 {
            common.pending_bytes += slot.own_bytes();
        }
        self.resident -= usize::from(slot.bytes > 0);
        common.resident -= usize::from(slot.bytes > 0);
        common.resident_bytes -= slot.bytes as usize;
        slot.bytes = 0;
    }

    /// Returns the slot's trace, which a checkpoint has to visit from now on.
    pub(super) fn trace(&mut self, common: &mut Common, at: u32) -> &mut Trace {
        let slot = self.slots.at(at);
        if slot.trace.is_none() {
            common.pending_bytes += TRACE_BYTES;
            self.traced.push(slot.hash);
        }
        slot.trace.get_or_insert_default()
    }

    /// Gives the state to the next checkpoint.
    pub(super) fn store_state(&mut self, common: &mut Common, at: u32) {
        let slot = self.slots.at(at);
        let Body::Resident(resident) = &mut slot.body else {
            return;
        };
        match encode_state(&resident.state, slot.family.as_deref(), slot.ended) {
            Ok(bytes) => {
                resident.stored_seq = resident.seq;
                let seq = resident.seq;
                self.generation += 1;
                let generation = self.generation;
                common.pending_bytes += bytes.len();
                let trace = self.trace(common, at);
                trace.family = false;
                trace.note.remove();
                if let Some(old) = trace.pending.replace(Pending { seq, generation, bytes }) {
                    common.pending_bytes -= old.bytes.len();
                }
            }
            Err(why) => {
                // Its events hold the truth; it is only dearer to bring back.
                tracing::warn!("the state of {}/{} is not stored: {why}", E::KIND, slot.text);
                resident.stored_seq = resident.seq;
                self.note(common, at);
            }
        }
    }

    /// Has the next checkpoint store only the end of a removed entity, as a row.
    pub(super) fn keep_end(&mut self, common: &mut Common, at: u32) {
        let trace = self.trace(common, at);
        (trace.family, trace.gone, trace.end_given) = (false, true, false);
        trace.note.remove();
    }

    /// Has the next checkpoint write a note of its family and its end, because no state with them can be stored.
    fn note(&mut self, common: &mut Common, at: u32) {
        let trace = self.trace(common, at);
        if std::mem::take(&mut trace.family) {
            trace.note.write();
        }
    }

    /// Drops the state of an entity whose code panicked. It is rebuilt from its events.
    pub(super) fn drop_state(&mut self, common: &mut Common, at: u32) {
        self.leave(common, at);
        self.trace(common, at);
        self.slots.at(at).body = Body::Passivated(None);
    }

    /// Returns the entity used last, if it has at least this many bytes. A quarantined one is excluded, as it would be read again and
    /// again.
    pub(super) fn large(&self, bytes_min: usize) -> Option<u32> {
        self.recency.used_last().filter(|at| {
            let slot = self.peek(*at);
            slot.bytes as usize >= bytes_min && matches!(slot.body, Body::Resident(_))
        })
    }

    fn passivate_at(&mut self, common: &mut Common, at: u32) {
        let slot = self.slots.at(at);
        match &slot.body {
            Body::Resident(resident) if resident.seq > 0 || slot.family.is_some() => {
                let is_due = slot.trace.as_ref().is_some_and(|trace| trace.family || trace.unindexed);
                let (seq, changed) = (resident.seq, is_due || resident.seq != resident.stored_seq);
                match (changed, resident.is_gone) {
                    (true, false) => self.store_state(common, at),
                    (true, true) => self.keep_end(common, at),
                    (false, _) => {}
                }
                let slot = self.slots.at(at);
                let newest = slot
                    .trace
                    .as_ref()
                    .and_then(|trace| trace.pending.as_ref())
                    .map(|pending| pending.seq);
                let body = Body::Passivated(newest.filter(|newest| *newest == seq));
                // A durable record without an event leaves nothing for the store.
                if slot.trace.is_none() && slot.rests_on <= common.durable {
                    self.remove(common, at);
                } else {
                    self.leave(common, at);
                    self.trace(common, at);
                    self.slots.at(at).body = body;
                }
            }
            _ => self.forget(common, at),
        }
    }

    /// Drops an entity whose state is not needed from memory. The slot stays for what the store does not have yet.
    pub(super) fn forget(&mut self, common: &mut Common, at: u32) {
        if self.slots.at(at).trace.is_none() {
            self.remove(common, at);
        } else {
            self.leave(common, at);
            self.slots.at(at).body = Body::Passivated(None);
        }
    }

    /// The slots with a trace of this kind.
    pub(super) fn traced(&self, which: &dyn Fn(&Slot<E>, &Trace) -> bool) -> Vec<u32> {
        let mut found = Vec::new();
        for hash in &self.traced {
            for at in self.index.iter_hash(spread(*hash)) {
                let slot = self.slots.get(*at);
                if let Some(trace) = &slot.trace
                    && which(slot, trace)
                {
                    found.push(*at);
                }
            }
        }
        found
    }

    /// Returns entities that a checkpoint needs in memory, because their family has changed.
    pub(super) fn families_to_load(&self) -> Vec<(u64, Box<str>)> {
        let away = self.traced(&|slot, trace| trace.family && matches!(slot.body, Body::Passivated(_)));
        away.into_iter()
            .map(|at| (self.peek(at).hash, self.peek(at).text.clone()))
            .collect()
    }

    /// Adds the rows and states of this kind that the store does not have yet.
    pub(super) fn checkpoint(&mut self, common: &mut Common, rows: &mut Rows) {
        let shard = common.id;
        self.known.rows(E::KIND, shard, &mut rows.system);
        let is_gone = |slot: &Slot<E>| matches!(&slot.body, Body::Resident(resident) if resident.is_gone);
        for at in self.traced(&|slot, trace| trace.family && is_gone(slot)) {
            self.keep_end(common, at);
        }
        for at in self.traced(&|_, trace| trace.gone) {
            let slot = self.peek(at);
            let address = Address::new(E::KIND, slot.text.clone());
            rows.system
                .push((ended_row(&address), Some(slot.ended.to_be_bytes().to_vec())));
            if !E::INDEXED.is_empty() {
                rows.system.push((index_row(&address), None));
            }
            self.trace(common, at).end_given = true;
        }
        for at in self.traced(&|slot, trace| trace.family && matches!(slot.body, Body::Quarantined(_))) {
            self.note(common, at);
        }
        for at in self.traced(&|slot, trace| trace.family && matches!(slot.body, Body::Resident(_))) {
            self.store_state(common, at);
        }
        for at in self.traced(&|_, trace| trace.note.due) {
            self.trace(common, at).note.give();
            let slot = self.peek(at);
            let stands = slot.trace.as_ref().is_some_and(|trace| trace.note.stands);
            let noted = stands.then(|| Noted::of(slot.family.clone(), slot.ended));
            let row = row_of(&Address::new(E::KIND, slot.text.clone()));
            rows.system
                .push((row, noted.and_then(|noted| serde_json::to_vec(&noted).ok())));
        }
        self.index_rows(rows);
        self.given = self.generation;
        for hash in &self.traced {
            let slots = &self.slots;
            for at in self
                .index
                .iter_hash(spread(*hash))
                .filter(|at| slots.get(**at).hash == *hash)
            {
                let slot = slots.get(*at);
                let pending = slot.trace.as_ref().and_then(|trace| trace.pending.as_ref());
                let Some(pending) = pending else { continue };
                let address = Address::new(E::KIND, slot.text.clone());
                // States of another version are rebuilt from events, which contain neither a family nor an end. So these have rows of their
                // own.
                if let Ok(parts) = parts_of(&pending.bytes) {
                    if !parts.family.is_empty() {
                        rows.system.push((family_row(&address), Some(parts.family.to_vec())));
                    }
                    if parts.ended > 0 {
                        let ended = parts.ended.to_be_bytes().to_vec();
                        rows.system.push((ended_row(&address), Some(ended)));
                    }
                }
                rows.states.push(StoredState {
                    address,
                    shard,
                    seq: pending.seq,
                    version: E::STATE_VERSION,
                    bytes: pending.bytes.clone(),
                });
            }
        }
    }

    pub(super) fn checkpointed(&mut self, common: &mut Common, upto: Position) {
        common.known_bytes -= self.known.stored();
        self.listing = Listing::default();
        for hash in std::mem::take(&mut self.traced) {
            let slots = &self.slots;
            let same: Vec<u32> = self
                .index
                .iter_hash(spread(hash))
                .filter(|at| slots.get(**at).hash == hash)
                .copied()
                .collect();
            for at in same {
                let slot = self.slots.at(at);
                let Some(trace) = slot.trace.as_mut() else { continue };
                common.pending_bytes -= trace.cover(upto);
                if trace
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.generation <= self.given)
                {
                    common.pending_bytes -= trace.pending.take().map_or(0, |pending| pending.bytes.len());
                    if let Body::Passivated(newest) = &mut slot.body {
                        *newest = None;
                    }
                }
                let trace = slot.trace.as_mut().expect("it was there a line above");
                if std::mem::take(&mut trace.end_given) {
                    trace.gone = false;
                }
                trace.note.stored();
                trace.unindexed = false;
                if !trace.is_empty() {
                    self.traced.push(hash);
                    continue;
                }
                slot.trace = None;
                common.pending_bytes -= TRACE_BYTES;
                if matches!(slot.body, Body::Passivated(_)) {
                    self.remove(common, at);
                }
            }
        }
    }
}
