//! Entities that cannot be brought back, and what a person does about them.

use crate::{driver::widen, engine::Engine, handle::unknown_kind};
use throng_core::{
    model::{Error, Timestamp},
    shard::{JsonRejection, Quarantined},
};
use throng_journal::Address;

/// An entity that takes no messages now, because it cannot be loaded, or some not, because only a newer release of the service understands
/// them. It is tried again by itself; its messages wait in the log and hold up no other entity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckEntity {
    /// The entity that cannot be brought back.
    pub address: Address,
    /// Why it could not be loaded the last time, or what is not understood.
    pub reason: String,
    /// Since when that is so.
    pub since: Timestamp,
    /// So many messages to it have waited since.
    pub messages: u64,
}

impl Engine {
    /// Entities that take no messages now, because they cannot be loaded, and those with messages from here that wait for a newer release:
    /// which, and why.
    #[must_use]
    pub fn stuck(&self) -> Vec<StuckEntity> {
        let Some(life) = self.core.lives.running() else {
            return Vec::new();
        };
        life.door.outbox.stuck()
    }

    /// Entities in memory that were set aside, at most so many of each kind and shard: their events cannot be applied by this
    /// program, or what is stored of them cannot be read.
    ///
    /// # Errors
    /// The engine is not ready.
    pub async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, Error<JsonRejection>> {
        let life = self.core.lives.current()?;
        let kinds = self.core.context.registry.kinds().len();
        let mut found = Vec::new();
        for shard in life.door.shards() {
            let look = life.door.visit(shard, move |shard| {
                let of_kind = |kind| shard.quarantined(kind, limit);
                (0..kinds).flat_map(of_kind).collect::<Vec<_>>()
            });
            found.extend(look.await.map_err(widen)?);
        }
        found.sort_by(|one, other| one.address.cmp(&other.address));
        found.truncate(limit);
        Ok(found)
    }

    /// Has a quarantined entity loaded again by its next command; `false` if it is not quarantined. Messages to it that are
    /// dead are [tried again](Self::retry_dead) on their own.
    ///
    /// # Errors
    /// The engine is not ready, or has no such kind.
    pub async fn release(&self, kind: &str, id: &str) -> Result<bool, Error<JsonRejection>> {
        let core = &self.core;
        let index = core.context.registry.find(kind).ok_or_else(|| unknown_kind(kind))?;
        let hash = core.target(index, id.into())?.hash;
        let (life, id) = (core.lives.current()?, id.to_owned());
        let shard = life.door.shard_of(hash);
        let released = life.door.visit(shard, move |shard| shard.release(index, hash, &id));
        released.await.map_err(widen)
    }
}
