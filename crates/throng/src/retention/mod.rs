//! History that ends: what a kind keeps no longer goes, pass by pass, in the log, in the store, and in whatever the journal keeps beside
//! them.
//!
//! A pass looks for events that are over, has the log say what their entities are ([`RecordKind::State`]) and how many messages have been
//! taken ([`RecordKind::Numbers`]), waits until a checkpoint covers that and has taken the events out of the index, and only then has the
//! journal [prune](throng_journal::Journal::prune). So the log alone is enough to begin from at every moment, and a pass that
//! was cut off is simply made again.
//!
//! In a cluster each node makes passes over the shards it owns, in its own stream and in those that have ended, whoever wrote them.

mod cursors;
mod elsewhere;
mod erase;
mod judge;
mod limit;
mod pass;
mod scan;

pub(crate) use cursors::{Removals, removed_upto};
pub(crate) use elsewhere::refuse_older_nodes;
pub(crate) use erase::CutOff;
pub use erase::Erased;
#[cfg(feature = "projections")]
pub(crate) use limit::Goals;
pub use pass::PruneReport;

use self::pass::Pass;
use crate::{
    context::{Context, QUIET, micros},
    engine::{Core, Engine},
    life::Life,
};
use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use throng_core::model::Keep;
use throng_journal::{Compacted, Cut, Error};

/// Between two looks at whether a pass is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From a start to the first pass, at most.
const FIRST: Duration = Duration::from_mins(1);
/// A pass in so many parts of the shortest time that is kept.
const PARTS: u32 = 16;
const EVERY: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));
/// Finishes the segment being written where the disk budget is used up.
const EVERY_FULL: Duration = Duration::from_secs(10);
/// Where a number of events is kept.
const EVERY_EVENTS: Duration = Duration::from_hours(1);

/// What the next checkpoint takes along.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) cuts: Vec<Cut>,
    pub(crate) rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.cuts.is_empty() && self.rows.is_empty()
    }

    /// The checkpoint that took this was not made: it comes before what has become due since.
    pub(crate) fn put_back(&mut self, mut taken: Self) {
        taken.cuts.append(&mut self.cuts);
        taken.rows.append(&mut self.rows);
        *self = taken;
    }
}

impl Context {
    /// For how long each kind's events are kept, of those that keep not all.
    pub(crate) fn keeps(&self) -> HashMap<Box<str>, Keep> {
        let options = &self.options.keep;
        let kinds = self.registry.kinds().iter();
        let keeps = kinds.map(|kind| (kind.name.into(), options.get(kind.name).copied().unwrap_or(kind.keep)));
        keeps.filter(|(_, keep)| *keep != Keep::Forever).collect()
    }
}

impl Core {
    fn prune_every(&self) -> Option<Duration> {
        let keeps = self.context.keeps();
        let shortest = keeps.values().map(|keep| match keep {
            Keep::Age(age) => (*age / PARTS).clamp(EVERY.0, EVERY.1),
            Keep::Events(_) | Keep::Forever => EVERY_EVENTS,
        });
        let shortest = shortest.min()?;
        let every = self.context.options.prune_every.unwrap_or(shortest);
        (every != Duration::MAX).then_some(every)
    }
}

/// Begins to look after what is kept. A quiet engine removes nothing.
pub(crate) fn start(core: &Arc<Core>) {
    if core.context.options.quiet {
        return;
    }
    core.context.host.spawn(Box::pin(task(Arc::downgrade(core))));
}

async fn task(core: Weak<Core>) {
    // When the next pass is due.
    let mut due: Option<u64> = None;
    let mut last_pass = 0;
    let mut last: Weak<Life> = Weak::new();
    loop {
        let Some(strong) = core.upgrade() else { return };
        if strong.context.is_stopping() {
            return;
        }
        let now = strong.context.host.elapsed_micros();
        if let Some(life) = strong.lives.running() {
            let is_of_cluster = strong.context.peers.is_some();
            if is_of_cluster && !std::ptr::eq(last.as_ptr(), Arc::as_ptr(&life)) {
                // The shards' last owner may have begun one.
                last = Arc::downgrade(&life);
                strong.is_erasing.store(true, Ordering::Release);
            }
            if strong.is_erasing.swap(false, Ordering::AcqRel)
                && let Err(error) = erase::resume(&strong, &life).await
            {
                tracing::warn!("an erasure that was cut off is tried again: {error}");
                strong.is_erasing.store(true, Ordering::Release);
            }
            if let Some(every) = strong.prune_every() {
                let disk = &strong.context.disk;
                let at = match (due, disk.has_room(), disk.is_to_finish()) {
                    (_, _, true) => now,
                    (Some(at), false, _) => at.min(last_pass + micros(EVERY_FULL)),
                    (Some(at), true, _) => at,
                    (None, ..) => now + micros(every.min(FIRST)),
                };
                due = Some(at);
                // A node of an older program may not expect what a pass leaves of a stream.
                let is_possible = elsewhere::refuse_older_nodes(&strong, elsewhere::PRUNING).is_ok();
                if now >= at && is_possible {
                    (due, last_pass) = (Some(now + micros(every)), now);
                    match pass::run(&strong, &life, Pass::Usual).await {
                        Ok(report) if report.is_cut_short => due = Some(now),
                        Ok(_) => {}
                        Err(_) if !pass::goes_on(&life) => due = Some(now),
                        Err(error) => tracing::warn!("history could not be removed, it is tried again: {error}"),
                    }
                }
            }
        }
        let sleep = strong.context.host.sleep(LOOK_EVERY);
        drop(strong);
        sleep.await;
    }
}

impl Engine {
    /// Removes the history that is kept no longer, now; with `is_dry`, only says what would go. In a cluster all nodes do, each of what it owns,
    /// and the report is of them all.
    ///
    /// # Errors
    /// The journal's or the store's, or a node cannot be reached; what was removed by then is gone all the same, and the next pass goes on.
    pub async fn prune(&self, is_dry: bool) -> Result<PruneReport, Error> {
        if !is_dry && self.core.context.options.quiet {
            return Err(Error::Refused(QUIET.into()));
        }
        if self.core.context.peers.is_some() {
            elsewhere::refuse_older_nodes(&self.core, elsewhere::PRUNING).map_err(Error::Refused)?;
            return elsewhere::prune(&self.core, is_dry).await;
        }
        match self.core.lives.running() {
            Some(life) => pass::run(&self.core, &life, Pass::by_hand(is_dry)).await,
            None => Ok(PruneReport::default()),
        }
    }

    /// Gives back the room of the store's file that no row needs any more, while everything goes on; a store does so by itself, too, once
    /// there is much. `None`: this store needs it never.
    ///
    /// # Errors
    /// There is no room for a second file, one is under way already, or the store failed: it is as it was.
    pub async fn compact(&self) -> Result<Option<Compacted>, Error> {
        self.core.context.store.compact().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_checkpoint_took_goes_with_the_next_one_before_what_is_newer() {
        let due = |name: &[u8]| Due {
            cuts: Vec::new(),
            rows: vec![(name.to_vec(), None)],
        };
        let mut waiting = due(b"older");
        let taken = std::mem::take(&mut waiting);
        waiting.rows.extend(due(b"newer").rows);
        waiting.put_back(taken);
        let names: Vec<_> = waiting.rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [&b"older"[..], b"newer"], "the last row of a name counts");
    }
}
