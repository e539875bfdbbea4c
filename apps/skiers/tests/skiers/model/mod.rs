//! A model that computes the expected answers: plain lists, searched for each query.

use skiers::{
    resort_day::ResortDayView,
    ride::{LiftRides, ResortDayId, Ride},
    skier::{SeasonTotals, SkiDay, SkiSeason},
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rides: Vec<(u32, Ride)>,
}

impl Model {
    pub fn add(&mut self, skier: u32, ride: Ride) {
        self.rides.push((skier, ride));
    }

    pub fn skiers(&self) -> BTreeSet<u32> {
        self.rides.iter().map(|(skier, _)| *skier).collect()
    }

    pub fn days(&self) -> BTreeSet<ResortDayId> {
        self.rides.iter().map(|(_, ride)| ride.resort_day()).collect()
    }

    pub fn resort_day(&self, day: ResortDayId) -> ResortDayView {
        let rides = || self.rides.iter().filter(|(_, ride)| ride.resort_day() == day);
        let mut hours = [0; 7];
        rides().for_each(|(_, ride)| hours[(ride.time as usize - 1) / 60] += 1);
        ResortDayView {
            skiers: rides().map(|(skier, _)| skier).collect::<BTreeSet<_>>().len() as u64,
            rides: rides().count() as u64,
            lifts: lifts(rides().map(|(_, ride)| ride)),
            hours,
        }
    }

    pub fn day(&self, skier: u32, day: ResortDayId) -> Option<SkiDay> {
        let rides = || self.of(skier).filter(|ride| ride.resort_day() == day);
        (rides().count() > 0).then(|| SkiDay {
            day: day.day,
            rides: rides().count() as u64,
            vertical: rides().map(|ride| u64::from(ride.lift) * 10).sum(),
            lifts: lifts(rides()),
        })
    }

    pub fn season(&self, skier: u32, resort: u32, season: u32) -> Option<SkiSeason> {
        let of_season = self
            .days()
            .into_iter()
            .filter(|day| (day.resort, day.season) == (resort, season));
        let days: Vec<SkiDay> = of_season.filter_map(|day| self.day(skier, day)).collect();
        (!days.is_empty()).then(|| SkiSeason {
            rides: days.iter().map(|day| day.rides).sum(),
            vertical: days.iter().map(|day| day.vertical).sum(),
            days,
        })
    }

    pub fn totals(&self, skier: u32) -> Vec<SeasonTotals> {
        let seasons: BTreeSet<_> = self.days().into_iter().map(|day| (day.resort, day.season)).collect();
        let totals = |(resort, season)| {
            let SkiSeason { rides, vertical, days } = self.season(skier, resort, season)?;
            Some(SeasonTotals {
                resort,
                season,
                days: days.len() as u32,
                rides,
                vertical,
            })
        };
        seasons.into_iter().filter_map(totals).collect()
    }

    fn of(&self, skier: u32) -> impl Iterator<Item = &Ride> {
        self.rides
            .iter()
            .filter(move |(of, _)| *of == skier)
            .map(|(_, ride)| ride)
    }
}

fn lifts<'a>(rides: impl Iterator<Item = &'a Ride>) -> Vec<LiftRides> {
    let mut lifts = BTreeMap::new();
    rides.for_each(|ride| *lifts.entry(ride.lift).or_insert(0) += 1);
    lifts
        .into_iter()
        .map(|(lift, rides)| LiftRides { lift, rides })
        .collect()
}
