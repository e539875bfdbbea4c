//! On a real Redis, also one that is killed: each event takes effect once.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use redis::{AsyncCommands as _, Pipeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use servers::{Redis, Stop};
use std::time::{Duration, Instant};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::*,
    projection::{Seen, State},
};
use throng_redis::{Mapping, RedisSink};

#[derive(Default, Serialize, Deserialize)]
struct Counter {
    hits: u64,
}
#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Hit,
}
#[derive(Serialize, Deserialize, JsonSchema)]
enum Happened {
    Hit,
}
impl Event for Happened {}
#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("never")]
struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}
impl Entity for Counter {
    const KIND: &'static str = "counter";
    type Id = String;
    type Command = Command;
    type Event = Happened;
    type Reply = u64;
    type Rejection = Never;
    fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
        turn.emit(Happened::Hit);
        Ok(Answer::after(|counter: &Counter| counter.hits))
    }
    fn evolve(&mut self, _: &Happened) {
        self.hits += 1;
    }
}

/// A count, which an event applied twice would show.
struct Hits;

impl Mapping for Hits {
    const NAME: &'static str = "hits";
    type Of = Counter;

    fn map(&self, seen: &Seen<Counter>, commands: &mut Pipeline) {
        commands.hincr("hits", &seen.id, 1);
    }
}

type Parts = (MemoryJournal, MemoryStore);

fn parts() -> Parts {
    let journal = MemoryJournal::new();
    (journal.clone(), MemoryStore::new(journal))
}

/// Its own offsets are in memory: each start delivers from the first event.
async fn engine(redis: &Redis, (journal, store): Parts) -> Engine {
    let sink = RedisSink::new(Hits, &redis.url()).unwrap();
    let builder = Engine::builder().with::<Counter>().sink(sink);
    builder.start(journal, store).await.unwrap()
}

async fn hit(engine: &Engine, times: u64) {
    for number in 0..times {
        let counter = (number % 3).to_string();
        engine.entity::<Counter>(counter).ask(Command::Hit).await.unwrap();
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{what}: not within two minutes"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All of it has been delivered.
async fn caught_up(engine: &Engine, events: u64) {
    until("the sink has caught up", || {
        let progress = &engine.projections()[0];
        progress.lag_commits == 0 && progress.events >= events
    })
    .await;
}

async fn counted(redis: &Redis) -> u64 {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let counts: Vec<u64> = connection.hvals("hits").await.unwrap();
    counts.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_delivered_again_change_nothing() {
    let (redis, parts) = (Redis::start().unwrap(), parts());
    let first = engine(&redis, parts.clone()).await;
    hit(&first, 300).await;
    caught_up(&first, 300).await;
    assert_eq!(counted(&redis).await, 300);
    assert!(first.rebuild_projection("hits"));
    caught_up(&first, 600).await;
    assert_eq!(counted(&redis).await, 300);
    first.stop().await;
    drop(first);
    let again = engine(&redis, parts).await;
    hit(&again, 30).await;
    caught_up(&again, 330).await;
    assert_eq!(counted(&redis).await, 330);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_killed_under_load_counts_every_event_once() {
    let (mut redis, engine_parts) = (Redis::start().unwrap(), parts());
    let engine = engine(&redis, engine_parts).await;
    for _ in 0..3 {
        hit(&engine, 300).await;
        redis.stop(Stop::Immediate);
        hit(&engine, 30).await;
        redis.resume().unwrap();
    }
    caught_up(&engine, 990).await;
    assert_eq!(counted(&redis).await, 990);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_history_is_not_mixed_with_what_redis_holds() {
    let redis = Redis::start().unwrap();
    let first = engine(&redis, parts()).await;
    hit(&first, 10).await;
    caught_up(&first, 10).await;
    first.stop().await;
    let other = engine(&redis, parts()).await;
    hit(&other, 10).await;
    let reason = || match &other.projections()[0].state {
        State::Stopped { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    until("it stops", || reason().is_some()).await;
    assert!(
        reason().unwrap().contains("another history"),
        "{reason:?}",
        reason = reason()
    );
    assert_eq!(counted(&redis).await, 10);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_has_lost_what_it_had_taken_is_noticed_and_filled_again_by_a_rebuild() {
    let redis = Redis::start().unwrap();
    let engine = engine(&redis, parts()).await;
    hit(&engine, 10).await;
    caught_up(&engine, 10).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    hit(&engine, 10).await;
    let has_lost =
        || matches!(&engine.projections()[0].state, State::Stopped { reason, .. } if reason.contains("has lost"));
    until("it stops", has_lost).await;
    assert!(engine.rebuild_projection("hits"));
    caught_up(&engine, 30).await;
    assert_eq!(counted(&redis).await, 20);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_redis_refuses_stops_the_sink_with_the_reason() {
    let redis = Redis::start().unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let () = connection.set("hits", "no hash").await.unwrap();
    let engine = engine(&redis, parts()).await;
    hit(&engine, 1).await;
    let reason = || match &engine.projections()[0].state {
        State::Stopped { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    until("it stops", || reason().is_some()).await;
    assert!(
        reason().unwrap().contains("WRONGTYPE") || reason().unwrap().contains("wrong kind"),
        "{:?}",
        reason()
    );
    engine.stop().await;
}
