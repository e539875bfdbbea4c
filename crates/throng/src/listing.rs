//! The entities of a kind.

use crate::{driver::widen, engine::Engine, ledger::unreadable};
use std::collections::BTreeMap;
use throng_core::{model::Error, shard::JsonRejection};
use throng_journal::EntityHead;

impl Engine {
    /// The entities of a kind in the order of their ids, after an id, at most `limit`.
    ///
    /// # Errors
    /// The engine is not ready, or its store cannot be read.
    pub async fn entities(
        &self,
        kind: usize,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EntityHead>, Error<JsonRejection>> {
        let context = &self.core.context;
        let life = self.core.lives.current()?;
        let durable = life.ledger.durable();
        let mut found = BTreeMap::new();
        for shard in life.door.shards() {
            let after: Option<Box<str>> = after.map(Into::into);
            let look = life.door.visit(shard, move |shard| {
                let mut fresh = BTreeMap::new();
                shard.fresh(kind, after.as_deref(), limit, &mut fresh, durable);
                fresh
            });
            found.append(&mut look.await.map_err(widen)?);
            while found.len() > limit {
                found.pop_last();
            }
        }
        let name = context.registry.kinds()[kind].name;
        let stored = context.store.entities(name, after, limit).await;
        let stored = stored.map_err(|error| unreadable(format!("the entities of {name} cannot be listed"), &error))?;
        for head in stored {
            let seq = found.entry(head.id).or_default();
            *seq = head.seq.max(*seq);
        }
        let found = found.into_iter().take(limit);
        Ok(found.map(|(id, seq)| EntityHead { id, seq }).collect())
    }
}
