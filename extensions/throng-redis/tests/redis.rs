//! The sink on a real Redis, sometimes killed: each event takes effect once.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use redis::{AsyncCommands as _, Cmd, aio::MultiplexedConnection};
use servers::{Redis, Stop};
use std::{sync::Arc, time::Duration};
use throng::services::health::{Health, Status};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore, MemoryViews},
    projection::{DurableEvent, ProjectionState},
};
use throng_breaker::{Breaker, Settings};
use throng_redis::{Egress, Outbound, ReadError, ReadModel, Reader, RedisTarget};
use throng_testing::{
    eventually,
    fixtures::{Command, Counter},
};

/// A sink that counts, because a count shows an event applied twice.
struct Hits;

impl Outbound for Hits {
    const NAME: &'static str = "hits";
    type Of = Counter;
    type Item = Vec<Cmd>;

    fn map(&self, seen: &DurableEvent<Counter>) -> Option<Vec<Cmd>> {
        Some(vec![Cmd::hincr("hits", &seen.id, 1)])
    }
}

fn target(redis: &Redis) -> RedisTarget {
    RedisTarget::new(ReadModel::of::<Hits>(), |key| key == "hits", &redis.url()).unwrap()
}

type Parts = (MemoryJournal, MemoryStore);

fn parts() -> Parts {
    let journal = MemoryJournal::new();
    (journal.clone(), MemoryStore::new(journal))
}

/// Starts an engine whose offsets are in memory, so each start delivers from the first event.
async fn engine(redis: &Redis, parts: Parts) -> Engine {
    engine_over(redis, parts, &MemoryViews::new()).await
}

async fn engine_over(redis: &Redis, (journal, store): Parts, views: &MemoryViews) -> Engine {
    let sink = Egress::new(Hits, target(redis));
    let builder = Engine::builder().with::<Counter>().sink(sink);
    let builder = builder.views(Arc::new(views.clone()));
    builder.start(journal, store).await.unwrap()
}

