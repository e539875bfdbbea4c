//! Checkpoints: what only the engine knows goes to the store, and the store catches up with the log.

use super::{Due, Epoch, Epochs, LastCheckpoint, REMOVED_ROWS_MAX, signalled::signalled_within};
use crate::{
    commit::GroupCommit,
    delivery::stored_timers,
    executor::{Executor, Target, batch},
    host::yield_now,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use throng_core::{
    layout::{LAYOUT_ROW, Layout},
    shard::{Rows, Shard, SystemRow, TimersStored},
};
use throng_journal::{Checkpoint, Error, Later, Pace, Position, ShardId};

/// The system row with the commit before the oldest message that was not taken; followed by the shard that sent it.
pub(crate) const OUTBOX_ROW: &[u8] = b"o";

/// Between two removals others have the store and the processor.
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

/// The part of the time between two checkpoints that one may take: so it keeps up, and what is served beside it meets little of
/// it at any moment.
const SPREAD: f64 = 0.7;

/// Somebody waits for a checkpoint, also for the one under way, which then does not take its time.
struct Awaits<'a>(&'a AtomicUsize);

impl<'a> Awaits<'a> {
    fn new(awaited: &'a AtomicUsize) -> Self {
        awaited.fetch_add(1, Ordering::Relaxed);
        Self(awaited)
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes checkpoints: by the clock, by bytes, and when somebody asks.
pub(super) async fn task(epochs: Weak<Epochs>) {
    // When the last one began.
    let mut begun = None;
    loop {
        let Some(strong) = epochs.upgrade() else { return };
        let context = strong.context.clone();
        let now = context.host.elapsed_micros();
        let last = *begun.get_or_insert(now);
        let since = |now: u64| Duration::from_micros(now.saturating_sub(last));
        let every = context.options.checkpoint_every;
        let sleep = context.host.sleep(every.saturating_sub(since(now)));
        drop((strong, context));
        signalled_within(&epochs, sleep, |context| &context.signals.checkpoint).await;
        let Some(strong) = epochs.upgrade() else { return };
        let now = strong.context.host.elapsed_micros();
        let within = since(now).mul_f64(SPREAD);
        begun = Some(now);
        let Some(epoch) = strong.running() else { continue };
        let pace = strong.pace(&epoch, within);
        let mut made = strong.make_checkpoint(&epoch, pace).await;
        if made.is_ok() {
            made = strong.expire_rows(&epoch, within).await;
        }
        strong.checkpoints.has_failed.store(made.is_err(), Ordering::Relaxed);
        if let Err(error) = made {
            if epoch.group_commit.fail_if_over(&error) {
                continue;
            }
            tracing::error!("the checkpoint failed, it is tried again: {error}");
            let pause = strong.context.host.sleep(Duration::from_secs(1));
            drop(strong);
            pause.await;
        }
    }
}

/// Shards that gave their rows to a checkpoint. Dropped before it is done, also because a load failed or nobody waits for it any
/// more, they learn that nothing of it counts.
struct Taken<'a> {
    executor: &'a Executor,
    shards: Vec<ShardId>,
    /// The timers of shards that had some to be written.
    timers: BTreeMap<ShardId, TimersStored>,
}

impl Taken<'_> {
    /// The checkpoint is done.
    async fn stored(mut self, upto: Position) {
        self.executor.set_storing(0);
        let kept = stored_timers::kept(&self.executor.context);
        while let Some(id) = self.shards.pop() {
            let timers = self.timers.remove(&id);
            self.executor.visit_blocking(id, |shard| {
                timers.iter().for_each(|timers| shard.timers_stored(timers, kept));
                shard.checkpointed(upto);
                self.executor.balance(shard);
            });
            yield_now().await;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.executor.set_storing(0);
        for shard in std::mem::take(&mut self.shards) {
            self.executor.visit_blocking(shard, Shard::checkpoint_failed);
        }
    }
}

impl Epochs {
    /// Spread over so long, unless somebody waits for it, or what gathers meanwhile needs the next one.
    fn pace(self: &Arc<Self>, epoch: &Arc<Epoch>, within: Duration) -> Pace {
        let (epochs, epoch) = (Arc::downgrade(self), Arc::downgrade(epoch));
        Pace::within(within, move || {
            let (Some(epochs), Some(epoch)) = (epochs.upgrade(), epoch.upgrade()) else {
                return true;
            };
            let context = &epochs.context;
            context.is_stopping()
                || epoch.group_commit.is_over()
                || epochs.checkpoints.awaited.load(Ordering::Relaxed) > 0
                || epoch.group_commit.appended_bytes.load(Ordering::Relaxed) >= context.options.checkpoint_bytes
                || epoch.executor.needs_checkpoint()
        })
    }

