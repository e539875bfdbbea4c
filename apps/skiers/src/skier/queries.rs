//! The queries of a skier.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query, View};

use super::{DayLift, Skier};
use crate::ride::{LiftRides, Refused, ResortDayId, vertical};

/// A day on the lifts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkiDay {
    /// The day of the season.
    pub day: u32,
    /// The number of rides. Identical ones count separately.
    pub rides: u64,
    /// The vertical of all rides.
    pub vertical: u64,
    /// The lifts ridden, in the order of their numbers.
    pub lifts: Vec<LiftRides>,
}

/// A season of a skier at a resort, day by day. It has only the days skied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkiSeason {
    /// The number of rides. Identical ones count separately.
    pub rides: u64,
    /// The vertical of all rides.
    pub vertical: u64,
    /// The days skied, in order.
    pub days: Vec<SkiDay>,
}

/// The totals of a skier's season at a resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeasonTotals {
    /// The resort's number.
    pub resort: u32,
    /// The season's year.
    pub season: u32,
    /// The number of days skied.
    pub days: u32,
    /// The number of rides. Identical ones count separately.
    pub rides: u64,
    /// The vertical of all rides.
    pub vertical: u64,
}

/// The query `view`: the totals of all seasons of a skier.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetSkier {}

/// The answer to [`GetSkier`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkierView {
    /// The totals, by resort and then by season.
    pub seasons: Vec<SeasonTotals>,
}

impl Query<Skier> for GetSkier {
    const NAME: &'static str = View::NAME;
    type Answer = SkierView;

    fn answer(self, skier: &Skier, _: &Moment<'_, Skier>) -> Result<SkierView, Refused> {
        Ok(skier.view())
    }
}

/// The query `season`: a season of a skier at a resort, day by day. Refused without a ride.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetSeason {
    /// The resort's number.
    pub resort: u32,
    /// The season's year.
    pub season: u32,
}

impl Query<Skier> for GetSeason {
    const NAME: &'static str = "season";
    type Answer = SkiSeason;

    fn answer(self, skier: &Skier, _: &Moment<'_, Skier>) -> Result<SkiSeason, Refused> {
        skier.season(self.resort, self.season).ok_or(Refused::NoData {})
    }
}

/// The query `day`: a day of a skier at a resort. Refused without a ride.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetDay {
    /// The resort's number.
    pub resort: u32,
    /// The season's year.
    pub season: u32,
    /// The day of the season.
    pub day: u32,
}

impl Query<Skier> for GetDay {
    const NAME: &'static str = "day";
    type Answer = SkiDay;

    fn answer(self, skier: &Skier, _: &Moment<'_, Skier>) -> Result<SkiDay, Refused> {
        let Self { resort, season, day } = self;
        skier.day(ResortDayId { resort, season, day }).ok_or(Refused::NoData {})
    }
}

impl Skier {
    /// Returns the totals of all seasons.
    pub(crate) fn view(&self) -> SkierView {
        let seasons = self.rides.all().chunk_by(|a, b| (a.0.0, a.0.1) == (b.0.0, b.0.1));
        let seasons = seasons.map(|rides| {
            let (resort, season, ..) = rides[0].0;
            SeasonTotals {
                resort,
                season,
                days: u32::try_from(by_day(rides).count()).unwrap_or(u32::MAX),
                rides: count(rides),
                vertical: vertical_of(rides),
            }
        });
        SkierView {
            seasons: seasons.collect(),
        }
    }

    /// Returns a season at a resort; `None` without a ride.
    pub(crate) fn season(&self, resort: u32, season: u32) -> Option<SkiSeason> {
        let all = (resort, season, 0, 0)..=(resort, season, u32::MAX, u32::MAX);
        let rides = self.rides.range(all);
        (!rides.is_empty()).then(|| SkiSeason {
            rides: count(rides),
            vertical: vertical_of(rides),
            days: by_day(rides).map(ski_day).collect(),
        })
    }

    /// Returns a day at a resort; `None` without a ride.
    pub(crate) fn day(&self, id: ResortDayId) -> Option<SkiDay> {
        let ResortDayId { resort, season, day } = id;
        let rides = self
            .rides
            .range((resort, season, day, 0)..=(resort, season, day, u32::MAX));
        (!rides.is_empty()).then(|| ski_day(rides))
    }
}

type Rides = [(DayLift, u64)];

fn by_day(rides: &Rides) -> impl Iterator<Item = &Rides> {
    rides.chunk_by(|a, b| a.0.2 == b.0.2)
}

/// Sums the rides of one day.
fn ski_day(rides: &Rides) -> SkiDay {
    SkiDay {
        day: rides.first().map_or(0, |((_, _, day, _), _)| *day),
        rides: count(rides),
        vertical: vertical_of(rides),
        lifts: rides
            .iter()
            .map(|((.., lift), rides)| LiftRides {
                lift: *lift,
                rides: *rides,
            })
            .collect(),
    }
}

fn count(rides: &Rides) -> u64 {
    rides.iter().map(|(_, rides)| rides).sum()
}

fn vertical_of(rides: &Rides) -> u64 {
    rides.iter().map(|((.., lift), rides)| vertical(*lift, *rides)).sum()
}
