//! A skier: the rides taken, counted by day and lift.

mod queries;

pub use queries::{GetDay, GetSeason, GetSkier, SeasonTotals, SkiDay, SkiSeason, SkierView};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{CommandAnswer, Entity, Event, Turn};

use crate::{
    number::Number,
    resort_day::{ResortDay, ResortDayCommand},
    ride::{Done, Refused, Ride},
    tally::Tally,
};

/// A key of resort, season, day and lift.
type DayLift = (u32, u32, u32, u32);

/// A skier, by number. The skier exists from the first ride on.
///
/// Rides of the same day on the same lift are one entry of 24 bytes, in one block of memory with all others. Each query reads a range of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Skier {
    rides: Tally<DayLift>,
}

/// Collects rides by resort, season, day and lift.
impl FromIterator<(DayLift, u64)> for Skier {
    fn from_iter<I: IntoIterator<Item = (DayLift, u64)>>(rides: I) -> Self {
        Self {
            rides: rides.into_iter().collect(),
        }
    }
}

/// A command of a skier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkierCommand {
    /// Records a ride, and tells the resort's day to count it. Each ride counts, even if it equals another one.
    Ride(Ride),
}

/// An event of a skier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SkierEvent {
    /// A ride on a lift.
    Rode(Ride),
}

impl Event for SkierEvent {}

impl Entity for Skier {
    const KIND: &'static str = "skier";
    const PUBLIC: &'static [&'static str] = &["ride"];
    type Id = Number;
    type Command = SkierCommand;
    type Event = SkierEvent;
    type Reply = Done;
    type Rejection = Refused;

    fn decide(&self, command: SkierCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refused> {
        let SkierCommand::Ride(ride) = command;
        ride.check()?;
        let counted = ResortDayCommand::Count {
            skier: turn.id().0,
            lift: ride.lift,
            time: ride.time,
        };
        turn.send::<ResortDay>(ride.resort_day(), counted);
        turn.emit(SkierEvent::Rode(ride));
        Ok(CommandAnswer::Now(Done {}))
    }

    fn evolve(&mut self, SkierEvent::Rode(ride): &SkierEvent) {
        self.rides.add((ride.resort, ride.season, ride.day, ride.lift));
    }

    fn heap_bytes(&self) -> usize {
        self.rides.heap_bytes()
    }
}
