//! The positions up to which messages were taken. Messages to an erased entity may be removed only up to there.

use super::{Retention, backend};
use crate::{
    commit::recovering,
    epoch::{Epoch, OUTBOX_ROW, read_position},
    executor::OwnerOf,
    remote::{Reply, Request},
};
use throng_core::{model::Error as Refused, shard::JsonRejection};
use throng_journal::{Address, CommitNo, Error, Position, ShardId, ShardSet, features::ERASES};

/// The feature that all nodes must know before an entity may be erased, and its name.
pub(super) const ERASING: (u32, &str) = (ERASES, "erase");

/// Returns the covered positions up to which each shard's messages were taken, once all nodes have reported.
pub(super) async fn taken_upto(retention: &Retention, epoch: &Epoch, of: &Address) -> Result<Vec<Position>, Error> {
    retention
        .context()
        .refuse_older_nodes(ERASING)
        .map_err(Error::Refused)?;
    let shards = retention.context().registry.shards();
    let mut left = ShardSet::first(shards).without(&epoch.group_commit.shards);
    loop {
        let next = left.iter().next();
        let Some(shard) = next else { break };
        let owner = OwnerOf::new(retention.context(), shard);
        let recorded = loop {
            if epoch.group_commit.is_over() {
                return Err(backend(&recovering()));
            }
            let request = Request::Record {
                kind: of.kind.to_string(),
                id: of.id.to_string(),
            };
            let reply = owner.ask(request).await.map_err(|error: Refused<JsonRejection>| {
                Error::backend(
                    format!("having the node that owns shard {shard} record its messages"),
                    error,
                )
            })?;
            if let Reply::Recorded { shards } = reply {
                break ShardSet::from_bytes(&shards);
            }
        };
        left = left.without(&recorded);
    }
    covered_taken_upto(retention, &ShardSet::first(shards)).await
}

/// Returns the covered positions up to which these shards' messages were taken, according to the store. The receivers' records were durable
/// before that was stored, and a shard's next owner reads its messages from there on.
pub(super) async fn covered_taken_upto(retention: &Retention, shards: &ShardSet) -> Result<Vec<Position>, Error> {
    // The covers come first: what a checkpoint moves meanwhile is then claimed of fewer messages, never of more.
    let covered = retention.context().store.covers(shards).await?;
    let before = |upto: Position| Position::new(upto.writer, CommitNo(upto.commit.0.saturating_sub(1)));
    let of_shard = |shard: ShardId| {
        let covered = covered.iter().find(|covered| covered.shards.contains(shard));
        covered.and_then(|covered| covered.upto).map(before).unwrap_or_default()
    };
    let all = retention.context().registry.shards();
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
    retention
        .context()
        .store
        .system_scan(OUTBOX_ROW, &[], usize::MAX, &mut visit)
        .await?;
    Ok(upto)
}