    /// Returns whether the last checkpoint failed. That is reported, but stops nobody.
    pub(crate) fn has_failed_checkpoint(&self) -> bool {
        self.checkpoints.has_failed.load(Ordering::Relaxed)
    }

    /// The last checkpoint since the start.
    pub(crate) fn last_checkpoint(&self) -> Option<LastCheckpoint> {
        *self.checkpoints.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a checkpoint that somebody waits for.
    pub(crate) fn checkpoint_now<'a>(&'a self, epoch: &'a Arc<Epoch>) -> Later<'a, Result<(), Error>> {
        Box::pin(async move {
            let awaits = Awaits::new(&self.checkpoints.awaited);
            self.make_checkpoint(epoch, Pace::default()).await?;
            drop(awaits);
            self.expire_rows(epoch, self.context.options.checkpoint_every).await
        })
    }

    /// Makes one checkpoint.
    pub(super) async fn make_checkpoint(&self, epoch: &Arc<Epoch>, pace: Pace) -> Result<(), Error> {
        let _one_at_a_time = self.checkpoints.lock.lock().await;
        let (context, group_commit, executor) = (&self.context, &epoch.group_commit, &epoch.executor);
        if group_commit.is_over() {
            return Ok(());
        }
        let begun = context.host.elapsed_micros();
        group_commit.appended_bytes.store(0, Ordering::Relaxed);
        // Everything up to here is covered. What the shards give may be newer: replaying on top of it changes nothing.
        let upto = group_commit.durable();
        let mut rows = Rows::default();
        let mut taken = Taken {
            executor,
            shards: Vec::new(),
            timers: BTreeMap::new(),
        };
        for shard in executor.shards() {
            loop {
                // Under one lock: what was brought back may be passivated again by the time the next one is.
                let now = context.host.now();
                let looked = executor.visit_blocking(shard, |shard| match shard.families_to_load() {
                    to_load if to_load.is_empty() => {
                        executor.put_away_large(shard);
                        shard.checkpoint(now, &mut rows);
                        None
                    }
                    to_load => Some(to_load),
                });
                let Some(to_load) = looked else {
                    taken.shards.push(shard);
                    break yield_now().await;
                };
                for (kind, hash, id) in to_load {
                    let id = id.into_string().into();
                    let target = Target { kind, hash, id };
                    if let Err(error) = executor.load(&target).await {
                        return Err(Error::backend(format!("loading {:?}", target.id), error));
                    }
                }
            }
        }
        // After the shards: what was sent before them is in the outbox, and what is taken since is in a commit waited for.
        let upto = Upto {
            position: upto,
            outbox: epoch.executor.outbox.oldest(),
        };
        executor.set_storing(executor.pending_bytes());
        taken.timers = self.timer_rows(&mut rows).await?;
        if self.store_rows(epoch, upto, pace, rows).await? {
            taken.stored(upto.position).await;
            // Before the journal forgets: who cannot find a place there any more sees why.
            group_commit.set_covers(upto.position);
            context.journal.forget(upto.position);
            context.metrics.checkpoints.inc();
            let micros = context.host.elapsed_micros().saturating_sub(begun);
            context.metrics.checkpoint_seconds.observe(micros as f64 / 1e6);
            let last = LastCheckpoint {
                covers: upto.position,
                at: context.host.now(),
                took: Duration::from_micros(micros),
            };
            *self.checkpoints.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        }
        Ok(())
    }

    /// `false`: there was nothing to do, or the writer is over.
    async fn store_rows(&self, epoch: &Epoch, upto: Upto, pace: Pace, rows: Rows) -> Result<bool, Error> {
        let due = std::mem::take(&mut *epoch.due());
        let stored = self.store(epoch, upto, pace, rows, &due).await;
        if !matches!(stored, Ok(true)) {
            epoch.due().put_back(due);
        }
        stored
    }

    async fn store(&self, epoch: &Epoch, upto: Upto, pace: Pace, rows: Rows, due: &Due) -> Result<bool, Error> {
        let (context, group_commit) = (&self.context, &epoch.group_commit);
        let covers = group_commit.covers();
        let is_due = !due.cuts.is_empty() || !due.rows.is_empty();
        if rows.states.is_empty() && rows.system.is_empty() && covers == Some(upto.position) && !is_due {
            return Ok(false);
        }
        // Nothing in the store may be newer than what is durable.
        let last = group_commit.last();
        batch::wake_committer(context);
        if group_commit.wait(last).await.is_err() {
            return Ok(false);
        }
        context.journal.sync().await?;
        let mut checkpoint = Checkpoint {
            upto: upto.position,
            shards: group_commit.shards.clone(),
            pace,
            states: rows.states,
            system: rows.system,
            ..Checkpoint::default()
        };
        let from = covers.map(|covers| covers.writer);
        checkpoint.sealed = group_commit
            .sealed
            .iter()
            .filter(|end| from.is_none_or(|from| end.writer >= from))
            .copied()
            .collect();
        // Rows of an entity that goes come last, and so count.
        checkpoint.system.extend_from_slice(&due.rows);
        checkpoint.cuts.clone_from(&due.cuts);
        self.outbox_rows(group_commit, upto.outbox, &mut checkpoint.system);
        let layout = Layout::of(&context.registry).encode();
        checkpoint.system.push((LAYOUT_ROW.to_vec(), Some(layout)));
        context.store.advance(checkpoint).await?;
        self.checkpoints
            .has_cursor
            .store(upto.outbox.is_some(), Ordering::Relaxed);
        Ok(true)
    }

    /// Adds the rows that say where reading messages begins, one for each shard: its next owner may own others, too.
    /// As long as nothing is on its way, there are no such rows.
    fn outbox_rows(&self, group_commit: &GroupCommit, cursor: Option<Position>, rows: &mut Vec<SystemRow>) {
        // Also where the store does not take it: it may have, and its answer be lost.
        let may_be_stored = self
            .checkpoints
            .has_cursor
            .fetch_or(cursor.is_some(), Ordering::Relaxed);
        if cursor.is_none() && !may_be_stored {
            return;
        }
        let value = cursor.map(|at| [at.writer.0.to_be_bytes(), at.commit.0.to_be_bytes()].concat());
        // Removes the row of all shards, as it was written before.
        rows.push((OUTBOX_ROW.to_vec(), None));
        let of_shards = group_commit.shards.iter();
        rows.extend(of_shards.map(|shard| ([OUTBOX_ROW, &shard.0.to_be_bytes()].concat(), value.clone())));
    }

    /// The store may have rows of shards that another node has owned.
    pub(super) fn has_outbox_rows(&self) {
        self.checkpoints.has_cursor.store(true, Ordering::Relaxed);
    }

    /// Removes rows whose hour is over, a few at a time and for at most so long; what is left goes after the next checkpoint.
    async fn expire_rows(&self, epoch: &Epoch, within: Duration) -> Result<(), Error> {
        let (context, executor) = (&self.context, &epoch.executor);
        let (begun, now) = (context.host.elapsed_micros(), context.host.now());
        let expired = |shard: &mut Shard| shard.expired_rows(now);
        let expired: BTreeSet<Vec<u8>> = executor
            .shards()
            .flat_map(|shard| executor.visit_blocking(shard, expired))
            .collect();
        for prefix in expired {
            let mut after = Vec::new();
            while let Some(last) = context.store.remove_prefix(&prefix, &after, REMOVED_ROWS_MAX).await? {
                after = last;
                let took = context.host.elapsed_micros().saturating_sub(begun);
                let is_awaited = self.checkpoints.awaited.load(Ordering::Relaxed) > 0;
                if is_awaited || epoch.group_commit.is_over() || Duration::from_micros(took) > within {
                    return Ok(());
                }
                context.host.sleep(REMOVAL_PAUSE).await;
            }
            for shard in executor.shards() {
                executor.visit_blocking(shard, |shard| shard.rows_removed(&prefix));
            }
        }
        Ok(())
    }
}

/// The reach of a checkpoint: it covers all commits up to `position`.
#[derive(Clone, Copy)]
struct Upto {
    position: Position,
    /// The commit before the oldest message that was not taken.
    outbox: Option<Position>,
}
