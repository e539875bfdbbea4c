//! An engine on an object store, which is killed and restarted.

use crate::weather::{Plain, Server};
use std::{sync::Arc, time::Duration};
use throng::{Engine, Options};
use throng_conditional::{ConditionalOptions, Machine, open_conditional};
use throng_testing::fixtures::{Command, Counter, Hits};
use tokio::{runtime::Handle, task::JoinSet};

async fn engine(server: &Arc<Server>) -> Engine {
    let options = ConditionalOptions {
        lease: Duration::from_secs(1),
        ..ConditionalOptions::default()
    };
    let opened = open_conditional(
        Arc::new(Plain(Arc::clone(server))),
        Arc::new(Machine::new(Handle::current())),
        options,
    );
    let often = Options {
        checkpoint_every: Duration::from_millis(100),
        ..Options::default()
    };
    let builder = Engine::builder()
        .with::<Counter>()
        .query::<Counter, Hits>()
        .options(often);
    builder.start_shared(opened.journal, opened.store).await.unwrap()
}

const COUNTERS: u64 = 7;

/// Increments counters. Each command is repeated under its key until it is acknowledged.
async fn hit(engine: &Engine, epoch: u64, hits: u64) {
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let engine = engine.clone();
        workers.spawn(async move {
            for hit in 0..hits {
                let (counter, key) = ((worker + hit) % COUNTERS, format!("{epoch}-{worker}-{hit}"));
                let asked = || {
                    let handle = engine.entity::<Counter>(counter.to_string()).once(key.clone());
                    handle.within(Duration::from_secs(20)).ask(Command::Hit {})
                };
                while asked().await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
}

/// Returns the sum of all counters. Each is asked until it answers, because an engine without a lease answers nothing.
async fn hits(engine: &Engine) -> u64 {
    let mut sum = 0;
    for counter in 0..COUNTERS {
        sum += loop {
            match engine.entity::<Counter>(counter.to_string()).read(Hits).await {
                Ok(hits) => break hits,
                Err(_) => tokio::task::yield_now().await,
            }
        };
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hit_counts_once_over_several_epochs() {
    let server = Arc::<Server>::default();
    for epoch in 0..3 {
        let engine = engine(&server).await;
        if epoch > 0 {
            assert_eq!(hits(&engine).await, epoch * 8 * 50);
        }
        hit(&engine, epoch, 50).await;
        assert_eq!(hits(&engine).await, (epoch + 1) * 8 * 50);
        // The first engine is dropped, which acts as a kill.
        if epoch > 0 {
            engine.stop().await;
        }
    }
}
