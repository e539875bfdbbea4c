//! Entities that cause each other's work. A service is measured beside this work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use throng::{Builder, Engine, model::*};
use throng_testing::fixtures::Never;

/// The decisions of all players of this process that other entities or timers caused.
static DECISIONS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of these decisions so far.
pub(super) fn decisions() -> u64 {
    DECISIONS.load(Ordering::Relaxed)
}

/// Sends messages and sets timers.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Player {
    hits: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) enum Play {
    /// Sends the same message back, for ever.
    Hit {
        other: String,
    },
    /// Sends the same message back, this many times.
    Volley {
        other: String,
        left: u32,
    },
    /// Sends the same message to the next player of a chain.
    Pass {
        left: u32,
    },
    /// Sends a note to each of this many players.
    FanOut {
        to: u32,
    },
    Note {},
    /// Sets a timer for a note.
    Save {
        at: Timestamp,
    },
    /// Sends the same message back twice.
    Divide {
        other: String,
    },
    /// Sets two timers that at once do the same.
    Alarm {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) enum Played {
    Hit,
}
impl Event for Played {}

impl Entity for Player {
    const KIND: &'static str = "player";
    type Id = String;
    type Command = Play;
    type Event = Played;
    type Reply = u64;
    type Rejection = Never;

    fn creates(_: &Play) -> bool {
        true
    }

    fn decide(&self, command: Play, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let own = turn.id().clone();
        turn.emit(Played::Hit);
        DECISIONS.fetch_add(1, Ordering::Relaxed);
        match command {
            Play::Hit { other } => turn.send::<Self>(other, Play::Hit { other: own }),
            Play::Volley { left: 0, .. } | Play::Pass { left: 0 } | Play::Note {} => {}
            Play::Volley { other, left } => {
                let left = left - 1;
                turn.send::<Self>(other, Play::Volley { other: own, left });
            }
            Play::Pass { left } => turn.send::<Self>(format!("chain-{left}"), Play::Pass { left: left - 1 }),
            Play::FanOut { to } => (0..to).for_each(|to| turn.send::<Self>(format!("fan-{to}"), Play::Note {})),
            Play::Save { at } => turn.remind("interest", at, None, Play::Note {}),
            Play::Divide { other } => {
                (0..2).for_each(|_| turn.send::<Self>(other.clone(), Play::Divide { other: own.clone() }));
            }
            Play::Alarm {} => {
                // The name is unused, because it contains the number of events so far.
                for half in ["a", "b"] {
                    let at = turn.now().after(Duration::ZERO);
                    turn.remind(format!("{half}{}", self.hits), at, None, Play::Alarm {});
                }
            }
        }
        Ok(CommandAnswer::after(|player: &Self| player.hits))
    }

    fn evolve(&mut self, _: &Played) {
        self.hits += 1;
    }
}

/// Adds the kind of players to an engine.
pub(crate) fn with_players(builder: Builder) -> Builder {
    builder.with::<Player>()
}

/// Starts this many messages that go back and forth, each between two entities of its own.
pub(crate) async fn begin(engine: &Engine, messages: u32) -> anyhow::Result<()> {
    for message in 0..messages {
        let other = format!("{message}-b");
        let first = engine.entity::<Player>(format!("{message}-a"));
        first.ask(Play::Hit { other }).await?;
    }
    Ok(())
}
