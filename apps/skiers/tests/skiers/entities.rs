//! Tests of skiers and resorts' days against a model that keeps every ride.

use crate::model::Model;
use proptest::prelude::*;
use skiers::{
    number::Number,
    resort::{GetResort, Resort, ResortCommand},
    resort_day::{GetResortDay, ResortDay, ResortDayCommand},
    ride::{Refused, ResortDayId, Ride},
    skier::{GetDay, GetSeason, GetSkier, Skier, SkierCommand},
};
use std::collections::BTreeMap;
use throng::{
    Subject,
    model::{Asker, Entity, Moment, Query, Timestamp},
};

#[derive(Default)]
struct World {
    skiers: BTreeMap<u32, Subject<Skier>>,
    days: BTreeMap<ResortDayId, Subject<ResortDay>>,
    resorts: BTreeMap<u32, Subject<Resort>>,
}

impl World {
    /// Makes a skier ride, and delivers the messages sent.
    fn ride(&mut self, skier: u32, ride: Ride) -> Result<(), Refused> {
        let of = self
            .skiers
            .entry(skier)
            .or_insert_with(|| Subject::given(Number(skier), []));
        let done = match of.when(SkierCommand::Ride(ride)) {
            Ok(done) => done,
            Err(throng::model::Error::Rejected(refused)) => return Err(refused),
            Err(other) => panic!("{other}"),
        };
        for (id, command) in done.sent::<ResortDay>() {
            self.count(id.parse().unwrap(), *command);
        }
        Ok(())
    }

    fn count(&mut self, id: ResortDayId, command: ResortDayCommand) {
        let day = self.days.entry(id).or_insert_with(|| Subject::given(id, []));
        let done = day.when(command).unwrap_or_else(|error| panic!("{error}"));
        for (resort, command) in done.sent::<Resort>() {
            let id: Number = resort.parse().unwrap();
            let resort = self.resorts.entry(id.0).or_insert_with(|| Subject::given(id, []));
            drop(resort.when(*command).unwrap_or_else(|error| panic!("{error}")));
        }
    }
}

fn read<E: Entity, Q: Query<E>>(subject: &Subject<E>, query: Q) -> Result<Q::Answer, E::Rejection> {
    let moment = Moment {
        id: &subject.id,
        seq: subject.seq,
        now: Timestamp::default(),
        from: Asker::Client(None),
        family: None,
    };
    // The stored state gives the same answers.
    let stored: E = serde_json::from_slice(&serde_json::to_vec(&subject.state).unwrap()).unwrap();
    query.answer(&stored, &moment)
}

fn rides() -> impl Strategy<Value = Vec<(u32, Ride)>> {
    let ride =
        (1..4_u32, 2021..2023_u32, 1..4_u32, 1..=420_u32, 1..6_u32).prop_map(|(resort, season, day, time, lift)| {
            Ride {
                resort,
                season,
                day,
                time,
                lift,
                wait: None,
            }
        });
    // Equal rides are frequent.
    let rides = proptest::collection::vec(((1..5_u32, ride), 1..3_usize), 0..60);
    rides.prop_map(|rides| rides.into_iter().flat_map(|(ride, times)| vec![ride; times]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_query_sums_the_rides_and_counts_equal_rides_twice(rides in rides()) {
        let (mut world, mut model) = (World::default(), Model::default());
        for (skier, ride) in rides {
            prop_assert_eq!(world.ride(skier, ride), Ok(()));
            model.add(skier, ride);
        }
        prop_assert!(world.skiers.keys().copied().eq(model.skiers()));
        prop_assert!(world.days.keys().copied().eq(model.days()));
        for (id, day) in &world.days {
            prop_assert_eq!(read(day, GetResortDay {}).unwrap(), model.resort_day(*id));
            let seasons = read(&world.resorts[&id.resort], GetResort {}).unwrap().seasons;
            prop_assert!(seasons.contains(&id.season));
        }
        for (number, skier) in &world.skiers {
            prop_assert_eq!(read(skier, GetSkier {}).unwrap().seasons, model.totals(*number));
            for resort in 1..4 {
                for season in 2021..2023 {
                    let found = read(skier, GetSeason { resort, season }).ok();
                    prop_assert_eq!(found, model.season(*number, resort, season));
                    for day in 1..4 {
                        let found = read(skier, GetDay { resort, season, day }).ok();
                        prop_assert_eq!(found, model.day(*number, ResortDayId { resort, season, day }));
                    }
                }
            }
        }
    }
}

#[test]
fn a_ride_out_of_its_ranges_changes_nothing() {
    let mut world = World::default();
    let late = Ride {
        resort: 56,
        season: 2022,
        day: 1,
        time: 421,
        lift: 1,
        wait: None,
    };
    let refused = world.ride(7, late).unwrap_err();
    assert_eq!(refused.to_string(), "Invalid value for parameter 'time': 421");
    assert_eq!((world.skiers[&7].seq, world.days.len()), (0, 0));
}

#[test]
fn a_season_is_added_once() {
    let mut resort = Subject::<Resort>::given(Number(56), []);
    for season in [2022, 2021, 2022] {
        drop(
            resort
                .when(ResortCommand::AddSeason { season })
                .unwrap_or_else(|error| panic!("{error}")),
        );
    }
    assert_eq!(resort.seq, 2);
    assert_eq!(read(&resort, GetResort {}).unwrap().seasons, [2021, 2022]);
}
