//! A gateway whose commits can be held up.

use super::{section, wait};
use throng::{
    Engine, Options,
    journal::{Journal, MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Limits, Running};
use throng_testing::HeldJournal;
use tokio::sync::watch;

/// Starts a gateway whose commits wait while the sender's value is true.
pub(crate) fn held(limits: Limits) -> (Running, watch::Sender<bool>) {
    held_with(Options::default(), |gateway| gateway.limits(limits))
}

/// Does the same with other options and settings.
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
