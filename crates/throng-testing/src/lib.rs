//! For tests: an engine in memory, an entity, an HTTP client that reads whole answers, journals that wait, and a browser.

mod browser;
mod client;
mod delegate;
pub mod fixtures;
mod openapi;

pub use browser::{Browser, browse};
pub use client::{Client, JSON, Response, request};
pub use openapi::openapi_faults;

use std::{
    fmt::Display,
    future::Future,
    thread,
    time::{Duration, Instant},
};
use throng::{
    Builder, Engine,
    journal::{MemoryJournal, MemoryStore},
};

pub use delegate::{Fallible, HeldJournal};
/// Types that [`delegate!`] names.
#[doc(hidden)]
pub use throng::{host::Task, journal, model::Timestamp};

/// The longest wait in a test. A test that hangs for this long fails, instead of hanging on.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Time a [`Client`] waits for bytes: one answer that hangs is seen before [`PATIENCE`] ends.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);

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
    until_ok(what, || holds().then_some(()).ok_or("it does not hold"));
}

/// Tries until it works, and tells the last failure of what never did.
///
/// # Panics
/// No try works within [`PATIENCE`].
#[track_caller]
pub fn until_ok<T, E: Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < PATIENCE, "never came true: {what}: {why}"),
        }
        blocking_pause();
    }
}

/// Waits in an async test until something holds, as [`until`] does.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    eventually_ok(what, async || holds().await.then_some(()).ok_or("it does not hold")).await;
}

/// Tries in an async test until it works, as [`until_ok`] does.
///
/// # Panics
/// No try works within [`PATIENCE`].
pub async fn eventually_ok<T, E: Display>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < PATIENCE, "never came true: {what}: {why}"),
        }
        pause().await;
    }
}

/// Runs what has to end by itself, and tells what did not.
///
/// # Panics
/// The future does not end within [`PATIENCE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect(what)
}

/// Leaves the processors for a moment to what a test waits for.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Leaves the processors for a moment, as [`pause`] does, on a thread of its own.
pub fn blocking_pause() {
    thread::sleep(PAUSE);
}
