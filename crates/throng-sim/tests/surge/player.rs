//! An entity that creates endless work for itself, for others and for its shard.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::model::*;
use throng_sim::busy_for;
pub(crate) use throng_testing::fixtures::Never;

pub(crate) const KIND: &str = "player";
/// Publishes the names of the players that passed.
pub(crate) const PASSES: Topic<String> = Topic::new("passes");

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Player {
    hits: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Hit,
    /// Records a hit of this many bytes, after this much work.
    Catch {
        pad: usize,
        work_micros: u64,
    },
    /// Tells each of these players to catch.
    Throw {
        to: Vec<String>,
        pad: usize,
        work_micros: u64,
    },
    /// Sends a ball to another player, which returns it, and so on for ever.
    Ball {
        to: String,
    },
    /// Sets this many timers to catch, all due at the same moment.
    Plan {
        timers: u32,
        after_micros: u64,
        pad: usize,
    },
    /// Forwards a hit to another player, which answers, and publishes that this one passed.
    Pass {
        to: String,
    },
    Child {
        id: String,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum PlayerEvent {
    Hit { pad: String },
}
impl Event for PlayerEvent {}

impl Entity for Player {
    const KIND: &'static str = KIND;
    type Id = String;
    type Command = Command;
    type Event = PlayerEvent;
    type Reply = u64;
    type Rejection = Never;

    fn creates(_: &Command) -> bool {
        true
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let mut pad = String::new();
        match command {
            Command::Hit => {}
            Command::Catch {
                pad: bytes,
                work_micros,
            } => {
                busy_for(Duration::from_micros(work_micros));
                pad = "x".repeat(bytes);
            }
            Command::Throw { to, pad, work_micros } => {
                for one in to {
                    turn.send::<Self>(one, Command::Catch { pad, work_micros });
                }
            }
            Command::Ball { to } => {
                let back = turn.id().clone();
                turn.send::<Self>(to, Command::Ball { to: back });
            }
            Command::Plan {
                timers,
                after_micros,
                pad,
            } => {
                let at = turn.now().after(Duration::from_micros(after_micros));
                for number in 0..timers {
                    turn.remind(number.to_string(), at, None, Command::Catch { pad, work_micros: 0 });
                }
            }
            Command::Pass { to } => {
                turn.publish(&PASSES, turn.id().clone());
                return Ok(CommandAnswer::forward::<Self>(to, Command::Hit));
            }
            Command::Child { id } => turn.create::<Self>(id, Command::Hit),
        }
        turn.emit(PlayerEvent::Hit { pad });
        Ok(CommandAnswer::after(|player: &Self| player.hits))
    }

    fn evolve(&mut self, _: &PlayerEvent) {
        self.hits += 1;
    }
}

/// The query for the number of hits.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Hits {}

impl Query<Player> for Hits {
    const NAME: &'static str = "hits";
    type Answer = u64;
    fn answer(self, player: &Player, _: &Moment<'_, Player>) -> Result<u64, Never> {
        Ok(player.hits)
    }
}

/// The query for the children's ids.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Children {}

impl Query<Player> for Children {
    const NAME: &'static str = "children";
    type Answer = Vec<String>;
    fn answer(self, _: &Player, moment: &Moment<'_, Player>) -> Result<Vec<String>, Never> {
        let family = moment.family.cloned().unwrap_or_default();
        Ok(family.children.into_iter().map(|(_, id)| id).collect())
    }
}
