//! Load on counters whose result can be checked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use throng::{Engine, Options};
use throng_postgres::{PostgresOptions, open_postgres};
use throng_testing::eventually;
pub(crate) use throng_testing::fixtures::{Command, Counter, CounterEvent, Hits};
use tokio::task::JoinSet;

pub(crate) async fn engine(options: PostgresOptions) -> Engine {
    let often = Options {
        // Frequent enough to happen between all other steps.
        checkpoint_every: Duration::from_millis(200),
        ..Options::default()
    };
    engine_with(options, often).await
}

pub(crate) async fn engine_with(at: PostgresOptions, options: Options) -> Engine {
    let opened = open_postgres(at).unwrap();
    Engine::builder()
        .with::<Counter>()
        .query::<Counter, Hits>()
        .options(options)
        .start_shared(opened.journal, opened.store)
        .await
        .unwrap()
}

pub(crate) const COUNTERS: u64 = 7;

/// Hits counters. Each hit is repeated under its key until it is acknowledged.
pub(crate) struct Load {
    end: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    workers: JoinSet<u64>,
}

impl Load {
    pub(crate) fn begin(engine: &Engine) -> Self {
        let (end, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut workers = JoinSet::new();
        for worker in 0..16u64 {
            let (engine, end, acknowledged) = (engine.clone(), end.clone(), acknowledged.clone());
            workers.spawn(async move {
                let mut hits = 0u64;
                while !end.load(Ordering::Acquire) {
                    let (counter, key) = ((worker + hits) % COUNTERS, format!("{worker}-{hits}"));
                    let asked = || {
                        let handle = engine.entity::<Counter>(counter.to_string()).once(key.clone());
                        handle.within(Duration::from_secs(2)).ask(Command::Hit {})
                    };
                    // After any failure the hit is repeated under its key.
                    while asked().await.is_err() {
                        tokio::task::yield_now().await;
                    }
                    hits += 1;
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                }
                hits
            });
        }
        Self {
            end,
            acknowledged,
            workers,
        }
    }

    /// Waits until this many more hits were acknowledged.
    pub(crate) async fn more(&self, hits: u64) {
        let wanted = self.acknowledged.load(Ordering::Acquire) + hits;
        until("more hits are acknowledged", || {
            self.acknowledged.load(Ordering::Acquire) >= wanted
        })
        .await;
    }

    /// Ends the load. Checks on this engine and on a restarted one that every hit counted once.
    pub(crate) async fn end(mut self, engine: Engine, options: PostgresOptions) {
        self.end.store(true, Ordering::Release);
        let mut expected = 0;
        while let Some(hits) = self.workers.join_next().await {
            expected += hits.unwrap();
        }
        assert_eq!(total(&engine).await, expected, "each hit counts once");
        engine.stop().await;
        drop(engine);
        let again = crate::counter::engine(options).await;
        assert_eq!(total(&again).await, expected, "also after a restart");
        again.stop().await;
    }
}

pub(crate) async fn total(engine: &Engine) -> u64 {
    let mut total = 0;
    for counter in 0..COUNTERS {
        total += engine
            .entity::<Counter>(counter.to_string())
            .read(Hits)
            .await
            .unwrap_or(0);
    }
    total
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, async || holds()).await;
}
