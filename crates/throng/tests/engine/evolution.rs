//! Programs change: events get new shapes, states get new versions, and history remains.

use crate::kinds::eventually;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use throng::{
    Engine, Options, UnresolvedWork,
    journal::{MemoryJournal, MemoryStore, Store},
    model::*,
};
use throng_testing::fixtures::Never;

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Add { student: u64 },
}

/// Defines today's program and yesterday's, of the same kind.
macro_rules! program {
    ($name:ident, $event:ident, $state_version:expr, { $($event_body:tt)* }, $versions:expr, $upcast:expr, $apply:expr) => {
        #[derive(Default, Serialize, Deserialize)]
        struct $name {
            students: Vec<u64>,
        }
        #[derive(Serialize, Deserialize, JsonSchema)]
        enum $event { $($event_body)* }
        impl Event for $event {
            const VERSIONS: &'static [(&'static str, u16)] = $versions;
            fn upcast(old: Recorded) -> Result<Recorded, UpcastError> {
                let upcast: fn(Recorded) -> Result<Recorded, UpcastError> = $upcast;
                upcast(old)
            }
        }
        impl Entity for $name {
            const KIND: &'static str = "section";
            const STATE_VERSION: u16 = $state_version;
            type Id = String;
            type Command = Command;
            type Event = $event;
            type Reply = Vec<u64>;
            type Rejection = Never;
            fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
                let Command::Add { student } = command;
                turn.emit($event::new(student));
                Ok(CommandAnswer::after(|section: &Self| section.students.clone()))
            }
            fn evolve(&mut self, event: &$event) {
                let apply: fn(&mut Self, &$event) = $apply;
                apply(self, event);
            }
        }
    };
}

fn no_step(old: Recorded) -> Result<Recorded, UpcastError> {
    Err(UpcastError(format!(
        "no step up from {} version {}",
        old.name, old.version
    )))
}

program!(
    Yesterday,
    EventV1,
    1,
    { Added { student_id: u64 } },
    &[],
    no_step,
    |section, EventV1::Added { student_id }| {
        section.students.push(*student_id);
    }
);
impl EventV1 {
    fn new(student: u64) -> Self {
        Self::Added { student_id: student }
    }
}

// The field was renamed, then another one added; and the state counts in tens.
program!(
    Today,
    EventV3,
    2,
    {
        Enrolled {
            student: u64,
            by: String,
        }
    },
    &[("Enrolled", 3)],
    |old| match (&*old.name, old.version) {
        ("Added", 1) => {
            let student = old.payload["student_id"].clone();
            Ok(Recorded {
                name: "Enrolled".into(),
                version: 2,
                payload: serde_json::json!({ "student": student }),
            })
        }
        ("Enrolled", 2) => {
            let mut payload = old.payload;
            payload["by"] = "nobody knows".into();
            Ok(Recorded {
                name: "Enrolled".into(),
                version: 3,
                payload,
            })
        }
        _ => no_step(old),
    },
    |section, EventV3::Enrolled { student, .. }| section.students.push(student * 10)
);
impl EventV3 {
    fn new(student: u64) -> Self {
        Self::Enrolled {
            student,
            by: "today".into(),
        }
    }
}

// This program lacks the upcast from yesterday's version.
program!(
    Careless,
    EventX,
    3,
    { Enrolled { student: u64 } },
    &[("Enrolled", 4)],
    no_step,
    |section, EventX::Enrolled { student }| {
        section.students.push(*student);
    }
);
impl EventX {
    fn new(student: u64) -> Self {
        Self::Enrolled { student }
    }
}

/// Yesterday's events, with a state of another shape whose version was not raised.
#[derive(Default, Serialize, Deserialize)]
struct Reshaped {
    taken: Vec<(u64, bool)>,
}

impl Entity for Reshaped {
    const KIND: &'static str = "section";
    type Id = String;
    type Command = Command;
    type Event = EventV1;
    type Reply = Vec<u64>;
    type Rejection = Never;
    fn decide(
        &self,
        Command::Add { student }: Command,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(EventV1::new(student));
        Ok(CommandAnswer::after(|section: &Self| {
            section.taken.iter().map(|(student, _)| *student).collect()
        }))
    }
    fn evolve(&mut self, EventV1::Added { student_id }: &EventV1) {
        self.taken.push((*student_id, true));
    }
}

/// A kind that exists only in the newer program.
#[derive(Default, Serialize, Deserialize)]
struct Added {
    taken: Vec<u64>,
}

impl Entity for Added {
    const KIND: &'static str = "added";
    type Id = String;
    type Command = Command;
    type Event = EventV1;
    type Reply = Vec<u64>;
    type Rejection = Never;
    fn decide(
        &self,
        Command::Add { student }: Command,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(EventV1::new(student));
        Ok(CommandAnswer::after(|added: &Self| added.taken.clone()))
    }
    fn evolve(&mut self, EventV1::Added { student_id }: &EventV1) {
        self.taken.push(*student_id);
    }
}

