//! Removal of history on a server whose connections break between any two statements.

use crate::{
    counter::{Command, Counter, Hits, engine_with},
    kit,
};
use std::{collections::BTreeMap, time::Duration};
use throng::{Engine, Options, journal::RecordKind, model::*};
use throng_postgres::{
    PostgresOptions,
    tools::{HistoryPart, verify, walk},
};
use throng_testing::eventually_ok;
use tokio_postgres::Client;

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);
/// Far more than the statements of one pass.
const STATEMENTS_MAX: i64 = 500;

async fn engine(schema: &str, keep: Keep) -> Engine {
    engine_at(kit::options(schema, ""), keep).await
}

async fn engine_at(at: PostgresOptions, keep: Keep) -> Engine {
    let options = Options {
        keep: BTreeMap::from([("counter".to_owned(), keep)]),
        // Passes run only on a test's request.
        prune_every: Some(Duration::from_hours(1)),
        checkpoint_every: Duration::from_hours(1),
        ..Options::default()
    };
    engine_with(at, options).await
}

async fn hit(engine: &Engine, id: &str, times: u64) {
    for _ in 0..times {
        engine.entity::<Counter>(id).ask(Command::Hit {}).await.unwrap();
    }
}

async fn hits(engine: &Engine, id: &str) -> Result<u64, String> {
    let read = engine.entity::<Counter>(id).read(Hits).await;
    read.map_err(|error| error.to_string())
}

/// Makes a chosen writing statement end its own connection, counted from when it is set.
struct Striking<'a> {
    psql: Client,
    schema: &'a str,
}

impl<'a> Striking<'a> {
    async fn begin(schema: &'a str) -> Self {
        let psql = kit::psql(&kit::SERVER).await;
        let begun = format!(
            "CREATE SEQUENCE {schema}.statements; CREATE TABLE {schema}.strikes (at bigint); INSERT INTO {schema}.strikes VALUES (0); \
             CREATE FUNCTION {schema}.strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('{schema}.statements') = (SELECT at FROM {schema}.strikes) THEN \
             PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$"
        );
        psql.batch_execute(&begun).await.unwrap();
        let tables = psql
            .query(
                "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 AND tablename <> 'strikes'",
                &[&schema],
            )
            .await
            .unwrap();
        for table in tables {
            let table: String = table.get(0);
            let trigger = format!(
                "CREATE TRIGGER strike BEFORE INSERT OR UPDATE OR DELETE ON {schema}.{table} FOR EACH STATEMENT EXECUTE \
                 FUNCTION {schema}.strike()"
            );
            psql.batch_execute(&trigger).await.unwrap();
        }
        Self { psql, schema }
    }

    /// Strikes the n-th statement from now on. 0: none.
    async fn strike_at(&self, statement: i64) {
        let set = format!(
            "UPDATE {0}.strikes SET at = {statement}; SELECT setval('{0}.statements', 1, false)",
            self.schema
        );
        self.psql.batch_execute(&set).await.unwrap();
    }

    /// Returns true once this many statements were made since it was set.
    async fn has_struck(&self, statement: i64) -> bool {
        let count = format!("SELECT last_value, is_called FROM {}.statements", self.schema);
        let row = self.psql.query_one(&count, &[]).await.unwrap();
        row.get::<_, bool>(1) && row.get::<_, i64>(0) >= statement
    }
}

