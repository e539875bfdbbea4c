//! The read models from which queries are answered.

use throng::{
    Engine,
    model::{Entity, Error, Query},
};

use crate::{
    no_answer::NoAnswer,
    number::Number,
    resort::{GetResort, RESORTS_MAX, Resort, ResortView},
    resort_day::{GetResortDay, ResortDay, ResortDayView},
    ride::{Refused, ResortDayId},
    skier::{GetDay, GetSeason, GetSkier, SkiDay, SkiSeason, Skier, SkierView},
};

/// The source of answers.
pub(crate) enum Models {
    /// The entities in this process.
    Entities(Engine),
    /// The data that a consumer keeps in Redis.
    Redis(crate::broker::read_models::ReadModels),
}

impl Models {
    /// Returns all seasons of a skier.
    pub(crate) async fn skier(&self, skier: u32) -> Result<SkierView, NoAnswer> {
        match self {
            Self::Entities(engine) => read::<Skier, _>(engine, Number(skier), GetSkier {}).await,
            Self::Redis(redis) => Ok(redis.skier(skier).await?.view()),
        }
    }

    pub(crate) async fn season(&self, skier: u32, resort: u32, season: u32) -> Result<SkiSeason, NoAnswer> {
        match self {
            Self::Entities(engine) => read::<Skier, _>(engine, Number(skier), GetSeason { resort, season }).await,
            Self::Redis(redis) => redis
                .skier(skier)
                .await?
                .season(resort, season)
                .ok_or(NoAnswer::NotFound),
        }
    }

    pub(crate) async fn day(&self, skier: u32, id: ResortDayId) -> Result<SkiDay, NoAnswer> {
        match self {
            Self::Entities(engine) => {
                let ResortDayId { resort, season, day } = id;
                read::<Skier, _>(engine, Number(skier), GetDay { resort, season, day }).await
            }
            Self::Redis(redis) => redis.skier(skier).await?.day(id).ok_or(NoAnswer::NotFound),
        }
    }

    /// Returns a day of a resort. A day without a ride is empty, if the resort is known.
    pub(crate) async fn resort_day(&self, day: ResortDayId) -> Result<ResortDayView, NoAnswer> {
        let found = match self {
            Self::Entities(engine) => match read::<ResortDay, _>(engine, day, GetResortDay {}).await {
                Err(NoAnswer::NotFound) => None,
                answered => Some(answered?),
            },
            Self::Redis(redis) => redis.resort_day(day).await?,
        };
        match found {
            Some(found) => Ok(found),
            None => self.resort(day.resort).await.map(|_| ResortDayView::default()),
        }
    }

    pub(crate) async fn resort(&self, resort: u32) -> Result<ResortView, NoAnswer> {
        match self {
            Self::Entities(engine) => read::<Resort, _>(engine, Number(resort), GetResort {}).await,
            Self::Redis(redis) => redis.resort(resort).await,
        }
    }

    /// Returns the numbers of the resorts, in order.
    pub(crate) async fn resorts(&self) -> Result<Vec<u32>, NoAnswer> {
        match self {
            Self::Entities(engine) => resorts(engine).await,
            Self::Redis(redis) => redis.resorts().await,
        }
    }
}

async fn resorts(engine: &Engine) -> Result<Vec<u32>, NoAnswer> {
    let kind = engine.kind(Resort::KIND).ok_or(NoAnswer::NotFound)?;
    let heads = engine.entities(kind, None, RESORTS_MAX).await;
    // Listing asks no entity, so no entity can refuse it.
    let heads = heads.map_err(|error| match error.engine::<Refused>() {
        Ok(error) => NoAnswer::Failed(Box::new(error.into())),
        Err(_) => NoAnswer::NotFound,
    })?;
    let mut numbers: Vec<u32> = heads.iter().filter_map(|head| head.id.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

async fn read<E, Q>(engine: &Engine, id: E::Id, query: Q) -> Result<Q::Answer, NoAnswer>
where
    E: Entity<Rejection = Refused>,
    Q: Query<E>,
{
    engine.entity::<E>(id).read(query).await.map_err(|error| match error {
        Error::Unknown { .. } | Error::Rejected(Refused::NoData {}) => NoAnswer::NotFound,
        other => NoAnswer::Failed(Box::new(other.into())),
    })
}
