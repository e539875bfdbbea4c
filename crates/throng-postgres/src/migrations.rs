//! The tables, and how they come to be: numbered steps, each applied once.

use crate::{error::failed, options::PostgresOptions};
use throng_journal::Error;
use tokio_postgres::Client;

/// The steps, in order; the first is number 1. A step that was released is never changed.
const STEPS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
];

/// Brings the schema to this program's version.
///
/// # Errors
/// [`Error::OtherVersion`] when it is newer than this program.
pub(crate) async fn migrate(client: &mut Client, options: &PostgresOptions) -> Result<(), Error> {
    let said = failed("setting up the tables", options);
    let schema = &options.schema;
    let expected = STEPS.len() as i32;
    if version(client, options).await? == Some(expected) {
        return Ok(());
    }
    let transaction = match client.transaction().await {
        Ok(transaction) => transaction,
        Err(error) => return Err(said(error)),
    };
    let done = async {
        // One program at a time, whatever the schema: so that two that start together do not do it twice.
        transaction
            .execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('throng migrations', 0))",
                &[],
            )
            .await?;
        let exists: bool = transaction
            .query_one("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", &[schema])
            .await?
            .get(0);
        if !exists {
            transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        transaction
            .batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT \
                 NULL DEFAULT now(), program text NOT NULL)"
            ))
            .await?;
        let found: Option<i32> = transaction
            .query_one(&format!("SELECT max(version) FROM {schema}.migrations"), &[])
            .await?
            .get(0);
        let found = found.unwrap_or(0);
        for (number, step) in (1..).zip(STEPS).skip_while(|(number, _)| *number <= found) {
            transaction.batch_execute(&step.replace("SCHEMA", schema)).await?;
            let program = concat!("throng ", env!("CARGO_PKG_VERSION"));
            transaction
                .execute(
                    &format!("INSERT INTO {schema}.migrations (version, program) VALUES ($1, $2)"),
                    &[&number, &program],
                )
                .await?;
        }
        Ok(found)
    };
    let found = match done.await {
        Ok(found) => found,
        Err(error) => return Err(said(error)),
    };
    if found > expected {
        return Err(newer(options, found, expected));
    }
    transaction.commit().await.map_err(said)
}

/// For those who only look: the tables must be there.
///
/// # Errors
/// There are none, or they are of another version.
pub(crate) async fn require(client: &Client, options: &PostgresOptions) -> Result<(), Error> {
    let expected = STEPS.len() as i32;
    match version(client, options).await? {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(Error::Backend {
            doing: format!("reading {}", options.place()),
            why: format!(
                "its tables have version {found}, which is older than this program's {expected}: look with the program that runs on it; a \
                 service of this one changes them when it starts"
            ),
        }),
        None => Err(Error::Backend {
            doing: format!("reading {}", options.place()),
            why: "there is no journal in this schema; name another with schema=NAME in the URL".into(),
        }),
    }
}

fn newer(options: &PostgresOptions, found: i32, expected: i32) -> Error {
    Error::OtherVersion {
        what: options.place(),
        found: found.cast_unsigned(),
        expected: expected.cast_unsigned(),
    }
}

/// The version found; `None` without any. A look changes nothing, and so works on a standby.
async fn version(client: &Client, options: &PostgresOptions) -> Result<Option<i32>, Error> {
    let doing = "reading the version of the tables";
    let table = format!("{}.migrations", options.schema);
    let exists: bool = client
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&table])
        .await
        .map_err(failed(doing, options))?
        .get(0);
    if !exists {
        return Ok(None);
    }
    let found: Option<i32> = client
        .query_one(&format!("SELECT max(version) FROM {table}"), &[])
        .await
        .map_err(failed(doing, options))?
        .get(0);
    let expected = STEPS.len() as i32;
    match found {
        Some(found) if found > expected => Err(newer(options, found, expected)),
        found => Ok(found),
    }
}
