//! Importing a history in one transaction, so that it is complete or not there at all.

use super::walk::PATIENCE;
use crate::{
    PostgresOptions,
    columns::shards,
    copy::{self, CopyRows},
    database::Database,
};
use std::sync::Arc;
use throng_journal::{Commit, Durability, Error, WriterId, commit::Buffer};
use tokio_postgres::Client;

const DOING: &str = "importing into PostgreSQL";
const COPY: &str = "COPY commits (writer, number, shards, body) FROM STDIN (FORMAT binary)";
const BATCH_BYTES: usize = 8 << 20;

/// Refuses a journal that a service uses, because its end would be missing.
///
/// # Errors
/// [`Error::InUse`]; or the server cannot be reached, or there is no journal.
pub fn refuse_in_use(options: &PostgresOptions) -> Result<(), Error> {
    let database = Database::look(options.clone())?;
    let task = Arc::clone(&database);
    let look = async move {
        let doing = "looking for an engine";
        let client = task.client(doing).await?;
        client
            .query_one(
                "SELECT EXISTS (SELECT FROM writers w JOIN leases l USING (writer) WHERE w.sealed_at IS NULL AND l.until > \
                 clock_timestamp())",
                &[],
            )
            .await
            .map(|row| row.get(0))
            .map_err(task.failed(doing))
    };
    if database.threads.block(look, PATIENCE)? {
        let what = options.place();
        return Err(Error::InUse { what });
    }
    Ok(())
}

/// An import under way. It is given writers and their commits in order, and then [finished](Self::finish). If it is dropped before, it
/// leaves nothing.
pub struct Import {
    database: Arc<Database>,
    client: Arc<Client>,
    rows: CopyRows,
    writer: Option<(WriterId, u64)>,
}

impl Import {
    /// Begins an import, creating the schema if necessary.
    ///
    /// # Errors
    /// [`Error::Backend`]: there is a journal already, or the server cannot be reached, or refuses.
    pub fn begin(options: &PostgresOptions) -> Result<Self, Error> {
        let database = Database::open(options.clone())?;
        let task = Arc::clone(&database);
        let begin = async move {
            let client = task.connect(DOING, Durability::Fsync).await?;
            client
                .batch_execute("BEGIN; SELECT FROM cluster FOR UPDATE; LOCK TABLE writers IN EXCLUSIVE MODE")
                .await
                .map_err(task.failed(DOING))?;
            let row = client
                .query_one("SELECT EXISTS (SELECT FROM writers)", &[])
                .await
                .map_err(task.failed(DOING))?;
            if row.get(0) {
                return Err(Error::backend(
                    format!("{DOING} ({})", task.options.place()),
                    "there is a journal in this schema already; choose another with schema=NAME in the URL",
                ));
            }
            Ok(client)
        };
        let client = database.threads.block(begin, PATIENCE)?;
        Ok(Self {
            database,
            client: Arc::new(client),
            rows: CopyRows::new(4),
            writer: None,
        })
    }

    /// Begins a writer's stream.
    ///
    /// # Errors
    /// [`Error::Backend`]: the writer does not follow the one before, or the server refuses.
    pub fn writer(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        if let Some((before, _)) = self.writer.filter(|(before, _)| *before >= writer) {
            return Err(Error::backend(
                DOING,
                format!("writer {writer} stands behind writer {before}"),
            ));
        }
        self.end_writer()?;
        self.writer = Some((writer, 0));
        let (writer, node) = (writer.0.cast_signed(), node.to_owned());
        self.run(|client| async move {
            client
                .execute(
                    "INSERT INTO writers (writer, node, session, sealed_at, last) VALUES ($1, $2, 'import', now(), 0)",
                    &[&writer, &node],
                )
                .await
                .map(drop)
        })
    }

    /// Adds the stream's next commit. Returns its buffer.
    ///
    /// # Errors
    /// [`Error::Backend`]: the server refuses the commit, or cannot be reached.
    pub fn commit(&mut self, mut commit: Commit) -> Result<Buffer, Error> {
        commit.seal(&[]);
        let stamp = commit.stamp();
        self.writer = Some((stamp.writer, stamp.number.0));
        self.rows
            .row()
            .bigint(stamp.writer.0)
            .bigint(stamp.number.0)
            .value(&shards(&commit))
            .value(commit.bytes());
        if self.rows.bytes() >= BATCH_BYTES {
            self.send()?;
        }
        Ok(commit.into_buffer())
    }

    /// Commits the import.
    ///
    /// # Errors
    /// [`Error::Backend`] of the server; then nothing was imported.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end_writer()?;
        self.run(|client| async move { client.batch_execute("COMMIT; ANALYZE commits").await })
    }

    fn end_writer(&mut self) -> Result<(), Error> {
        self.send()?;
        let Some((writer, last)) = self.writer else {
            return Ok(());
        };
        let (writer, last) = (writer.0.cast_signed(), last.cast_signed());
        self.run(|client| async move {
            client
                .execute("UPDATE writers SET last = $2 WHERE writer = $1", &[&writer, &last])
                .await
                .map(drop)
        })
    }

    fn send(&mut self) -> Result<(), Error> {
        let rows = std::mem::replace(&mut self.rows, CopyRows::new(4));
        if rows.is_empty() {
            return Ok(());
        }
        self.run(|client| async move { copy::send(client.copy_in(COPY).await?, rows.finish()).await })
    }

    fn run<R>(&self, ask: impl FnOnce(Arc<Client>) -> R) -> Result<(), Error>
    where
        R: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    {
        let (database, asked) = (Arc::clone(&self.database), ask(Arc::clone(&self.client)));
        self.database
            .threads
            .block(async move { asked.await.map_err(database.failed(DOING)) }, PATIENCE)
    }
}

impl std::fmt::Debug for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import")
            .field("to", &self.database.options.place())
            .finish_non_exhaustive()
    }
}
