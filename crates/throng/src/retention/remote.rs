//! Passes and erasures in a cluster: each node makes passes over the shards it owns, and an erasure needs all nodes.
//!
//! An entity's own records are in the streams of its shard, all of which have ended except its owner's. Other nodes' streams hold messages
//! to the entity, recorded by their senders; these streams are being written while they are examined. A message may be removed only once it
//! was taken and its sender's shard need not learn of that again. So each node is asked to record how many messages its shards have sent
//! and taken, and to cover that with a checkpoint, which also shows the position up to which all were taken.

use super::{
    Retention,
    judge::Plan,
    pass::{self, Pass, settle, stand_in},
    taken::ERASING,
};
use crate::{
    epoch::Epoch,
    executor::OwnerOf,
    remote::{PruneReport, RemoteError, Reply, Request, unknown_kind},
};
use std::{sync::Arc, time::Duration};
use throng_core::{model::Error as Refused, shard::JsonRejection};
use throng_journal::{Address, Error, ShardId, ShardSet, features::PRUNES};

/// The feature that all nodes must know before history may be removed, and its name.
pub(super) const PRUNING: (u32, &str) = (PRUNES, "remove history");
/// The longest wait for another node's pass: it examines the whole history of its shards.
const PATIENCE: Duration = Duration::from_mins(10);

impl Retention {
    /// The epoch that owns this shard and takes more.
    fn epoch_of(&self, shard: ShardId) -> Option<Arc<Epoch>> {
        let epoch = self.epochs.running();
        epoch.filter(|epoch| epoch.group_commit.shards.contains(shard) && !epoch.group_commit.is_closing())
    }

    pub(crate) async fn answer_prune(self: &Arc<Self>, is_dry: bool) -> Reply {
        let epoch = self.epochs.current::<JsonRejection>();
        let Some(epoch) = epoch.ok().filter(|epoch| !epoch.group_commit.is_closing()) else {
            return Reply::NotHere;
        };
        match pass::run(self, &epoch, Pass::by_operator(is_dry)).await {
            Ok(report) => Reply::Pruned {
                shards: epoch.group_commit.shards.bytes().to_vec(),
                report,
            },
            Err(error) => Reply::Refused(RemoteError::Unavailable(error.to_string())),
        }
    }

    pub(crate) async fn answer_erase(self: &Arc<Self>, kind: &str, id: &str) -> Reply {
        let Some(index) = self.context().registry.find(kind) else {
            return unknown_kind(kind);
        };
        if let Err(older) = self.context().refuse_older_nodes(ERASING) {
            return Reply::Refused(RemoteError::Unavailable(older));
        }
        let erased = match self.epochs.owner_of(index, id) {
            Ok(Some(epoch)) => self.erase_here(&epoch, (index, id)).await,
            Ok(None) => return Reply::NotHere,
            Err(error) => Err(error),
        };
        match erased {
            Ok(erased) => Reply::Erased {
                records: erased.records,
                bytes: erased.bytes,
            },
            Err(error) => Reply::Refused(error.into()),
        }
    }

    pub(crate) async fn answer_record(self: &Arc<Self>, kind: &str, id: &str) -> Reply {
        let epoch = self.epochs.current::<JsonRejection>();
        let Some(epoch) = epoch.ok().filter(|epoch| !epoch.group_commit.is_closing()) else {
            return Reply::NotHere;
        };
        self.remembered.forget(&Address::new(kind, id));
        let recorded = async {
            stand_in(self, &epoch, &mut Plan::default(), false).await?;
            settle(self, &epoch).await
        };
        match recorded.await {
            Ok(()) => Reply::Recorded {
                shards: epoch.group_commit.shards.bytes().to_vec(),
            },
            Err(error) => {
                tracing::warn!("the numbers of messages are not recorded: {error}");
                Reply::NotHere
            }
        }
    }
}

/// Has every node make a pass over its shards. A shard that changes its owner meanwhile may be examined twice.
pub(super) async fn prune(retention: &Arc<Retention>, is_dry: bool) -> Result<PruneReport, Error> {
    let mut left = ShardSet::first(retention.context().registry.shards());
    let mut report = PruneReport {
        is_dry,
        ..PruneReport::default()
    };
    loop {
        let next = left.iter().next();
        let Some(shard) = next else { return Ok(report) };
        let (shards, of_node) = prune_with(retention, shard, is_dry).await?;
        left = left.without(&shards);
        report.add_beside(of_node);
    }
}

/// Has the node that owns a shard make a pass. Returns the shards that it covered, including this one.
async fn prune_with(
    retention: &Arc<Retention>,
    shard: ShardId,
    is_dry: bool,
) -> Result<(ShardSet, PruneReport), Error> {
    let owner = OwnerOf::new(retention.context(), shard).within(PATIENCE);
    loop {
        if let Some(epoch) = retention.epoch_of(shard) {
            let report = pass::run(retention, &epoch, Pass::by_operator(is_dry)).await?;
            return Ok((epoch.group_commit.shards.clone(), report));
        }
        let reply = owner.ask(Request::Prune { is_dry }).await;
        let reply = reply.map_err(|error: Refused<JsonRejection>| {
            Error::backend(
                format!("having the node that owns shard {shard} remove its history"),
                match error {
                    Refused::Unavailable { reason } => reason,
                    other => other.to_string(),
                },
            )
        })?;
        if let Reply::Pruned { shards, report } = reply {
            let shards = ShardSet::from_bytes(&shards);
            if shards.contains(shard) {
                return Ok((shards, report));
            }
        }
    }
}
