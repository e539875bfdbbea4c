//! Read models in Redis: written by a sink of who consumes the rides, read by who answers queries.
//!
//! | key | is |
//! |---|---|
//! | `rides:skier:{skier}` | a hash: rides by `{resort}:{season}:{day}:{lift}` |
//! | `rides:day:{resort}:{season}:{day}:skiers` | a set: the skiers of that day |
//! | `rides:day:{resort}:{season}:{day}:lifts` | a hash: rides by lift |
//! | `rides:day:{resort}:{season}:{day}:hours` | a hash: rides by hour of the ski day, from 0 |
//! | `rides:resorts` | a set: the resorts with rides |
//!
//! Counts, not sets of rides: equal rides are counted as often as they were ridden.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use throng::projection::Seen;
use throng_breaker::Breaker;
use throng_http::Problem;
use throng_redis::{
    Mapping,
    redis::{AsyncCommands as _, AsyncConnectionConfig, Client, Pipeline, RedisError, aio::MultiplexedConnection, pipe},
};

use crate::{
    models::NoAnswer,
    resort_day::ResortDayView,
    ride::{HOURS, ResortDayId, hour},
    skier::{LiftRides, Skier, SkierEvent},
};

const RESORTS: &str = "rides:resorts";
/// How long Redis may take to let us in, and to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Counts every ride in Redis: the mapping of a [`RedisSink`](throng_redis::RedisSink).
#[derive(Clone, Copy, Debug, Default)]
pub struct RidesInRedis;

impl Mapping for RidesInRedis {
    const NAME: &'static str = "rides-in-redis";
    type Of = Skier;

    fn map(&self, seen: &Seen<Skier>, commands: &mut Pipeline) {
        let SkierEvent::Rode(ride) = seen.event;
        let day = ride.resort_day();
        commands.hincr(skier_key(&seen.id), format!("{day}:{}", ride.lift), 1);
        commands.sadd(day_key(day, "skiers"), seen.id.to_string());
        commands.hincr(day_key(day, "lifts"), ride.lift, 1);
        commands.hincr(day_key(day, "hours"), hour(ride.time), 1);
        commands.sadd(RESORTS, ride.resort);
    }
}

fn skier_key(skier: impl fmt::Display) -> String {
    format!("rides:skier:{skier}")
}

fn day_key(day: ResortDayId, what: &str) -> String {
    format!("rides:day:{day}:{what}")
}

/// What is asked of Redis.
#[derive(Clone)]
pub(crate) struct RedisModels {
    client: Client,
    /// The connection all share; none before the first question and after one that failed.
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    breaker: Breaker,
}

impl RedisModels {
    /// Of the Redis at this URL, which is connected to when it is first asked.
    pub(crate) fn new(url: &str, breaker: Breaker) -> Result<Self, RedisError> {
        Ok(Self {
            client: Client::open(url)?,
            connection: Arc::default(),
            breaker,
        })
    }

    /// A skier, as far as its rides are counted.
    pub(crate) async fn skier(&self, skier: u32) -> Result<Skier, NoAnswer> {
        let counts: Vec<(String, u64)> = self
            .ask(async |connection| connection.hgetall(skier_key(skier)).await)
            .await?;
        if counts.is_empty() {
            return Err(NoAnswer::NotFound);
        }
        Ok(Skier::of_counts(counts.iter().filter_map(|(field, count)| {
            let (day, lift) = field.rsplit_once(':')?;
            Some((day.parse().ok()?, lift.parse().ok()?, *count))
        })))
    }

    /// A day of a resort. One without a ride is empty, if the resort is known.
    pub(crate) async fn resort_day(&self, day: ResortDayId) -> Result<ResortDayView, NoAnswer> {
        type Found = (u64, Vec<(u32, u64)>, Vec<(usize, u64)>, bool);
        let (skiers, mut lifts, by_hour, is_known): Found = self
            .ask(async |connection| {
                pipe()
                    .scard(day_key(day, "skiers"))
                    .hgetall(day_key(day, "lifts"))
                    .hgetall(day_key(day, "hours"))
                    .sismember(RESORTS, day.resort)
                    .query_async(connection)
                    .await
            })
            .await?;
        if !is_known {
            return Err(NoAnswer::NotFound);
        }
        lifts.sort_unstable();
        let mut hours = [0; HOURS];
        for (hour, rides) in by_hour {
            if let Some(of) = hours.get_mut(hour) {
                *of = rides;
            }
        }
        Ok(ResortDayView {
            skiers,
            rides: hours.iter().sum(),
            lifts: lifts.into_iter().map(|(lift, rides)| LiftRides { lift, rides }).collect(),
            hours,
        })
    }

    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, NoAnswer> {
        let call = self
            .breaker
            .enter()
            .map_err(|refused| unavailable("it was just down", refused.retry_after))?;
        let answered = async {
            let mut connection = self.connection().await?;
            question(&mut connection).await
        };
        match answered.await {
            Ok(answer) => {
                call.succeeded();
                Ok(answer)
            }
            Err(error) => {
                call.failed();
                *self.shared() = None;
                Err(unavailable(&error.to_string(), ANSWER_MAX))
            }
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = self.shared().clone() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *self.shared() = Some(connection.clone());
        Ok(connection)
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(why: &str, pause: Duration) -> NoAnswer {
    let detail = format!("The read models in Redis cannot be asked: {why}.");
    let problem = Problem::new("unavailable", 503, "Unavailable", detail).retry_after(pause);
    NoAnswer::Failed(Box::new(problem))
}
