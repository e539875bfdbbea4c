//! Commits that the tables prove were there once.

use super::{Shared, append::shards, read::damaged, writers::LOCK_CLUSTER};
use crate::{database::Database, directory::Change, options::OnLoss, typed};
use futures_util::future::try_join3;
use throng_journal::{ACCEPTED_LOSS_NODE, CommitNo, Error, Loss, Position, Witness, WriterId};
use tokio_postgres::{Client, Row, Transaction};

/// The last that is covered, of whichever shards, and is not there, and the newest commit at or before it. Where history was removed, a
/// later commit may stand for it.
const COVERED: &str = "SELECT c.writer, c.commit, coalesce(h.writer, 0), coalesce((SELECT max(x.number) FROM commits x WHERE x.writer = \
    h.writer AND (x.writer < c.writer OR x.number <= c.commit)), 0) FROM (SELECT writer, commit FROM checkpoint UNION SELECT writer, \
    commit FROM covers) c LEFT JOIN LATERAL (SELECT max(w.writer) AS writer FROM writers w WHERE w.writer <= c.writer) h ON true \
    WHERE CASE WHEN c.commit = 0 THEN NOT EXISTS (SELECT FROM writers w WHERE w.writer = c.writer) ELSE NOT EXISTS (SELECT FROM \
    commits x WHERE x.writer = c.writer AND x.number >= c.commit) END AND c.writer IS NOT NULL ORDER BY 1 DESC, 2 DESC LIMIT 1";
/// Another node that lives and writes.
const OTHERS: &str = "SELECT w.node FROM writers w JOIN nodes n ON n.node = w.node_id WHERE w.sealed_at IS NULL AND w.session <> $1 AND \
    n.state IN ('serving', 'draining') LIMIT 1";
/// The first writer that has commits and no row of its own; goes from writer to writer along the key.
const UNKNOWN: &str = "WITH RECURSIVE of (writer) AS (SELECT min(writer) FROM commits UNION ALL SELECT (SELECT min(c.writer) FROM \
    commits c WHERE c.writer > of.writer) FROM of WHERE of.writer IS NOT NULL) SELECT min(writer) FROM of WHERE writer IS NOT NULL \
    AND NOT EXISTS (SELECT FROM writers w WHERE w.writer = of.writer)";
/// What is built from the commits, put away; the table `events` may hold the only trace of what is lost.
const FORGET: &str = "CREATE TABLE IF NOT EXISTS lost_events (LIKE events); INSERT INTO lost_events SELECT * FROM events e WHERE NOT \
    EXISTS (SELECT FROM commits c WHERE c.writer = e.writer AND c.number = e.commit); TRUNCATE entities, states, places, system, \
    events, covers, sizes; UPDATE checkpoint SET writer = NULL, commit = NULL, events_writer = NULL, events_commit = NULL";
/// A number that no writer has had. A database that was rolled back does not know the last ones, so numbers are drawn at random, each
/// greater than all before: cursors and statements of a writer that is lost do not fit another one.
pub(super) const NEXT_WRITER: &str = "SELECT 1 + floor(random() * 1048576)::bigint + greatest(coalesce(max(writer), 0), (SELECT \
    coalesce(max(writer), 0) FROM commits), (SELECT coalesce(greatest(writer, events_writer), 0) FROM checkpoint), (SELECT \
    coalesce(max(greatest(writer, events_writer)), 0) FROM covers), (SELECT coalesce(max(writer), 0) FROM losses), $1::bigint) FROM writers";
/// Losses that an engine has found and nobody has accepted, and the newest of all.
const RECORDED: &str = "SELECT writer, commit, held FROM losses WHERE accepted_at IS NULL ORDER BY loss";
const NEWEST: &str = "SELECT coalesce(max(loss), 0) FROM losses";
const ACCEPTED: &str = "UPDATE losses SET accepted_at = now() WHERE writer = $1 AND commit = $2";

impl Shared {
    /// Checkpoints cover only commits that are there: one that is not is lost. That is refused, unless this very loss is
    /// accepted; it is then recorded as a commit, and what is built from the commits is begun anew.
    ///
    /// The newest loss that is recorded; 0: none.
    pub(super) async fn refuse_loss(&self, client: &mut Client) -> Result<i64, Error> {
        let doing = "comparing the checkpoint with the commits";
        let failed = || self.database.failed(doing);
        refuse_recorded(&self.database, client).await?;
        let (unknown, covered, newest) = try_join3(
            client.query_typed_one(UNKNOWN, &[]),
            client.query_typed_opt(COVERED, &[]),
            client.query_typed_one(NEWEST, &[]),
        )
        .await
        .map_err(failed())?;
        let newest = newest.get(0);
        if let Some(writer) = unknown.get::<_, Option<i64>>(0) {
            let position = position(writer, 1);
            return Err(damaged(
                position,
                "the writer of these commits is missing from the table writers".into(),
            ));
        }
        let Some(row) = covered else {
            return Ok(newest);
        };
        let loss = Loss {
            covered: position(row.get(0), row.get(1)),
            held: position(row.get(2), row.get(3)),
            witness: Witness::Store,
        };
        if self.database.options.accept_loss != Some(loss.covered) {
            let place = self.database.options.place();
            return Err(Error::Lost { place, loss });
        }
        self.accept_loss(client, loss)
            .await
            .map_err(self.database.failed("recording the accepted loss"))??;
        tracing::warn!("durable commits are lost, which was accepted and is recorded in the journal: {loss}");
        Ok(newest)
    }

    /// One transaction: recorded and begun anew, or neither. Whoever writes meanwhile would go on from what was covered.
    async fn accept_loss(&self, client: &mut Client, loss: Loss) -> Result<Change<()>, tokio_postgres::Error> {
        let transaction = client.transaction().await?;
        transaction.execute(LOCK_CLUSTER, &[]).await?;
        if let Some(row) = transaction.query_opt(OTHERS, &[&self.database.session]).await? {
            return Ok(Err(Error::Refused(format!(
                "the loss cannot be accepted while the node {:?} serves this journal: stop all other nodes first",
                row.get::<_, &str>(0)
            ))));
        }
        record(&self.database, &transaction, loss, None).await?;
        transaction.batch_execute(FORGET).await?;
        transaction.commit().await?;
        Ok(Ok(()))
    }
}

/// Writes an accepted loss into the journal, as a stream of its own that may hold records of these shards (`None`: of all).
async fn record(
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
pub(super) async fn next_writer(
    database: &Database,
    transaction: &Transaction<'_>,
) -> Result<i64, tokio_postgres::Error> {
    let own = database.acknowledged.known().own.writer.0.cast_signed();
    let row = transaction.query_typed_one(NEXT_WRITER, &[typed::number(&own)]).await?;
    Ok(row.get(0))
}

/// Refuses to go on while a loss is recorded that nobody has accepted, unless this engine was told to accept it.
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
        // No shard's history goes by it.
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

fn position(writer: i64, commit: i64) -> Position {
    Position {
        writer: WriterId(writer.cast_unsigned()),
        commit: CommitNo(commit.cast_unsigned()),
    }
}
