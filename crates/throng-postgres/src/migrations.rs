//! The tables, created by numbered steps, each applied once.

use crate::{error::failed, locks::has_met_another, options::PostgresOptions};
use std::time::Duration;
use throng_journal::Error;
use tokio_postgres::{Client, error::SqlState};

/// The steps, in order; the first is number 1. A released step is never changed.
const STEPS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
    include_str!("migrations/0007.sql"),
];

/// The longest wait of a step for a table in use, after which it releases its locks and begins anew. Engines lock tables in different
/// orders (a joining node `cluster` before `nodes`, a beating one the other way round), so a step that holds one table exclusively and
/// waits for another may itself be waited for. Shorter than a server's `deadlock_timeout` (1 s), so that no transaction is ended.
const WAIT: &str = "SET LOCAL lock_timeout TO '300ms'";
/// The pause between two attempts, in which engines go on.
const PAUSE: Duration = Duration::from_millis(300);
/// The most attempts: a minute, of which engines go on for half.
const TRIES: u32 = 100;

/// Brings the schema to this program's version.
///
/// # Errors
/// [`Error::OtherVersion`]: it is newer than this program. [`Error::Backend`]: a table that has to be changed stays in use.
pub(crate) async fn migrate(client: &mut Client, options: &PostgresOptions) -> Result<(), Error> {
    let expected = STEPS.len() as i32;
    if version(client, options).await? == Some(expected) {
        return Ok(());
    }
    let mut tries = 1;
    loop {
        match apply(client, &options.schema).await {
            Ok(found) if found > expected => return Err(newer(options, found, expected)),
            Ok(_) => return Ok(()),
            Err(error) if gave_way(&error) && tries < TRIES => tries += 1,
            Err(error) if gave_way(&error) => {
                return Err(Error::backend(
                    format!("setting up the tables of {}", options.place()),
                    "a table that is to be changed was in use each time: look in pg_stat_activity for a transaction that has been open \
                     for long (a dump, a session of psql), end it, and start again",
                ));
            }
            Err(error) => return Err(failed("setting up the tables", options)(error)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn gave_way(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) || has_met_another(error)
}

/// Applies the missing steps, all or none. Returns the version found.
async fn apply(client: &mut Client, schema: &str) -> Result<i32, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    // One program at a time, whatever the schema, so that two that start together do not do it twice.
    transaction
        .execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('throng migrations', 0))",
            &[],
        )
        .await?;
    transaction.batch_execute(WAIT).await?;
    let exists: bool = transaction
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)",
            &[&schema],
        )
        .await?
        .get(0);
    if !exists {
        transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    transaction
        .batch_execute(&format!(
            "CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT \
             now(), program text NOT NULL)"
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
    if found <= STEPS.len() as i32 {
        transaction.commit().await?;
    }
    Ok(found)
}

/// Checks that the tables are there, for inspection.
///
/// # Errors
/// [`Error::Backend`]: there are no tables, or older ones. [`Error::OtherVersion`]: the tables are newer than this program.
pub(crate) async fn require(client: &Client, options: &PostgresOptions) -> Result<(), Error> {
    let expected = STEPS.len() as i32;
    match version(client, options).await? {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(Error::backend(
            format!("reading {}", options.place()),
            format!(
                "its tables have version {found}, which is older than this program's {expected}: look with the program that runs on it; a \
                 service of this one changes them when it starts"
            ),
        )),
        None => Err(Error::backend(
            format!("reading {}", options.place()),
            "there is no journal in this schema; name another with schema=NAME in the URL",
        )),
    }
}

fn newer(options: &PostgresOptions, found: i32, expected: i32) -> Error {
    Error::OtherVersion {
        what: options.place(),
        found: found.cast_unsigned(),
        expected: expected.cast_unsigned(),
    }
}

/// Returns the version found; `None` without any. It changes nothing, and so works on a standby.
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
