//! The entities of a kind.

use crate::{
    commit::{unreadable, widen},
    engine::Engine,
    epoch::Epoch,
    executor::OwnerOf,
    remote::{Reply, Request},
};
use std::collections::BTreeMap;
use throng_core::{model::Error, shard::JsonRejection};
use throng_journal::{EntityHead, ShardSet};

/// Ids with the number of their last event.
type Found = BTreeMap<Box<str>, u64>;

impl Engine {
    /// Returns the entities of a kind after an id, in the order of their ids, at most `limit`; in a cluster, those of all nodes.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready, its store cannot be read, or another node cannot be reached.
    pub async fn entities(
        &self,
        kind: usize,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EntityHead>, Error<JsonRejection>> {
        let core = &self.core;
        let name = core.context.registry.kinds()[kind].name;
        let mut found = Found::new();
        // Each shard is asked once, whichever node owns it at that time.
        let mut left = ShardSet::first(core.context.registry.shards());
        loop {
            let next = left.iter().next();
            let Some(shard) = next else { break };
            let owner = OwnerOf::new(&core.context, shard);
            let (of, mut more) = loop {
                match core.epochs.current() {
                    Ok(epoch) if epoch.group_commit.shards.contains(shard) => {
                        break (
                            epoch.group_commit.shards.clone(),
                            fresh(&epoch, kind, after, limit).await?,
                        );
                    }
                    Err(error) if !core.epochs.is_short() => return Err(error),
                    _ => {}
                }
                let request = Request::List {
                    kind: name.to_owned(),
                    after: after.map(str::to_owned),
                    limit: limit as u64,
                };
                if let Reply::Listed { shards, heads } = owner.ask(request).await? {
                    let of = ShardSet::from_bytes(&shards);
                    if of.contains(shard) {
                        break (of, heads.into_iter().map(|(id, seq)| (id.into(), seq)).collect());
                    }
                }
            };
            left = left.without(&of);
            found.append(&mut more);
            while found.len() > limit {
                found.pop_last();
            }
        }
        // The store comes last: entities that a checkpoint moves meanwhile are then seen twice, never missed.
        let stored = core.context.store.entities(name, after, limit).await;
        let stored = stored.map_err(|error| unreadable(format!("the entities of {name} cannot be listed"), &error))?;
        for head in stored {
            let seq = found.entry(head.id).or_default();
            *seq = head.seq.max(*seq);
        }
        let found = found.into_iter().take(limit);
        Ok(found.map(|(id, seq)| EntityHead { id, seq }).collect())
    }
}

/// Returns the first entities of a kind on this node whose events the store may not have yet.
pub(crate) async fn fresh(
    epoch: &Epoch,
    kind: usize,
    after: Option<&str>,
    limit: usize,
) -> Result<Found, Error<JsonRejection>> {
    let durable = epoch.group_commit.durable();
    let mut found = Found::new();
    for shard in epoch.executor.shards() {
        let after: Option<Box<str>> = after.map(Into::into);
        let look = epoch.executor.visit(shard, move |shard| {
            let mut fresh = BTreeMap::new();
            shard.fresh(kind, after.as_deref(), limit, &mut fresh, durable);
            fresh
        });
        found.append(&mut look.await.map_err(widen)?);
        while found.len() > limit {
            found.pop_last();
        }
    }
    Ok(found)
}
