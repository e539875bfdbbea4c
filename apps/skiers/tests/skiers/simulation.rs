//! The service in simulated worlds with faults: every ride that was answered counts exactly once in every query.

use crate::model::Model;
use skiers::{
    number::Number,
    resort::{GetResort, Resort},
    resort_day::{GetResortDay, ResortDay},
    ride::{ResortDayId, Ride},
    skier::{GetDay, GetSeason, GetSkier, Skier, SkierCommand},
};
use std::{collections::BTreeSet, time::Duration};
use throng_app::model::Error;
use throng_sim::{Faults, Sim, Simulation, for_each_seed};

const RESORT: u32 = 56;
const SEASON: u32 = 2022;

fn world(seed: u64, keep_trace: bool) -> Simulation {
    Simulation::new(seed)
        .setup(|_| skiers::app().into_builder())
        .faults(Faults::random(seed))
        .within(Duration::from_secs(600))
        .keep_trace(keep_trace)
}

fn ride(sim: &Sim) -> Ride {
    Ride {
        resort: RESORT,
        season: SEASON,
        // Most rides are on the same day.
        day: 1 + sim.below(5).saturating_sub(2) as u32,
        time: 1 + sim.below(420) as u32,
        lift: 1 + sim.below(3) as u32,
        wait: None,
    }
}

/// Waits until all rides have reached their days. The later comparison would find a surplus one.
async fn arrived(sim: &Sim, model: &Model) {
    for day in model.days() {
        loop {
            match sim.read_until_known::<ResortDay, _>(day, || GetResortDay {}).await {
                Ok(found) if found.rides >= model.resort_day(day).rides => break,
                Ok(_) | Err(Error::Unknown { .. }) => sim.sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn compare(sim: &Sim, model: &Model) {
    for day in model.days() {
        let found = sim
            .read_until_known::<ResortDay, _>(day, || GetResortDay {})
            .await
            .unwrap();
        assert_eq!(found, model.resort_day(day));
        let ResortDayId { resort, season, day } = day;
        for skier in model.skiers() {
            let id = ResortDayId { resort, season, day };
            let found = sim.read_until_known::<Skier, _>(Number(skier), || GetDay { resort, season, day });
            assert_eq!(found.await.ok(), model.day(skier, id));
        }
    }
    for skier in model.skiers() {
        let found = sim
            .read_until_known::<Skier, _>(Number(skier), || GetSkier {})
            .await
            .unwrap();
        assert_eq!(found.seasons, model.totals(skier));
        let query = || GetSeason {
            resort: RESORT,
            season: SEASON,
        };
        let found = sim.read_until_known::<Skier, _>(Number(skier), query).await.unwrap();
        assert_eq!(Some(found), model.season(skier, RESORT, SEASON));
    }
}

#[test]
fn an_answered_ride_counts_once_in_every_query_despite_deaths() {
    let test = "an_answered_ride_counts_once_in_every_query_despite_deaths";
    for_each_seed("skiers", test, 20, |seed, keep_trace| {
        let outcome = world(seed, keep_trace).try_run(|sim| async move {
            let mut model = Model::default();
            let mut last = None;
            for number in 0..40 {
                // Sometimes an equal ride, which counts separately.
                let (skier, ride) = match last {
                    Some(same) if sim.chance(0.2) => same,
                    _ => (1 + sim.below(4) as u32, ride(&sim)),
                };
                last = Some((skier, ride));
                let key = format!("ride {number}");
                sim.ask_until_known::<Skier>(Number(skier), &key, SkierCommand::Ride(ride))
                    .await
                    .unwrap();
                model.add(skier, ride);
                match sim.below(20) {
                    0 | 1 => sim.kill(),
                    2 => sim.power_loss(),
                    _ => {}
                }
            }
            arrived(&sim, &model).await;
            compare(&sim, &model).await;
            sim.kill();
            compare(&sim, &model).await;
            loop {
                let resort = sim.read_until_known::<Resort, _>(Number(RESORT), || GetResort {}).await;
                match resort {
                    Ok(resort) => break assert_eq!(resort.seasons, [SEASON]),
                    Err(Error::Unknown { .. }) => sim.sleep(Duration::from_millis(100)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}

#[test]
fn unanswered_rides_count_for_day_and_skier_alike() {
    let test = "unanswered_rides_count_for_day_and_skier_alike";
    for_each_seed("skiers", test, 20, |seed, keep_trace| {
        let outcome = world(seed, keep_trace).try_run(|sim| async move {
            let day = ResortDayId {
                resort: RESORT,
                season: SEASON,
                day: 1,
            };
            let asked: BTreeSet<u32> = (1..30).collect();
            for skier in &asked {
                let (id, ride) = (Number(*skier), Ride { day: 1, ..ride(&sim) });
                // Sent without waiting for the answer.
                drop(sim.spawn({
                    let sim = sim.clone();
                    async move {
                        drop(
                            sim.call(move |engine| async move {
                                engine.entity::<Skier>(id).ask(SkierCommand::Ride(ride)).await
                            })
                            .await,
                        )
                    }
                }));
                if sim.chance(0.2) {
                    sim.kill();
                    drop(sim.start().await);
                }
            }
            sim.set_faults(Faults::none());
            let id = Number(1_000);
            sim.ask_until_known::<Skier>(id, "last", SkierCommand::Ride(Ride { day: 1, ..ride(&sim) }))
                .await
                .unwrap();
            loop {
                // The day is read first, because a ride reaches it after its skier.
                let of_day = match sim.read_until_known::<ResortDay, _>(day, || GetResortDay {}).await {
                    Ok(of_day) => of_day.rides,
                    Err(Error::Unknown { .. }) => 0,
                    Err(error) => panic!("{error}"),
                };
                let mut of_skiers = 1;
                for skier in &asked {
                    let found = sim.read_until_known::<Skier, _>(Number(*skier), || GetSkier {}).await;
                    of_skiers += found.map_or(0, |found| found.seasons.iter().map(|of| of.rides).sum());
                }
                assert!(of_day <= of_skiers, "{of_day} > {of_skiers}");
                if of_day == of_skiers {
                    break;
                }
                sim.sleep(Duration::from_millis(100)).await;
            }
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}