/// A kind that exists only in the newer program, with children and an end.
#[derive(Default, Serialize, Deserialize)]
struct Branch {}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Grow {
    Sprout { twig: String },
    Bud,
    Twigs,
    Fall,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Grown {
    Sprouted,
    Fell,
}
impl Event for Grown {}

impl Entity for Branch {
    const KIND: &'static str = "branch";
    type Id = String;
    type Command = Grow;
    type Event = Grown;
    type Reply = Vec<String>;
    type Rejection = Never;
    fn creates(asked: &Grow) -> bool {
        matches!(asked, Grow::Sprout { .. } | Grow::Bud)
    }
    fn decide(&self, asked: Grow, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match asked {
            Grow::Sprout { twig } => {
                turn.create::<Self>(twig, Grow::Bud);
                turn.emit(Grown::Sprouted);
            }
            Grow::Bud => turn.emit(Grown::Sprouted),
            Grow::Twigs => {}
            Grow::Fall => {
                turn.emit(Grown::Fell);
                turn.end();
            }
        }
        let mut twigs: Vec<String> = turn.children::<Self>().map(str::to_owned).collect();
        twigs.sort();
        Ok(CommandAnswer::Now(twigs))
    }
    fn evolve(&mut self, _: &Grown) {}
}

async fn grow(engine: &Engine, id: &str, asked: Grow) -> Result<Vec<String>, Error<Never>> {
    engine.entity::<Branch>(id).ask(asked).await
}

struct World {
    journal: MemoryJournal,
    store: MemoryStore,
}

impl World {
    fn new() -> Self {
        let journal = MemoryJournal::new();
        Self {
            store: MemoryStore::new(journal.clone()),
            journal,
        }
    }

    /// Starts an engine with a minimal budget, so that states go to the store and return.
    async fn engine<E: Entity>(&self) -> Engine {
        let options = Options {
            memory_bytes_max: 1,
            ..Options::default()
        };
        self.start::<E>(options).await
    }

    /// Returns the number of entities that the store's rows list as unloadable.
    async fn noted(&self) -> usize {
        let mut rows = 0;
        let mut visit = |_: &[u8], _: &[u8]| rows += 1;
        self.store.system_scan(b"q", b"", usize::MAX, &mut visit).await.unwrap();
        rows
    }

