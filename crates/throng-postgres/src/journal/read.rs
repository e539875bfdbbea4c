//! Reading commits back.

use crate::database::Database;
use deadpool_postgres::GenericClient;
use throng_journal::{Commit, CommitNo, Error, HEADER_BYTES, Place, Position};
use tokio_postgres::{Client, Row};

/// The most commits on one page.
const PAGE_COMMITS: usize = 4_096;
/// The number of lengths that are read first; four times as many each time all of them fit on the page. A small page of large commits holds
/// a few.
const LENGTHS_FIRST: usize = 16;

/// The lengths of values stored outside their row are known without reading them.
const LENGTHS: &str =
    "SELECT number, octet_length(body) FROM commits WHERE writer = $1 AND number > $2 ORDER BY number LIMIT $3";
const PAGE: &str =
    "SELECT number, body FROM commits WHERE writer = $1 AND number > $2 AND number <= $3 ORDER BY number";

/// The most records read with one statement.
const BODIES_MAX: usize = 1_024;
const BODIES: &str = "SELECT substring(c.body FROM u.at FOR u.length) FROM unnest($1::bigint[], $2::bigint[], $3::int[], \
    $4::int[]) WITH ORDINALITY u(writer, number, at, length, n) LEFT JOIN commits c ON c.writer = u.writer AND c.number = \
    u.number ORDER BY u.n";

/// Reads the commits after a position, and checks each.
pub(crate) async fn read_commits(
    database: &Database,
    client: &impl GenericClient,
    after: Position,
    bytes_max: usize,
) -> Result<Vec<Commit>, Error> {
    let doing = "reading commits";
    let rows = page(client, after, bytes_max).await.map_err(database.failed(doing))?;
    let mut due = after.commit.next();
    let mut commits = Vec::with_capacity(rows.len());
    for (found, body) in rows {
        let position = Position::new(after.writer, due);
        let commit = Commit::parse(body, &[]).map_err(|damage| damaged(position, damage.to_string()))?;
        // It may stand for emptied ones, including some before the one that is due.
        if !(commit.first()..=found).contains(&due) || (!commits.is_empty() && commit.first() != due) {
            return Err(damaged(
                position,
                format!("the next row is commit {found}: rows are missing"),
            ));
        }
        let held = commit.position();
        if (held.writer, held.commit) != (position.writer, found) {
            return Err(damaged(position, format!("the row holds commit {held}")));
        }
        commits.push(commit);
        due = found.next();
    }
    Ok(commits)
}

/// Reads the rows after a position: at least one if there is one, then as many as fit in `bytes_max`.
pub(crate) async fn page(
    client: &impl GenericClient,
    after: Position,
    bytes_max: usize,
) -> Result<Vec<(CommitNo, Vec<u8>)>, tokio_postgres::Error> {
    let (writer, number) = (after.writer.0.cast_signed(), after.commit.0.cast_signed());
    let page = client.prepare_cached(PAGE).await?;
    loop {
        let Some(last) = last_of_page(client, (writer, number), bytes_max).await? else {
            return Ok(Vec::new());
        };
        let rows = client.query(&page, &[&writer, &number, &last]).await?;
        let commit = |row: Row| (CommitNo(row.get::<_, i64>(0).cast_unsigned()), row.get(1));
        // Between the two statements a node may have removed all of them, so that a later row stands for them.
        if !rows.is_empty() {
            return Ok(rows.into_iter().map(commit).collect());
        }
    }
}

/// Returns the number of the last commit that fits on a page, of those after one; the first always fits.
async fn last_of_page(
    client: &impl GenericClient,
    (writer, after): (i64, i64),
    bytes_max: usize,
) -> Result<Option<i64>, tokio_postgres::Error> {
    let lengths = client.prepare_cached(LENGTHS).await?;
    let mut left = (bytes_max / HEADER_BYTES).clamp(1, PAGE_COMMITS);
    let (mut bytes, mut last, mut count) = (0usize, None, LENGTHS_FIRST);
    loop {
        count = count.min(left);
        let from = last.unwrap_or(after);
        let rows = client.query(&lengths, &[&writer, &from, &(count as i64)]).await?;
        for row in &rows {
            bytes = bytes.saturating_add(usize::try_from(row.get::<_, i32>(1)).unwrap_or_default());
            if last.is_some() && bytes > bytes_max {
                return Ok(last);
            }
            last = Some(row.get(0));
        }
        left -= rows.len();
        if rows.len() < count || left == 0 {
            return Ok(last);
        }
        count *= 4;
    }
}

