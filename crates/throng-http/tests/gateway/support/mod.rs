//! A small service, and clients for it.

pub(crate) mod both_paths;
pub(crate) mod client;
pub(crate) mod held;
pub(crate) mod http2;
pub(crate) mod section;
pub(crate) mod socket;

use std::time::Duration;
use throng::{
    Builder, Engine, Options,
    journal::{MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Limits, Running};

pub(crate) use client::{Client, Received};
pub(crate) use throng_testing::block_on as wait;

/// Starts an engine with sections, on a journal in memory.
pub(crate) fn engine() -> Engine {
    engine_with(Options::default())
}

/// Starts it with these options.
pub(crate) fn engine_with(options: Options) -> Engine {
    engine_of(|builder| builder.options(options))
}

/// Starts it with an extended builder.
pub(crate) fn engine_of(more: impl FnOnce(Builder) -> Builder) -> Engine {
    engine_on(MemoryJournal::new(), more)
}

/// Starts it on this journal.
pub(crate) fn engine_on(journal: MemoryJournal, more: impl FnOnce(Builder) -> Builder) -> Engine {
    let store = MemoryStore::new(journal.clone());
    let builder = Engine::builder()
        .with::<section::Section>()
        .query::<section::Section, section::View>();
    wait(more(builder.query::<section::Section, section::Enrolled>()).start(journal, store)).unwrap()
}

/// Starts a gateway on a free port.
pub(crate) fn start(set: impl FnOnce(Gateway) -> Gateway) -> Running {
    set(Gateway::builder(engine())).start().unwrap()
}

/// Starts a gateway with default settings.
pub(crate) fn plain() -> Running {
    start(|gateway| gateway)
}

/// Starts a gateway with short batches, which allows only short waits.
pub(crate) fn impatient() -> Running {
    let limits = Limits {
        batch: Duration::from_millis(1),
        wait_max: Duration::from_millis(2),
        ..Limits::default()
    };
    start(|gateway| gateway.limits(limits))
}

/// Returns a value from the gateway's metrics.
pub(crate) fn metric(gateway: &Running, name: &str) -> u64 {
    let text = Client::new(gateway).get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Writes a file with tokens for these callers. Returns it with the tokens.
pub(crate) fn tokens<const N: usize>(names: [&str; N]) -> (tempfile::TempDir, [String; N]) {
    let dir = tempfile::tempdir().unwrap();
    let made = names.map(|name| throng_http::make_token(name, None).unwrap());
    let lines: String = made.iter().map(|(_, line)| format!("{line}\n")).collect();
    std::fs::write(dir.path().join("tokens"), lines).unwrap();
    (dir, made.map(|(token, _)| format!("Bearer {token}")))
}
