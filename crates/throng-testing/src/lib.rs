//! Helpers for tests: an engine in memory, an entity, an HTTP client that reads whole answers, journals that wait, and a browser.

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
/// Types that [`delegate!`] uses.
#[doc(hidden)]
pub use throng::{host::Task, journal, model::Timestamp};

/// The longest wait in a test. After it the test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The time that a [`Client`] waits for bytes. Shorter than [`PATIENCE`], so that the test shows which answer is missing.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);

/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// Starts an engine with these kinds on a journal of its own.
#[must_use]
pub fn in_memory(builder: Builder) -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    start_on(builder, journal, store)
}

/// Starts an engine on a journal that may contain history.
///
/// # Panics
/// The engine does not start.
#[must_use]
pub fn start_on(builder: Builder, journal: MemoryJournal, store: MemoryStore) -> Engine {
    block_on(builder.start(journal, store)).expect("an engine in memory starts")
}

/// Runs a future on a runtime of its own.
///
/// # Panics
/// No runtime can be built.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Waits until the condition holds. The panic names what never held.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_ok(what, || holds().then_some(()).ok_or("it does not hold"));
}

/// Repeats an attempt until it succeeds. The panic shows the last failure.
///
/// # Panics
/// No attempt succeeds within [`PATIENCE`].
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

/// Async version of [`until`].
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    eventually_ok(what, async || holds().await.then_some(()).ok_or("it does not hold")).await;
}

/// Async version of [`until_ok`].
///
/// # Panics
/// No attempt succeeds within [`PATIENCE`].
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

/// Runs a future that must end by itself. The panic names it otherwise.
///
/// # Panics
/// The future does not end within [`PATIENCE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect(what)
}

/// Sleeps briefly, so that other tasks can run.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Sleeps briefly like [`pause`], blocking the thread.
pub fn blocking_pause() {
    thread::sleep(PAUSE);
}
