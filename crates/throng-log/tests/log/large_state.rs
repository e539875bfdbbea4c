//! An entity whose state is too large to be stored. Its lineage and its end are kept, whatever a checkpoint covers.

use crate::notes::once_free;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use throng::{
    Engine, Options,
    inspect::{ChildrenPage, Inspect},
    journal::{MemoryJournal, MemoryStore, Store},
    model::*,
};
use throng_log::open_embedded;
use throng_testing::{eventually_ok, fixtures::Never};

/// More than the largest state that is stored.
const TOO_LARGE: usize = 17 << 20;

#[derive(Default, Serialize, Deserialize)]
struct Parcel {
    content: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Fill { bytes: usize },
    Adopt { id: String },
    Tick,
    Close,
    Reopen,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum ParcelEvent {
    Filled { bytes: usize },
    Closed,
}
impl Event for ParcelEvent {}

impl Entity for Parcel {
    const KIND: &'static str = "parcel";
    type Id = String;
    type Command = Command;
    type Event = ParcelEvent;
    type Reply = ();
    type Rejection = Never;

    fn recreates(command: &Command) -> bool {
        matches!(command, Command::Reopen)
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Command::Fill { bytes } => turn.emit(ParcelEvent::Filled { bytes }),
            // No event records this.
            Command::Adopt { id } => turn.create::<Self>(id, Command::Fill { bytes: 1 }),
            Command::Tick => {}
            Command::Close => {
                turn.emit(ParcelEvent::Closed);
                turn.end();
            }
            Command::Reopen => turn.emit(ParcelEvent::Filled { bytes: 2 }),
        }
        Ok(CommandAnswer::after(|_: &Parcel| ()))
    }

    fn evolve(&mut self, event: &ParcelEvent) {
        if let ParcelEvent::Filled { bytes } = event {
            self.content = "x".repeat(*bytes);
        }
    }
}

/// The query for the size.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Look;

impl Query<Parcel> for Look {
    const NAME: &'static str = "Look";
    type Answer = usize;

    fn answer(self, parcel: &Parcel, _: &Moment<'_, Parcel>) -> Result<usize, Never> {
        Ok(parcel.content.len())
    }
}

/// The size, the parent, and the children of an entity.
type Seen = (usize, Option<String>, Vec<String>);

/// The journal and store of an engine: in memory, or in a directory.
enum Kept<'a> {
    Memory(MemoryJournal, MemoryStore),
    Disk(&'a Path),
}

impl Kept<'_> {
    fn in_memory() -> Self {
        let journal = MemoryJournal::new();
        Self::Memory(journal.clone(), MemoryStore::new(journal))
    }

    async fn start(&self, keep: Keep) -> Running {
        let (journal, store): (Arc<dyn throng::journal::Journal>, Arc<dyn Store>) = match self {
            Self::Memory(journal, store) => (Arc::new(journal.clone()), Arc::new(store.clone())),
            Self::Disk(dir) => {
                let (log, store) = once_free(|| open_embedded(dir, throng_log::Options::default())).await;
                (log, store)
            }
        };
        let options = Options {
            keep: BTreeMap::from([("parcel".to_owned(), keep)]),
            // Passes run only on a test's request.
            prune_every: Some(Duration::from_hours(1)),
            checkpoint_every: Duration::from_hours(1),
            deadline: Duration::from_mins(1),
            drain: Duration::from_mins(1),
            ..Options::default()
        };
        let engine = Engine::builder()
            .with::<Parcel>()
            .query::<Parcel, Look>()
            .shards(1)
            .options(options)
            .start_shared(journal, Arc::clone(&store))
            .await
            .unwrap();
        Running { engine, store }
    }
}

struct Running {
    engine: Engine,
    store: Arc<dyn Store>,
}

impl Running {
    async fn ask(&self, id: &str, command: Command) {
        self.engine.entity::<Parcel>(id).ask(command).await.unwrap();
    }

    async fn adopt(&self, child: &str) {
        self.ask("a", Command::Adopt { id: child.into() }).await;
        eventually_ok("it is there", async || self.look(child).await).await;
    }

    async fn look(&self, id: &str) -> Result<Seen, Error<Never>> {
        let length = self.engine.entity::<Parcel>(id).read(Look).await?;
        let wanted = Inspect {
            children: Some(ChildrenPage {
                limit: 10,
                ..ChildrenPage::default()
            }),
            ..Inspect::default()
        };
        let found = self.engine.inspect(0, id, wanted).await.unwrap();
        let id = |(_, id)| id;
        let children = found.children_page.into_iter().map(id).collect();
        Ok((length, found.parent.map(id), children))
    }

    async fn is_over(&self) -> bool {
        let asked = self.engine.entity::<Parcel>("a").ask(Command::Tick).await;
        matches!(asked, Err(Error::Ended { .. }))
    }

