//! The read models in Redis, and a server's answers from them.
//!
//! | key | holds |
//! |---|---|
//! | `skier:7` | a hash: rides by `resort:season:day:lift` |
//! | `day:56:2022:12` | a hash: rides by `lift:21` and by `hour:0` |
//! | `day:56:2022:12:skiers` | a set: the skiers |
//! | `resort:56` | a sorted set: the seasons |
//! | `resorts` | a sorted set: the resorts |
//!
//! The first three belong to `ride-counts`, the others to `resort-seasons`. For each of these names, `throng:NAME:1` holds the progress, and
//! `throng:NAME:1:filling` exists while the read model is incomplete.

use std::collections::HashMap;
use throng::{model::Error, projection::DurableEvent, services::health::Health};
use throng_breaker::Breaker;
use throng_http::Problem;
use throng_redis::{
    Outbound, ReadError, ReadModel, Reader, Watch,
    redis::{self, Cmd, FromRedisValue, Pipeline},
};

use crate::{
    no_answer::NoAnswer,
    resort::{RESORTS_MAX, Resort, ResortEvent, ResortView},
    resort_day::ResortDayView,
    ride::{HOURS, LiftRides, Refused, ResortDayId, hour},
    skier::{Skier, SkierEvent},
};

const RESORTS: &str = "resorts";

fn skier_key(skier: u32) -> String {
    format!("skier:{skier}")
}

fn day_key(day: ResortDayId) -> String {
    format!("day:{day}")
}

fn day_skiers_key(day: ResortDayId) -> String {
    format!("day:{day}:skiers")
}

fn resort_key(resort: u32) -> String {
    format!("resort:{resort}")
}

/// Counts every ride for its skier and for its resort's day.
#[derive(Clone, Copy, Debug, Default)]
pub struct RideCounts;

/// True for the keys of [`RideCounts`].
pub(crate) fn owns_ride_key(key: &str) -> bool {
    key.starts_with("skier:") || key.starts_with("day:")
}

impl Outbound for RideCounts {
    const NAME: &'static str = "ride-counts";
    type Of = Skier;
    type Item = Vec<Cmd>;

    fn map(&self, seen: &DurableEvent<Skier>) -> Option<Vec<Cmd>> {
        let SkierEvent::Rode(ride) = seen.event;
        let (skier, day) = (seen.id.0, ride.resort_day());
        Some(vec![
            Cmd::hincr(skier_key(skier), format!("{day}:{}", ride.lift), 1),
            Cmd::hincr(day_key(day), format!("lift:{}", ride.lift), 1),
            Cmd::hincr(day_key(day), format!("hour:{}", hour(ride.time)), 1),
            Cmd::sadd(day_skiers_key(day), skier),
        ])
    }
}

/// The seasons of each resort.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResortSeasons;

/// True for the keys of [`ResortSeasons`].
pub(crate) fn owns_resort_key(key: &str) -> bool {
    key == RESORTS || key.starts_with("resort:")
}

impl Outbound for ResortSeasons {
    const NAME: &'static str = "resort-seasons";
    type Of = Resort;
    type Item = Vec<Cmd>;

    fn map(&self, seen: &DurableEvent<Resort>) -> Option<Vec<Cmd>> {
        let (resort, ResortEvent::SeasonAdded { season }) = (seen.id.0, seen.event);
        Some(vec![
            Cmd::zadd(resort_key(resort), season, season),
            Cmd::zadd(RESORTS, resort, resort),
        ])
    }
}

/// Both read models, for a server without a journal.
#[derive(Clone, Debug)]
pub(crate) struct ReadModels {
    reader: Reader,
}

impl ReadModels {
    pub(crate) fn new(url: &str, breaker: Breaker) -> Result<Self, throng_redis::Error> {
        Ok(Self {
            reader: Reader::new(url, breaker)?,
        })
    }