async fn connect(redis: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn flush(connection: &mut MultiplexedConnection) {
    let () = redis::cmd("FLUSHALL").query_async(connection).await.unwrap();
}

/// Waits until Redis has counted this many hits. Checks that there are no more.
async fn filled(redis: &Redis, hits: u64) {
    let reader = Reader::new(&redis.url(), Breaker::new("redis", Settings::default())).unwrap();
    let mut commands = redis::pipe();
    commands.hvals("hits");
    eventually(&format!("Redis has counted {hits} hits"), async || {
        let answer = reader.ask_complete::<Hits, (Vec<u64>,)>(&commands).await;
        answer.is_ok_and(|(counts,)| counts.iter().sum::<u64>() == hits)
    })
    .await;
}

/// Waits until the sink has stopped. Returns the reason.
async fn stopped(engine: &Engine) -> String {
    let reason = || match &engine.projections()[0].state {
        ProjectionState::Stopped { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    eventually("it stops", async || reason().is_some()).await;
    reason().unwrap()
}

async fn hit(engine: &Engine, times: u64) {
    for number in 0..times {
        let counter = (number % 3).to_string();
        engine.entity::<Counter>(counter).ask(Command::Hit {}).await.unwrap();
    }
}

/// Waits until all events are delivered.
async fn caught_up(engine: &Engine, events: u64) {
    eventually("the sink has caught up", async || {
        let progress = &engine.projections()[0];
        progress.lag_commits == 0 && progress.events >= events
    })
    .await;
}

async fn counted(redis: &Redis) -> u64 {
    let mut connection = connect(redis).await;
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
async fn another_history_is_not_mixed_into_redis() {
    let redis = Redis::start().unwrap();
    let first = engine(&redis, parts()).await;
    hit(&first, 10).await;
    caught_up(&first, 10).await;
    first.stop().await;
    let other = engine(&redis, parts()).await;
    hit(&other, 10).await;
    let reason = stopped(&other).await;
    assert!(reason.contains("another history"), "{reason}");
    assert_eq!(counted(&redis).await, 10);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_loses_its_data_is_filled_again_while_idle() {
    let redis = Redis::start().unwrap();
    let engine = engine(&redis, parts()).await;
    hit(&engine, 10).await;
    filled(&redis, 10).await;
    let mut connection = connect(&redis).await;
    flush(&mut connection).await;
    // No new event reveals the loss.
    filled(&redis, 10).await;
    flush(&mut connection).await;
    hit(&engine, 10).await;
    filled(&redis, 20).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_lost_data_beside_a_restart_is_filled_again() {
    const PLACE: &str = "throng:hits:1";
    for losing in ["the newest", "all", "the place"] {
        let (redis, parts, views) = (Redis::start().unwrap(), parts(), MemoryViews::new());
        let engine = engine_over(&redis, parts.clone(), &views).await;
        hit(&engine, 10).await;
        filled(&redis, 10).await;
        let mut connection = connect(&redis).await;
        let copy: (String, Vec<(String, u64)>) = redis::pipe()
            .get(PLACE)
            .hgetall("hits")
            .query_async(&mut connection)
            .await
            .unwrap();
        hit(&engine, 10).await;
        filled(&redis, 20).await;
        engine.stop().await;
        drop(engine);
        match losing {
            "the newest" => {
                let mut restore = redis::pipe();
                restore.set(PLACE, &copy.0).hset_multiple("hits", &copy.1);
                let () = restore.query_async(&mut connection).await.unwrap();
            }
            "all" => flush(&mut connection).await,
            _ => {
                let () = connection.del(PLACE).await.unwrap();
            }
        }
        let engine = engine_over(&redis, parts, &views).await;
        filled(&redis, 20).await;
        hit(&engine, 1).await;
        filled(&redis, 21).await;
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_removes_its_own_keys_and_nothing_else() {
    let redis = Redis::start().unwrap();
    let engine = engine(&redis, parts()).await;
    hit(&engine, 10).await;
    filled(&redis, 10).await;
    let mut connection = connect(&redis).await;
    let mut harm = redis::pipe();
    harm.hincr("hits", "nobody", 5).set("another's", 1);
    let () = harm.query_async(&mut connection).await.unwrap();
    assert!(engine.rebuild_projection("hits"));
    filled(&redis, 10).await;
    let left: u64 = connection.get("another's").await.unwrap();
    assert_eq!(left, 1);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_unknown_origin_stop_the_sink_until_a_rebuild() {
    let redis = Redis::start().unwrap();
    let mut connection = connect(&redis).await;
    let () = connection.hset("hits", "0", 7).await.unwrap();
    let engine = engine(&redis, parts()).await;
    hit(&engine, 3).await;
    let reason = stopped(&engine).await;
    assert!(reason.contains("\"hits\"") && reason.contains("rebuilt"), "{reason}");
    assert_eq!(counted(&redis).await, 7);
    assert!(engine.rebuild_projection("hits"));
    filled(&redis, 3).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_refuses_an_incomplete_read_model() {
    let redis = Redis::start().unwrap();
    let mut connection = connect(&redis).await;
    let reader = Reader::new(&redis.url(), Breaker::new("redis", Settings::default())).unwrap();
    let mut commands = redis::pipe();
    commands.hget("hits", "0");
    let ask = async || reader.ask_complete::<Hits, (Option<u64>,)>(&commands).await;
    let is_refused = |answer| matches!(answer, Err(ReadError::Incomplete { name: "hits" }));
    assert!(is_refused(ask().await), "nothing was written yet");
    let engine = engine(&redis, parts()).await;
    filled(&redis, 0).await;
    hit(&engine, 1).await;
    filled(&redis, 1).await;
    assert_eq!(ask().await.unwrap(), (Some(1),));
    let () = connection.set("throng:hits:1:filling", "").await.unwrap();
    assert!(is_refused(ask().await), "it is being written");
    flush(&mut connection).await;
    assert!(is_refused(ask().await), "it was lost");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_redis_refuses_stops_the_sink_with_the_reason() {
    let redis = Redis::start().unwrap();
    let engine = engine(&redis, parts()).await;
    filled(&redis, 0).await;
    let () = connect(&redis).await.set("hits", "no hash").await.unwrap();
    hit(&engine, 1).await;
    let reason = stopped(&engine).await;
    assert!(
        reason.contains("WRONGTYPE") || reason.contains("wrong kind"),
        "{reason}"
    );
    engine.stop().await;
}

/// Returns a breaker that the first failure opens for good.
fn wary() -> Breaker {
    let settings = Settings {
        calls_min: 1,
        pause_first: Duration::from_secs(3_600),
        pause_max: Duration::from_secs(3_600),
        ..Settings::default()
    };
    Breaker::new("redis", settings)
}

async fn set_memory_max(redis: &Redis, bytes: &str) {
    let mut set = redis::cmd("CONFIG");
    let () = set
        .arg(&["SET", "maxmemory", bytes])
        .query_async(&mut connect(redis).await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_redis_answers_and_opens_no_breaker() {
    let redis = Redis::start().unwrap();
    let (journal, store) = parts();
    let breaker = wary();
    let sink = Egress::new(Hits, target(&redis).with_breaker(breaker.clone()));
    let builder = Engine::builder().with::<Counter>().sink(sink);
    let engine = builder.start(journal, store).await.unwrap();
    hit(&engine, 1).await;
    filled(&redis, 1).await;
    set_memory_max(&redis, "1").await;
    hit(&engine, 1).await;
    eventually("the sink tries again", async || {
        matches!(engine.projections()[0].state, ProjectionState::Retrying { .. })
    })
    .await;
    assert_eq!(breaker.state(), throng_breaker::CircuitState::Closed, "of the sink");
    let breaker = wary();
    let reader = Reader::new(&redis.url(), breaker.clone()).unwrap();
    let mut commands = redis::pipe();
    commands.hget("hits", "0");
    let ask = async |commands: &redis::Pipeline| reader.ask::<(u64,)>(commands).await;
    assert_eq!(ask(&commands).await.unwrap(), (1,));
    let mut transaction = commands.clone();
    let refused = ask(transaction.atomic()).await;
    assert!(matches!(refused, Err(ReadError::Unavailable { .. })), "{refused:?}");
    assert_eq!(breaker.state(), throng_breaker::CircuitState::Closed, "of the reader");
    assert_eq!(ask(&commands).await.unwrap(), (1,));
    set_memory_max(&redis, "0").await;
    filled(&redis, 2).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_warns_of_a_read_model_that_is_not_complete() {
    let (mut redis, parts) = (Redis::start().unwrap(), parts());
    redis.stop(Stop::Immediate);
    let reader = Reader::new(&redis.url(), Breaker::new("redis", Settings::default())).unwrap();
    let health = Health::new();
    let watch = reader.watch(&health, [ReadModel::of::<Hits>()]).unwrap();
    let is = |status, part: &str| {
        let check = &health.checks()[0];
        check.name == "read model hits" && check.status == status && check.reason.to_string().contains(part)
    };
    eventually("it fails", async || is(Status::Fail, "not available")).await;
    redis.resume().unwrap();
    eventually("nothing was written", async || is(Status::Warn, "not complete")).await;
    let engine = engine(&redis, parts).await;
    eventually("it is complete", async || is(Status::Pass, "")).await;
    engine.stop().await;
    flush(&mut connect(&redis).await).await;
    eventually("it is empty", async || is(Status::Warn, "not complete")).await;
    redis.stop(Stop::Immediate);
    eventually("Redis is gone", async || is(Status::Warn, "not available")).await;
    drop(watch);
}
