//! Read models: rows that projections write together with their position.

use crate::database::Database;
use deadpool_postgres::{GenericClient, Transaction};
use std::{collections::HashMap, ops::Bound, sync::Arc};
use throng_journal::{
    Applied, CommitNo, Error, Later, Position, ViewBatch, ViewOffset, ViewRange, ViewRow, Views, WriterId,
};
use tokio_postgres::{IsolationLevel, Row, types::ToSql};

const DOING: &str = "reading a read model";
const WRITING: &str = "writing a read model";
/// The rows read with one statement.
const PAGE_ROWS: usize = 1_024;
/// The bytes written with one statement.
const WRITE_BYTES: usize = 8 << 20;

const OFFSET: &str = "SELECT writer, commit, checksum, version FROM views WHERE view = $1";
const FIRST: &str = "INSERT INTO views (view, writer, commit, checksum, version) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO \
    NOTHING";
const NEXT: &str = "UPDATE views SET writer = $2, commit = $3, checksum = $4, version = $5, changed_at = now() WHERE view = $1 \
    AND writer = $6 AND commit = $7 AND checksum = $8 AND version = $9";
const SET: &str = "INSERT INTO view_rows (view, key, value) SELECT $1, u.key, u.value FROM unnest($2::bytea[], $3::bytea[]) \
    u(key, value) ON CONFLICT (view, key) DO UPDATE SET value = excluded.value";
const REMOVE: &str = "DELETE FROM view_rows WHERE view = $1 AND key = ANY($2)";
const GET: &str = "SELECT r.value FROM unnest($2::bytea[]) WITH ORDINALITY u(key, n) LEFT JOIN view_rows r ON r.view = $1 AND \
    r.key = u.key ORDER BY u.n";

/// Read models on PostgreSQL, beside the journal in the same schema: rows and offset change in one transaction. The view
/// `read_models` shows them to people, as text and `jsonb`.
#[derive(Debug)]
pub struct PostgresViews {
    database: Arc<Database>,
}

impl PostgresViews {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    /// Returns the options of their connections.
    #[must_use]
    pub fn options(&self) -> &crate::PostgresOptions {
        &self.database.options
    }
}

/// Writer, commit, checksum and version, as the columns hold them.
fn columns(offset: ViewOffset) -> [i64; 4] {
    [
        offset.position.writer.0.cast_signed(),
        offset.position.commit.0.cast_signed(),
        i64::from(offset.checksum),
        i64::from(offset.version),
    ]
}

fn offset_of(row: &Row) -> ViewOffset {
    let [writer, commit, checksum, version] = [0, 1, 2, 3].map(|index| row.get::<_, i64>(index).cast_unsigned());
    ViewOffset {
        position: Position::new(WriterId(writer), CommitNo(commit)),
        checksum: u32::try_from(checksum).unwrap_or_default(),
        version: u32::try_from(version).unwrap_or_default(),
    }
}

async fn offset(database: &Database, client: &impl GenericClient, view: &str) -> Result<Option<ViewOffset>, Error> {
    let statement = client.prepare_cached(OFFSET).await.map_err(database.failed(DOING))?;
    let row = client
        .query_opt(&statement, &[&view])
        .await
        .map_err(database.failed(DOING))?;
    Ok(row.as_ref().map(offset_of))
}

async fn apply(database: &Database, view: &str, batch: &ViewBatch) -> Result<Applied, Error> {
    let failed = || database.failed(WRITING);
    let mut client = database.client(WRITING).await?;
    let transaction = client.transaction().await.map_err(failed())?;
    let [writer, commit, checksum, version] = columns(batch.offset);
    let moved = match batch.expected {
        None => {
            let statement = transaction.prepare_cached(FIRST).await.map_err(failed())?;
            transaction
                .execute(&statement, &[&view, &writer, &commit, &checksum, &version])
                .await
        }
        Some(expected) => {
            let [was_writer, was_commit, was_checksum, was_version] = columns(expected);
            let statement = transaction.prepare_cached(NEXT).await.map_err(failed())?;
            let parameters: [&(dyn ToSql + Sync); 9] = [
                &view,
                &writer,
                &commit,
                &checksum,
                &version,
                &was_writer,
                &was_commit,
                &was_checksum,
                &was_version,
            ];
            transaction.execute(&statement, &parameters).await
        }
    };
    if moved.map_err(failed())? != 1 {
        // A separate statement, so that it sees what the one before has waited for.
        return Ok(Applied::Moved(offset(database, &transaction, view).await?));
    }
    change(database, &transaction, view, &batch.changes).await?;
    transaction.commit().await.map_err(failed())?;
    Ok(Applied::Done)
}