    /// Adds the state of the read models to a service's health checks.
    pub(crate) fn watch(&self, health: &Health) -> Result<Watch, throng_redis::Error> {
        let models = [ReadModel::of::<RideCounts>(), ReadModel::of::<ResortSeasons>()];
        self.reader.watch(health, models)
    }

    /// Returns the skier, rebuilt from the rides in Redis. Queries then run the same code as with entities.
    pub(crate) async fn skier(&self, skier: u32) -> Result<Skier, NoAnswer> {
        let mut commands = redis::pipe();
        commands.hgetall(skier_key(skier));
        let (rides,): (HashMap<String, u64>,) = self.ask::<RideCounts, _>(&commands).await?;
        if rides.is_empty() {
            return Err(NoAnswer::NotFound);
        }
        rides
            .iter()
            .map(|(field, rides)| Some((numbers::<4>(field)?.into(), *rides)))
            .collect::<Option<Skier>>()
            .ok_or_else(|| strange(&skier_key(skier)))
    }

    /// Returns a day of a resort; `None` without a ride.
    pub(crate) async fn resort_day(&self, day: ResortDayId) -> Result<Option<ResortDayView>, NoAnswer> {
        let mut commands = redis::pipe();
        // Not a transaction: a full Redis refuses transactions but still answers reads.
        commands.hgetall(day_key(day)).scard(day_skiers_key(day));
        let (counts, skiers): (HashMap<String, u64>, u64) = self.ask::<RideCounts, _>(&commands).await?;
        if counts.is_empty() {
            return Ok(None);
        }
        let mut view = ResortDayView {
            skiers,
            ..ResortDayView::default()
        };
        for (field, rides) in counts {
            let known = match field.split_once(':') {
                Some(("lift", lift)) => lift.parse().ok().map(|lift| view.lifts.push(LiftRides { lift, rides })),
                Some(("hour", hour)) => hour_of(&mut view.hours, hour).map(|hour| *hour = rides),
                _ => None,
            };
            known.ok_or_else(|| strange(&day_key(day)))?;
        }
        view.lifts.sort_unstable_by_key(|of| of.lift);
        view.rides = view.hours.iter().sum();
        Ok(Some(view))
    }

    pub(crate) async fn resort(&self, resort: u32) -> Result<ResortView, NoAnswer> {
        let mut commands = redis::pipe();
        commands.zrange(resort_key(resort), 0, -1);
        let (seasons,): (Vec<u32>,) = self.ask::<ResortSeasons, _>(&commands).await?;
        match seasons.is_empty() {
            true => Err(NoAnswer::NotFound),
            false => Ok(ResortView { seasons }),
        }
    }

    /// Returns the numbers of the resorts, in order.
    pub(crate) async fn resorts(&self) -> Result<Vec<u32>, NoAnswer> {
        let mut commands = redis::pipe();
        commands.zrange(RESORTS, 0, RESORTS_MAX as isize - 1);
        let (resorts,) = self.ask::<ResortSeasons, _>(&commands).await?;
        Ok(resorts)
    }

    async fn ask<O: Outbound, T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, NoAnswer> {
        self.reader.ask_complete::<O, T>(commands).await.map_err(|error| {
            let reason = error.to_string();
            let problem = Problem::from(Error::<Refused>::Unavailable { reason });
            NoAnswer::Failed(Box::new(match error {
                ReadError::Unavailable { retry_after, .. } => problem.retry_after(retry_after),
                ReadError::Incomplete { .. } | ReadError::Refused(_) => problem,
            }))
        })
    }
}

fn hour_of<'a>(hours: &'a mut [u64; HOURS], number: &str) -> Option<&'a mut u64> {
    hours.get_mut(number.parse::<usize>().ok()?)
}

/// Parses the numbers of a text like `56:2022:12:21`.
fn numbers<const COUNT: usize>(text: &str) -> Option<[u32; COUNT]> {
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

fn strange(key: &str) -> NoAnswer {
    let reason = format!("the key {key:?} in Redis holds what this service has not written");
    NoAnswer::Failed(Box::new(Error::<Refused>::Unavailable { reason }.into()))
}
