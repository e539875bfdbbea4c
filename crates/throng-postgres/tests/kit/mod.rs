//! A server for all tests of a file, and a schema for each.
#![allow(dead_code, reason = "each file of tests uses a part")]

use servers::{Postgres, PostgresOptions as ServerOptions};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};
use throng_postgres::PostgresOptions;
use tokio_postgres::{Client, NoTls};

/// Gone when the test's process is, see `servers`.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(ServerOptions::default()).unwrap());

/// A schema nobody has used.
pub(crate) fn schema() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The database of most tests.
const DATABASE: &str = "postgres";

/// The URL of a schema, with more options of the form `a=b&c=d`.
pub(crate) fn url(server: &Postgres, schema: &str, more: &str) -> String {
    url_in(server, DATABASE, schema, more)
}

pub(crate) fn url_in(server: &Postgres, database: &str, schema: &str, more: &str) -> String {
    format!("{}?schema={schema}&{more}", server.url(database))
}

pub(crate) fn options(schema: &str, more: &str) -> PostgresOptions {
    url(&SERVER, schema, more).parse().unwrap()
}

/// A session of the test's own, as of an operator with psql.
pub(crate) async fn psql(server: &Postgres) -> Client {
    psql_in(server, DATABASE).await
}

pub(crate) async fn psql_in(server: &Postgres, database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(database), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
