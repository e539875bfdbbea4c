//! Reading commits back.

use crate::database::Database;
use deadpool_postgres::GenericClient;
use throng_journal::{Commit, CommitNo, Error, Place, Position, WriterId};
use tokio_postgres::Client;

/// Commits in one page, at most.
const PAGE_COMMITS: i64 = 4_096;

/// The lengths of values stored outside their row are known without reading them.
const PAGE: &str = "WITH page AS MATERIALIZED (SELECT number, sum(octet_length(body)) OVER (ORDER BY number) AS bytes FROM \
    commits WHERE writer = $1 AND number > $2::bigint ORDER BY number LIMIT $4) SELECT c.number, c.body FROM page p JOIN commits c \
    ON c.writer = $1 AND c.number = p.number WHERE p.bytes <= $3::bigint OR p.number = $2::bigint + 1 ORDER BY c.number";

/// The commits after a position, checked one by one.
pub(crate) async fn read_commits(
    database: &Database,
    client: &impl GenericClient,
    after: Position,
    bytes_max: usize,
) -> Result<Vec<Commit>, Error> {
    let doing = "reading commits";
    let page = client.prepare_cached(PAGE).await.map_err(database.failed(doing))?;
    let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let (writer, number) = (after.writer.0.cast_signed(), after.commit.0.cast_signed());
    let rows = client
        .query(&page, &[&writer, &number, &bytes_max, &PAGE_COMMITS])
        .await
        .map_err(database.failed(doing))?;
    let mut due = after.commit.next();
    let mut commits = Vec::with_capacity(rows.len());
    for row in rows {
        let position = Position {
            writer: after.writer,
            commit: due,
        };
        let found = CommitNo(row.get::<_, i64>(0).cast_unsigned());
        if found != due {
            return Err(damaged(
                position,
                format!("the next row is commit {found}: rows are missing"),
            ));
        }
        let commit = Commit::parse(row.get(1), &[]).map_err(|damage| damaged(position, damage.to_string()))?;
        if commit.position() != position {
            return Err(damaged(position, format!("the row holds commit {}", commit.position())));
        }
        commits.push(commit);
        due = due.next();
    }
    Ok(commits)
}

pub(crate) fn damaged(position: Position, why: String) -> Error {
    let Position { writer, commit } = position;
    Error::Damaged {
        position,
        place: format!("table commits, writer {writer}, number {commit}"),
        why,
    }
}

/// One record's body: of a large commit only the pages it stands on are read.
pub(super) async fn read_at(database: &Database, place: Place) -> Result<Vec<u8>, Error> {
    let doing = "reading a record";
    let client = database.client(doing).await?;
    let statement = client
        .prepare_cached(
            "SELECT substring(body FROM $3::int FOR $4::int) FROM commits WHERE writer = $1 AND number = $2",
        )
        .await
        .map_err(database.failed(doing))?;
    let (WriterId(writer), CommitNo(number)) = (place.position.writer, place.position.commit);
    let from = i32::try_from(place.offset).unwrap_or(i32::MAX).saturating_add(1);
    let length = i32::try_from(place.len).unwrap_or(i32::MAX);
    let row = client
        .query_opt(
            &statement,
            &[&writer.cast_signed(), &number.cast_signed(), &from, &length],
        )
        .await
        .map_err(database.failed(doing))?;
    let body: Vec<u8> = row.ok_or(Error::NoCommit(place.position))?.get(0);
    if body.len() != place.len as usize {
        let why = format!("a record of {} bytes ends after {}", place.len, body.len());
        return Err(damaged(place.position, why));
    }
    Ok(body)
}

/// A commit that waits for its sync, and so for all before it.
pub(super) async fn sync(database: &Database) -> Result<(), Error> {
    let doing = "syncing the journal";
    let client: &Client = &*database.client(doing).await?;
    client
        .query("SELECT pg_logical_emit_message(true, 'throng', '')", &[])
        .await
        .map(drop)
        .map_err(database.failed(doing))
}
