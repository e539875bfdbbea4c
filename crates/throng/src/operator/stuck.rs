//! Entities that are quarantined, cannot be brought back, or take the room of others.

use crate::{commit::widen, engine::Engine, executor::StuckEntity};
use std::collections::BTreeMap;
use throng_core::{
    model::Error,
    shard::{JsonRejection, Quarantined},
};
use throng_journal::Address;

type Answer<T> = Result<T, Error<JsonRejection>>;

impl Engine {
    /// Entities that take no messages now, because they cannot be loaded, and those with messages from here that wait for a newer release:
    /// which, and why.
    #[must_use]
    pub fn stuck(&self) -> Vec<StuckEntity> {
        let Some(epoch) = self.core.epochs.running() else {
            return Vec::new();
        };
        epoch.executor.outbox.stuck()
    }

    /// Entities that an operator has quarantined, and those in memory that were set aside (their events cannot be applied by this program, or
    /// what is stored of them cannot be read): at most so many of each, kind and shard.
    ///
    /// # Errors
    /// The engine is not ready.
    pub async fn quarantined(&self, limit: usize) -> Answer<Vec<Quarantined>> {
        let epoch = self.core.epochs.current()?;
        let kinds = self.core.context.registry.kinds().len();
        let mut found = Vec::new();
        for shard in epoch.executor.shards() {
            let look = epoch.executor.visit(shard, move |shard| {
                let of_kind = |kind| shard.quarantined(kind, limit);
                (0..kinds).flat_map(of_kind).collect::<Vec<_>>()
            });
            found.extend(look.await.map_err(widen)?);
        }
        found.sort_by(|one, other| one.address.cmp(&other.address));
        found.truncate(limit);
        Ok(found)
    }

    /// Counts the messages that wait for each entity that an operator has quarantined, of those sent since the start or looked at since.
    #[must_use]
    pub fn waiting_messages(&self) -> BTreeMap<Address, u64> {
        let epoch = self.core.epochs.running();
        epoch.map_or_else(BTreeMap::new, |epoch| epoch.executor.outbox.waiting_for_quarantined())
    }

    /// The entities that most of the messages in memory are for, and how many, at most so many: while messages between entities take all their
    /// room, and work from outside is refused for that. An operator may quarantine one.
    #[must_use]
    pub fn crowding(&self, limit: usize) -> Vec<(Address, u64)> {
        let epoch = self.core.epochs.running();
        epoch.map_or_else(Vec::new, |epoch| epoch.executor.outbox.crowding(limit))
    }
}
