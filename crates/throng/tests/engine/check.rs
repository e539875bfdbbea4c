//! A program is checked against a history before its rollout.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::{
    Builder, Engine,
    check::CheckReport,
    journal::{CommitNo, Journal as _, MemoryJournal, MemoryStore, Position, WriterId},
    model::*,
    projection::{DurableEvent, Interrupt, Projection, Rows},
};
use throng_testing::fixtures::Never;

/// Defines one kind in two versions, one for each program.
macro_rules! jar {
    ($name:ident, $command:ident { $add:ident, $tick:ident }, $event:ident { $added:ident }) => {
        #[derive(Default, Serialize, Deserialize)]
        struct $name {
            sweets: u64,
        }
        #[derive(Serialize, Deserialize, JsonSchema)]
        enum $command {
            $add,
            $tick,
            Remind,
            Send,
        }
        #[derive(Serialize, Deserialize, JsonSchema)]
        enum $event {
            $added,
        }
        impl Event for $event {}
        impl Entity for $name {
            const KIND: &'static str = "jar";
            type Id = String;
            type Command = $command;
            type Event = $event;
            type Reply = u64;
            type Rejection = Never;
            fn creates(command: &$command) -> bool {
                !matches!(command, $command::$tick)
            }
            fn decide(&self, command: $command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
                match command {
                    $command::$add => turn.emit($event::$added),
                    $command::$tick => {}
                    $command::Remind => {
                        let later = turn.now().after(Duration::from_hours(1));
                        turn.remind("tick", later, None, $command::$tick);
                    }
                    $command::Send => turn.send::<Self>("other", $command::$add),
                }
                Ok(CommandAnswer::after(|jar: &Self| jar.sweets))
            }
            fn evolve(&mut self, _: &$event) {
                self.sweets += 1;
            }
        }
    };
}

jar!(Jar, Command { Add, Tick }, JarEvent { Added });
jar!(Careless, CarelessCommand { Put, Beat }, CarelessEvent { PutIn });

/// A projection that fails at the second sweet.
struct Picky;
impl Projection for Picky {
    const NAME: &'static str = "picky";
    type Of = Jar;
    fn apply(&self, seen: &DurableEvent<Jar>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let before: u64 = rows.json(&seen.id)?.unwrap_or(0);
        if before > 0 {
            return Err(Interrupt::poison("a second one"));
        }
        rows.put_json(&seen.id, &(before + 1))
    }
}

/// Writes two events, a timer, and a message that was taken.
async fn history() -> MemoryJournal {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder()
        .with::<Jar>()
        .start(journal.clone(), store)
        .await
        .unwrap();
    for command in [Command::Add, Command::Add, Command::Remind, Command::Send] {
        engine.entity::<Jar>("one").ask(command).await.unwrap();
    }
    engine.stop().await;
    journal
}

async fn check(program: Builder, journal: &MemoryJournal) -> CheckReport {
    let mut checker = program.checker();
    let mut after = Position::new(WriterId(1), CommitNo(0));
    loop {
        let commits = journal.read(after, 1 << 20).await.unwrap();
        let Some(last) = commits.last() else {
            return checker.finish();
        };
        after = last.position();
        for commit in &commits {
            checker.commit(commit).await;
        }
    }
}

#[tokio::test]
async fn the_program_that_wrote_it_understands_all_of_it() {
    let report = check(Engine::builder().with::<Jar>(), &history().await).await;
    assert!(report.is_sound(), "{report}");
    assert_eq!(
        (report.events, report.entities, report.timers, report.messages),
        (3, 2, 1, 0)
    );
    assert!(report.to_string().ends_with("understands all of it"), "{report}");
}

#[tokio::test]
async fn unknown_events_and_timers_are_named_with_count_and_place() {
    let report = check(Engine::builder().with::<Careless>(), &history().await).await;
    let found: Vec<_> = report.misunderstood.iter().map(|one| (&*one.what, one.times)).collect();
    // The second event of an entity is skipped.
    assert_eq!(
        found,
        [("event jar/Added version 1", 2), ("timer \"tick\" of jar: Tick", 1)]
    );
    assert!(report.misunderstood[0].first.starts_with("jar/one at 1."), "{report}");
    assert!(
        report.misunderstood[1].reason.contains("unknown variant `Tick`"),
        "{report}"
    );
}

#[tokio::test]
async fn missing_kinds_and_unrebuildable_read_models_are_named() {
    let journal = history().await;
    let report = check(Engine::builder(), &journal).await;
    assert!(!report.is_sound());
    let gone = |one: &throng::check::Misunderstood| one.reason == "the program was not given this kind";
    assert!(report.misunderstood.iter().all(gone), "{report}");

    let report = check(Engine::builder().with::<Jar>().projection(Picky), &journal).await;
    assert_eq!(report.misunderstood.len(), 1, "{report}");
    assert_eq!(report.misunderstood[0].what, "projection picky");
    assert!(report.misunderstood[0].reason.contains("a second one"), "{report}");
}

/// A program with the same kind but a different state.
#[derive(Default, Serialize, Deserialize)]
struct Weighed {
    grams: String,
}

impl Entity for Weighed {
    const KIND: &'static str = "jar";
    type Id = String;
    type Command = Command;
    type Event = JarEvent;
    type Reply = u64;
    type Rejection = Never;
    fn decide(&self, _: Command, _: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        Ok(CommandAnswer::Now(0))
    }
    fn evolve(&mut self, _: &JarEvent) {}
}

#[tokio::test]
async fn states_are_read_where_the_events_before_them_are_gone() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let options = throng::Options {
        keep: [("jar".to_owned(), Keep::Events(1))].into(),
        ..throng::Options::default()
    };
    let engine = Engine::builder().with::<Jar>().options(options);
    let engine = engine.start(journal.clone(), store).await.unwrap();
    let add = async |id: &str| _ = engine.entity::<Jar>(id).ask(Command::Add).await.unwrap();
    for id in ["one", "one", "one", "last", "last"] {
        add(id).await;
    }
    assert!(check(Engine::builder().with::<Weighed>(), &journal).await.is_sound());
    engine.prune(false).await.unwrap();
    // Deciding again needs the former state.
    add("one").await;
    engine.stop().await;
    let report = check(Engine::builder().with::<Jar>(), &journal).await;
    assert!(report.is_sound() && report.entities == 2, "{report}");
    let report = check(Engine::builder().with::<Weighed>(), &journal).await;
    let found: Vec<_> = report.misunderstood.iter().map(|one| &*one.what).collect();
    assert_eq!(found, ["state of jar version 1"], "{report}");
}