    async fn start<E: Entity>(&self, options: Options) -> Engine {
        let builder = Engine::builder().with::<E>().options(options).shards(2);
        builder
            .start_shared(Arc::new(self.journal.clone()), Arc::new(self.store.clone()))
            .await
            .unwrap()
    }
}

async fn add<E>(engine: &Engine, id: &str, student: u64) -> Result<Vec<u64>, Error<Never>>
where
    E: Entity<Id = String, Command = Command, Reply = Vec<u64>, Rejection = Never>,
{
    loop {
        match engine.entity::<E>(id).ask(Command::Add { student }).await {
            Err(Error::Overloaded { .. }) => engine.checkpoint().await.unwrap(),
            answer => return answer,
        }
    }
}

#[tokio::test]
async fn events_are_upcast_and_states_of_other_versions_rebuilt() {
    for stored in [false, true] {
        let world = World::new();
        let yesterday = world.engine::<Yesterday>().await;
        for student in 1..=3 {
            for id in ["a", "b", "c"] {
                add::<Yesterday>(&yesterday, id, student).await.unwrap();
            }
        }
        if stored {
            yesterday.stop().await;
        }
        let today = world.engine::<Today>().await;
        for id in ["a", "b", "c"] {
            assert_eq!(add::<Today>(&today, id, 4).await.unwrap(), [10, 20, 30, 40]);
        }
        today.stop().await;
        let again = world.engine::<Today>().await;
        assert_eq!(add::<Today>(&again, "a", 5).await.unwrap(), [10, 20, 30, 40, 50]);
        again.stop().await;
    }
}

//= promise 8: a panic costs one command
#[tokio::test]
async fn an_event_that_cannot_be_upcast_quarantines_its_entity() {
    let world = World::new();
    let yesterday = world.engine::<Yesterday>().await;
    add::<Yesterday>(&yesterday, "a", 1).await.unwrap();
    yesterday.stop().await;
    let careless = world.engine::<Careless>().await;
    let answer = add::<Careless>(&careless, "a", 2).await;
    let Err(Error::Quarantined {
        address,
        seq: 1,
        reason,
        by_operator: false,
    }) = answer
    else {
        panic!("{answer:?}")
    };
    assert_eq!(address, "section/a");
    assert_eq!(careless.health().quarantines, 1);
    assert!(reason.contains("no step up from Added version 1"), "{reason}");
    assert_eq!(
        add::<Careless>(&careless, "fresh", 2).await.unwrap(),
        [2],
        "others are not concerned"
    );
    careless.stop().await;
    let mended = world.engine::<Yesterday>().await;
    assert_eq!(
        add::<Yesterday>(&mended, "a", 2).await.unwrap(),
        [1, 2],
        "nothing was lost"
    );
}

/// Returns the last count of unloadable sections, and some of them with the reason.
fn unloadable(engine: &Engine) -> (u64, String) {
    let mut unresolved = engine.health().unresolved.into_iter();
    let of_program = unresolved.find(|counted| counted.work == UnresolvedWork::QuarantinedByProgram);
    of_program.map_or_else(Default::default, |counted| (counted.count, counted.reason))
}

#[tokio::test]
async fn restart_keeps_the_gauge_of_entities_that_cannot_be_loaded() {
    let world = World::new();
    let yesterday = world.engine::<Yesterday>().await;
    for id in ["a", "b", "c"] {
        add::<Yesterday>(&yesterday, id, 1).await.unwrap();
    }
    yesterday.stop().await;
    for round in 0..3 {
        let careless = world.engine::<Careless>().await;
        // After the first round they are not asked again. At most one is in memory.
        for id in ["a", "b"].iter().filter(|_| round == 0) {
            add::<Careless>(&careless, id, 2).await.unwrap_err();
        }
        eventually(async || unloadable(&careless).0 == 2).await;
        let (_, named) = unloadable(&careless);
        for said in ["a: event", "b: event", "no step up from Added version 1"] {
            assert!(named.contains(said), "round {round}: {named}");
        }
        let mut text = String::new();
        careless.metrics().encode(&mut text).unwrap();
        let gauge = "throng_quarantined_entities{kind=\"section\",by=\"program\"} 2";
        assert!(text.contains(gauge), "round {round}: {text}");
        careless.stop().await;
    }
    // A program that can read them retries them by itself, and removes them from the list.
    let mended = world.engine::<Yesterday>().await;
    eventually(async || {
        mended.checkpoint().await.unwrap();
        mended.health().unresolved.is_empty() && world.noted().await == 0
    })
    .await;
    mended.stop().await;
}

#[tokio::test]
async fn an_unreadable_stored_state_is_rebuilt_from_its_events() {
    let world = World::new();
    let yesterday = world.engine::<Yesterday>().await;
    add::<Yesterday>(&yesterday, "a", 1).await.unwrap();
    // Passivated, so that its state is stored.
    add::<Yesterday>(&yesterday, "b", 1).await.unwrap();
    yesterday.stop().await;
    let reshaped = world.engine::<Reshaped>().await;
    assert_eq!(add::<Reshaped>(&reshaped, "a", 2).await.unwrap(), [1, 2]);
    assert_eq!(reshaped.health().quarantines, 0);
}

#[tokio::test]
async fn a_program_without_a_kind_forgets_none_of_its_entities() {
    for stored in [false, true] {
        let world = World::new();
        let newer = world.engine::<Added>().await;
        add::<Added>(&newer, "a", 1).await.unwrap();
        if stored {
            newer.checkpoint().await.unwrap();
            add::<Added>(&newer, "a", 2).await.unwrap();
        }
        add::<Added>(&newer, "b", 1).await.unwrap();
        for _ in 0..2 {
            let older = world.engine::<Yesterday>().await;
            add::<Yesterday>(&older, "a", 1).await.unwrap();
            older.stop().await;
        }
        let newer = world.engine::<Added>().await;
        let before: &[u64] = if stored { &[1, 2] } else { &[1] };
        assert_eq!(add::<Added>(&newer, "a", 3).await.unwrap(), [before, &[3]].concat());
        assert_eq!(add::<Added>(&newer, "b", 2).await.unwrap(), [1, 2]);
        newer.stop().await;
    }
}

#[tokio::test]
async fn a_program_without_a_kind_keeps_its_relatives_and_ends() {
    for stored in [false, true] {
        let world = World::new();
        // Checkpoints are made only on request.
        let options = || Options {
            checkpoint_every: Duration::from_secs(3_600),
            ..Options::default()
        };
        let newer = world.start::<Branch>(options()).await;
        let sprout = async |id: &str, twig: &str| {
            let asked = Grow::Sprout { twig: twig.into() };
            grow(&newer, id, asked).await.unwrap()
        };
        sprout("a", "x").await;
        sprout("b", "z").await;
        if stored {
            newer.checkpoint().await.unwrap();
        }
        sprout("a", "y").await;
        grow(&newer, "b", Grow::Fall).await.unwrap();
        for _ in 0..2 {
            let older = world.start::<Yesterday>(options()).await;
            add::<Yesterday>(&older, "a", 1).await.unwrap();
            older.stop().await;
        }
        for _ in 0..2 {
            let newer = world.start::<Branch>(options()).await;
            assert_eq!(grow(&newer, "a", Grow::Twigs).await.unwrap(), ["x", "y"]);
            let ended = grow(&newer, "b", Grow::Twigs).await;
            assert!(matches!(ended, Err(Error::Ended { .. })), "{ended:?}");
            newer.stop().await;
        }
    }
}
