//! The time of day is changed while the engine runs.

use crate::kinds::{Account, Command, Ticks, World, ask, eventually, open};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};
use throng::{
    Engine,
    host::{Host, TokioHost},
    model::Timestamp,
};
use throng_testing::delegate;

const HOUR_MICROS: i64 = 3_600_000_000;

/// The real environment, with a settable time of day.
struct Settable {
    host: TokioHost,
    ahead_micros: AtomicI64,
}

impl Host for Settable {
    delegate!(Host, host: elapsed_micros entropy spawn sleep close);

    fn now(&self) -> Timestamp {
        let micros = self.host.now().micros + self.ahead_micros.load(SeqCst);
        Timestamp { micros }
    }
}

async fn started() -> (Engine, Arc<Settable>) {
    let (world, host) = (
        World::new(),
        Arc::new(Settable {
            host: TokioHost::new().unwrap(),
            ahead_micros: AtomicI64::new(0),
        }),
    );
    let engine = world.start(World::builder().host(host.clone())).await.unwrap();
    open(&engine, "a", 1).await;
    (engine, host)
}

async fn remind(engine: &Engine, in_ms: u64) {
    let remind = Command::remind(in_ms, None);
    ask(engine, "a", remind).await.unwrap();
}

async fn has_ticked(engine: &Engine) -> bool {
    engine.entity::<Account>("a").read(Ticks {}).await.unwrap() > 0
}

/// Returns the time of the last event.
async fn happened_at(engine: &Engine) -> i64 {
    ask(engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
    let history = engine.history(0, "a", 0, 1_000).await.unwrap();
    history.events.last().unwrap().at_micros
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_set_back_delays_no_timer() {
    let (engine, host) = started().await;
    let begun = happened_at(&engine).await;
    host.ahead_micros.store(HOUR_MICROS, SeqCst);
    // The engine has noticed the change.
    eventually(async || happened_at(&engine).await >= begun + HOUR_MICROS).await;
    host.ahead_micros.store(0, SeqCst);
    remind(&engine, 100).await;
    eventually(async || has_ticked(&engine).await).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_back_before_a_timer_is_due_does_not_delay_it() {
    let (engine, host) = started().await;
    remind(&engine, 500).await;
    host.ahead_micros.store(-HOUR_MICROS, SeqCst);
    eventually(async || has_ticked(&engine).await).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_fires_soon_after_the_clock_was_set_beyond_it() {
    let (engine, host) = started().await;
    remind(&engine, 1_800_000).await;
    host.ahead_micros.store(HOUR_MICROS, SeqCst);
    eventually(async || has_ticked(&engine).await).await;
    engine.stop().await;
}
