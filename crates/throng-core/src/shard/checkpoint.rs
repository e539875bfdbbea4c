//! What a checkpoint takes from a shard.

use super::{Shard, replay::NumbersRow, slot::family_of};
use crate::model::Timestamp;
use std::collections::HashSet;
use throng_journal::{Address, Position, StoredState};

/// What a checkpoint takes from a shard, to be given back when it is done ([`Shard::checkpointed`]) or has failed.
#[derive(Default)]
pub struct Rows {
    /// States to store.
    pub states: Vec<StoredState>,
    /// System rows: key and value, or key and `None` to remove it.
    pub system: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What the rows of idempotency keys begin with whose hour is over: to be removed. Other shards say the same.
    pub expired: Vec<Vec<u8>>,
    tokens: HashSet<(u64, u64)>,
}

impl Shard {
    /// Entities, as kind, hash and id, that have to be brought back before [`checkpoint`](Self::checkpoint).
    #[must_use]
    pub fn unsettled(&self) -> Vec<(usize, u64, Box<str>)> {
        let mut found = Vec::new();
        for (kind, table) in self.tables.iter().enumerate() {
            found.extend(table.unsettled().into_iter().map(|(hash, id)| (kind, hash, id)));
        }
        found
    }

    /// What the store does not have yet. It may rest on the commit that is open now: it must be durable before the
    /// store gets this.
    pub fn checkpoint(&mut self, mut now: Timestamp) -> Rows {
        self.common.tick(&mut now);
        let mut rows = Rows::default();
        let (mut states, mut families) = (Vec::new(), Vec::new());
        let shard = self.common.id;
        for table in &mut self.tables {
            table.pending(&mut self.common, &mut states, &mut families, shard);
        }
        for (address, family) in families {
            rows.system.push((family_row(&address), Some(family)));
        }
        for (state, token) in states {
            // States of another version are rebuilt from events, and a family has none: so it has a row of its own.
            if let Some(family) = family_of(&state.bytes) {
                rows.system.push((family_row(&state.address), Some(family.to_vec())));
            }
            rows.states.push(state);
            rows.tokens.insert(token);
        }
        self.common.timers.rows(&mut rows.system);
        self.common.dead.rows(&mut rows.system);
        self.common.keys.rows(self.common.id, now, &mut rows.system);
        rows.expired = self.common.keys.expired(now);
        if let Some((sent, taken)) = self.common.messages.rows() {
            let numbers = NumbersRow {
                sent: sent.iter().map(|(to, number)| (to.0, *number)).collect(),
                taken: taken
                    .iter()
                    .map(|(from, watermark)| (from.0, watermark.clone()))
                    .collect(),
            };
            let mut row = vec![b'm'];
            row.extend_from_slice(&self.common.id.0.to_be_bytes());
            rows.system.push((row, serde_json::to_vec(&numbers).ok()));
        }
        rows
    }

    /// The checkpoint with these rows, covering everything up to here, is done.
    pub fn checkpointed(&mut self, upto: Position, rows: &Rows) {
        for table in &mut self.tables {
            table.checkpointed(&mut self.common, upto, &rows.tokens);
        }
        self.common.keys.stored(&rows.system, &rows.expired);
        self.common.dead.stored();
    }

    /// The checkpoint with these rows failed: nothing of it counts.
    pub fn checkpoint_failed(&mut self, rows: &Rows) {
        self.common.timers.rows_failed(&rows.system);
        self.common.messages.rows_failed();
        self.common.dead.failed();
    }
}

/// The system row of an entity's family.
#[must_use]
pub fn family_row(address: &Address) -> Vec<u8> {
    [b"f", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}
