//! The reasons why an engine cannot start.

/// An engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal or the store.
    #[error(transparent)]
    Journal(#[from] throng_journal::Error),
    /// The journal was begun with another number of shards.
    #[error(transparent)]
    Layout(#[from] throng_core::layout::LayoutError),
    /// A kind that requests something of another was not given what it hears.
    #[error(
        "the kind {asker:?} requests something of {asked:?} and could not hear the outcome: give the engine both kinds, and `on_outcome` for them"
    )]
    Unheard {
        /// The kind that asks.
        asker: &'static str,
        /// The kind it asks.
        asked: &'static str,
    },
    /// The journal takes nearly all of the disk budget, whatever is removed.
    #[error(
        "a disk budget of {bytes_max} bytes cannot work: the journal takes {needed} of them whatever is removed; give it twice as much"
    )]
    DiskBudget {
        /// The budget.
        bytes_max: u64,
        /// Bytes the journal takes.
        needed: u64,
    },
    /// The system gives no threads.
    #[error("the engine's threads cannot be started: {0}")]
    Threads(std::io::Error),
}
