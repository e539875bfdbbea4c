//! Entities that send to each other for ever: work from inside, beside which a service is measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::{Builder, Engine, model::*};

/// One of two that send a message back and forth.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Player {
    hits: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Play {
    Hit { other: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Played {
    Hit,
}
impl Event for Played {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
enum Never {}
impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}
impl std::error::Error for Never {}
impl Rejection for Never {
    fn code(&self) -> &'static str {
        match *self {}
    }
}

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

    fn decide(&self, command: Play, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
        let Play::Hit { other } = command;
        let own = turn.id().clone();
        turn.emit(Played::Hit);
        turn.send::<Self>(other, Play::Hit { other: own });
        Ok(Answer::after(|player: &Self| player.hits))
    }

    fn evolve(&mut self, _: &Played) {
        self.hits += 1;
    }
}

/// Adds the kind.
pub(super) fn with_players(builder: Builder) -> Builder {
    builder.with::<Player>()
}

/// Has so many messages go back and forth, each between two entities of its own.
pub(super) async fn begin(engine: &Engine, messages: u32) -> anyhow::Result<()> {
    for message in 0..messages {
        let other = format!("{message}-b");
        let first = engine.entity::<Player>(format!("{message}-a"));
        first.ask(Play::Hit { other }).await?;
    }
    Ok(())
}