    /// Returns the number of lineage rows in the store.
    async fn notes(&self) -> usize {
        let mut count = 0;
        let mut visit = |_: &[u8], _: &[u8]| count += 1;
        self.store.system_scan(b"u", b"", 10, &mut visit).await.unwrap();
        count
    }

    /// Covers everything by a checkpoint, and restarts from the stored data.
    async fn restart(self, kept: &Kept<'_>, keep: Keep) -> Self {
        self.engine.checkpoint().await.unwrap();
        self.engine.stop().await;
        drop(self);
        kept.start(keep).await
    }
}

/// Creates a stored parcel of one byte, with a parent and a child.
async fn small(kept: &Kept<'_>) -> Running {
    let running = kept.start(Keep::Forever).await;
    running.ask("root", Command::Adopt { id: "a".into() }).await;
    running.adopt("first").await;
    running.restart(kept, Keep::Forever).await
}

async fn on_each_journal(check: impl AsyncFn(&Kept<'_>)) {
    check(&Kept::in_memory()).await;
    let dir = tempfile::tempdir().unwrap();
    check(&Kept::Disk(dir.path())).await;
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relatives_of_an_entity_too_large_to_store_survive_restarts() {
    on_each_journal(async |kept| {
        let mut running = small(kept).await;
        running.ask("a", Command::Fill { bytes: TOO_LARGE }).await;
        running.adopt("second").await;
        running = running.restart(kept, Keep::Forever).await;
        let parent = || Some("root".to_owned());
        let two = (TOO_LARGE, parent(), ids(&["first", "second"]));
        assert_eq!(running.look("a").await.unwrap(), two);
        // Covered again: once after another child was added, once without.
        running.adopt("third").await;
        for _ in 0..2 {
            running = running.restart(kept, Keep::Forever).await;
            let three = (TOO_LARGE, parent(), ids(&["first", "second", "third"]));
            assert_eq!(running.look("a").await.unwrap(), three);
        }
        assert_eq!(running.notes().await, 1);

        // The parcel is small again, so its stored state has everything.
        running.ask("a", Command::Fill { bytes: 3 }).await;
        running.adopt("fourth").await;
        running = running.restart(kept, Keep::Forever).await;
        assert_eq!(running.notes().await, 0);
        let four = (3, parent(), ids(&["first", "fourth", "second", "third"]));
        assert_eq!(running.look("a").await.unwrap(), four);
        running.engine.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_that_ended_too_large_to_store_stays_ended() {
    on_each_journal(async |kept| {
        let mut running = small(kept).await;
        running.ask("a", Command::Fill { bytes: TOO_LARGE }).await;
        running.ask("a", Command::Close).await;
        assert!(running.is_over().await);
        for _ in 0..2 {
            running = running.restart(kept, Keep::Forever).await;
            assert!(running.is_over().await);
        }
        // The reopened entity keeps nothing of its former state.
        running.ask("a", Command::Reopen).await;
        running = running.restart(kept, Keep::Forever).await;
        assert_eq!(running.look("a").await.unwrap().0, 2);
        running.engine.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_its_end_is_left_of_an_ended_entity_too_large_to_store() {
    on_each_journal(async |kept| {
        let mut running = small(kept).await;
        running.ask("a", Command::Fill { bytes: TOO_LARGE }).await;
        running.adopt("second").await;
        running.ask("a", Command::Close).await;
        running = running.restart(kept, Keep::Age(Duration::ZERO)).await;
        assert_eq!(running.notes().await, 1);
        assert_eq!(running.engine.prune(false).await.unwrap().gone, 1);
        assert_eq!(running.notes().await, 0);
        for _ in 0..2 {
            running = running.restart(kept, Keep::Age(Duration::ZERO)).await;
            assert!(running.is_over().await);
        }
        running.ask("a", Command::Reopen).await;
        assert_eq!(running.look("a").await.unwrap(), (2, None, Vec::new()));
        let history = running.engine.history(0, "a", 0, 10).await.unwrap();
        assert!(history.events.iter().all(|event| event.seq > 3), "numbered on");
        running.engine.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_entity_too_large_to_store_leaves_no_note() {
    on_each_journal(async |kept| {
        let mut running = small(kept).await;
        running.ask("a", Command::Fill { bytes: TOO_LARGE }).await;
        running.adopt("second").await;
        running.engine.checkpoint().await.unwrap();
        assert_eq!(running.notes().await, 1);
        running.engine.erase("parcel", "a").await.unwrap();
        assert_eq!(running.notes().await, 0);
        running = running.restart(kept, Keep::Forever).await;
        assert!(running.is_over().await);
        running.ask("a", Command::Reopen).await;
        assert_eq!(running.look("a").await.unwrap(), (2, None, Vec::new()));
        running.engine.stop().await;
    })
    .await;
}
