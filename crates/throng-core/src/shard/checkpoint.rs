//! What a checkpoint takes from a shard.

use super::{Shard, replay::NumbersRow};
use crate::model::Timestamp;
use std::collections::HashSet;
use throng_journal::{Address, Position, StoredState};

/// What a checkpoint takes from a shard, to be given back when it is done ([`Shard::checkpointed`]) or has failed.
#[derive(Default)]
pub struct Rows {
    /// States to store.
    pub states: Vec<StoredState>,
    /// System rows: key and value, or key and `None` to remove it.
    pub system: Vec<SystemRow>,
    /// The states: hash and generation of each.
    pub(super) tokens: HashSet<(u64, u64)>,
}

/// A system row of the store: key and value, or key and `None` to remove it.
pub type SystemRow = (Vec<u8>, Option<Vec<u8>>);

impl Shard {
    /// Entities, as kind, hash and id, that have to be brought back before [`checkpoint`](Self::checkpoint).
    #[must_use]
    pub fn families_to_load(&self) -> Vec<(usize, u64, Box<str>)> {
        let mut found = Vec::new();
        for (kind, table) in self.tables.iter().enumerate() {
            found.extend(table.families_to_load().into_iter().map(|(hash, id)| (kind, hash, id)));
        }
        found
    }

    /// What the store does not have yet. It may rest on the commit that is open now: it must be durable before the
    /// store gets this.
    pub fn checkpoint(&mut self, mut now: Timestamp) -> Rows {
        self.common.tick(&mut now);
        let mut rows = Rows::default();
        for table in &mut self.tables {
            table.checkpoint(&mut self.common, &mut rows);
        }
        self.common.timers.rows(&mut rows.system);
        self.common.dead.rows(&mut rows.system);
        self.common.keys.rows(self.common.id, now, &mut rows.system);
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
        self.common.keys.stored(&rows.system);
        self.common.dead.stored();
    }

    /// What the system rows begin with that nobody needs any more, because the hour of their idempotency keys is over: to be
    /// removed, of all shards together, in the order of these bytes.
    #[must_use]
    pub fn expired_rows(&self, now: Timestamp) -> Vec<Vec<u8>> {
        self.common.keys.expired(now.max(self.common.now))
    }

    /// All rows that begin with this are removed.
    pub fn rows_removed(&mut self, prefix: &[u8]) {
        self.common.keys.removed(prefix);
    }

    /// The checkpoint with these rows failed: nothing of it counts.
    pub fn checkpoint_failed(&mut self, rows: &Rows) {
        self.common.timers.rows_failed(&rows.system);
        self.common.messages.rows_failed();
        self.common.dead.failed();
    }
}

/// The system row of an entity that has ended: the number of its last event then, eight bytes, most significant first.
#[must_use]
pub fn ended_row(address: &Address) -> Vec<u8> {
    [b"e", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The system row of an entity's family.
#[must_use]
pub fn family_row(address: &Address) -> Vec<u8> {
    [b"f", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}
