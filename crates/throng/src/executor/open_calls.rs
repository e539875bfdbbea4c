//! The calls outside that have no outcome, by worker: those of all shards of an epoch, in memory or not.

use crate::context::Context;
use std::sync::{Mutex, PoisonError};
use throng_core::{model::worker_of, shard::Shard};
use throng_services::stats::Level;

/// A count for each worker, shown as the level `calls.NAME.open`.
pub(super) struct OpenCalls(Vec<CallsOfWorker>);

struct CallsOfWorker {
    kind: usize,
    /// The sum over the shards, and where it is shown: set together, so that what is shown is the last one.
    open: Mutex<(i64, Level)>,
}

impl OpenCalls {
    pub(super) fn of(context: &Context) -> Self {
        let kinds = context.registry.kinds().iter().enumerate();
        let kinds = kinds.filter(|(_, kind)| kind.is_internal);
        let workers = kinds.filter_map(|(kind, of)| {
            let level = context.stats.level(&format!("calls.{}.open", worker_of(of.name)?));
            level.set(0.0);
            let open = Mutex::new((0, level));
            Some(CallsOfWorker { kind, open })
        });
        Self(workers.collect())
    }

    /// Takes over the counts of a shard, if they have changed. Called with the shard's lock held.
    pub(super) fn settle(&self, shard: &mut Shard) {
        if !shard.take_calls_changed() {
            return;
        }
        for worker in &self.0 {
            let change = shard.book_calls(worker.kind);
            if change != 0 {
                let mut open = worker.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.0 += change;
                open.1.set(open.0.max(0) as f64);
            }
        }
    }
}
