//! A hot entity's share of a batch.

use crate::kinds::*;
use std::{sync::Arc, time::Duration};
use throng::{
    Options,
    host::{Host, Task, TokioHost},
    journal::{Journal, Position, RecordKind, WriterId},
};
use throng_testing::delegate;

/// A world in which executing takes no time, so only the number of commands counts. Nothing runs beside the loop: a task that checks a shard while a
/// command arrives would split a commit.
struct Frozen(TokioHost);

impl Host for Frozen {
    delegate!(Host, 0: now entropy sleep);

    fn elapsed_micros(&self) -> u64 {
        0
    }
    fn spawn(&self, _: Task) {}
}

/// Runs one loop: its committer, and connections that all have a request at once. Returns the entities in order of execution, commit by commit.
async fn turn(requests: &[&'static str]) -> Vec<Vec<String>> {
    let world = World::new();
    let engine = world
        .start(
            World::builder()
                .options(Options {
                    // A command takes ten microseconds, so one entity may run four per batch.
                    entity_turn: Duration::from_micros(40),
                    checkpoint_every: Duration::from_secs(3_600),
                    ..Options::default()
                })
                .host(Arc::new(Frozen(TokioHost::new().unwrap()))),
        )
        .await
        .unwrap();
    let commits = tokio::task::LocalSet::new()
        .run_until(async {
            let committer = tokio::task::spawn_local(engine.driver().committer());
            tokio::task::yield_now().await;
            let asks: Vec<_> = (0..)
                .zip(requests.iter().copied())
                .map(|(number, id)| {
                    let engine = engine.clone();
                    tokio::task::spawn_local(async move {
                        let balance = number;
                        ask(&engine, id, Command::Open { balance }).await.unwrap();
                    })
                })
                .collect();
            for ask in asks {
                ask.await.unwrap();
            }
            committer.abort();
            let begin = Position {
                writer: WriterId(1),
                ..Position::default()
            };
            world.journal.read(begin, usize::MAX).await.unwrap()
        })
        .await;
    let executed = |commit: &throng::journal::Commit| {
        let records = commit.records().flatten();
        let events = records.filter(|record| record.record == RecordKind::Event);
        events
            .map(|event| {
                let body: serde_json::Value = serde_json::from_slice(event.body).unwrap();
                format!("{}{}", event.id, body["balance"])
            })
            .collect()
    };
    commits.iter().map(executed).collect()
}

#[tokio::test]
async fn a_hot_show_with_its_share_waits_behind_the_others() {
    let mut requests = vec!["a"];
    requests.extend(["hot"; 9]);
    requests.extend(["b", "c"]);
    let executed = turn(&requests).await;
    assert_eq!(
        executed,
        [
            vec!["a0", "hot1", "hot2", "hot3", "hot4", "b10", "c11"],
            vec!["hot5", "hot6", "hot7", "hot8", "hot9"],
        ],
        "the commit of the others does not wait for those of the hot one, and no order is lost; alone it waits for nobody"
    );
}

#[tokio::test]
async fn a_hot_show_alone_waits_for_nobody() {
    let executed = turn(&["hot"; 40]).await;
    let lengths: Vec<_> = executed.iter().map(Vec::len).collect();
    assert_eq!(lengths, [40]);
    let order: Vec<_> = executed.concat();
    assert_eq!(order, (0..40).map(|number| format!("hot{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn many_cold_entities_share_one_commit() {
    let ids: Vec<&'static str> = (0..100).map(|n| &*format!("e{n}").leak()).collect();
    let executed = turn(&ids).await;
    assert_eq!(executed.len(), 1);
}
