//! The task that makes passes when they are due, and completes interrupted erasures.

use super::{
    Retention, erase,
    pass::{self, Pass},
    remote,
};
use crate::{
    context::{QUIET, micros},
    epoch::Epoch,
    remote::PruneReport,
};
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use throng_core::model::Keep;
use throng_journal::Error;

/// The interval at which it checks whether a pass is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time from a start to the first pass.
const FIRST: Duration = Duration::from_mins(1);
/// The interval of passes, as a divisor of the shortest retention.
const PARTS: u32 = 16;
const EVERY: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));
/// The interval at which the current segment is finished while the disk budget is used up.
const EVERY_FULL: Duration = Duration::from_secs(10);
/// The time between two passes where a number of events is kept.
const EVERY_EVENTS: Duration = Duration::from_hours(1);

impl Retention {
    fn prune_every(&self) -> Option<Duration> {
        let keeps = self.context().keeps();
        let shortest = keeps.values().map(|keep| match keep {
            Keep::Age(age) => (*age / PARTS).clamp(EVERY.0, EVERY.1),
            Keep::Events(_) | Keep::Forever => EVERY_EVENTS,
        });
        let shortest = shortest.min()?;
        let every = self.context().options.prune_every.unwrap_or(shortest);
        (every != Duration::MAX).then_some(every)
    }

    /// Removes expired history; with `is_dry`, only reports it.
    pub(crate) async fn prune(self: &Arc<Self>, is_dry: bool) -> Result<PruneReport, Error> {
        let context = self.context();
        if !is_dry && context.options.quiet {
            return Err(Error::Refused(QUIET.into()));
        }
        if context.peers.is_some() {
            context.refuse_older_nodes(remote::PRUNING).map_err(Error::Refused)?;
            return remote::prune(self, is_dry).await;
        }
        match self.epochs.running() {
            Some(epoch) => pass::run(self, &epoch, Pass::by_operator(is_dry)).await,
            None => Ok(PruneReport::default()),
        }
    }
}

/// Starts the task. A quiet engine removes nothing.
pub(crate) fn start(retention: &Arc<Retention>) {
    if retention.context().options.quiet {
        return;
    }
    retention
        .context()
        .host
        .spawn(Box::pin(task(Arc::downgrade(retention))));
}

async fn task(retention: Weak<Retention>) {
    // The time of the next pass.
    let mut due: Option<u64> = None;
    let mut last_pass = 0;
    let mut last: Weak<Epoch> = Weak::new();
    loop {
        let Some(strong) = retention.upgrade() else { return };
        if strong.context().is_stopping() {
            return;
        }
        let now = strong.context().host.elapsed_micros();
        if let Some(epoch) = strong.epochs.running() {
            let is_of_cluster = strong.context().peers.is_some();
            if is_of_cluster && !std::ptr::eq(last.as_ptr(), Arc::as_ptr(&epoch)) {
                // The shards' last owner may have begun one.
                last = Arc::downgrade(&epoch);
                strong.is_erasing.store(true, Ordering::Release);
            }
            if strong.is_erasing.swap(false, Ordering::AcqRel)
                && let Err(error) = erase::resume(&strong, &epoch).await
            {
                // An erasure that was found has been logged already.
                tracing::debug!("erasures that were cut off are looked for again: {error}");
                strong.is_erasing.store(true, Ordering::Release);
            }
            if let Some(every) = strong.prune_every() {
                let disk = &strong.context().disk;
                let at = match (due, disk.has_room(), disk.is_to_finish()) {
                    (_, _, true) => now,
                    (Some(at), false, _) => at.min(last_pass + micros(EVERY_FULL)),
                    (Some(at), true, _) => at,
                    (None, ..) => now + micros(every.min(FIRST)),
                };
                due = Some(at);
                // A node of an older program may not expect a stream after a pass.
                let is_possible = strong.context().refuse_older_nodes(remote::PRUNING).is_ok();
                if now >= at && is_possible {
                    (due, last_pass) = (Some(now + micros(every)), now);
                    match pass::run(&strong, &epoch, Pass::Usual).await {
                        Ok(report) if report.is_cut_short => due = Some(now),
                        Ok(_) => {}
                        Err(_) if !pass::goes_on(&epoch) => due = Some(now),
                        Err(error) => tracing::warn!("history could not be removed, it is tried again: {error}"),
                    }
                }
            }
        }
        let sleep = strong.context().host.sleep(LOOK_EVERY);
        drop(strong);
        sleep.await;
    }
}
