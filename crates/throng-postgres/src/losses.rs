//! Losses that are recorded: refused, or accepted.

use crate::{columns::shards, database::Database, locks::LOCK_CLUSTER, options::OnLoss, typed};
use throng_journal::{ACCEPTED_LOSS_NODE, CommitNo, Error, Loss, Position, Witness, WriterId};
use tokio_postgres::{Client, Row, Transaction};

/// Selects an unused writer's number. A database that was rolled back does not know the last ones, so numbers have random gaps, each
/// greater than all before. So cursors and statements of a lost writer do not fit another one.
const NEXT_WRITER: &str = "SELECT 1 + floor(random() * 1048576)::bigint + greatest(coalesce(max(writer), 0), (SELECT \
    coalesce(max(writer), 0) FROM commits), (SELECT coalesce(greatest(writer, events_writer), 0) FROM checkpoint), (SELECT \
    coalesce(max(greatest(writer, events_writer)), 0) FROM covers), (SELECT coalesce(max(writer), 0) FROM losses), $1::bigint) FROM writers";
/// Selects recorded losses that no operator has accepted.
const RECORDED: &str = "SELECT writer, commit, held FROM losses WHERE accepted_at IS NULL ORDER BY loss";
const ACCEPTED: &str = "UPDATE losses SET accepted_at = now() WHERE writer = $1 AND commit = $2";

/// Writes an accepted loss into the journal, as a separate stream that may hold records of these shards (`None`: of all).
pub(crate) async fn record(
    database: &Database,
    transaction: &Transaction<'_>,
    loss: Loss,
    of: Option<&[u8]>,
) -> Result<(), tokio_postgres::Error> {
    let writer = next_writer(database, transaction).await?;
    let at_micros: i64 = transaction
        .query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", &[])
        .await?
        .get(0);
    let mut commit = loss.accepted(WriterId(writer.cast_unsigned()), at_micros);
    commit.seal(&[]);
    transaction
        .execute(
            "INSERT INTO writers (writer, node, session, sealed_at, last, shards) VALUES ($1, $2, $3, now(), 1, $4)",
            &[&writer, &ACCEPTED_LOSS_NODE, &database.session, &of],
        )
        .await?;
    transaction
        .execute(
            "INSERT INTO commits (writer, number, shards, body) VALUES ($1, 1, $2, $3)",
            &[&writer, &shards(&commit), &commit.bytes()],
        )
        .await?;
    Ok(())
}

/// A number for a writer, with the row of the cluster locked.
pub(crate) async fn next_writer(
    database: &Database,
    transaction: &Transaction<'_>,
) -> Result<i64, tokio_postgres::Error> {
    let own = database.acknowledged.known().own.writer.0.cast_signed();
    let row = transaction.query_typed_one(NEXT_WRITER, &[typed::number(&own)]).await?;
    Ok(row.get(0))
}

/// Refuses to go on while a recorded loss is not accepted, unless this engine was told to accept it.
pub(crate) async fn refuse_recorded(database: &Database, client: &mut Client) -> Result<(), Error> {
    let doing = "looking for losses";
    let rows = client
        .query_typed(RECORDED, &[])
        .await
        .map_err(database.failed(doing))?;
    if rows.is_empty() {
        return Ok(());
    }
    let accepted = database.options.accept_loss;
    let is_accepted = |loss: &&Loss| database.options.on_loss() == OnLoss::Continue || accepted == Some(loss.covered);
    let losses: Vec<Loss> = rows.iter().map(recorded).collect();
    let (accepted, refused): (Vec<&Loss>, Vec<&Loss>) = losses.iter().partition(is_accepted);
    if !accepted.is_empty() {
        let failed = || database.failed("recording the accepted loss");
        let transaction = client.transaction().await.map_err(failed())?;
        accept_recorded(database, &transaction, |loss| accepted.contains(&loss))
            .await
            .map_err(failed())?;
        transaction.commit().await.map_err(failed())?;
    }
    match refused.first() {
        None => Ok(()),
        Some(loss) => Err(Error::Lost {
            place: database.options.place(),
            loss: **loss,
        }),
    }
}

/// Accepts losses that are recorded, which is recorded in the journal, too.
pub(crate) async fn accept_recorded(
    database: &Database,
    transaction: &Transaction<'_>,
    is_accepted: impl Fn(&Loss) -> bool,
) -> Result<(), tokio_postgres::Error> {
    transaction.execute_typed(LOCK_CLUSTER, &[]).await?;
    let rows = transaction.query_typed(RECORDED, &[]).await?;
    for loss in rows.iter().map(recorded).filter(is_accepted) {
        // No shard's history depends on it.
        record(database, transaction, loss, Some(&[])).await?;
        let (writer, commit) = (loss.covered.writer.0.cast_signed(), loss.covered.commit.0.cast_signed());
        transaction.execute(ACCEPTED, &[&writer, &commit]).await?;
        tracing::warn!("acknowledged commits are lost, which was accepted and is recorded in the journal: {loss}");
    }
    Ok(())
}

fn recorded(row: &Row) -> Loss {
    Loss {
        covered: position(row.get(0), row.get(1)),
        held: position(row.get(0), row.get(2)),
        witness: Witness::Engine,
    }
}

pub(crate) fn position(writer: i64, commit: i64) -> Position {
    Position::new(WriterId(writer.cast_unsigned()), CommitNo(commit.cast_unsigned()))
}
