//! The bytes of all streams' commits: the table `sizes`.
//!
//! A row has the size of a stream's remaining commits up to one of them. The next look continues counting there, so each commit is counted
//! once, soon after it was made, by whichever node looks first. Removing history subtracts it in the same transaction. Removed rows do not
//! count, although the table's files keep their room: new rows use it.

use super::shared::Shared;
use crate::{
    database::Database,
    locks::{ONE_AT_A_TIME, PATIENCE},
};
use deadpool_postgres::Transaction;
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use throng_journal::{CommitNo, Error, Position};

const DOING: &str = "counting what the commits take";
/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The commits of a stream that are counted in one transaction.
const PAGE_COMMITS: i64 = 10_000;
/// The bytes of a commit besides its body: its row's header and numbers, its shards, its entry in the index.
pub(super) const ROW_BYTES: u64 = 100;

/// Adds the size of a part of a stream: $4 is 1, or -1 before that part is changed.
const CHANGE: &str = "UPDATE sizes s SET bytes = bytes + $4::bigint * (SELECT coalesce(sum(octet_length(body) + $5::bigint), 0)::bigint FROM \
    commits c WHERE c.writer = $1 AND number > $2 AND number <= least($3::bigint, s.upto)) WHERE writer = $1";
/// Continues counting in each stream; returns whether there is more.
const COUNT: &str = "WITH found AS (SELECT w.writer, n.upto, n.bytes, n.rows FROM writers w LEFT JOIN sizes o USING (writer) CROSS JOIN \
    LATERAL (SELECT max(number) AS upto, sum(bytes)::bigint AS bytes, count(*) AS rows FROM (SELECT number, octet_length(body) + $2::bigint \
    AS bytes FROM commits c WHERE c.writer = w.writer AND number > coalesce(o.upto, 0) ORDER BY number LIMIT $1::bigint) page) n WHERE \
    (w.last IS NULL OR coalesce(o.upto, 0) < w.last) AND n.upto IS NOT NULL), noted AS (INSERT INTO sizes AS s (writer, upto, bytes) SELECT \
    writer, upto, bytes FROM found ON CONFLICT (writer) DO UPDATE SET upto = excluded.upto, bytes = s.bytes + excluded.bytes) SELECT \
    coalesce(max(rows), 0) = $1::bigint FROM found";
const SUM: &str = "SELECT coalesce(sum(bytes), 0)::bigint FROM sizes";

/// Counts a part of a stream that is about to change, or has just changed: the commits after the first position up to the last.
pub(super) async fn change(
    transaction: &Transaction<'_>,
    (after, last): (Position, CommitNo),
    sign: i64,
) -> Result<(), tokio_postgres::Error> {
    let change = transaction.prepare_cached(CHANGE).await?;
    let (writer, after, last) = (
        after.writer.0.cast_signed(),
        after.commit.0.cast_signed(),
        last.0.cast_signed(),
    );
    let row_bytes = ROW_BYTES.cast_signed();
    transaction
        .execute(&change, &[&writer, &after, &last, &sign, &row_bytes])
        .await
        .map(drop)
}

/// Continues counting, and returns the size of all streams. A journal that was never counted is read completely, a part at a time.
async fn counted(database: &Database) -> Result<u64, Error> {
    let failed = || database.failed(DOING);
    let mut client = database.client(DOING).await?;
    loop {
        let transaction = client.transaction().await.map_err(failed())?;
        transaction.batch_execute(PATIENCE).await.map_err(failed())?;
        transaction.batch_execute(ONE_AT_A_TIME).await.map_err(failed())?;
        let count = transaction.prepare_cached(COUNT).await.map_err(failed())?;
        let row = transaction
            .query_one(&count, &[&PAGE_COMMITS, &ROW_BYTES.cast_signed()])
            .await
            .map_err(failed())?;
        let sum = transaction.query_one(SUM, &[]).await.map_err(failed())?;
        transaction.commit().await.map_err(failed())?;
        if !row.get::<_, bool>(0) {
            return Ok(sum.get::<_, i64>(0).cast_unsigned());
        }
    }
}

impl Shared {
    /// Measures all streams. Commits of this engine are added until the next measurement.
    pub(super) async fn look_at_size(&self) -> Result<(), Error> {
        let _one_at_a_time = self.looking.lock().await;
        let before = self.bytes.load(Ordering::Acquire);
        let counted = counted(&self.database).await?;
        self.bytes.fetch_add(counted.wrapping_sub(before), Ordering::AcqRel);
        Ok(())
    }

    /// Starts regular measurements, beginning with the table's size until everything is counted.
    pub(super) async fn begin_looking(self: &Arc<Self>, client: &tokio_postgres::Client) -> Result<(), Error> {
        if self.is_looking.load(Ordering::Acquire) {
            return Ok(());
        }
        let size = client.query_one("SELECT pg_total_relation_size('commits')", &[]).await;
        let size: i64 = size.map_err(self.database.failed(DOING))?.get(0);
        if !self.is_looking.swap(true, Ordering::AcqRel) {
            self.bytes.store(size.cast_unsigned(), Ordering::Release);
            self.database.threads.spawn(keep_looking(Arc::downgrade(self)));
        }
        Ok(())
    }
}

async fn keep_looking(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if let Err(error) = strong.look_at_size().await {
            tracing::debug!("what other nodes have committed is counted later: {error}");
        }
        drop(strong);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
