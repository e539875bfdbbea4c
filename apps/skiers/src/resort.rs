//! A resort and its seasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Turn, View};

use crate::{
    number::{NUMBER_MAX, Number},
    ride::{Done, Refused},
};

/// The most resorts in a list.
pub(crate) const RESORTS_MAX: usize = 10_000;

/// A resort, by number. It exists from its first season on, which is added explicitly or by the first ride.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resort {
    seasons: BTreeSet<u32>,
}

/// A command of a resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResortCommand {
    /// Adds a season. A season that exists already changes nothing.
    AddSeason {
        /// The season's year.
        season: u32,
    },
}

/// An event of a resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResortEvent {
    /// A season was added.
    SeasonAdded {
        /// The season's year.
        season: u32,
    },
}

impl Event for ResortEvent {}

impl Entity for Resort {
    const KIND: &'static str = "resort";
    const PUBLIC: &'static [&'static str] = &["add_season"];
    type Id = Number;
    type Command = ResortCommand;
    type Event = ResortEvent;
    type Reply = Done;
    type Rejection = Refused;

    fn decide(&self, command: ResortCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refused> {
        let ResortCommand::AddSeason { season } = command;
        if season > NUMBER_MAX {
            return Err(Refused::invalid("seasonID", season));
        }
        if !self.seasons.contains(&season) {
            turn.emit(ResortEvent::SeasonAdded { season });
        }
        Ok(CommandAnswer::Now(Done {}))
    }

    fn evolve(&mut self, ResortEvent::SeasonAdded { season }: &ResortEvent) {
        self.seasons.insert(*season);
    }

    fn heap_bytes(&self) -> usize {
        // Approximately: a tree two thirds full.
        self.seasons.len() * 8
    }
}

/// The query `view`: the resort's seasons.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetResort {}

/// The answer to [`GetResort`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResortView {
    /// The years of the seasons, in order.
    pub seasons: Vec<u32>,
}

impl Query<Resort> for GetResort {
    const NAME: &'static str = View::NAME;
    type Answer = ResortView;

    fn answer(self, resort: &Resort, _: &Moment<'_, Resort>) -> Result<ResortView, Refused> {
        Ok(ResortView {
            seasons: resort.seasons.iter().copied().collect(),
        })
    }
}
