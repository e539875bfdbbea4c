//! What other nodes do of it: passes are made by each node over the shards it owns, and an erasure needs all of them.
//!
//! What the other nodes' streams hold of an entity that is erased are messages that were sent to it.
//! An entity's own records stand in the streams of its shard, all of which have ended but its owner's. Messages to it were recorded by
//! their senders, which may be any node's; their streams go on while they are looked at. A message may go only once it was taken and its
//! sender's shard need not be told of it again: so each node is asked to record how many its shards have sent and taken, and to cover that with
//! a checkpoint, which also says up to where all were taken.

use super::{
    PruneReport,
    judge::Plan,
    pass::{self, Pass, backend, settle, stand_in},
};
use crate::{
    door::OwnerOf,
    driver::peers::{RemoteError, Reply, Request, unknown_kind},
    engine::Core,
    ledger::recovering,
    life::{Life, OUTBOX_ROW, read_position},
};
use std::{sync::Arc, time::Duration};
use throng_core::{model::Error as Refused, shard::JsonRejection};
use throng_journal::{
    Address, CommitNo, Error, Position, ShardId, ShardSet,
    features::{ERASES, PRUNES},
};

/// What nodes have to know for an entity to be erased, and what that is called.
pub(super) const ERASING: (u32, &str) = (ERASES, "erase");
/// The same for history to be removed.
pub(super) const PRUNING: (u32, &str) = (PRUNES, "remove history");
/// Another node's pass is waited for so long: it looks at all of the history of its shards.
const PATIENCE: Duration = Duration::from_mins(10);

impl Core {
    /// The life that owns this shard and takes more.
    fn life_of(&self, shard: ShardId) -> Option<Arc<Life>> {
        let life = self.lives.running();
        life.filter(|life| life.ledger.shards.contains(shard) && !life.ledger.is_closing())
    }

    pub(crate) async fn answer_prune(self: &Arc<Self>, is_dry: bool) -> Reply {
        let life = self.lives.current::<JsonRejection>();
        let Some(life) = life.ok().filter(|life| !life.ledger.is_closing()) else {
            return Reply::NotHere;
        };
        match pass::run(self, &life, Pass::by_hand(is_dry)).await {
            Ok(report) => Reply::Pruned {
                shards: life.ledger.shards.bytes().to_vec(),
                report,
            },
            Err(error) => Reply::Refused(RemoteError::Unavailable(error.to_string())),
        }
    }

    pub(crate) async fn answer_erase(self: &Arc<Self>, kind: &str, id: &str) -> Reply {
        let Some(index) = self.context.registry.find(kind) else {
            return unknown_kind(kind);
        };
        if let Err(older) = refuse_older_nodes(self, ERASING) {
            return Reply::Refused(RemoteError::Unavailable(older));
        }
        let erased = match self.owner_of(index, id) {
            Ok(Some(life)) => self.erase_here(&life, (index, id)).await,
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
        let life = self.lives.current::<JsonRejection>();
        let Some(life) = life.ok().filter(|life| !life.ledger.is_closing()) else {
            return Reply::NotHere;
        };
        self.remembered.forget(&Address::new(kind, id));
        let recorded = async {
            stand_in(self, &life, &mut Plan::default(), false).await?;
            settle(self, &life).await
        };
        match recorded.await {
            Ok(()) => Reply::Recorded {
                shards: life.ledger.shards.bytes().to_vec(),
            },
            Err(error) => {
                tracing::warn!("the numbers of messages are not recorded: {error}");
                Reply::NotHere
            }
        }
    }
}

/// Has every node make a pass over what it owns. A shard that changes its owner meanwhile may be looked at twice.
pub(super) async fn prune(core: &Arc<Core>, is_dry: bool) -> Result<PruneReport, Error> {
    let mut left = ShardSet::first(core.context.registry.shards());
    let mut report = PruneReport {
        is_dry,
        ..PruneReport::default()
    };
    loop {
        let next = left.iter().next();
        let Some(shard) = next else { return Ok(report) };
        let (shards, of_node) = prune_with(core, shard, is_dry).await?;
        left = left.without(&shards);
        report.add_beside(of_node);
    }
}

/// Has the node that owns a shard make a pass; the shards it was made over, of which that one is.
async fn prune_with(core: &Arc<Core>, shard: ShardId, is_dry: bool) -> Result<(ShardSet, PruneReport), Error> {
    let owner = OwnerOf::new(core, shard).within(PATIENCE);
    loop {
        if let Some(life) = core.life_of(shard) {
            let report = pass::run(core, &life, Pass::by_hand(is_dry)).await?;
            return Ok((life.ledger.shards.clone(), report));
        }
        let reply = owner.ask(Request::Prune { is_dry }).await;
        let reply = reply.map_err(|error: Refused<JsonRejection>| Error::Backend {
            doing: format!("having the node that owns shard {shard} remove its history"),
            why: match error {
                Refused::Unavailable { reason } => reason,
                other => other.to_string(),
            },
        })?;
        if let Reply::Pruned { shards, report } = reply {
            let shards = ShardSet::from_bytes(&shards);
            if shards.contains(shard) {
                return Ok((shards, report));
            }
        }
    }
}

/// Says so if a node lives that knows none of the requests which this makes of all nodes.
pub(crate) fn refuse_older_nodes(core: &Core, (feature, doing): (u32, &str)) -> Result<(), String> {
    let peers = core.context.peers.as_ref();
    match peers.and_then(|peers| peers.without_feature(feature)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "the node {name:?} runs an older program, which cannot {doing} in a cluster: upgrade it first"
        )),
    }
}

