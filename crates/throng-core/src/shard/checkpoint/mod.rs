//! The rows that a checkpoint takes from a shard.

pub(super) mod erasures;
pub(super) mod index;
mod index_rows;
pub(super) mod notes;
pub(super) mod others;
pub(super) mod replay;
pub(super) mod retain;
pub(super) mod rows;
pub(super) mod system_row;

use super::Shard;
use crate::model::Timestamp;
use replay::NumbersRow;
use rows::Rows;
use throng_journal::Position;

impl Shard {
    /// Returns entities (kind, hash and id) that have to be loaded before [`checkpoint`](Self::checkpoint).
    #[must_use]
    pub fn families_to_load(&self) -> Vec<(usize, u64, Box<str>)> {
        let mut found = Vec::new();
        for (kind, table) in self.tables.iter().enumerate() {
            found.extend(table.families_to_load().into_iter().map(|(hash, id)| (kind, hash, id)));
        }
        found
    }

    /// Adds to `rows` what the store does not have yet. It may rest on the open commit, which must be durable before the store gets the
    /// rows. The caller then calls [`timers_stored`](Self::timers_stored), if there are [`Rows::timers`], and
    /// [`checkpointed`](Self::checkpointed), or [`checkpoint_failed`](Self::checkpoint_failed).
    pub fn checkpoint(&mut self, mut now: Timestamp, rows: &mut Rows) {
        self.common.tick(&mut now);
        for table in &mut self.tables {
            table.checkpoint(&mut self.common, rows);
        }
        self.others.rows(self.common.id, &mut rows.system);
        rows.timers
            .extend(self.common.timers.rows(self.common.id, self.common.writer));
        self.common.dead.rows(&mut rows.system);
        self.common.unloadables.rows(&mut rows.system);
        self.common.keys.rows(self.common.id, now, &mut rows.system);
        if let Some(counts) = self.common.messages.rows() {
            let row = [b"m", &self.common.id.0.to_be_bytes()[..]].concat();
            let numbers = serde_json::to_vec(&NumbersRow::of(counts)).ok();
            rows.system.push((row, numbers));
        }
    }

    /// Completes the checkpoint that last took this shard's rows. It covers everything up to here.
    pub fn checkpointed(&mut self, upto: Position) {
        for table in &mut self.tables {
            table.checkpointed(&mut self.common, upto);
        }
        self.others.stored();
        self.common.keys.stored();
        self.common.dead.stored();
        self.common.unloadables.stored();
    }

    /// Returns the prefixes of the system rows whose idempotency keys have all expired. They must be removed for all shards together, in
    /// the order of these bytes.
    #[must_use]
    pub fn expired_rows(&self, now: Timestamp) -> Vec<Vec<u8>> {
        self.common.keys.expired(now.max(self.common.now))
    }

    /// All rows that begin with this are removed.
    pub fn rows_removed(&mut self, prefix: &[u8]) {
        self.common.keys.removed(prefix);
    }

    /// Discards the checkpoint that last took this shard's rows: none of it counts.
    pub fn checkpoint_failed(&mut self) {
        self.common.timers.failed();
        self.common.messages.rows_failed();
        self.common.keys.failed();
        self.common.dead.failed();
        self.common.unloadables.failed();
    }
}
