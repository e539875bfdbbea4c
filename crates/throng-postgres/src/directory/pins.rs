//! The nodes to which an operator pins shards.

use super::{
    changes::{Change, LIVING, Sql},
    view::view,
};
use crate::columns::numbers;
use deadpool_postgres::Transaction;
use throng_journal::{Error, ShardSet, features::ERASES};

/// Pins in a single statement, which changes all or nothing. The reason for a refusal is determined afterwards.
pub(super) async fn pin(transaction: &Transaction<'_>, shards: &ShardSet, to: Option<&str>) -> Sql<Change<()>> {
    let wanted = numbers(shards);
    let Some(name) = to else {
        let refused = view(transaction).await?.refuse_pins(shards, None);
        if refused.is_ok() {
            transaction
                .execute("DELETE FROM pins WHERE shard = ANY($1)", &[&wanted])
                .await?;
        }
        return Ok(refused);
    };
    let statement = format!(
        "INSERT INTO pins (shard, name) SELECT s, $2 FROM unnest($1::integer[]) s WHERE EXISTS (SELECT FROM nodes WHERE name = $2 AND \
         state = 'serving' AND NOT wants_drain) AND NOT EXISTS (SELECT FROM nodes WHERE {LIVING} AND features < $3) AND NOT EXISTS (SELECT \
         FROM unnest($1::integer[]) s LEFT JOIN owners o ON o.shard = s WHERE o.shard IS NULL) ORDER BY s ON CONFLICT (shard) DO UPDATE \
         SET name = excluded.name"
    );
    let pinned = transaction
        .execute(&statement, &[&wanted, &name, &ERASES.cast_signed()])
        .await?;
    if pinned > 0 {
        return Ok(Ok(()));
    }
    let refused = view(transaction).await?.refuse_pins(shards, to);
    Ok(refused.and_then(|()| {
        let why = format!("what stood against moving shards to {name:?} has just ended: try again");
        Err(Error::Refused(why))
    }))
}
