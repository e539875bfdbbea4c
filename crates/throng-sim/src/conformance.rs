//! The conformance suites on the simulated journal and store, without faults.

use crate::{
    faults::Faults,
    journal::SimJournal,
    medium::{Medium, Rows},
    store::SimStore,
    world::World,
};
use std::sync::{Arc, Mutex};
use throng_journal::{
    Durability,
    conformance::{journal, store},
};

fn create() -> SimJournal {
    SimJournal {
        world: World::new(1, false),
        medium: Medium::new(Durability::Fsync, None),
        faults: Arc::new(Mutex::new(Faults::none())),
        state: Arc::default(),
        process: 1,
    }
}

fn reopen(journal: &SimJournal) -> SimJournal {
    SimJournal {
        state: Arc::default(),
        ..journal.clone()
    }
}

struct Kept;

impl journal::Harness for Kept {
    type Journal = SimJournal;

    fn create(&self) -> SimJournal {
        create()
    }

    fn reopen(&self, journal: SimJournal) -> SimJournal {
        reopen(&journal)
    }
}

impl store::Harness for Kept {
    type Journal = SimJournal;
    type Store = SimStore;

    fn create(&self) -> store::Pair<SimJournal, SimStore> {
        let journal = create();
        store::Pair {
            store: Arc::new(SimStore {
                journal: journal.clone(),
            }),
            journal: Arc::new(journal),
        }
    }

    fn reopen(&self, pair: store::Pair<SimJournal, SimStore>) -> store::Pair<SimJournal, SimStore> {
        let journal = reopen(&pair.journal);
        store::Pair {
            store: Arc::new(SimStore {
                journal: journal.clone(),
            }),
            journal: Arc::new(journal),
        }
    }

    fn without_store(&self, pair: store::Pair<SimJournal, SimStore>) -> store::Pair<SimJournal, SimStore> {
        pair.journal.medium.lock().rows = Rows::default();
        store::Harness::reopen(self, pair)
    }
}

#[test]
fn the_simulated_journal_is_a_journal() {
    journal::check_all(&Kept);
}

#[test]
fn the_simulated_store_is_a_store() {
    store::check_all(&Kept);
}
