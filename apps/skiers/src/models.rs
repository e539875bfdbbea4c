//! The read models: what the queries are answered from.

use throng::{
    Engine,
    model::{Entity, Error, Query},
};
use throng_http::Problem;

use crate::{
    number::Number,
    resort::{GetResort, Resort, ResortView},
    resort_day::{GetResortDay, ResortDay, ResortDayView},
    ride::{Refused, ResortDayId},
    skier::{GetDay, GetSeason, GetSkier, SkiDay, SkiSeason, Skier, SkierView},
};

/// Most resorts that are listed.
pub(crate) const RESORTS_MAX: usize = 10_000;

/// Why a query has no answer.
pub(crate) enum NoAnswer {
    /// There is nothing of the kind.
    NotFound,
    /// It cannot be told now.
    Failed(Box<Problem>),
}

/// The entities, asked where they are.
#[derive(Clone)]
pub(crate) struct Models {
    engine: Engine,
}

impl Models {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// All seasons of a skier.
    pub(crate) async fn skier(&self, skier: u32) -> Result<SkierView, NoAnswer> {
        self.read::<Skier, _>(Number(skier), GetSkier {}).await
    }

    /// A season of a skier at a resort.
    pub(crate) async fn season(&self, skier: u32, resort: u32, season: u32) -> Result<SkiSeason, NoAnswer> {
        let query = GetSeason { resort, season };
        self.read::<Skier, _>(Number(skier), query).await
    }

    /// A day of a skier at a resort.
    pub(crate) async fn day(&self, skier: u32, day: ResortDayId) -> Result<SkiDay, NoAnswer> {
        let ResortDayId { resort, season, day } = day;
        let query = GetDay { resort, season, day };
        self.read::<Skier, _>(Number(skier), query).await
    }

    /// A day of a resort. One without a ride is empty, if the resort is known.
    pub(crate) async fn resort_day(&self, day: ResortDayId) -> Result<ResortDayView, NoAnswer> {
        match self.read::<ResortDay, _>(day, GetResortDay {}).await {
            Err(NoAnswer::NotFound) => self.resort(day.resort).await.map(|_| ResortDayView::default()),
            answered => answered,
        }
    }

    /// A resort's seasons.
    pub(crate) async fn resort(&self, resort: u32) -> Result<ResortView, NoAnswer> {
        self.read::<Resort, _>(Number(resort), GetResort {}).await
    }

    /// The numbers of the resorts, in order.
    pub(crate) async fn resorts(&self) -> Result<Vec<u32>, NoAnswer> {
        let kind = self.engine.kind(Resort::KIND).ok_or(NoAnswer::NotFound)?;
        let heads = self.engine.entities(kind, None, RESORTS_MAX).await;
        // A list is refused by no entity.
        let heads = heads.map_err(|error| match error.engine::<Refused>() {
            Ok(error) => NoAnswer::Failed(Box::new(error.into())),
            Err(_) => NoAnswer::NotFound,
        })?;
        let mut numbers: Vec<u32> = heads.iter().filter_map(|head| head.id.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn read<E, Q>(&self, id: E::Id, query: Q) -> Result<Q::Answer, NoAnswer>
    where
        E: Entity<Rejection = Refused>,
        Q: Query<E>,
    {
        self.engine
            .entity::<E>(id)
            .read(query)
            .await
            .map_err(|error| match error {
                Error::Unknown { .. } | Error::Rejected(Refused::NoData {}) => NoAnswer::NotFound,
                other => NoAnswer::Failed(Box::new(other.into())),
            })
    }
}
