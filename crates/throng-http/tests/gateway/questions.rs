//! Long queries of administration, beside the service's requests.

use crate::support::{Client, wait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::{CommandAnswer, Entity, Event, Turn},
};
use throng_http::Gateway;
use throng_testing::fixtures::Never;

/// The number of places for long queries, running and waiting.
const PLACES: usize = 32;

/// Blocks the application of events.
struct Barrier {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

struct BarrierState {
    is_shut: bool,
    held: usize,
}

static BARRIER: Barrier = Barrier {
    state: Mutex::new(BarrierState {
        is_shut: false,
        held: 0,
    }),
    changed: Condvar::new(),
};

impl Barrier {
    fn state(&self) -> MutexGuard<'_, BarrierState> {
        self.state.lock().unwrap()
    }

    fn pass(&self) {
        let mut state = self.state();
        while state.is_shut {
            state.held += 1;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
            state.held -= 1;
        }
    }

    fn set(&self, is_shut: bool) {
        self.state().is_shut = is_shut;
        self.changed.notify_all();
    }

    /// Waits until a thread is blocked.
    fn holds(&self) {
        let mut state = self.state();
        while state.held == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Command {
    Write {},
    Read {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum PageEvent {
    Written,
}
impl Event for PageEvent {}

#[derive(Default, Serialize, Deserialize)]
struct Page {
    lines: u64,
}

impl Entity for Page {
    const KIND: &'static str = "page";
    const PUBLIC: &'static [&'static str] = &["write", "read"];
    type Id = String;
    type Command = Command;
    type Event = PageEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        if let Command::Write {} = command {
            turn.emit(PageEvent::Written);
        }
        Ok(CommandAnswer::after(|page: &Self| page.lines))
    }

    fn evolve(&mut self, _: &PageEvent) {
        BARRIER.pass();
        self.lines += 1;
    }
}

#[test]
fn commands_are_answered_while_long_questions_are_not() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = wait(Engine::builder().with::<Page>().start(journal, store)).unwrap();
    let gateway = Gateway::builder(engine).loops(1).start().unwrap();
    let mut client = Client::new(&gateway);
    for _ in 0..3 {
        assert_eq!(client.post("/api/page/one/write", "{}").status, 200);
    }
    BARRIER.set(true);
    let (tell, told) = mpsc::channel();
    let ask = || {
        let (mut client, tell) = (Client::new(&gateway), tell.clone());
        thread::spawn(move || tell.send(client.get("/admin/entity/page/one?at=2")))
    };
    ask();
    BARRIER.holds();
    assert_eq!(client.post("/api/page/two/read", "{}").text(), "0");
    // Together with the first query, there is one more than there are places.
    for _ in 0..PLACES {
        ask();
    }
    let refused = told.recv().unwrap();
    refused.problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(client.post("/api/page/one/read", "{}").text(), "3");
    BARRIER.set(false);
    for answer in told.iter().take(PLACES) {
        assert_eq!(answer.json()["state"]["lines"], 2);
    }
}
