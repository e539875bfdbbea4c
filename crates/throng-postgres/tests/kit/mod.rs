//! A server for all tests of a file, and a schema for each test.
#![allow(dead_code, reason = "each file of tests uses a part")]

use servers::{Postgres, PostgresOptions as ServerOptions};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};
use throng_postgres::PostgresOptions;
use tokio_postgres::{Client, NoTls};

/// Ends with the test's process, see `servers`.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(ServerOptions::default()).unwrap());

/// Returns the name of an unused schema.
pub(crate) fn schema() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The database of most tests.
const DATABASE: &str = "postgres";

/// Returns the URL of a schema, with more options of the form `a=b&c=d`.
pub(crate) fn url(server: &Postgres, schema: &str, more: &str) -> String {
    url_in(server, DATABASE, schema, more)
}

pub(crate) fn url_in(server: &Postgres, database: &str, schema: &str, more: &str) -> String {
    format!("{}?schema={schema}&{more}", server.url(database))
}

pub(crate) fn options(schema: &str, more: &str) -> PostgresOptions {
    url(&SERVER, schema, more).parse().unwrap()
}

/// Opens a separate session, as an operator with psql would.
pub(crate) async fn psql(server: &Postgres) -> Client {
    psql_in(server, DATABASE).await
}

pub(crate) async fn psql_in(server: &Postgres, database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(database), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The tables of a schema at one moment, to be restored later. It simulates a lagging standby, or a backup.
pub(crate) struct Copy {
    schema: String,
}

impl Copy {
    pub(crate) async fn of(schema: &str) -> Self {
        let copy = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; DROP SCHEMA IF EXISTS {schema}_copy CASCADE; CREATE SCHEMA {schema}_copy; DO $$ \
             DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP EXECUTE \
             format('CREATE TABLE {schema}_copy.%I AS TABLE {schema}.%I', t, t); END LOOP; END $$; COMMIT"
        );
        psql(&SERVER).await.batch_execute(&copy).await.unwrap();
        Self { schema: schema.into() }
    }

    /// Restores all tables at once. All clients lose their connections, as if another server took this one's place.
    pub(crate) async fn put_back(&self) {
        let Self { schema } = self;
        let put_back = format!(
            "BEGIN; DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1 LOOP \
             EXECUTE format('TRUNCATE {schema}.%I', t); EXECUTE format('INSERT INTO {schema}.%I OVERRIDING SYSTEM VALUE SELECT * FROM \
             {schema}_copy.%I', t, t); END LOOP; END $$; COMMIT"
        );
        let client = psql(&SERVER).await;
        // It fails if it is in a deadlock with another session.
        while client.batch_execute(&put_back).await.is_err() {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        let end = format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'throng {schema} %'"
        );
        client.query(&end, &[]).await.unwrap();
    }
}