async fn assert_sound(schema: &str) {
    let options = kit::options(schema, "");
    let found = tokio::task::spawn_blocking(move || verify(&options))
        .await
        .unwrap()
        .unwrap();
    assert!(found.is_sound(), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_cut_off_at_any_statement_loses_nothing() {
    let schema = &kit::schema();
    let first = engine(schema, NOTHING).await;
    let striking = Striking::begin(schema).await;
    let mut statement = 0;
    loop {
        statement += 1;
        assert!(statement < STATEMENTS_MAX, "the pass never ended");
        let id = format!("c{statement}");
        hit(&first, &id, 3).await;
        hit(&first, "last", 2).await;
        striking.strike_at(statement).await;
        let _ = first.prune(false).await;
        let has_struck = striking.has_struck(statement).await;
        striking.strike_at(0).await;
        let counted = eventually_ok("the engine answers again", async || hits(&first, &id).await).await;
        assert_eq!(counted, 3, "the connection was lost at statement {statement}");
        eventually_ok("a pass works again", async || first.prune(false).await).await;
        if !has_struck {
            break;
        }
    }
    assert!(statement > 5, "a pass of {statement} statements is none");
    first.stop().await;
    drop(first);
    assert_sound(schema).await;
    let again = engine(schema, NOTHING).await;
    for each in 1..=statement {
        assert_eq!(hits(&again, &format!("c{each}")).await, Ok(3));
    }
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_cut_off_at_any_statement_is_done_all_the_same() {
    let schema = &kit::schema();
    let first = engine(schema, Keep::Forever).await;
    hit(&first, "stays", 3).await;
    let striking = Striking::begin(schema).await;
    let mut statement = 0;
    loop {
        statement += 1;
        assert!(statement < STATEMENTS_MAX, "the erasure never ended");
        let id = format!("e{statement}");
        hit(&first, &id, 3).await;
        striking.strike_at(statement).await;
        let erased = first.erase("counter", &id).await;
        let has_struck = striking.has_struck(statement).await;
        striking.strike_at(0).await;
        if erased.is_err() {
            // The entity is still there or half removed. Either way, another request erases it.
            eventually_ok("it is erased", async || first.erase("counter", &id).await).await;
        }
        let looked = eventually_ok("the engine answers again", async || {
            match first.entity::<Counter>(&*id).read(Hits).await {
                Err(Error::Unavailable { reason }) => Err(reason),
                looked => Ok(looked),
            }
        })
        .await;
        assert!(
            matches!(looked, Err(Error::Ended { .. })),
            "statement {statement}: {looked:?}"
        );
        if !has_struck {
            break;
        }
    }
    assert!(statement > 5, "an erasure of {statement} statements is none");
    first.stop().await;
    drop(first);
    assert_sound(schema).await;
    let options = kit::options(schema, "");
    let left = tokio::task::spawn_blocking(move || {
        let mut left = Vec::new();
        walk(&options, &mut |seen| {
            if let HistoryPart::Commit(commit) = seen {
                let records = commit.records().flatten();
                let events = records.filter(|record| record.record == RecordKind::Event);
                left.extend(events.map(|record| record.id.to_owned()));
            }
            Ok(())
        })
        .unwrap();
        left
    })
    .await
    .unwrap();
    assert_eq!(left, ["stays", "stays", "stays"]);
    let again = engine(schema, Keep::Forever).await;
    assert_eq!(hits(&again, "stays").await, Ok(3));
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_stay_as_large_as_the_kept_history_over_many_passes() {
    const ROUNDS_MAX: usize = 60;
    // The number of consecutive rounds without growth after which the tables count as stable.
    const FLAT: usize = 8;
    let schema = &kit::schema();
    // Removed rows free their space only while no transaction sees older rows, so this test has its own database.
    let database = format!("of_{schema}");
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("CREATE DATABASE {database}"))
        .await
        .unwrap();
    let at = kit::url_in(&kit::SERVER, &database, schema, "");
    let engine = engine_at(at.parse().unwrap(), NOTHING).await;
    let psql = kit::psql_in(&kit::SERVER, &database).await;
    let size = format!(
        "SELECT (pg_total_relation_size('{schema}.commits') + pg_total_relation_size('{schema}.events') + \
         pg_total_relation_size('{schema}.places'))::bigint"
    );
    let mut sizes = Vec::new();
    let is_flat =
        |sizes: &[i64]| sizes.len() > FLAT && sizes[sizes.len() - FLAT..].windows(2).all(|two| two[0] == two[1]);
    while !is_flat(&sizes) && sizes.len() < ROUNDS_MAX {
        for id in ["a", "b", "c"] {
            hit(&engine, id, 60).await;
        }
        let pruned = engine.prune(false).await.unwrap();
        assert!(pruned.records > 100, "{pruned}");
        sizes.push(psql.query_one(&size, &[]).await.unwrap().get::<_, i64>(0));
    }
    engine.stop().await;
    assert!(is_flat(&sizes), "after each round, in bytes: {sizes:?}");
}

/// Ends or erases a counter. Returns the number of its last event.
async fn is_gone(engine: &Engine, is_erased: bool) -> u64 {
    hit(engine, "a", 2).await;
    if is_erased {
        engine.erase("counter", "a").await.unwrap();
        return 2;
    }
    engine.entity::<Counter>("a").ask(Command::Close {}).await.unwrap();
    // Another event follows, so a checkpoint covers everything before it.
    hit(engine, "last", 2).await;
    assert_eq!(engine.prune(false).await.unwrap().gone, 1);
    3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counter_begun_anew_after_it_is_gone_comes_back() {
    for is_erased in [true, false] {
        let schema = &kit::schema();
        let mut running = engine(schema, if is_erased { Keep::Forever } else { NOTHING }).await;
        let gone = is_gone(&running, is_erased).await;
        let begun = running.entity::<Counter>("a").ask(Command::Begin {}).await;
        assert_eq!(begun.unwrap(), 1, "it begins with nothing");
        for count in 2..=3 {
            hit(&running, "a", 1).await;
            running.stop().await;
            drop(running);
            running = engine(schema, Keep::Forever).await;
            assert_eq!(hits(&running, "a").await, Ok(count), "erased: {is_erased}");
            let history = running.history(0, "a", 0, 9).await.unwrap();
            let seqs: Vec<u64> = history.events.iter().map(|event| event.seq).collect();
            assert_eq!(seqs, (gone + 1..=gone + count).collect::<Vec<_>>());
        }
        running.stop().await;
        drop(running);
        assert_sound(schema).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_that_has_lost_its_first_events_is_told_as_damage() {
    let schema = &kit::schema();
    // Each epoch adds one row of places.
    for _ in 0..2 {
        let running = engine(schema, Keep::Forever).await;
        hit(&running, "a", 2).await;
        running.checkpoint().await.unwrap();
        running.stop().await;
    }
    let psql = kit::psql(&kit::SERVER).await;
    let lose = format!("DELETE FROM {schema}.states; DELETE FROM {schema}.places WHERE last <= 2");
    psql.batch_execute(&lose).await.unwrap();
    let running = engine(schema, Keep::Forever).await;
    let said = hits(&running, "a").await.unwrap_err();
    let is_told = said.contains("event 1 is missing before event 3") && said.contains("rebuilt");
    assert!(is_told, "{said}");
    running.stop().await;
}