pub(crate) fn damaged(position: Position, why: String) -> Error {
    let Position { writer, commit } = position;
    Error::Damaged {
        position,
        place: format!("table commits, writer {writer}, number {commit}"),
        why,
    }
}

/// Reads the bodies of records, in the requested order; `None` for a missing commit. Of a large commit only the pages with the bodies are
/// read.
pub(crate) async fn read_bodies(
    database: &Database,
    client: &impl GenericClient,
    places: &[Place],
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let doing = "reading records";
    let statement = client.prepare_cached(BODIES).await.map_err(database.failed(doing))?;
    let mut bodies = Vec::with_capacity(places.len());
    for part in places.chunks(BODIES_MAX) {
        let writers: Vec<i64> = part.iter().map(|place| place.position.writer.0.cast_signed()).collect();
        let numbers: Vec<i64> = part.iter().map(|place| place.position.commit.0.cast_signed()).collect();
        let offsets: Vec<i32> = part
            .iter()
            .map(|place| place.offset.cast_signed().saturating_add(1))
            .collect();
        let lengths: Vec<i32> = part.iter().map(|place| place.len.cast_signed()).collect();
        let rows = client
            .query(&statement, &[&writers, &numbers, &offsets, &lengths])
            .await
            .map_err(database.failed(doing))?;
        bodies.extend(rows.iter().map(|row| row.get::<_, Option<Vec<u8>>>(0)));
    }
    Ok(bodies)
}

pub(super) async fn read_at(database: &Database, places: &[Place]) -> Result<Vec<Vec<u8>>, Error> {
    let client = database.client("reading records").await?;
    let bodies = read_bodies(database, &client, places).await?;
    let whole = |(place, body): (&Place, Option<Vec<u8>>)| {
        let body = body.ok_or(Error::NoCommit(place.position))?;
        if body.len() != place.len as usize {
            let why = format!("a record of {} bytes ends after {}", place.len, body.len());
            return Err(damaged(place.position, why));
        }
        Ok(body)
    };
    places.iter().zip(bodies).map(whole).collect()
}

/// Makes a commit wait for its sync, and so for all before it.
pub(super) async fn sync(database: &Database) -> Result<(), Error> {
    let doing = "syncing the journal";
    let client: &Client = &*database.client(doing).await?;
    client
        .query("SELECT pg_logical_emit_message(true, 'throng', '')", &[])
        .await
        .map(drop)
        .map_err(database.failed(doing))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use servers::{Postgres, PostgresOptions};
    use std::{sync::Arc, time::Duration};
    use throng_journal::WriterId;

    const COMMITS: i64 = 20_000;
    const PAGE_BYTES: usize = 50_000;

    /// Reads a stream page by page. Returns the number of rows that the server read.
    async fn touched(database: Arc<Database>, before: &str, after: &str) -> i64 {
        let mut client = database.client("testing").await.unwrap();
        let fill = format!(
            "ALTER TABLE commits SET (autovacuum_enabled = off); {before}; INSERT INTO commits SELECT 1, n, '', \
             repeat('x', 500)::bytea FROM generate_series(1, {COMMITS}) n; {after}"
        );
        client.batch_execute(&fill).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let mut at = Position::new(WriterId(1), CommitNo(0));
        while let Some((last, _)) = page(&transaction, at, PAGE_BYTES).await.unwrap().last() {
            at.commit = *last;
        }
        assert_eq!(at.commit.0.cast_signed(), COMMITS);
        let looked =
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'commits'::regclass";
        transaction.query_one(looked, &[]).await.unwrap().get(0)
    }

    #[test]
    fn no_page_reads_every_row_under_any_statistics() {
        let server = Postgres::start(PostgresOptions::default()).unwrap();
        for (schema, before, after) in [
            ("never", "", ""),
            ("when_it_was_empty", "ANALYZE commits", ""),
            ("now", "", "ANALYZE commits"),
        ] {
            let url = format!("{}?schema={schema}", server.url("postgres"));
            let database = Database::open(url.parse().unwrap()).unwrap();
            let task = Arc::clone(&database);
            let work = async move { Ok(touched(task, before, after).await) };
            let touched = database.threads.block(work, Duration::from_secs(300)).unwrap();
            // A page of 100 measures itself and up to three pages ahead, and is then read.
            let most = COMMITS * 5;
            assert!(touched <= most, "analysed {schema}: {touched} rows of {COMMITS}");
        }
    }
}
