//! A day of a resort: its skiers, their lifts, and the hours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Turn, View};

use crate::{
    number::Number,
    resort::{Resort, ResortCommand},
    ride::{Done, HOURS, LiftRides, Refused, ResortDayId, hour},
    skier_set::SkierSet,
    tally::Tally,
};

/// A day of a resort's season. It exists from its first ride on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResortDay {
    skiers: SkierSet,
    lifts: Tally<u32>,
    hours: [u64; HOURS],
}

/// A command of a resort's day. Only skiers send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResortDayCommand {
    /// Counts a ride.
    Count {
        /// The skier, by number.
        skier: u32,
        /// The lift's number.
        lift: u32,
        /// The minute of the ski day.
        time: u32,
    },
}

/// An event of a resort's day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResortDayEvent {
    /// A skier rode a lift. Identical rides count separately.
    Counted {
        /// The skier, by number.
        skier: u32,
        /// The lift's number.
        lift: u32,
        /// The minute of the ski day.
        time: u32,
    },
}

impl Event for ResortDayEvent {}

impl Entity for ResortDay {
    const KIND: &'static str = "resort-day";
    type Id = ResortDayId;
    type Command = ResortDayCommand;
    type Event = ResortDayEvent;
    type Reply = Done;
    type Rejection = Refused;

    fn decide(&self, command: ResortDayCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refused> {
        let ResortDayCommand::Count { skier, lift, time } = command;
        if turn.is_new() {
            let ResortDayId { resort, season, .. } = *turn.id();
            turn.send::<Resort>(Number(resort), ResortCommand::AddSeason { season });
        }
        turn.emit(ResortDayEvent::Counted { skier, lift, time });
        Ok(CommandAnswer::Now(Done {}))
    }

    fn evolve(&mut self, event: &ResortDayEvent) {
        let ResortDayEvent::Counted { skier, lift, time } = *event;
        self.skiers.add(skier);
        self.lifts.add(lift);
        self.hours[hour(time)] += 1;
    }

    fn heap_bytes(&self) -> usize {
        self.skiers.heap_bytes() + self.lifts.heap_bytes()
    }
}

/// The query `view`: all totals of the day.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetResortDay {}

/// The answer to [`GetResortDay`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResortDayView {
    /// The number of different skiers.
    pub skiers: u64,
    /// The number of rides. Identical ones count separately.
    pub rides: u64,
    /// The rides by lift, in the order of the lifts' numbers.
    pub lifts: Vec<LiftRides>,
    /// Rides by hour of the ski day.
    pub hours: [u64; HOURS],
}

impl ResortDayView {
    /// Returns the number of rides on a lift.
    #[must_use]
    pub fn rides_on(&self, lift: u32) -> u64 {
        let at = self.lifts.binary_search_by_key(&lift, |of| of.lift);
        at.map_or(0, |at| self.lifts[at].rides)
    }
}

impl Query<ResortDay> for GetResortDay {
    const NAME: &'static str = View::NAME;
    type Answer = ResortDayView;

    fn answer(self, day: &ResortDay, _: &Moment<'_, ResortDay>) -> Result<ResortDayView, Refused> {
        let lift_rides = |&(lift, rides): &(u32, u64)| LiftRides { lift, rides };
        Ok(ResortDayView {
            skiers: day.skiers.len(),
            rides: day.hours.iter().sum(),
            lifts: day.lifts.all().iter().map(lift_rides).collect(),
            hours: day.hours,
        })
    }
}
