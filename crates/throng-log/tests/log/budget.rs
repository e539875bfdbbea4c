//! A disk budget: once it is used up, expired history is removed by itself.

use crate::notes::{Command, Look, Never, Note, once_free};
use std::{collections::BTreeMap, path::Path, time::Duration};
use tempfile::TempDir;
use throng::{
    Engine, StartError,
    model::{Error, Keep},
};
use throng_journal::{Durability, RecordKind};
use throng_log::{Options, open_embedded, tools::for_each_commit};
use throng_testing::eventually_ok;

const BUDGET: u64 = 20 << 20;
const TEXT_BYTES: usize = 200 << 10;

async fn start(dir: &Path, budget: u64, prune_every: Duration) -> Result<Engine, StartError> {
    let how = Options {
        durability: Durability::Os,
        ..Options::default()
    };
    let (log, store) = once_free(|| open_embedded(dir, how.clone().within(Some(BUDGET)))).await;
    let options = throng::Options {
        keep: BTreeMap::from([("note".to_owned(), Keep::Age(Duration::ZERO))]),
        prune_every: Some(prune_every),
        disk_bytes_max: Some(budget),
        deadline: Duration::from_mins(1),
        ..throng::Options::default()
    };
    let builder = Engine::builder().with::<Note>().query::<Note, Look>().shards(2);
    builder.options(options).start_shared(log, store).await
}

async fn write(engine: &Engine) -> Result<u64, Error<Never>> {
    let text = "x".repeat(TEXT_BYTES);
    engine.entity::<Note>("ann").ask(Command::Write { text }).await
}

fn events(dir: &Path) -> u64 {
    let mut events = 0;
    for_each_commit(&Options::default(), dir, &mut |commit| {
        let records = commit.records().flatten();
        events += records.filter(|record| record.record == RecordKind::Event).count() as u64;
        Ok(())
    })
    .unwrap();
    events
}

/// Writes until the budget is exhausted.
async fn fill(engine: &Engine) {
    let mut written = 0;
    while write(engine).await.is_ok() {
        written += 1;
        assert!(written * TEXT_BYTES < 10 * BUDGET as usize, "it is never full");
    }
    let refused = write(engine).await;
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
}

async fn until_there_is_room(engine: &Engine) {
    eventually_ok("there is room", async || match engine.health() {
        health if health.storage_full => Err(format!("{health:?}")),
        _ => Ok(()),
    })
    .await;
    write(engine).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_budget_makes_room_of_the_last_segment_too() {
    let dir = TempDir::new().unwrap();
    // No pass runs beside the writes, so the first pass finds everything that was written.
    let engine = start(dir.path(), BUDGET, Duration::MAX).await.unwrap();
    fill(&engine).await;
    assert!(events(dir.path()) > 0);
    engine.prune(false).await.unwrap();
    assert_eq!(events(dir.path()), 0);
    until_there_is_room(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_budget_makes_room_by_itself() {
    let dir = TempDir::new().unwrap();
    // No pass is due.
    let engine = start(dir.path(), BUDGET, Duration::from_hours(1)).await.unwrap();
    fill(&engine).await;
    until_there_is_room(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_that_the_files_fill_is_refused_at_the_start() {
    let dir = TempDir::new().unwrap();
    let refused = start(dir.path(), BUDGET / 2, Duration::MAX).await.err().unwrap();
    assert!(matches!(refused, StartError::DiskBudget { .. }), "{refused}");
    start(dir.path(), BUDGET, Duration::MAX).await.unwrap().stop().await;
}
