//! The in-memory backends pass the suites.

use std::sync::Arc;
use throng_journal::{
    MemoryDirectory, MemoryJournal, MemoryStore, MemoryViews,
    conformance::{
        cluster::{self, Member},
        journal,
        store::{self, Pair},
        views,
    },
};

struct Memory;

impl journal::Harness for Memory {
    type Journal = MemoryJournal;

    fn create(&self) -> MemoryJournal {
        MemoryJournal::new()
    }

    fn reopen(&self, journal: MemoryJournal) -> MemoryJournal {
        journal
    }

    fn several_nodes(&self) -> bool {
        true
    }
}

impl store::Harness for Memory {
    type Journal = MemoryJournal;
    type Store = MemoryStore;

    fn create(&self) -> Pair<MemoryJournal, MemoryStore> {
        let journal = MemoryJournal::new();
        Pair {
            store: Arc::new(MemoryStore::new(journal.clone())),
            journal: Arc::new(journal),
        }
    }

    fn reopen(&self, pair: Pair<MemoryJournal, MemoryStore>) -> Pair<MemoryJournal, MemoryStore> {
        pair
    }

    fn without_store(&self, pair: Pair<MemoryJournal, MemoryStore>) -> Pair<MemoryJournal, MemoryStore> {
        Pair {
            store: Arc::new(MemoryStore::new((*pair.journal).clone())),
            ..pair
        }
    }
}

impl cluster::Harness for Memory {
    type Journal = MemoryJournal;
    type Store = MemoryStore;
    type Directory = MemoryDirectory;
    type Cluster = Pair<MemoryJournal, MemoryStore>;

    fn create(&self) -> Self::Cluster {
        store::Harness::create(self)
    }

    fn open(&self, place: &Self::Cluster) -> Member<MemoryJournal, MemoryStore, MemoryDirectory> {
        Member {
            directory: Arc::new(place.journal.directory()),
            journal: Arc::clone(&place.journal),
            store: Arc::clone(&place.store),
        }
    }
}

impl views::Harness for Memory {
    type Views = MemoryViews;

    fn create(&self) -> MemoryViews {
        MemoryViews::new()
    }

    fn reopen(&self, views: MemoryViews) -> MemoryViews {
        views
    }
}

#[test]
fn the_memory_views_are_views() {
    views::check_all(&Memory);
}

#[test]
fn the_memory_journal_is_a_journal() {
    journal::check_all(&Memory);
}

#[test]
fn the_memory_store_is_a_store() {
    store::check_all(&Memory);
}

#[test]
fn the_memory_directory_passes_the_cluster_suite() {
    cluster::check_all(&Memory);
}
