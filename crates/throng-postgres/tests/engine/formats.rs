//! Databases written by programs of each version of the tables can be opened, keep their contents, and go on working.
//!
//! A dump is written once, by the program of its version, and never changes:
//! `cargo test -p throng-postgres --test engine -- --ignored write_dump`.

#[path = "../../../throng-log/tests/log/formats/script.rs"]
mod script;
#[path = "../../../throng-log/tests/log/formats/service.rs"]
mod service;

use crate::kit;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Map, Value, json};
use service::{Clock, service};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use throng::{Engine, StartError};
use throng_journal::{
    CommitNo, Directory as _, Error, FEATURES, Join, Journal as _, NodeState, Position, RecordKind, ShardSet, WriterId,
};
use throng_postgres::{PostgresOptions, open_postgres, tools};

/// The version of the tables written by this program, and the schema in its dump.
const FORMAT: &str = "tables_7";
/// All versions read by this program.
const FORMATS: [&str; 2] = ["tables_6", FORMAT];
/// An option: the engine waits for no lease.
const LONE: &str = "lease=0";
const DUMP: &str = "dump.sql.gz";
const EXPECTED: &str = "expected.json";

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(format)
}

async fn start(options: PostgresOptions, has_former: bool) -> Result<(Engine, Arc<Clock>), StartError> {
    let opened = open_postgres(options).unwrap();
    let clock = Clock::new();
    let builder = service(has_former, Arc::clone(&clock)).views(opened.views);
    let engine = builder.start_shared(opened.journal, opened.store).await?;
    Ok((engine, clock))
}

/// Starts the service on a schema, with engines that wait for no lease.
async fn started(schema: &str, has_former: bool) -> (Engine, Arc<Clock>) {
    start(kit::options(schema, LONE), has_former).await.unwrap()
}

async fn stop(engine: Engine) {
    engine.stop().await;
}

/// Returns rows, records and tables as stored, and the sentences of a check.
async fn stored(schema: &str) -> Map<String, Value> {
    let psql = kit::psql(&kit::SERVER).await;
    let names = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1";
    let mut tables = Map::new();
    for row in psql.query(names, &[&schema]).await.unwrap() {
        let name: String = row.get(0);
        let count = psql
            .query_one(&format!("SELECT count(*) FROM {schema}.{name}"), &[])
            .await;
        tables.insert(name, json!(count.unwrap().get::<_, i64>(0)));
    }
    let writers = format!("SELECT writer FROM {schema}.writers ORDER BY 1");
    let writers = psql.query(&writers, &[]).await.unwrap();
    let opened = open_postgres(kit::options(schema, LONE)).unwrap();
    let mut kinds: Vec<RecordKind> = Vec::new();
    for writer in writers {
        let writer = WriterId(writer.get::<_, i64>(0).cast_unsigned());
        let mut after = Position::new(writer, CommitNo(0));
        loop {
            let commits = opened.journal.read(after, 1 << 20).await.unwrap();
            let Some(last) = commits.last() else { break };
            after = last.position();
            let records = commits.iter().flat_map(|commit| commit.records().map(Result::unwrap));
            kinds.extend(records.map(|record| record.record));
        }
    }
    let rows = script::rows(&*opened.store).await;
    let stored = json!({
        "tables": tables, "records": script::kinds(kinds.into_iter()), "rows": rows, "damages": damages(schema).await,
    });
    stored.as_object().unwrap().clone()
}

async fn damages(schema: &str) -> Vec<String> {
    let options = kit::options(schema, LONE);
    let found = tokio::task::spawn_blocking(move || tools::verify(&options).unwrap());
    let damages = found.await.unwrap().damages.into_iter();
    damages.map(|damage| damage.why).collect()
}

