//! Commits that the tables prove were there once.

use super::{Shared, append::shards, read::damaged, writers::LOCK_CLUSTER};
use crate::directory::Change;
use futures_util::future::try_join;
use throng_journal::{ACCEPTED_LOSS_NODE, CommitNo, Error, Loss, Position, WriterId};
use tokio_postgres::Client;

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
/// A number that no writer has had, as far as any table knows.
pub(super) const NEXT_WRITER: &str = "SELECT 1 + greatest(coalesce(max(writer), 0), (SELECT coalesce(max(writer), 0) FROM commits), \
    (SELECT coalesce(greatest(writer, events_writer), 0) FROM checkpoint), (SELECT coalesce(max(greatest(writer, events_writer)), 0) \
    FROM covers)) FROM writers";

impl Shared {
    /// Checkpoints cover only commits that are there: one that is not is lost. That is refused, unless this very loss is
    /// accepted; it is then recorded as a commit, and what is built from the commits is begun anew.
    pub(super) async fn refuse_loss(&self, client: &mut Client) -> Result<(), Error> {
        let doing = "comparing the checkpoint with the commits";
        let failed = || self.database.failed(doing);
        let (unknown, covered) = try_join(
            client.query_typed_one(UNKNOWN, &[]),
            client.query_typed_opt(COVERED, &[]),
        )
        .await
        .map_err(failed())?;
        if let Some(writer) = unknown.get::<_, Option<i64>>(0) {
            let position = position(writer, 1);
            return Err(damaged(
                position,
                "the writer of these commits is missing from the table writers".into(),
            ));
        }
        let Some(row) = covered else {
            return Ok(());
        };
        let loss = Loss {
            covered: position(row.get(0), row.get(1)),
            held: position(row.get(2), row.get(3)),
        };
        if self.database.options.accept_loss != Some(loss.covered) {
            let place = self.database.options.place();
            return Err(Error::Lost { place, loss });
        }
        self.accept_loss(client, loss)
            .await
            .map_err(self.database.failed("recording the accepted loss"))??;
        tracing::warn!("durable commits are lost, which was accepted and is recorded in the journal: {loss}");
        Ok(())
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
        let writer: i64 = transaction.query_one(NEXT_WRITER, &[]).await?.get(0);
        let at_micros: i64 = transaction
            .query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", &[])
            .await?
            .get(0);
        let mut commit = loss.accepted(WriterId(writer.cast_unsigned()), at_micros);
        commit.seal(&[]);
        transaction
            .execute(
                "INSERT INTO writers (writer, node, session, sealed_at, last) VALUES ($1, $2, $3, now(), 1)",
                &[&writer, &ACCEPTED_LOSS_NODE, &self.database.session],
            )
            .await?;
        transaction
            .execute(
                "INSERT INTO commits (writer, number, shards, body) VALUES ($1, 1, $2, $3)",
                &[&writer, &shards(&commit), &commit.bytes()],
            )
            .await?;
        transaction.batch_execute(FORGET).await?;
        transaction.commit().await?;
        Ok(Ok(()))
    }
}

fn position(writer: i64, commit: i64) -> Position {
    Position {
        writer: WriterId(writer.cast_unsigned()),
        commit: CommitNo(commit.cast_unsigned()),
    }
}
