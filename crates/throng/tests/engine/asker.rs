//! The caller of a command, as an entity sees it: always the same, whenever and however the command is executed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::*,
};
use throng_testing::fixtures::Never;

/// Records its callers.
#[derive(Default, Serialize, Deserialize)]
struct Witness {
    seen: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Command {
    /// Records the caller.
    Note {},
    /// Records the caller, and tells another entity to do so.
    Tell { to: String },
    /// Requests it from another entity, and receives the outcome.
    Ask { other: String },
    /// Sets a timer that is due at once.
    Remind {},
    /// Forwards the command, and records the caller itself if `notes` is true.
    Forward { to: String, notes: bool },
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum WitnessEvent {
    Seen(String),
    Timed,
}
impl Event for WitnessEvent {}

impl Witness {
    fn list(&self) -> Vec<String> {
        self.seen.clone()
    }
}

impl Entity for Witness {
    const KIND: &'static str = "witness";
    const REQUESTS: &'static [&'static str] = &[Self::KIND];
    type Id = String;
    type Command = Command;
    type Event = WitnessEvent;
    type Reply = Vec<String>;
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let seen = WitnessEvent::Seen(match turn.from() {
            Asker::Client(caller) => format!("client {}", caller.unwrap_or("?")),
            Asker::Entity { kind, id } => format!("entity {kind}/{id}"),
            Asker::Timer(name) => format!("timer {name}"),
            Asker::Outcome { kind, id } => format!("outcome {kind}/{id}"),
        });
        match command {
            Command::Note {} => turn.emit(seen),
            Command::Tell { to } => {
                turn.emit(seen);
                turn.send::<Self>(to, Command::Note {});
            }
            Command::Ask { other } => turn.request::<Self>(other, Command::Note {}, ()),
            Command::Remind {} => {
                turn.emit(WitnessEvent::Timed);
                let now = turn.now();
                turn.remind("alarm", now, None, Command::Note {});
            }
            Command::Forward { to, notes } => {
                if notes {
                    turn.emit(seen);
                }
                return Ok(CommandAnswer::forward::<Self>(to, Command::Note {}));
            }
        }
        Ok(CommandAnswer::after(Self::list))
    }

    fn evolve(&mut self, event: &WitnessEvent) {
        if let WitnessEvent::Seen(who) = event {
            self.seen.push(who.clone());
        }
    }
}

impl OnOutcome<Witness> for Witness {
    type Note = ();

    fn on_outcome(_: String, (): (), _: Result<Vec<String>, RequestError<Never>>) -> Command {
        Command::Note {}
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Seen {}
impl Query<Witness> for Seen {
    const NAME: &'static str = "seen";
    type Answer = (String, Vec<String>);
    fn answer(self, witness: &Witness, moment: &Moment<'_, Witness>) -> Result<(String, Vec<String>), Never> {
        Ok((moment.from.caller().unwrap_or("?").to_owned(), witness.list()))
    }
}

async fn engine() -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let builder = Engine::builder().with::<Witness>().on_outcome::<Witness, Witness>();
    builder.start_shared(Arc::new(journal), Arc::new(store)).await.unwrap()
}

async fn ask(engine: &Engine, id: &str, command: Command) -> Vec<String> {
    engine.entity::<Witness>(id).ask(command).await.unwrap()
}

async fn seen(engine: &Engine, id: &str, count: usize) -> Vec<String> {
    loop {
        if let Ok((_, seen)) = engine.entity::<Witness>(id).read(Seen {}).await
            && seen.len() >= count
        {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_is_told_from_an_entity_a_timer_and_an_outcome() {
    let engine = engine().await;
    let ann = engine.entity::<Witness>("a").caller("ann");
    assert_eq!(ann.ask(Command::Tell { to: "b".into() }).await.unwrap(), ["client ann"]);
    assert_eq!(ask(&engine, "a", Command::Note {}).await[1], "client ?");
    assert_eq!(
        seen(&engine, "b", 1).await,
        ["entity witness/a"],
        "the sender, not the sender's client"
    );

    ask(&engine, "c", Command::Ask { other: "d".into() }).await;
    assert_eq!(seen(&engine, "d", 1).await, ["entity witness/c"]);
    assert_eq!(seen(&engine, "c", 1).await, ["outcome witness/d"]);

    ask(&engine, "e", Command::Remind {}).await;
    assert_eq!(seen(&engine, "e", 1).await, ["timer alarm"]);

    let (caller, _) = engine.entity::<Witness>("a").caller("bob").read(Seen {}).await.unwrap();
    assert_eq!(caller, "bob");
    engine.stop().await;
}

#[tokio::test]
async fn a_forwarded_command_comes_from_the_forwarding_entity() {
    let engine = engine().await;
    for (from, to, notes) in [("f", "g", false), ("h", "i", true)] {
        let forward = Command::Forward { to: to.into(), notes };
        let forwarder = || engine.entity::<Witness>(from).caller("ann").once("key");
        let first = forwarder().ask(forward.clone()).await.unwrap();
        assert_eq!(first, [format!("entity witness/{from}")]);
        assert_eq!(forwarder().ask(forward).await.unwrap(), first, "again, under its key");
        assert_eq!(seen(&engine, to, 1).await, first);
    }
    engine.stop().await;
}

#[tokio::test]
async fn the_key_of_one_caller_is_not_that_of_another() {
    let engine = engine().await;
    let asked = |caller| {
        engine
            .entity::<Witness>("a")
            .caller(caller)
            .once("1")
            .ask(Command::Note {})
    };
    assert_eq!(asked("ann").await.unwrap(), ["client ann"]);
    assert_eq!(asked("ann").await.unwrap(), ["client ann"], "once");
    assert_eq!(asked("bob").await, Err(Error::KeyReused("1".into())));
    engine.stop().await;
}