fn load(dump: &Path) {
    let mut statements = Vec::new();
    std::io::copy(&mut GzDecoder::new(fs::File::open(dump).unwrap()), &mut statements).unwrap();
    let scratch = TempDir::new().unwrap();
    let file = scratch.path().join("dump.sql");
    fs::write(&file, statements).unwrap();
    let settings = ["-Xq", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-f"];
    let arguments = [&settings[..], &[file.to_str().unwrap()]].concat();
    kit::SERVER.run("psql", &arguments).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_each_version_open_and_work_on() {
    for format in FORMATS {
        let expected = fs::read(fixture(format).join(EXPECTED)).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        load(&fixture(format).join(DUMP));
        let stored = stored(format).await;
        for (part, found) in &stored {
            assert_eq!(*found, expected[part], "{part} of {format}");
        }
        let (engine, _) = started(format, true).await;
        let seen = script::observe(&engine).await;
        for part in ["entities", "states", "dead", "balances"] {
            assert_eq!(seen[part], expected[part], "{part} of {format}");
        }
        script::work_on(&engine).await;
        stop(engine).await;
        let (engine, clock) = started(format, true).await;
        assert_eq!(script::states(&engine).await, expected["worked on"]);
        script::fire(&engine, &clock).await;
        stop(engine).await;
        assert_eq!(json!(damages(format).await), expected["damages"]);
    }
}

/// Lets a node join and leave, with a shard pinned to it.
async fn join_and_leave(schema: &str) {
    let directory = open_postgres(kit::options(schema, LONE)).unwrap().directory;
    let (all, name) = (ShardSet::first(8), "a");
    let join = Join {
        name: name.into(),
        features: FEATURES,
        shards: 8,
        ..Join::default()
    };
    let node = directory.join(join).await.unwrap();
    directory.beat(node, NodeState::Serving).await.unwrap();
    directory.take(node, &all).await.unwrap();
    directory.pin(&ShardSet::first(1), Some(name)).await.unwrap();
    directory.leave(node).await.unwrap();
}

/// Runs two epochs and loses the rows of the second. Returns the position whose loss must be accepted.
async fn lose(schema: &str) -> Position {
    for _ in 0..2 {
        let (engine, _) = started(schema, true).await;
        script::begin(&engine).await;
        stop(engine).await;
    }
    let psql = kit::psql(&kit::SERVER).await;
    let last = "(SELECT max(writer) FROM writers)";
    // Read models may have read the lost rows, so they are removed too.
    let delete = format!(
        "SET search_path TO {schema}; DELETE FROM views; DELETE FROM view_rows; DELETE FROM commits WHERE writer = {last}; DELETE FROM \
         leases WHERE writer = {last}; DELETE FROM writers WHERE writer = {last}"
    );
    psql.batch_execute(&delete).await.unwrap();
    match start(kit::options(schema, LONE), true).await {
        Err(StartError::Journal(Error::Lost { loss, .. })) => loss.covered,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes the dump of a new version of the tables, once"]
async fn write_dump() {
    let to = fixture(FORMAT);
    assert!(!to.exists(), "{} is there: it stays as it is", to.display());
    join_and_leave(FORMAT).await;
    let mut accepting = kit::options(FORMAT, LONE);
    accepting.accept_loss = Some(lose(FORMAT).await);
    // The engine is dropped as if killed. The next one seals its stream, without a checkpoint.
    let (killed, _) = start(accepting, true).await.unwrap();
    script::live(&killed).await;
    let (engine, _) = started(FORMAT, false).await;
    script::live_on(&engine).await;

    let what = ["--no-owner", "--no-privileges", "--schema", FORMAT, "postgres"];
    let dump = String::from_utf8(kit::SERVER.run("pg_dump", &what).unwrap()).unwrap();
    // An older psql does not know these commands of recent dumps.
    let is_plain = |line: &&str| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict");
    let dump: String = dump.lines().filter(is_plain).flat_map(|line| [line, "\n"]).collect();
    fs::create_dir_all(&to).unwrap();
    let mut out = GzEncoder::new(fs::File::create(to.join(DUMP)).unwrap(), Compression::best());
    out.write_all(dump.as_bytes()).unwrap();
    out.finish().unwrap();
    let mut expected = stored(FORMAT).await;
    stop(engine).await;

    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("DROP SCHEMA {FORMAT} CASCADE"))
        .await
        .unwrap();
    load(&to.join(DUMP));
    let (engine, _) = started(FORMAT, true).await;
    let seen = script::observe(&engine).await;
    expected.extend(seen.as_object().unwrap().clone());
    script::work_on(&engine).await;
    expected.insert("worked on".into(), script::states(&engine).await);
    stop(engine).await;
    let missing: Vec<_> = RecordKind::ALL
        .iter()
        .filter(|kind| expected["records"][kind.word()].is_null())
        .collect();
    let text = serde_json::to_string_pretty(&expected).unwrap();
    fs::write(to.join(EXPECTED), text + "\n").unwrap();
    assert!(missing.is_empty(), "no record of these kinds: {missing:?}");
}
