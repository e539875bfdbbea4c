//! The conformance suites, on a store without faults.

use crate::{
    weather::{Remote, Server, Weather},
    world::{Process, World},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use throng_conditional::{
    ConditionalDirectory, ConditionalJournal, ConditionalOptions, ConditionalStates, Opened, Unfit, open_conditional,
    trial,
};
use throng_journal::conformance::{
    cluster::{self, Member},
    journal,
    store::{self, Pair},
};

/// A store for each check, and the world in which all run.
struct Memory {
    world: Arc<World>,
    server: Mutex<Arc<Server>>,
}

impl Memory {
    fn new(world: Arc<World>) -> Self {
        Self {
            world,
            server: Mutex::default(),
        }
    }

    fn anew(&self) -> Opened {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.open()
    }

    fn open(&self) -> Opened {
        let server = Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner));
        open_in(&self.world, server, 1)
    }
}

pub(crate) fn open_in(world: &Arc<World>, server: Arc<Server>, group: u64) -> Opened {
    let remote = Remote {
        world: Arc::clone(world),
        server,
        weather: Weather {
            latency: 100,
            ..Weather::FAIR
        },
    };
    let host = Process {
        world: Arc::clone(world),
        group,
    };
    let options = ConditionalOptions {
        lease: Duration::from_millis(50),
        depth: 2,
    };
    open_conditional(Arc::new(remote), Arc::new(host), options)
}

impl journal::Harness for Memory {
    type Journal = ConditionalJournal;

    fn create(&self) -> ConditionalJournal {
        (*self.anew().journal).clone()
    }

    fn reopen(&self, journal: ConditionalJournal) -> ConditionalJournal {
        drop(journal);
        (*self.open().journal).clone()
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.world.run(future)
    }

    fn several_nodes(&self) -> bool {
        true
    }
}

impl store::Harness for Memory {
    type Journal = ConditionalJournal;
    type Store = ConditionalStates;

    fn create(&self) -> Pair<ConditionalJournal, ConditionalStates> {
        let Opened { journal, store, .. } = self.anew();
        Pair { journal, store }
    }

    fn reopen(&self, pair: Pair<ConditionalJournal, ConditionalStates>) -> Pair<ConditionalJournal, ConditionalStates> {
        drop(pair);
        let Opened { journal, store, .. } = self.open();
        Pair { journal, store }
    }

    fn without_store(
        &self,
        pair: Pair<ConditionalJournal, ConditionalStates>,
    ) -> Pair<ConditionalJournal, ConditionalStates> {
        let pair = store::Harness::reopen(self, pair);
        self.world.run(pair.store.lose()).expect("the rows are gone");
        pair
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.world.run(future)
    }
}

impl cluster::Harness for Memory {
    type Journal = ConditionalJournal;
    type Store = ConditionalStates;
    type Directory = ConditionalDirectory;
    type Cluster = Arc<Server>;

    fn create(&self) -> Arc<Server> {
        Arc::default()
    }

    fn open(&self, place: &Arc<Server>) -> Member<ConditionalJournal, ConditionalStates, ConditionalDirectory> {
        let opened = open_in(&self.world, Arc::clone(place), 1);
        Member {
            journal: opened.journal,
            store: opened.store,
            directory: opened.directory,
        }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.world.run(future)
    }
}

#[test]
fn conditional_directory_passes_the_cluster_suite() {
    cluster::check_all(&Memory::new(World::in_real_time()));
}

#[test]
fn conditional_journal_is_a_journal() {
    journal::check_all(&Memory::new(World::new(1)));
}

#[test]
fn conditional_store_is_a_store() {
    store::check_all(&Memory::new(World::new(1)));
}

#[test]
fn trial_refuses_a_store_that_lets_two_win() {
    for seed in 0..20 {
        let verdict = |weather: Weather| {
            let world = World::new(seed);
            let remote = Remote {
                world: Arc::clone(&world),
                server: Arc::default(),
                weather,
            };
            let host = Process {
                world: Arc::clone(&world),
                group: 1,
            };
            world.run(trial(&remote, &host))
        };
        assert_eq!(verdict(Weather::FAIR), Ok(()), "seed {seed}");
        assert_eq!(verdict(Weather::ROUGH), Ok(()), "seed {seed}");
        let lies = Weather {
            two_win: 1_000,
            ..Weather::FAIR
        };
        let why = verdict(lies);
        assert!(matches!(why, Err(Unfit::SeveralCreated { .. })), "seed {seed}: {why:?}");
    }
}
