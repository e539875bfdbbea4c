//! The rows of indexed fields that a checkpoint takes, and the fields of an entity whose row is not right.

use super::{
    index::{Indexed, not_known, print_of, row_of},
    system_row::index_row,
};
use crate::{
    model::Entity,
    shard::{
        Common, Rows, Shard,
        resident::{
            Entities, Lookup,
            slot::{Body, Slot, panic_text, parts_of},
        },
    },
};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_journal::Address;

impl<E: Entity> Entities<E> {
    /// The indexed fields of an entity whose row is not right.
    pub(crate) fn indexed(&mut self, common: &mut Common, hash: u64, id: &str) -> Indexed {
        let at = match self.look_up(common, hash, id) {
            Lookup::Found { at, is_new: false } => at,
            Lookup::Found { at, .. } => {
                self.remove(common, at);
                return Indexed::Gone;
            }
            Lookup::Load => return Indexed::Load,
            Lookup::Refused(_) => return Indexed::Gone,
        };
        match &self.peek(at).body {
            Body::Resident(resident) if resident.is_gone || resident.seq == 0 => Indexed::Gone,
            Body::Resident(resident) => {
                let row = write::<E>(id, &resident.state, resident.seq);
                self.trace(common, at).unindexed = true;
                Indexed::Row(row)
            }
            Body::Passivated(_) => Indexed::Load,
            Body::Quarantined(_) => Indexed::Unknown,
        }
    }

    /// Adds the rows of entities that have changed and are in memory, or whose newest state is on its way to the store.
    pub(crate) fn index_rows(&self, rows: &mut Rows) {
        if E::INDEXED.is_empty() {
            return;
        }
        let changed = self.traced(&|_, trace| trace.unindexed || !trace.tail.is_empty());
        rows.system.extend(changed.into_iter().filter_map(|at| {
            let slot = self.peek(at);
            let row = match &slot.body {
                Body::Resident(resident) if resident.seq > 0 && !resident.is_gone => {
                    write::<E>(&slot.text, &resident.state, resident.seq)
                }
                Body::Passivated(Some(seq)) => write::<E>(&slot.text, &pending_state(slot)?, *seq),
                _ => return None,
            };
            Some((index_row(&Address::new(E::KIND, slot.text.clone())), Some(row)))
        }));
    }
}

fn pending_state<E: Entity>(slot: &Slot<E>) -> Option<E> {
    let pending = slot.trace.as_ref()?.pending.as_ref()?;
    parts_of(&pending.bytes).ok()?.state().ok()
}

impl Shard {
    /// The indexed fields of an entity, for whom its row is not right.
    pub fn indexed(&mut self, kind: usize, hash: u64, id: &str) -> Indexed {
        self.tables[kind].indexed(&mut self.common, hash, id)
    }
}

fn write<E: Entity>(id: &str, state: &E, seq: u64) -> Vec<u8> {
    let read = || E::INDEXED.iter().map(|field| field.read(state)).collect();
    let values: Vec<Value> = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let reason = panic_text(panic.as_ref());
        tracing::error!("reading the indexed fields of {}/{id} panicked: {reason}", E::KIND);
        vec![not_known(); E::INDEXED.len()]
    });
    row_of(print_of::<E>(), seq, values)
}
