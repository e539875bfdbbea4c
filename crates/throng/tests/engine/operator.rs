//! An operator stops an entity that endlessly sends itself messages, even while they fill the engine.

use crate::kinds::{World, eventually};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use throng::{
    Engine, OperatorDecision, Options, Retried,
    inspect::{Inspect, Whereabouts},
    journal::{CommitNo, Journal, Position, RecordKind, WriterId},
    model::*,
};
use throng_testing::fixtures::Never;

#[derive(Default, Serialize, Deserialize)]
struct Cell {
    notes: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Command {
    Open,
    /// Sends itself a hundred of these for a client, and one for each that arrives. They fill the engine without growing further.
    Divide,
    Note {
        text: String,
    },
    /// Tells another cell to record an event.
    Tell {
        to: String,
        text: String,
    },
    /// Requests the same, and receives the outcome.
    Request {
        to: String,
        text: String,
    },
    /// Records an event after this time.
    Remind {
        in_ms: u64,
    },
    Panic,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum CellEvent {
    Opened,
    Noted { text: String },
}
impl Event for CellEvent {}

impl Entity for Cell {
    const KIND: &'static str = "cell";
    type Id = String;
    type Command = Command;
    type Event = CellEvent;
    type Reply = String;
    type Rejection = Never;
    const REQUESTS: &'static [&'static str] = &[Self::KIND];

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open)
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let own = turn.id().clone();
        match command {
            Command::Open => turn.emit(CellEvent::Opened),
            Command::Divide => {
                let copies = if turn.from().is_client() { 100 } else { 1 };
                (0..copies).for_each(|_| turn.send::<Self>(own.clone(), Command::Divide));
            }
            Command::Note { text } => turn.emit(CellEvent::Noted { text }),
            Command::Tell { to, text } => turn.send::<Self>(to, Command::Note { text }),
            Command::Request { to, text } => turn.request::<Self>(to, Command::Note { text }, ()),
            Command::Remind { in_ms } => {
                let at = turn.now().after(Duration::from_millis(in_ms));
                let text = "reminded".into();
                turn.remind("note", at, None, Command::Note { text });
            }
            Command::Panic => panic!("asked to"),
        }
        Ok(CommandAnswer::after(|cell: &Self| cell.notes.join(",")))
    }

    fn evolve(&mut self, event: &CellEvent) {
        if let CellEvent::Noted { text } = event {
            self.notes.push(text.clone());
        }
    }
}

impl OnOutcome<Self> for Cell {
    type Note = ();

