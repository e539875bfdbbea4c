//! For tests: an engine in memory, an entity, an HTTP client that reads whole answers, and a browser.

mod browser;
mod client;
pub mod fixtures;

pub use browser::{Browser, browse};
pub use client::{Client, JSON, Response, request};

use std::{
    future::Future,
    thread,
    time::{Duration, Instant},
};
use throng::{
    Builder, Engine,
    journal::{MemoryJournal, MemoryStore},
};

/// What hangs for so long is a failed test, not a hung one.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Time a [`Client`] waits for bytes: one answer that hangs is seen before [`PATIENCE`] ends.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Starts an engine with these kinds on a journal of its own.
#[must_use]
pub fn in_memory(builder: Builder) -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    start_on(builder, journal, store)
}

/// Starts an engine on a journal that may have a history.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn start_on(builder: Builder, journal: MemoryJournal, store: MemoryStore) -> Engine {
    block_on(builder.start(journal, store)).expect("an engine in memory starts")
}

/// Runs a future on a runtime of its own.
///
/// # Panics
/// There is no runtime to be had.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Waits until something holds, and tells what never came to hold.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        // The processors are for what it waits for.
        thread::sleep(PAUSE);
    }
}

/// Waits in an async test until something holds, as [`until`] does.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
