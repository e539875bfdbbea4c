//! The store: data that can be rebuilt from the journal, written at checkpoints.

mod advance;
mod coverage;
mod cut;
mod events;
mod index;
mod pacer;
mod places;
mod read;

use crate::database::Database;
use coverage::Coverage;
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::{ops::Bound, pin::pin, sync::Arc};
use throng_journal::{
    Address, Checkpoint, Covered, EntityHead, Error, Later, Loaded, Maybe, ShardSet, Store, StoredEvent, begin_of_rows,
};
use tokio::sync::mpsc;
use tokio_postgres::{Row, types::ToSql};

/// The rows passed from the connection to the asker at once.
const BATCH_ROWS: usize = 1_024;
const BATCHES_WAITING: usize = 4;

/// The store on PostgreSQL, beside the journal in the same schema.
#[derive(Debug)]
pub struct PostgresStore {
    database: Arc<Database>,
}

type Parameter = Box<dyn ToSql + Send + Sync>;

impl PostgresStore {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    /// Returns the rows of a statement, batch by batch, never all in memory.
    fn rows(
        &self,
        doing: &'static str,
        statement: &'static str,
        parameters: Vec<Parameter>,
    ) -> mpsc::Receiver<Result<Vec<Row>, Error>> {
        let (give, take) = mpsc::channel(BATCHES_WAITING);
        let database = Arc::clone(&self.database);
        self.database.threads.spawn(async move {
            if let Err(error) = give_rows(&database, doing, statement, &parameters, &give).await {
                // The asker may have gone.
                let _ = give.send(Err(error)).await;
            }
        });
        take
    }
}

async fn give_rows(
    database: &Database,
    doing: &str,
    statement: &str,
    parameters: &[Parameter],
    give: &mpsc::Sender<Result<Vec<Row>, Error>>,
) -> Result<(), Error> {
    let client = tokio::select! {
        biased;
        () = give.closed() => return Ok(()),
        client = database.client(doing) => client?,
    };
    let statement = client.prepare_cached(statement).await.map_err(database.failed(doing))?;
    let parameters = parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync));
    let rows = client
        .query_raw(&statement, parameters)
        .await
        .map_err(database.failed(doing))?;
    let mut batches = pin!(rows.try_chunks(BATCH_ROWS));
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(|error| database.failed(doing)(error.1))?;
        if give.send(Ok(batch)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the first possible key that comes after another and begins with a prefix.
fn first_row(prefix: &[u8], after: &[u8]) -> Vec<u8> {
    match begin_of_rows(prefix, after) {
        // The next possible key.
        Bound::Excluded(after) => [after, &[0]].concat(),
        Bound::Included(_) | Bound::Unbounded => prefix.to_vec(),
    }
}

impl Store for PostgresStore {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        let shards = shards.clone();
        self.database.run(|database| async move {
            let doing = "reading the last checkpoint";
            let client = database.client(doing).await?;
            let coverage = Coverage::read(&database, &**client, &shards, doing).await?;
            Ok(coverage.covered())
        })
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        self.database
            .run(|database| async move { advance::advance(&database, checkpoint).await })
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        let address = address.clone();
        Maybe::Later(
            self.database
                .run(move |database| async move { read::load(&database, &address, state_version).await }),
        )
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        let address = address.clone();
        self.database
            .run(move |database| async move { read::history(&database, &address, after, limit, bytes_max).await })
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        let (kind, after) = (kind.to_owned(), after.map(|id| id.as_bytes().to_vec()));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.database.run(move |database| async move {
            let doing = "listing entities";
            let client = database.client(doing).await?;
            let statement = client
                .prepare_cached(
                    "SELECT id, seq FROM entities WHERE kind = $1 AND id > coalesce($2, ''::bytea) AND seq > 0 ORDER BY id \
                     LIMIT $3",
                )
                .await
                .map_err(database.failed(doing))?;
            let rows = client
                .query(&statement, &[&kind, &after, &limit])
                .await
                .map_err(database.failed(doing))?;
            rows.iter()
                .map(|row| {
                    Ok(EntityHead {
                        id: text(row.get(0))?.into(),
                        seq: row.get::<_, i64>(1).cast_unsigned(),
                    })
                })
                .collect()
        })
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        let key = key.to_vec();
        Maybe::Later(self.database.run(move |database| async move {
            let doing = "reading a system row";
            let client = database.client(doing).await?;
            let statement = client
                .prepare_cached("SELECT value FROM system WHERE key = $1")
                .await
                .map_err(database.failed(doing))?;
            let row = client
                .query_opt(&statement, &[&key])
                .await
                .map_err(database.failed(doing))?;
            Ok(row.map(|row| row.get(0)))
        }))
    }

    fn system_rows<'a>(&'a self, keys: &'a [Vec<u8>]) -> Later<'a, Result<Vec<Option<Vec<u8>>>, Error>> {
        let keys = keys.to_vec();
        self.database.run(move |database| async move {
            let doing = "reading system rows";
            let client = database.client(doing).await?;
            let statement = client
                .prepare_cached(
                    "SELECT s.value FROM unnest($1::bytea[]) WITH ORDINALITY k(key, number) LEFT JOIN system s USING (key) \
                     ORDER BY k.number",
                )
                .await
                .map_err(database.failed(doing))?;
            let rows = client
                .query(&statement, &[&keys])
                .await
                .map_err(database.failed(doing))?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        let mut batches = self.rows(
            "reading system rows",
            "SELECT key, value FROM system WHERE key >= $1 AND ($2::bytea IS NULL OR key < $2) ORDER BY key LIMIT $3",
            vec![
                Box::new(first_row(prefix, after)),
                Box::new(behind(prefix)),
                Box::new(i64::try_from(rows_max).unwrap_or(i64::MAX)),
            ],
        );
        Box::pin(async move {
            while let Some(batch) = batches.recv().await {
                for row in batch? {
                    visit(row.get(0), row.get(1));
                }
            }
            Ok(())
        })
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        let from = first_row(prefix, after);
        let (end, limit) = (behind(prefix), i64::try_from(rows_max).unwrap_or(i64::MAX));
        self.database.run(move |database| async move {
            let doing = "removing system rows";
            let client = database.client(doing).await?;
            let statement = client.prepare_cached(REMOVE).await.map_err(database.failed(doing))?;
            let last = client
                .query_opt(&statement, &[&from, &end, &limit])
                .await
                .map_err(database.failed(doing))?;
            Ok(last.map(|row| row.get(0)))
        })
    }
}

/// Removes some of the rows between two keys, and returns the last one's key.
const REMOVE: &str = "WITH gone AS (DELETE FROM system WHERE key IN (SELECT key FROM system WHERE key >= $1 AND ($2::bytea IS NULL \
     OR key < $2) ORDER BY key LIMIT $3) RETURNING key) SELECT key FROM gone ORDER BY key DESC LIMIT 1";

/// Returns the first key after all that begin with a prefix; `None`: there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| {
        Error::backend(
            "reading an entity's id",
            "it is not UTF-8; was the table entities changed by hand?",
        )
    })
}