/// Up to where the messages of each shard were taken, and are covered, once all nodes have said so.
pub(super) async fn taken_upto(core: &Core, life: &Life, of: &Address) -> Result<Vec<Position>, Error> {
    refuse_older_nodes(core, ERASING).map_err(Error::Refused)?;
    let shards = core.context.registry.shards();
    let mut left = ShardSet::first(shards).without(&life.ledger.shards);
    loop {
        let next = left.iter().next();
        let Some(shard) = next else { break };
        let owner = OwnerOf::new(core, shard);
        let recorded = loop {
            if life.ledger.is_over() {
                return Err(backend(&recovering()));
            }
            let request = Request::Record {
                kind: of.kind.to_string(),
                id: of.id.to_string(),
            };
            let reply = owner
                .ask(request)
                .await
                .map_err(|error: Refused<JsonRejection>| Error::Backend {
                    doing: format!("having the node that owns shard {shard} record its messages"),
                    why: error.to_string(),
                })?;
            if let Reply::Recorded { shards } = reply {
                break ShardSet::from_bytes(&shards);
            }
        };
        left = left.without(&recorded);
    }
    covered_taken_upto(core, &ShardSet::first(shards)).await
}

/// Up to where the messages of each shard were taken, as the store says, and are covered; of others than these nothing was. Whoever takes was
/// durable before that was stored, and whoever owns a shard next reads its messages from there on.
pub(super) async fn covered_taken_upto(core: &Core, shards: &ShardSet) -> Result<Vec<Position>, Error> {
    // The covers first: what a checkpoint moves meanwhile is then said of fewer messages, never of more.
    let covered = core.context.store.covers(shards).await?;
    let before = |upto: Position| Position {
        commit: CommitNo(upto.commit.0.saturating_sub(1)),
        ..upto
    };
    let of_shard = |shard: ShardId| {
        let covered = covered.iter().find(|covered| covered.shards.contains(shard));
        covered.and_then(|covered| covered.upto).map(before).unwrap_or_default()
    };
    let all = core.context.registry.shards();
    let mut upto: Vec<Position> = (0..all).map(|shard| of_shard(ShardId(shard))).collect();
    let mut visit = |row: &[u8], value: &[u8]| {
        let shard = row[OUTBOX_ROW.len()..].try_into().map(u16::from_be_bytes).ok();
        let at = read_position(value).unwrap_or_default();
        for (number, upto) in (0..).zip(&mut upto) {
            // A row without a shard is of all of them.
            if shard.is_none_or(|shard| shard == number) {
                *upto = at.min(*upto);
            }
        }
    };
    core.context
        .store
        .system_scan(OUTBOX_ROW, &[], usize::MAX, &mut visit)
        .await?;
    Ok(upto)
}