async fn change(
    database: &Database,
    transaction: &Transaction<'_>,
    view: &str,
    changes: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<(), Error> {
    let failed = || database.failed(WRITING);
    // Of several changes of one key the last counts.
    let last: HashMap<&[u8], Option<&[u8]>> = changes.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
    let mut sorted: Vec<(&[u8], Option<&[u8]>)> = last.into_iter().collect();
    sorted.sort_unstable();
    let (mut removed, mut keys, mut values, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (key, value) in sorted {
        let Some(value) = value else {
            removed.push(key);
            continue;
        };
        keys.push(key);
        values.push(value);
        bytes += key.len() + value.len();
        if bytes >= WRITE_BYTES {
            set(database, transaction, view, (&keys, &values)).await?;
            keys.clear();
            values.clear();
            bytes = 0;
        }
    }
    set(database, transaction, view, (&keys, &values)).await?;
    if !removed.is_empty() {
        let statement = transaction.prepare_cached(REMOVE).await.map_err(failed())?;
        transaction
            .execute(&statement, &[&view, &removed])
            .await
            .map_err(failed())?;
    }
    Ok(())
}

async fn set(
    database: &Database,
    transaction: &Transaction<'_>,
    view: &str,
    (keys, values): (&Vec<&[u8]>, &Vec<&[u8]>),
) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(SET)
        .await
        .map_err(database.failed(WRITING))?;
    transaction
        .execute(&statement, &[&view, keys, values])
        .await
        .map(drop)
        .map_err(database.failed(WRITING))
}

async fn scan(database: &Database, view: &str, range: ViewRange) -> Result<Vec<ViewRow>, Error> {
    let mut client = database.client(DOING).await?;
    if range.rows_max <= PAGE_ROWS {
        return pages(database, &client, view, range).await;
    }
    // All pages are read at one moment.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .map_err(database.failed(DOING))?;
    let rows = pages(database, &transaction, view, range).await?;
    transaction.commit().await.map_err(database.failed(DOING))?;
    Ok(rows)
}

async fn pages(
    database: &Database,
    client: &impl GenericClient,
    view: &str,
    mut range: ViewRange,
) -> Result<Vec<ViewRow>, Error> {
    let (mut found, mut bytes): (Vec<ViewRow>, usize) = (Vec::new(), 0);
    while found.len() < range.rows_max && !range.is_empty() {
        let limit = PAGE_ROWS.min(range.rows_max - found.len());
        let rows = page(database, client, view, &range, limit).await?;
        for row in &rows {
            let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0), row.get(1));
            bytes += key.len() + value.len();
            if bytes > range.bytes_max && !found.is_empty() {
                return Ok(found);
            }
            found.push((key, value));
        }
        if rows.len() < limit {
            break;
        }
        if let Some((last, _)) = found.last() {
            range.from = Bound::Excluded(last.clone());
        }
    }
    Ok(found)
}

async fn page(
    database: &Database,
    client: &impl GenericClient,
    view: &str,
    range: &ViewRange,
    limit: usize,
) -> Result<Vec<Row>, Error> {
    let none = Vec::new();
    let (from, after) = match &range.from {
        Bound::Included(key) => (key, "key >= $2"),
        Bound::Excluded(key) => (key, "key > $2"),
        Bound::Unbounded => (&none, "key >= $2"),
    };
    let (to, before) = match &range.to {
        Bound::Included(key) => (key, "key <= $3"),
        Bound::Excluded(key) => (key, "key < $3"),
        Bound::Unbounded => (&none, "$3::bytea IS NOT NULL"),
    };
    let statement =
        format!("SELECT key, value FROM view_rows WHERE view = $1 AND {after} AND {before} ORDER BY key LIMIT $4");
    let statement = client
        .prepare_cached(&statement)
        .await
        .map_err(database.failed(DOING))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    client
        .query(&statement, &[&view, from, to, &limit])
        .await
        .map_err(database.failed(DOING))
}

impl Views for PostgresViews {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        let view = view.to_owned();
        self.database.run(|database| async move {
            let client = database.client(DOING).await?;
            offset(&database, &client, &view).await
        })
    }

    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        let view = view.to_owned();
        self.database
            .run(|database| async move { apply(&database, &view, &batch).await })
    }

    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        let view = view.to_owned();
        self.database.run(|database| async move {
            let client = database.client(DOING).await?;
            let statement = client.prepare_cached(GET).await.map_err(database.failed(DOING))?;
            let rows = client
                .query(&statement, &[&view, &keys])
                .await
                .map_err(database.failed(DOING))?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        let view = view.to_owned();
        self.database
            .run(|database| async move { scan(&database, &view, range).await })
    }

    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        let view = view.to_owned();
        self.database.run(|database| async move {
            let failed = || database.failed(WRITING);
            let mut client = database.client(WRITING).await?;
            let transaction = client.transaction().await.map_err(failed())?;
            for statement in [
                "DELETE FROM views WHERE view = $1",
                "DELETE FROM view_rows WHERE view = $1",
            ] {
                transaction.execute(statement, &[&view]).await.map_err(failed())?;
            }
            transaction.commit().await.map_err(failed())
        })
    }

    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        self.database.run(|database| async move {
            let client = database.client(DOING).await?;
            let rows = client
                .query("SELECT view FROM views ORDER BY view", &[])
                .await
                .map_err(database.failed(DOING))?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }
}
