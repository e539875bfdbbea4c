//! The embedded log and store pass the conformance suites.

use std::{cell::RefCell, path::PathBuf, sync::Arc, time::Duration};
use tempfile::TempDir;
use throng_journal::{
    Durability,
    conformance::{
        journal,
        store::{self, Pair},
        views,
    },
};
use throng_log::{EmbeddedStore, EmbeddedViews, Log, Options, open_embedded};

struct OnDisk {
    options: Options,
    dirs: RefCell<Vec<TempDir>>,
}

impl OnDisk {
    fn new(options: Options) -> Self {
        Self {
            options,
            dirs: RefCell::default(),
        }
    }

    fn dir(&self) -> PathBuf {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_owned();
        self.dirs.borrow_mut().push(dir);
        path
    }
}

impl journal::Harness for OnDisk {
    type Journal = Log;

    fn create(&self) -> Log {
        Log::open(self.dir(), self.options.clone()).unwrap()
    }

    fn reopen(&self, journal: Log) -> Log {
        let dir = journal.dir().to_owned();
        drop(journal);
        Log::open(dir, self.options.clone()).unwrap()
    }
}

type Opened = Pair<Log, EmbeddedStore>;

impl store::Harness for OnDisk {
    type Journal = Log;
    type Store = EmbeddedStore;

    fn create(&self) -> Opened {
        let (journal, store) = open_embedded(self.dir(), self.options.clone()).unwrap();
        Pair { journal, store }
    }

    fn reopen(&self, pair: Opened) -> Opened {
        let dir = pair.journal.dir().to_owned();
        drop(pair);
        let (journal, store) = open_embedded(dir, self.options.clone()).unwrap();
        Pair { journal, store }
    }

    fn without_store(&self, pair: Opened) -> Opened {
        let dir = pair.journal.dir().to_owned();
        drop(pair);
        std::fs::remove_file(dir.join("store.redb")).unwrap();
        let (journal, store) = open_embedded(dir, self.options.clone()).unwrap();
        Pair { journal, store }
    }
}

impl views::Harness for OnDisk {
    type Views = EmbeddedViews;

    fn create(&self) -> EmbeddedViews {
        let log = Log::open(self.dir(), self.options.clone()).unwrap();
        EmbeddedViews::open(Arc::new(log)).unwrap()
    }

    fn reopen(&self, views: EmbeddedViews) -> EmbeddedViews {
        drop(views);
        let dir = self.dirs.borrow().last().unwrap().path().to_owned();
        let log = Log::open(dir, self.options.clone()).unwrap();
        EmbeddedViews::open(Arc::new(log)).unwrap()
    }
}

#[test]
fn the_embedded_views_are_views() {
    views::check_all(&OnDisk::new(Options::default()));
}

#[test]
fn the_embedded_store_is_a_store() {
    store::check_all(&OnDisk::new(Options::default()));
    store::events_that_are_missing_are_said_to_be(&OnDisk::new(Options::default()));
}

#[test]
fn the_embedded_store_is_a_store_over_tiny_segments() {
    store::check_all(&OnDisk::new(Options {
        segment_bytes: 4096,
        ..Options::default()
    }));
}

#[test]
fn the_log_is_a_journal() {
    journal::check_all(&OnDisk::new(Options::default()));
}

#[test]
fn the_log_is_a_journal_in_tiny_segments() {
    journal::check_all(&OnDisk::new(Options {
        segment_bytes: 4096,
        ..Options::default()
    }));
}

#[test]
fn the_log_is_a_journal_on_a_slow_disk() {
    journal::check_all(&OnDisk::new(Options {
        sync_delay: Duration::from_micros(1500),
        segment_bytes: 64 << 10,
        ..Options::default()
    }));
}

#[test]
fn the_log_is_a_journal_that_leaves_syncs_to_the_system() {
    journal::check_all(&OnDisk::new(Options {
        durability: Durability::Os,
        segment_bytes: 16 << 10,
        ..Options::default()
    }));
}
