//! A gateway whose commits can be made to wait.

use super::{section, wait};
use throng::{
    Engine, Options,
    journal::{Journal, MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Limits, Running};
use throng_testing::HeldJournal;
use tokio::sync::watch;

/// A gateway whose commits wait while `true` was sent.
pub(crate) fn held(limits: Limits) -> (Running, watch::Sender<bool>) {
    held_with(Options::default(), |gateway| gateway.limits(limits))
}

/// The same, set otherwise.
pub(crate) fn held_with(options: Options, set: impl FnOnce(Gateway) -> Gateway) -> (Running, watch::Sender<bool>) {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (journal, hold) = HeldJournal::new(journal, false);
    let engine = wait(
        Engine::builder()
            .options(options)
            .with::<section::Section>()
            .query::<section::Section, section::View>()
            .start(Box::new(journal) as Box<dyn Journal>, store),
    )
    .unwrap();
    (set(Gateway::builder(engine)).start().unwrap(), hold)
}
