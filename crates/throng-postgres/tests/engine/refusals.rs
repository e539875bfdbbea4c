//! A journal that cannot be used is refused with a sentence. It states the fault and the remedy, and never shows a password.

use crate::{counter::Counter, kit};
use servers::Postgres;
use throng::{Engine, StartError, layout::LayoutError};
use throng_journal::{Error, Journal};
use throng_postgres::{PostgresDirectory, PostgresOptions, open_postgres};

fn refused(url: &str) -> String {
    let options: PostgresOptions = url.parse().unwrap();
    let said = open_postgres(options).unwrap_err().to_string();
    for secret in ["secret", Postgres::PASSWORD] {
        assert!(!said.contains(secret), "{said}");
    }
    said
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn a_wrong_password_is_refused() {
    let url = format!("postgres://throng:secret@127.0.0.1:{}/postgres", kit::SERVER.port());
    assert_says(
        &refused(&url),
        &["password authentication failed", "28P01", "look at user and password"],
    );
}

#[test]
fn a_database_that_is_not_there_is_refused() {
    assert_says(
        &refused(&kit::SERVER.url("nowhere")),
        &["database \"nowhere\" does not exist", "createdb nowhere"],
    );
}

#[test]
fn a_server_that_is_not_there_is_refused() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("postgres://throng:secret@127.0.0.1:{port}/postgres");
    assert_says(
        &refused(&url),
        &[&port.to_string(), "Connection refused", "is PostgreSQL running there"],
    );
}

#[test]
fn a_host_that_is_not_there_is_refused() {
    let said = refused("postgres://throng:secret@nowhere.invalid/postgres?connect_timeout=5");
    assert_says(&said, &["nowhere.invalid", "there is no host of that name"]);
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let url = format!("{}?sslmode=require", kit::SERVER.url("postgres"));
    assert_says(&refused(&url), &["sslmode=disable"]);
}

#[tokio::test]
async fn tables_of_a_newer_program_are_refused_and_left_alone() {
    let schema = kit::schema();
    drop(open_postgres(kit::options(&schema, "")).unwrap());
    let psql = kit::psql(&kit::SERVER).await;
    let add = format!("INSERT INTO {schema}.migrations (version, program) VALUES (99, 'throng 9.9.9')");
    psql.batch_execute(&add).await.unwrap();
    let refused = open_postgres(kit::options(&schema, "")).unwrap_err();
    assert!(matches!(refused, Error::OtherVersion { found: 99, .. }), "{refused}");
    assert_says(
        &refused.to_string(),
        &[&schema, "format version 99", "use the program it was written by"],
    );
}

#[tokio::test]
async fn read_only_tools_do_not_change_an_older_programs_tables() {
    let schema = kit::schema();
    drop(open_postgres(kit::options(&schema, "")).unwrap());
    let psql = kit::psql(&kit::SERVER).await;
    // Restores the tables of the previous program.
    let undo = format!(
        "DROP TABLE {schema}.cluster CASCADE; DELETE FROM {schema}.migrations WHERE version = (SELECT max(version) FROM {schema}.migrations)"
    );
    psql.batch_execute(&undo).await.unwrap();
    let tables = format!(
        "SELECT (SELECT max(version) FROM {schema}.migrations), (SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}')"
    );
    let found = async || {
        let row = psql.query_one(&tables, &[]).await.unwrap();
        (row.get::<_, i32>(0), row.get::<_, i64>(1))
    };
    let before = found().await;
    let refused = PostgresDirectory::look(kit::options(&schema, "")).unwrap_err();
    assert_says(
        &refused.to_string(),
        &[
            &schema,
            "older than this program's",
            "look with the program that runs on it",
        ],
    );
    assert_eq!(found().await, before);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused() {
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute("CREATE ROLE reader LOGIN SUPERUSER PASSWORD 'secret'; ALTER ROLE reader SET default_transaction_read_only TO on")
        .await
        .unwrap();
    let url = |schema: &str| {
        format!(
            "postgres://reader:secret@127.0.0.1:{}/postgres?schema={schema}",
            kit::SERVER.port()
        )
    };
    let parts = ["read-only transaction", "25006", "name the primary in the URL"];
    assert_says(&refused(&url(&kit::schema())), &parts);
    // The tables exist, so the journal is opened, and the first write is refused.
    let schema = kit::schema();
    drop(open_postgres(kit::options(&schema, "")).unwrap());
    let opened = open_postgres(url(&schema).parse().unwrap()).unwrap();
    assert_says(&opened.journal.open("node").await.unwrap_err().to_string(), &parts);
}

#[tokio::test]
async fn a_user_without_the_right_to_create_tables_is_refused() {
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute("CREATE ROLE guest LOGIN PASSWORD 'secret'")
        .await
        .unwrap();
    let url = format!("postgres://guest:secret@127.0.0.1:{}/postgres", kit::SERVER.port());
    assert_says(
        &refused(&url),
        &["permission denied", "GRANT CREATE ON DATABASE postgres TO guest"],
    );
}

#[tokio::test]
async fn a_commit_that_is_damaged_is_named() {
    use throng_journal::{Address, Append, CommitBuilder, CommitNo, Position, RecordKind, ShardId, Stamp};
    let schema = kit::schema();
    let opened = open_postgres(kit::options(&schema, "")).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    let mut open = CommitBuilder::default();
    open.push(RecordKind::Event, ShardId(1), &Address::new("k", "i"), 1, "A", 1, b"{}");
    let stamp = Stamp::new(writer, CommitNo(1), 0);
    let Append::Later(later) = opened.journal.append(open.finish(stamp)) else {
        panic!("it goes over the network");
    };
    later.await.result.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    let damage = format!("UPDATE {schema}.commits SET body = set_byte(body, 57, 0)");
    psql.batch_execute(&damage).await.unwrap();
    let begin = Position::new(writer, CommitNo(0));
    let said = opened.journal.read(begin, 1 << 20).await.unwrap_err().to_string();
    assert_says(
        &said,
        &[
            &format!("damage at {writer}.1"),
            &format!("table commits, writer {writer}, number 1"),
            "checksum",
        ],
    );
}

#[tokio::test]
async fn another_number_of_shards_is_refused() {
    let schema = kit::schema();
    let start = async |shards| {
        let opened = open_postgres(kit::options(&schema, "")).unwrap();
        let builder = Engine::builder().with::<Counter>().shards(shards);
        builder.start_shared(opened.journal, opened.store).await
    };
    start(64).await.unwrap().stop().await;
    let Err(StartError::Layout(error)) = start(48).await else {
        panic!("it started with another number of shards")
    };
    assert_eq!(error, LayoutError::OtherShards { stored: 64, given: 48 });
    start(64).await.unwrap().stop().await;
}
