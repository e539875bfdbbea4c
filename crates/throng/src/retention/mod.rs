//! Retention: history that a kind no longer keeps is removed, pass by pass, from the log, the store, and anything the journal stores beside
//! them.
//!
//! A pass finds expired events. It has the log record their entities' states ([`RecordKind::State`]) and how many messages have been
//! taken ([`RecordKind::Numbers`]). It waits until a checkpoint covers that and has removed the events from the index. Only then does the
//! journal [prune](throng_journal::Journal::prune). So the log alone suffices to start from at every moment, and an interrupted
//! pass is simply repeated.
//!
//! In a cluster each node makes passes over the shards it owns, in its own stream and in those that have ended, whichever node wrote them.

mod calls;
mod cursors;
mod erase;
#[cfg(feature = "projections")]
mod goals;
mod judge;
mod limit;
mod pass;
mod remembered;
mod remote;
mod scan;
mod taken;
mod task;

pub use erase::Erased;
pub(crate) use task::start;

#[cfg(feature = "projections")]
use crate::projection::Projections;
use crate::{commit::Refusal, context::Context, epoch::Epochs};
#[cfg(feature = "projections")]
use goals::Goals;
use judge::CutOff;
use remembered::Remembered;
use std::sync::{Arc, Mutex, atomic::AtomicBool};

/// Looks after the history of an engine.
pub(crate) struct Retention {
    epochs: Arc<Epochs>,
    #[cfg(feature = "projections")]
    projections: Arc<Projections>,
    /// The projections that do not run here, and so do not report their progress.
    #[cfg(feature = "projections")]
    idle_projections: Vec<&'static str>,
    /// The progress of interrupted erasures. The lock is held by whoever removes history, so that there is one removal at a time.
    pruning: tokio::sync::Mutex<CutOff>,
    /// The projections that kept the last removal of history from going further.
    pub(crate) held_by: Mutex<Vec<String>>,
    /// The positions that projections of a cluster are to reach.
    #[cfg(feature = "projections")]
    goals: Goals,
    /// Erasures may have been begun that are not done.
    is_erasing: AtomicBool,
    /// States that were computed on the way to earlier events.
    pub(crate) remembered: Remembered,
}

impl Retention {
    pub(crate) fn new(
        epochs: Arc<Epochs>,
        #[cfg(feature = "projections")] projections: Arc<Projections>,
        #[cfg(feature = "projections")] idle_projections: Vec<&'static str>,
    ) -> Self {
        Self {
            epochs,
            #[cfg(feature = "projections")]
            projections,
            #[cfg(feature = "projections")]
            idle_projections,
            pruning: tokio::sync::Mutex::default(),
            held_by: Mutex::default(),
            #[cfg(feature = "projections")]
            goals: Goals::default(),
            is_erasing: AtomicBool::new(true),
            remembered: Remembered::default(),
        }
    }

    fn context(&self) -> &Context {
        &self.epochs.context
    }
}

fn backend(error: &Refusal) -> throng_journal::Error {
    throng_journal::Error::backend("removing history", error)
}
