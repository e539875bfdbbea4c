//! Erasing in a cluster: what the other nodes' streams hold of an entity are messages that were sent to it.
//!
//! An entity's own records stand in the streams of its shard, all of which have ended but its owner's. Messages to it were recorded by
//! their senders, which may be any node's; their streams go on while they are looked at. A message may go only once it was taken and its
//! sender's shard need not be told of it again: so each node is asked to record how many its shards have sent and taken, and to cover that with
//! a checkpoint, which also says up to where all were taken.

use super::{
    judge::Plan,
    pass::{How, backend, settle, stand_in},
};
use crate::{
    door::OwnerOf,
    driver::peers::{RemoteError, Reply, Request, unknown_kind},
    engine::Core,
    ledger::recovering,
    life::{Life, OUTBOX_ROW, read_position},
};
use std::{collections::BTreeSet, sync::Arc};
use throng_core::{model::Error as Refused, shard::JsonRejection};
use throng_journal::{Address, CommitNo, ERASES, Error, Position, Prune, Pruned, ShardId, ShardSet, WriterId};

impl Core {
    pub(crate) async fn answer_erase(self: &Arc<Self>, kind: &str, id: &str) -> Reply {
        let Some(index) = self.context.registry.find(kind) else {
            return unknown_kind(kind);
        };
        if let Err(older) = refuse_older_nodes(self) {
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

/// Says so if a node lives that cannot erase in a cluster: it knows none of the requests that an erasure makes of all nodes.
pub(super) fn refuse_older_nodes(core: &Core) -> Result<(), String> {
    let peers = core.context.peers.as_ref();
    match peers.and_then(|peers| peers.without_feature(ERASES)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "the node {name:?} runs an older program, which cannot erase in a cluster: upgrade it first"
        )),
    }
}

/// Up to where the messages of each shard were taken, and are covered, once all nodes have said so.
pub(super) async fn taken_upto(core: &Core, life: &Life, of: &Address) -> Result<Vec<Position>, Error> {
    refuse_older_nodes(core).map_err(Error::Refused)?;
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
    // The covers first: what a checkpoint moves meanwhile is then said of fewer messages, never of more.
    let covered = core.context.store.covers(&ShardSet::first(shards)).await?;
    let before = |upto: Position| Position {
        commit: CommitNo(upto.commit.0.saturating_sub(1)),
        ..upto
    };
    let of_shard = |shard: ShardId| {
        let covered = covered.iter().find(|covered| covered.shards.contains(shard));
        covered.and_then(|covered| covered.upto).map(before).unwrap_or_default()
    };
    let mut upto: Vec<Position> = (0..shards).map(|shard| of_shard(ShardId(shard))).collect();
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

/// Overwrites what stands in streams that are not of this life's shards.
pub(super) async fn overwrite(core: &Core, life: &Life, plan: Arc<Plan>, pruned: &mut Pruned) -> Result<(), Error> {
    let sealed = life.ledger.sealed.iter().map(|end| end.writer);
    let own: BTreeSet<WriterId> = sealed.chain([life.ledger.writer]).collect();
    let streams = core.context.journal.streams(WriterId(0)).await?;
    for stream in streams.iter().filter(|stream| !own.contains(&stream.writer)) {
        if stream.last == CommitNo(0) {
            continue;
        }
        let plan = Arc::clone(&plan);
        let done = core.context.journal.prune(Prune {
            after: Position {
                writer: stream.writer,
                commit: CommitNo(0),
            },
            // What is not covered yet is not judged to be over.
            upto: stream.last,
            judge: Arc::new(move |record, stamp| plan.is_over(record, stamp)),
            how: How::Erase,
        });
        pruned.add(done.await?);
    }
    Ok(())
}
