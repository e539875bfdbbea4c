//! The steps of changes, each within the caller's transaction.

use crate::{
    columns::{numbers, set_of, shard},
    typed,
};
use futures_util::future::try_join;
use std::collections::BTreeSet;
use throng_journal::{Error, NodeId, ShardSet};
use tokio_postgres::{Client, Row, Transaction};

/// A node that may own shards and open streams.
pub(super) const LIVING: &str = "state IN ('serving', 'draining')";
/// The characters of a schema's name that its channel has: the server accepts names of 63 bytes. A listener that is woken for another
/// schema looks in vain.
pub(super) const CHANNEL_CHARS: usize = 56;

pub(super) type Sql<T> = Result<T, tokio_postgres::Error>;

/// The outcome of a change: an answer, or a refusal, which is no failure of the database.
pub(crate) type Change<T> = Result<T, Error>;

/// Returns the name of a living node, and locks its row so that it cannot end.
///
/// The session by which it joined has to match, because a database that was rolled back may give its number to another process.
pub(crate) async fn living(transaction: &Transaction<'_>, (node, session): (NodeId, &str)) -> Sql<Option<String>> {
    let statement = format!("SELECT name FROM nodes WHERE node = $1 AND session = $2 AND {LIVING} FOR SHARE");
    let number = node.0.cast_signed();
    let row = transaction
        .query_typed_opt(&statement, &[typed::number(&number), typed::text(&session)])
        .await?;
    Ok(row.map(|row| row.get(0)))
}

/// Locks the owners of shards, in the order of the shards. The error says why a node is not the owner of all of them.
pub(crate) async fn owns(transaction: &Transaction<'_>, node: NodeId, shards: &ShardSet) -> Sql<Change<()>> {
    let wanted = numbers(shards);
    let rows = transaction
        .query_typed(
            "SELECT shard, node FROM owners WHERE shard = ANY($1) ORDER BY shard FOR UPDATE",
            &[typed::shards(&wanted)],
        )
        .await?;
    let is_own = |row: &&Row| row.get::<_, Option<i64>>(1) == Some(node.0.cast_signed());
    let own: ShardSet = rows.iter().filter(is_own).map(|row| shard(row, 0)).collect();
    let others = shards.without(&own);
    Ok(match others.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused(format!("node {node} does not own the shards {others}"))),
    })
}

/// Refuses if a stream that has not ended may hold records of these shards.
pub(crate) async fn refuse_open(transaction: &Transaction<'_>, shards: &ShardSet) -> Sql<Change<()>> {
    let rows = transaction
        .query_typed("SELECT writer, shards, node FROM writers WHERE sealed_at IS NULL", &[])
        .await?;
    let open = rows
        .iter()
        .find(|row| set_of(row, 1).is_none_or(|set| set.overlaps(shards)));
    Ok(match open {
        None => Ok(()),
        Some(row) => Err(Error::Refused(format!(
            "the stream of writer {} (of {:?}) has not ended and may hold records of the shards {shards}",
            row.get::<_, i64>(0),
            row.get::<_, &str>(2)
        ))),
    })
}

/// Returns the sessions of the living nodes.
pub(crate) async fn sessions(client: &Client) -> Sql<BTreeSet<String>> {
    let rows = client
        .query(&format!("SELECT session FROM nodes WHERE {LIVING}"), &[])
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Ends all nodes whose connections are gone, and their streams. The error is the name of one that is still connected.
pub(crate) async fn end_all(transaction: &Transaction<'_>) -> Sql<Result<(), String>> {
    // Not locked before: a living one may wait for a row that this transaction holds.
    let statement = format!("SELECT node, name, {IS_GONE} FROM nodes n WHERE {LIVING} ORDER BY node");
    let rows = transaction.query(&statement, &[]).await?;
    if let Some(row) = rows.iter().find(|row| !row.get::<_, bool>(2)) {
        return Ok(Err(row.get(1)));
    }
    for row in &rows {
        end(transaction, row.get(0), "dead").await?;
    }
    // Streams of nodes that left or died earlier have ended with them.
    Ok(Ok(()))
}

/// True for a node without any connection.
pub(super) const IS_GONE: &str = "NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.application_name = n.session)";

/// A node ends, and all its streams with it.
pub(super) async fn end(transaction: &Transaction<'_>, node: i64, state: &str) -> Sql<bool> {
    let statement = format!("UPDATE nodes SET state = $2 WHERE node = $1 AND {LIVING}");
    let is_ended = transaction.execute(&statement, &[&node, &state]).await? == 1;
    let rows = transaction
        .query(
            "UPDATE writers SET sealed_at = now() WHERE node_id = $1 AND sealed_at IS NULL RETURNING writer",
            &[&node],
        )
        .await?;
    let writers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    close(transaction, &writers).await?;
    if is_ended {
        tell(transaction).await?;
    }
    Ok(is_ended)
}

/// Records the ends of sealed streams, and that their leases are no longer renewed. A separate statement, so that it sees what the seal has
/// waited for.
pub(crate) async fn close(transaction: &Transaction<'_>, writers: &[i64]) -> Result<(), tokio_postgres::Error> {
    if writers.is_empty() {
        return Ok(());
    }
    let these = [typed::numbers(&writers)];
    try_join(
        transaction.execute_typed(
            "UPDATE writers w SET last = coalesce((SELECT max(number) FROM commits c WHERE c.writer = w.writer), 0) \
             WHERE w.writer = ANY($1) AND w.last IS NULL AND w.sealed_at IS NOT NULL",
            &these,
        ),
        transaction.execute_typed(
            "UPDATE leases l SET over = true FROM writers w WHERE l.writer = ANY($1) AND NOT l.over AND w.writer = l.writer AND \
             w.sealed_at IS NOT NULL",
            &these,
        ),
    )
    .await
    .map(drop)
}

/// Raises the version, and signals listeners once the transaction is committed.
pub(super) async fn tell(transaction: &Transaction<'_>) -> Sql<()> {
    transaction
        .batch_execute(&format!(
            "UPDATE cluster SET version = version + 1; SELECT pg_notify('throng_' || left(current_schema, {CHANNEL_CHARS}), '')"
        ))
        .await
}
