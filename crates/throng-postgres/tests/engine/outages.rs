//! The server goes away, or refuses, under load: no acknowledged hit is lost, and none counts twice.

use crate::{
    counter::{Command, Counter, Hits, Load, engine, until},
    kit,
};
use servers::{Postgres, PostgresOptions as ServerOptions, Stop};
use throng::{Engine, model::Error};
use throng_testing::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_in_the_middle_of_load_loses_nothing() {
    let mut server = Postgres::start(ServerOptions::default()).unwrap();
    let options = || kit::url(&server, "restarted", "").parse().unwrap();
    let engine = engine(options()).await;
    let load = Load::begin(&engine);
    let options = options();
    for stop in [Stop::Immediate, Stop::Fast] {
        load.more(500).await;
        server.restart(stop).unwrap();
    }
    load.more(500).await;
    load.end(engine, options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_ended_by_an_operator_lose_nothing() {
    let schema = kit::schema();
    let engine = engine(kit::options(&schema, "")).await;
    let load = Load::begin(&engine);
    let psql = kit::psql(&kit::SERVER).await;
    for _ in 0..5 {
        load.more(200).await;
        let pattern = format!("throng {schema} %");
        let ended = psql
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1",
                &[&pattern],
            )
            .await
            .unwrap();
        assert!(!ended.is_empty(), "there were connections");
    }
    load.more(200).await;
    load.end(engine, kit::options(&schema, "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_timeout_ends_the_writer_and_not_the_service() {
    let schema = kit::schema();
    let options = || kit::options(&schema, "options=-c%20statement_timeout%3D500ms");
    let engine = engine(options()).await;
    let load = Load::begin(&engine);
    load.more(100).await;
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.commits IN EXCLUSIVE MODE"))
        .await
        .unwrap();
    until("the engine is down for it", || !engine.health().ready).await;
    let reason = engine.health().reason.unwrap();
    assert!(
        reason.contains("journal") && !reason.contains("postgres://"),
        "{reason}"
    );
    psql.batch_execute("ROLLBACK").await.unwrap();
    load.more(100).await;
    load.end(engine, options()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_commands_but_not_reads() {
    let schema = kit::schema();
    let engine = engine(kit::options(&schema, "")).await;
    let idle = || engine.entity::<Counter>("idle");
    idle().ask(Command::Hit {}).await.unwrap();
    let load = Load::begin(&engine);
    load.more(100).await;
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!(
        "CREATE FUNCTION {schema}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend \
         file: No space left on device' USING ERRCODE = '53100'; END $$; CREATE TRIGGER no_room BEFORE INSERT ON \
         {schema}.commits EXECUTE FUNCTION {schema}.no_room()"
    ))
    .await
    .unwrap();
    until("the engine says so, and is ready", || {
        let health = engine.health();
        health.storage_full && health.ready
    })
    .await;
    assert_eq!(idle().read(Hits).await.unwrap(), 1);
    until_refused(&engine).await;
    psql.batch_execute(&format!("DROP TRIGGER no_room ON {schema}.commits"))
        .await
        .unwrap();
    load.more(100).await;
    until("there is room", || !engine.health().storage_full).await;
    load.end(engine, kit::options(&schema, "")).await;
}

/// Sends commands until one is refused for lack of room. A commit waits for room only for a while, then another one is tried.
async fn until_refused(engine: &Engine) {
    eventually("it is refused for room", async || {
        let asked = engine.entity::<Counter>("idle").ask(Command::Hit {}).await;
        matches!(asked, Err(Error::StorageFull { .. }))
    })
    .await;
}