    fn on_outcome(_: String, (): (), outcome: Result<String, RequestError<Never>>) -> Command {
        let text = outcome.unwrap_or_else(|why| why.to_string());
        Command::Note { text }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Notes {}
impl Query<Cell> for Notes {
    const NAME: &'static str = "notes";
    type Answer = String;
    fn answer(self, cell: &Cell, _: &Moment<'_, Cell>) -> Result<String, Never> {
        Ok(cell.notes.join(","))
    }
}

/// The number of messages that memory holds.
const OUTBOX_MAX: usize = 64;

async fn start(world: &World) -> Engine {
    let options = Options {
        outbox_max: OUTBOX_MAX,
        ..Options::default()
    };
    let builder = Engine::builder().with::<Cell>().query::<Cell, Notes>();
    let builder = builder.on_outcome::<Cell, Cell>().options(options);
    let (journal, store) = (Arc::new(world.journal.clone()), Arc::new(world.store.clone()));
    builder.start_shared(journal, store).await.unwrap()
}

/// Starts an engine with these cells.
async fn opened(world: &World, ids: &[&str]) -> Engine {
    let engine = start(world).await;
    for id in ids {
        ask(&engine, id, Command::Open).await.unwrap();
    }
    engine
}

async fn ask(engine: &Engine, id: &str, command: Command) -> Result<String, Error<Never>> {
    engine.entity::<Cell>(id).ask(command).await
}

/// Sends a message, and repeats that while the engine has no room for it.
async fn tell(engine: &Engine, to: &str, text: &str) {
    eventually(async || {
        let (to, text) = (to.to_owned(), text.to_owned());
        match ask(engine, "other", Command::Tell { to, text }).await {
            Ok(_) => true,
            Err(Error::Overloaded { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

async fn notes(engine: &Engine, id: &str) -> String {
    engine.entity::<Cell>(id).read(Notes {}).await.unwrap()
}

fn ann(reason: &str) -> OperatorDecision<'_> {
    OperatorDecision::new("ann", reason)
}

async fn quarantine(engine: &Engine, id: &str) {
    assert!(engine.quarantine("cell", id, ann("it divides")).await.unwrap());
}

/// Lets a cell divide until other commands are refused.
async fn full(world: &World) -> Engine {
    let engine = opened(world, &["bad", "other"]).await;
    ask(&engine, "bad", Command::Divide).await.unwrap();
    let is_refused = async || {
        matches!(
            ask(&engine, "other", Command::Open).await,
            Err(Error::Overloaded { .. })
        )
    };
    eventually(is_refused).await;
    engine
}

/// Returns the approximate number of messages that wait for quarantined entities.
fn waiting(engine: &Engine) -> u64 {
    engine.waiting_messages().into_values().sum()
}

async fn is_served(engine: &Engine) {
    eventually(async || ask(engine, "other", Command::Open).await.is_ok()).await;
}

/// Returns the kinds and names of a cell's records in the journal, of all writers.
async fn records(world: &World, id: &str) -> Vec<(RecordKind, String)> {
    let mut found = Vec::new();
    for writer in (1..9).map(WriterId) {
        let commit = CommitNo(0);
        let commits = world.journal.read(Position { writer, commit }, usize::MAX).await;
        for commit in commits.unwrap_or_default() {
            let own = commit.records().flatten().filter(|record| record.id == id);
            found.extend(own.map(|record| (record.record, record.name.to_owned())));
        }
    }
    found
}

fn count(records: &[(RecordKind, String)], record: RecordKind, name: &str) -> usize {
    let same = |(found, named): &&(RecordKind, String)| *found == record && named == name;
    records.iter().filter(same).count()
}

//= promise 9: everything is bounded
#[tokio::test]
async fn quarantine_frees_an_engine_that_is_full() {
    let world = World::new();
    let engine = full(&world).await;
    quarantine(&engine, "bad").await;
    is_served(&engine).await;
    for _ in 0..OUTBOX_MAX {
        tell(&engine, "other", "x").await;
    }
    eventually(async || notes(&engine, "other").await.len() == 2 * OUTBOX_MAX - 1).await;
    // No turn of the entity came after that.
    let records = records(&world, "bad").await;
    let (last, name) = records.last().unwrap();
    assert_eq!((*last, &**name), (RecordKind::TimerSet, "~quarantine"));
    let waits = count(&records, RecordKind::Sent, "Divide") - count(&records, RecordKind::Taken, "done");
    let waiting = waiting(&engine) as usize;
    assert!((waits..=waits + OUTBOX_MAX).contains(&waiting), "{waiting} of {waits}");
    assert_eq!(engine.stuck(), []);
}

#[tokio::test]
async fn quarantined_entity_answers_with_the_reason_and_is_listed() {
    let engine = opened(&World::new(), &["bad", "other"]).await;
    quarantine(&engine, "bad").await;
    assert!(!engine.quarantine("cell", "bad", ann("again")).await.unwrap());
    let refused = ask(&engine, "bad", Command::Open).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cell/bad is quarantined by an operator or the engine: it divides"
    );
    let read = engine.entity::<Cell>("bad").read(Notes {}).await.unwrap_err();
    assert_eq!(read, refused);
    let listed = engine.quarantined(9).await.unwrap();
    assert_eq!((listed.len(), &*listed[0].address.id), (1, "bad"));
    assert_eq!(
        (listed[0].by.as_deref(), &*listed[0].reason),
        (Some("ann"), "it divides")
    );
    assert!(listed[0].refused == 2 && listed[0].since.micros > 0);
    assert_eq!(engine.populations().await.unwrap()[0].quarantined, 1);
    let glance = engine.glances(&[(0, "bad"), (0, "other")]).await.unwrap();
    let whereabouts = glance.into_iter().map(|glance| glance.unwrap().whereabouts);
    assert_eq!(
        whereabouts.collect::<Vec<_>>(),
        [Whereabouts::Quarantined, Whereabouts::Resident]
    );
    // An operator sees all of it.
    let inspect = Inspect {
        state: true,
        ..Inspect::default()
    };
    let inspected = engine.inspect(0, "bad", inspect).await.unwrap();
    assert_eq!(
        (inspected.seq, inspected.state.as_deref()),
        (1, Some(r#"{"notes":[]}"#))
    );
    assert_eq!(inspected.quarantine.unwrap().by.as_deref(), Some("ann"));
    assert_eq!(engine.timers_of(0, "bad", 9).await.unwrap(), []);
}

#[tokio::test]
async fn restart_keeps_a_quarantine_from_the_log_and_from_the_store() {
    let world = World::new();
    let mut engine = full(&world).await;
    quarantine(&engine, "bad").await;
    is_served(&engine).await;
    let before = records(&world, "bad").await;
    let waits = count(&before, RecordKind::Sent, "Divide") - count(&before, RecordKind::Taken, "done");
    for round in 0..3 {
        match round {
            // Continues as after a crash.
            0 => {}
            1 => engine.checkpoint().await.unwrap(),
            _ => engine.stop().await,
        }
        // The old engine must not live on: it would take the journal back.
        drop(engine);
        engine = start(&world).await;
        let listed = engine.quarantined(9).await.unwrap();
        assert_eq!(
            (listed.len(), listed[0].by.as_deref()),
            (1, Some("ann")),
            "round {round}"
        );
        ask(&engine, "other", Command::Open).await.unwrap();
        tell(&engine, "other", "x").await;
        eventually(async || notes(&engine, "other").await.matches('x').count() == round + 1).await;
        eventually(async || waiting(&engine) == waits as u64).await;
        assert!(ask(&engine, "bad", Command::Open).await.is_err());
    }
    let records = records(&world, "bad").await;
    assert_eq!(records.last().unwrap().0, RecordKind::TimerSet, "it had no turn");
}

#[tokio::test]
async fn dropped_messages_are_never_taken_and_their_number_is_told() {
    let world = World::new();
    let engine = full(&world).await;
    quarantine(&engine, "bad").await;
    is_served(&engine).await;
    let before = records(&world, "bad").await;
    let waits = count(&before, RecordKind::Sent, "Divide") - count(&before, RecordKind::Taken, "done");
    assert!(waits > OUTBOX_MAX);
    let dropped = engine.drop_messages("cell", "bad", ann("a loop")).await.unwrap();
    assert_eq!(dropped, waits as u64);
    assert_eq!(engine.drop_messages("cell", "bad", ann("a loop")).await.unwrap(), 0);
    assert_eq!(waiting(&engine), 0);
    let after = records(&world, "bad").await;
    assert_eq!(count(&after, RecordKind::Taken, "dropped"), waits);
    assert!(engine.release("cell", "bad", ann("mended")).await.unwrap());
    assert!(!engine.release("cell", "bad", ann("mended")).await.unwrap());
    let text = "alive".to_owned();
    assert_eq!(ask(&engine, "bad", Command::Note { text }).await.unwrap(), "alive");
    for _ in 0..2 {
        let engine = start(&world).await;
        tell(&engine, "bad", "x").await;
        eventually(async || notes(&engine, "bad").await.ends_with('x')).await;
        assert_eq!(engine.quarantined(9).await.unwrap(), []);
        engine.checkpoint().await.unwrap();
    }
}

#[tokio::test]
async fn messages_that_waited_come_in_order_after_a_release() {
    let world = World::new();
    let engine = opened(&world, &["bad", "other"]).await;
    quarantine(&engine, "bad").await;
    let texts: Vec<String> = (0..3 * OUTBOX_MAX).map(|number| number.to_string()).collect();
    for text in &texts {
        tell(&engine, "bad", text).await;
    }
    // This includes messages read from the log at a start.
    let engine = start(&world).await;
    assert!(engine.release("cell", "bad", ann("")).await.unwrap());
    tell(&engine, "bad", "last").await;
    eventually(async || notes(&engine, "bad").await.ends_with("last")).await;
    assert_eq!(notes(&engine, "bad").await, [&*texts.join(","), "last"].join(","));
    eventually(async || engine.stuck().is_empty()).await;
}

#[tokio::test]
async fn full_engine_erases_the_entity_that_fills_it() {
    let world = World::new();
    let engine = full(&world).await;
    assert!(engine.erase("cell", "bad").await.unwrap().records > 0);
    is_served(&engine).await;
    let ended = ask(&engine, "bad", Command::Divide).await.unwrap_err();
    assert!(matches!(ended, Error::Ended { .. }), "{ended}");
}

#[tokio::test]
async fn erasing_a_quarantined_entity_drops_its_waiting_messages() {
    let world = World::new();
    let engine = opened(&world, &["bad", "other"]).await;
    quarantine(&engine, "bad").await;
    for _ in 0..2 * OUTBOX_MAX {
        tell(&engine, "bad", "needle").await;
    }
    engine.erase("cell", "bad").await.unwrap();
    assert_eq!(engine.quarantined(9).await.unwrap(), []);
    assert!(engine.waiting_messages().is_empty() && engine.stuck().is_empty());
    let begin = Position::new(WriterId(1), CommitNo(0));
    let commits = world.journal.read(begin, usize::MAX).await.unwrap();
    let is_left = commits
        .iter()
        .any(|commit| commit.bytes().windows(6).any(|bytes| bytes == b"needle"));
    assert!(!is_left);
    let again = start(&world).await;
    assert_eq!(again.quarantined(9).await.unwrap(), []);
    tell(&again, "other", "x").await;
    eventually(async || notes(&again, "other").await == "x").await;
}

#[tokio::test]
async fn timer_of_a_quarantined_entity_fires_after_its_release() {
    let engine = opened(&World::new(), &["bad"]).await;
    ask(&engine, "bad", Command::Remind { in_ms: 1 }).await.unwrap();
    quarantine(&engine, "bad").await;
    let fired = async || engine.inspect(0, "bad", Inspect::default()).await.unwrap().seq > 1;
    if !fired().await {
        eventually(async || engine.late_timers(9).await.unwrap().len() == 1).await;
    }
    assert!(engine.release("cell", "bad", ann("")).await.unwrap());
    eventually(async || notes(&engine, "bad").await == "reminded").await;
}

#[tokio::test]
async fn dead_message_of_a_quarantined_entity_stays_dead() {
    let world = World::new();
    let engine = opened(&world, &["other"]).await;
    tell(&engine, "bad", "x").await;
    let dead = async || engine.dead_messages(None, None, 9).await.unwrap().messages;
    eventually(async || dead().await.len() == 1).await;
    let number = dead().await[0].number;
    ask(&engine, "bad", Command::Open).await.unwrap();
    quarantine(&engine, "bad").await;
    let before = records(&world, "bad").await.len();
    let again = engine.retry_dead("cell", "bad", number).await.unwrap();
    assert!(matches!(again, Retried::Dead(why) if why.contains("it divides")));
    assert_eq!(records(&world, "bad").await.len(), before, "nothing was done");
    engine.release("cell", "bad", ann("")).await.unwrap();
    assert_eq!(engine.retry_dead("cell", "bad", number).await, Ok(Retried::Done));
}

#[tokio::test]
async fn whoever_asked_hears_that_a_waiting_request_was_dropped() {
    let engine = opened(&World::new(), &["bad", "other"]).await;
    quarantine(&engine, "bad").await;
    let (to, text) = ("bad".into(), "x".into());
    ask(&engine, "other", Command::Request { to, text }).await.unwrap();
    eventually(async || waiting(&engine) == 1).await;
    let dropped = engine.drop_messages("cell", "bad", ann("a loop")).await.unwrap();
    assert_eq!(dropped, 1);
    eventually(async || notes(&engine, "other").await == "the request was dropped: a loop").await;
}

#[tokio::test]
async fn quarantine_and_drop_without_a_target_are_refused() {
    let engine = opened(&World::new(), &["good"]).await;
    let told = engine.quarantine("cell", "nobody", ann("x")).await.unwrap_err();
    assert!(matches!(told, Error::Unknown { .. }), "{told}");
    assert!(engine.quarantine("cells", "good", ann("x")).await.is_err());
    let told = engine.drop_messages("cell", "good", ann("x")).await.unwrap_err();
    assert!(
        told.to_string().contains("no operator has quarantined cell/good"),
        "{told}"
    );
    assert!(!engine.release("cell", "good", ann("x")).await.unwrap());
}
