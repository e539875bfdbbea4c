//! The journal and the store pass the conformance suites on a real server.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "kit/mod.rs"]
mod kit;

use std::sync::Arc;
use throng_journal::conformance::{
    cluster::{self, Member},
    journal,
    store::{self, Pair},
    views,
};
use throng_postgres::{Opened, PostgresDirectory, PostgresJournal, PostgresStore, PostgresViews, open_postgres};

/// A journal in a new schema for each check.
struct OnServer {
    /// Additional options of the URL.
    more: &'static str,
}

impl OnServer {
    fn open(&self, schema: &str) -> Pair<PostgresJournal, PostgresStore> {
        let Opened { journal, store, .. } = open_postgres(kit::options(schema, self.more)).unwrap();
        Pair { journal, store }
    }

    fn alone(&self, schema: &str) -> PostgresJournal {
        Arc::into_inner(self.open(schema).journal).unwrap()
    }
}

impl journal::Harness for OnServer {
    type Journal = PostgresJournal;

    fn create(&self) -> PostgresJournal {
        self.alone(&kit::schema())
    }

    fn reopen(&self, journal: PostgresJournal) -> PostgresJournal {
        let schema = journal.options().schema.clone();
        drop(journal);
        self.alone(&schema)
    }

    fn several_nodes(&self) -> bool {
        true
    }
}

impl store::Harness for OnServer {
    type Journal = PostgresJournal;
    type Store = PostgresStore;

    fn create(&self) -> Pair<PostgresJournal, PostgresStore> {
        self.open(&kit::schema())
    }

    fn reopen(&self, pair: Pair<PostgresJournal, PostgresStore>) -> Pair<PostgresJournal, PostgresStore> {
        let schema = pair.journal.options().schema.clone();
        drop(pair);
        self.open(&schema)
    }

    fn without_store(&self, pair: Pair<PostgresJournal, PostgresStore>) -> Pair<PostgresJournal, PostgresStore> {
        let schema = pair.journal.options().schema.clone();
        drop(pair);
        let forget = format!(
            "SET search_path TO {schema}; TRUNCATE entities, states, places, system, events, covers; UPDATE checkpoint SET \
             writer = NULL, commit = NULL, events_writer = NULL, events_commit = NULL"
        );
        throng_testing::block_on(async { kit::psql(&kit::SERVER).await.batch_execute(&forget).await.unwrap() });
        self.open(&schema)
    }
}

impl cluster::Harness for OnServer {
    type Journal = PostgresJournal;
    type Store = PostgresStore;
    type Directory = PostgresDirectory;
    type Cluster = String;

    fn create(&self) -> String {
        kit::schema()
    }

    fn open(&self, schema: &String) -> Member<PostgresJournal, PostgresStore, PostgresDirectory> {
        let opened = open_postgres(kit::options(schema, self.more)).unwrap();
        Member {
            journal: opened.journal,
            store: opened.store,
            directory: opened.directory,
        }
    }
}

impl views::Harness for OnServer {
    type Views = PostgresViews;

    fn create(&self) -> PostgresViews {
        let opened = open_postgres(kit::options(&kit::schema(), self.more)).unwrap();
        Arc::into_inner(opened.views).unwrap()
    }

    fn reopen(&self, views: PostgresViews) -> PostgresViews {
        let schema = views.options().schema.clone();
        drop(views);
        let opened = open_postgres(kit::options(&schema, self.more)).unwrap();
        Arc::into_inner(opened.views).unwrap()
    }
}

#[test]
fn the_read_models_are_views() {
    views::check_all(&OnServer { more: "" });
}

#[test]
fn the_journal_is_a_journal() {
    journal::check_all(&OnServer { more: "" });
}

#[test]
fn the_journal_is_a_journal_with_four_appends_in_flight() {
    journal::check_all(&OnServer { more: "depth=4" });
}

#[test]
fn the_journal_is_a_journal_that_leaves_syncs_to_the_server() {
    journal::check_all(&OnServer {
        more: "durability=os&lease=0",
    });
}

#[test]
fn the_store_is_a_store() {
    store::check_all(&OnServer { more: "" });
    store::events_that_are_missing_are_said_to_be(&OnServer { more: "" });
}

#[test]
fn the_store_is_a_store_without_the_table_events() {
    store::check_all(&OnServer { more: "events=off" });
}

#[test]
fn the_directory_passes_the_cluster_suite() {
    cluster::check_all(&OnServer { more: "lease=1s" });
}

#[test]
fn the_cluster_suite_passes_without_the_table_events() {
    cluster::check_all(&OnServer {
        more: "lease=1s&events=off",
    });
}
