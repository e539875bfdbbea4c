//! Entities that are quarantined, cannot be loaded, or crowd out others' messages.

use crate::{commit::widen, engine::Engine, executor::StuckEntity};
use std::collections::BTreeMap;
use throng_core::{
    model::Error,
    shard::{JsonRejection, Quarantined},
};
use throng_journal::Address;

type OperatorResult<T> = Result<T, Error<JsonRejection>>;

impl Engine {
    /// Returns entities that take no messages now because they cannot be loaded, and those with messages from here that wait for a newer
    /// release, each with the reason.
    #[must_use]
    pub fn stuck(&self) -> Vec<StuckEntity> {
        let Some(epoch) = self.core.epochs.running() else {
            return Vec::new();
        };
        epoch.executor.outbox.stuck()
    }

    /// Returns the entities that an operator has quarantined, and those in memory that the engine has (this program cannot apply their
    /// events, or their stored data cannot be read): at most `limit` of each sort, kind and shard.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn quarantined(&self, limit: usize) -> OperatorResult<Vec<Quarantined>> {
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

    /// Counts the waiting messages of each entity that an operator has quarantined. Only those are counted that were sent or read since the
    /// start.
    #[must_use]
    pub fn waiting_messages(&self) -> BTreeMap<Address, u64> {
        let epoch = self.core.epochs.running();
        epoch.map_or_else(BTreeMap::new, |epoch| epoch.executor.outbox.waiting_for_quarantined())
    }

    /// Returns the receivers of most messages in memory with their counts, at most `limit`, while messages between entities fill their
    /// memory and work from outside is refused for that. An operator may quarantine one.
    #[must_use]
    pub fn crowding(&self, limit: usize) -> Vec<(Address, u64)> {
        let epoch = self.core.epochs.running();
        epoch.map_or_else(Vec::new, |epoch| epoch.executor.outbox.crowding(limit))
    }
}
