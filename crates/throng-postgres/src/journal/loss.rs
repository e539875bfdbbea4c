//! Commits that are missing although the tables prove that they were there.

use super::{read::damaged, shared::Shared};
use crate::{
    directory::Change,
    locks::LOCK_CLUSTER,
    losses::{position, record, refuse_recorded},
};
use futures_util::future::try_join3;
use throng_journal::{Error, Loss, Witness};
use tokio_postgres::Client;

/// Selects the last covered commit, of any shards, that is missing, and the newest commit at or before it. If history was removed, a later
/// commit may stand for it.
const COVERED: &str = "SELECT c.writer, c.commit, coalesce(h.writer, 0), coalesce((SELECT max(x.number) FROM commits x WHERE x.writer = \
    h.writer AND (x.writer < c.writer OR x.number <= c.commit)), 0) FROM (SELECT writer, commit FROM checkpoint UNION SELECT writer, \
    commit FROM covers) c LEFT JOIN LATERAL (SELECT max(w.writer) AS writer FROM writers w WHERE w.writer <= c.writer) h ON true \
    WHERE CASE WHEN c.commit = 0 THEN NOT EXISTS (SELECT FROM writers w WHERE w.writer = c.writer) ELSE NOT EXISTS (SELECT FROM \
    commits x WHERE x.writer = c.writer AND x.number >= c.commit) END AND c.writer IS NOT NULL ORDER BY 1 DESC, 2 DESC LIMIT 1";
/// Selects another living node that writes.
const OTHERS: &str = "SELECT w.node FROM writers w JOIN nodes n ON n.node = w.node_id WHERE w.sealed_at IS NULL AND w.session <> $1 AND \
    n.state IN ('serving', 'draining') LIMIT 1";
/// Selects the first writer that has commits but no row, going from writer to writer along the key.
const UNKNOWN: &str = "WITH RECURSIVE of (writer) AS (SELECT min(writer) FROM commits UNION ALL SELECT (SELECT min(c.writer) FROM \
    commits c WHERE c.writer > of.writer) FROM of WHERE of.writer IS NOT NULL) SELECT min(writer) FROM of WHERE writer IS NOT NULL \
    AND NOT EXISTS (SELECT FROM writers w WHERE w.writer = of.writer)";
/// Moves away the rows that are built from the commits; the table `events` may hold the only trace of the lost ones.
const FORGET: &str = "CREATE TABLE IF NOT EXISTS lost_events (LIKE events); INSERT INTO lost_events SELECT * FROM events e WHERE NOT \
    EXISTS (SELECT FROM commits c WHERE c.writer = e.writer AND c.number = e.commit); TRUNCATE entities, states, places, system, \
    events, covers, sizes; UPDATE checkpoint SET writer = NULL, commit = NULL, events_writer = NULL, events_commit = NULL";
/// The newest loss that is recorded.
const NEWEST: &str = "SELECT coalesce(max(loss), 0) FROM losses";

impl Shared {
    /// Refuses a loss: checkpoints cover only commits that were there, so a covered commit that is missing is lost. If this very loss is
    /// accepted, it is recorded as a commit, and what is built from the commits is begun anew.
    ///
    /// Returns the newest recorded loss; 0: none.
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

    /// Records the loss and begins anew in a single transaction. Otherwise a writer could go on from what was covered.
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
