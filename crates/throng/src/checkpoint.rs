//! Checkpoints: what only the engine knows goes to the store, and the store catches up with the log.

use crate::{
    deliver::woken,
    engine::{Inner, Status},
    life::Life,
};
use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::{
    layout::{LAYOUT_ROW, Layout},
    shard::{Rows, Shard},
};
use throng_journal::{AppendError, Checkpoint, Error, Pace, Position};

/// States on their way to the store may take this part of the memory before they are stored at once.
pub(crate) const PENDING_PART: i64 = 8;

/// The system row with the commit before the oldest message that was not taken.
pub(crate) const OUTBOX_ROW: &[u8] = b"o";

/// System rows removed at once: a few milliseconds.
pub(crate) const REMOVED_ROWS_MAX: usize = 1_000;
/// Between two removals others have the store and the processor.
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

/// The part of the time between two checkpoints that one may take: so it keeps up, and what is served beside it meets little of
/// it at any moment.
const SPREAD: f64 = 0.7;

/// Makes checkpoints: by the clock, by bytes, and when somebody asks.
pub(crate) async fn task(inner: Weak<Inner>) {
    // When the last one began.
    let mut begun = None;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let now = strong.host.elapsed_micros();
        let last = *begun.get_or_insert(now);
        let since = |now: u64| Duration::from_micros(now.saturating_sub(last));
        let mut sleep = strong
            .host
            .sleep(strong.options.checkpoint_every.saturating_sub(since(now)));
        drop(strong);
        let mut wakes = std::pin::pin!(woken(&inner, |inner| &inner.checkpoint));
        std::future::poll_fn(|context| {
            let slept = sleep.as_mut().poll(context).is_ready();
            if slept || wakes.as_mut().poll(context).is_ready() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let Some(strong) = inner.upgrade() else { return };
        let now = strong.host.elapsed_micros();
        let within = since(now).mul_f64(SPREAD);
        begun = Some(now);
        let life = match &*strong.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => continue,
        };
        let pace = strong.pace(&life, within);
        let mut made = strong.make_checkpoint(&life, pace).await;
        if made.is_ok() {
            made = strong.expire_rows(&life, within).await;
        }
        if let Err(error) = made {
            if matches!(error, Error::Sealed(_)) {
                strong.writer_over(&life, &AppendError::Sealed);
                continue;
            }
            tracing::error!("the checkpoint failed, it is tried again: {error}");
            let pause = strong.host.sleep(Duration::from_secs(1));
            drop(strong);
            pause.await;
        }
    }
}

/// What the shards gave for a checkpoint. Dropped before it is done, also because a load failed or nobody waits for it any
/// more, it goes back: nothing of it counts.
struct TakenRows<'a> {
    life: &'a Life,
    rows: Vec<Rows>,
}

impl Drop for TakenRows<'_> {
    fn drop(&mut self) {
        for (shard, rows) in self.life.shards.iter().zip(&self.rows) {
            shard.wait(|shard| shard.checkpoint_failed(rows));
        }
    }
}

impl Inner {
    /// Spread over so long, unless somebody waits for it, or what gathers meanwhile needs the next one.
    fn pace(self: &Arc<Self>, life: &Arc<Life>, within: Duration) -> Pace {
        let (inner, life) = (Arc::downgrade(self), Arc::downgrade(life));
        Pace::within(within, move || {
            let (Some(inner), Some(life)) = (inner.upgrade(), life.upgrade()) else {
                return true;
            };
            let budget = i64::try_from(inner.options.memory_bytes_max).unwrap_or(i64::MAX);
            inner.is_stopping()
                || life.is_over()
                || inner.checkpoints_awaited.load(Ordering::Relaxed) > 0
                || life.appended_bytes.load(Ordering::Relaxed) >= inner.options.checkpoint_bytes
                || life.books.pending_bytes.load(Ordering::Relaxed) > budget / PENDING_PART
        })
    }

    /// Makes one checkpoint.
    pub(crate) async fn make_checkpoint(self: &Arc<Self>, life: &Arc<Life>, pace: Pace) -> Result<(), Error> {
        let _one_at_a_time = self.checkpoint_lock.lock().await;
        if life.is_over() {
            return Ok(());
        }
        let begun = self.host.elapsed_micros();
        life.appended_bytes.store(0, Ordering::Relaxed);
        // Everything up to here is covered. What the shards give may be newer: replaying on top of it changes nothing.
        let upto = life.durable();
        let mut taken = TakenRows {
            life,
            rows: Vec::with_capacity(life.shards.len()),
        };
        for shard in &life.shards {
            loop {
                // Under one lock: what was brought back may be away again by the time the next one is.
                let looked = shard.wait(|shard| match shard.unsettled() {
                    unsettled if unsettled.is_empty() => Ok(shard.checkpoint(self.host.now())),
                    unsettled => Err(unsettled),
                });
                let unsettled = match looked {
                    Ok(rows) => break taken.rows.push(rows),
                    Err(unsettled) => unsettled,
                };
                for (kind, hash, id) in unsettled {
                    if let Err(error) = self.load::<std::convert::Infallible>(life, kind, hash, &id).await {
                        return Err(Error::Backend {
                            doing: format!("loading {id:?}"),
                            why: error.to_string(),
                        });
                    }
                }
            }
        }
        // After the shards: what was sent before them is in the outbox, and what is taken since is in a commit waited for.
        let outbox = life.outbox().oldest();
        let stored = self.store_rows(life, upto, (outbox, pace), &taken.rows).await;
        if matches!(stored, Ok(true)) {
            for (shard, rows) in life.shards.iter().zip(std::mem::take(&mut taken.rows)) {
                shard.wait(|shard| {
                    shard.checkpointed(upto, &rows);
                    self.balance(life, shard);
                });
            }
        }
        if stored? {
            // Before the journal forgets: who cannot find a place there any more sees why.
            *life.covers.lock().unwrap_or_else(PoisonError::into_inner) = Some(upto);
            self.journal.forget(upto);
            self.metrics.checkpoints.inc();
            let micros = self.host.elapsed_micros().saturating_sub(begun);
            self.metrics.checkpoint_seconds.observe(micros as f64 / 1e6);
        }
        Ok(())
    }

    /// `false`: there was nothing to do, or the writer is over.
    async fn store_rows(
        self: &Arc<Self>,
        life: &Arc<Life>,
        upto: Position,
        (outbox, pace): (Option<Position>, Pace),
        rows: &[Rows],
    ) -> Result<bool, Error> {
        let covers = life.covers();
        let unchanged = |rows: &Rows| rows.states.is_empty() && rows.system.is_empty();
        if rows.iter().all(unchanged) && covers == Some(upto) {
            return Ok(false);
        }
        // Nothing in the store may be newer than what is durable.
        let last = life.open.last();
        self.kick();
        if life.open.wait(last, u64::MAX).await.is_err() {
            return Ok(false);
        }
        self.journal.sync().await?;
        let mut checkpoint = Checkpoint {
            upto,
            pace,
            ..Checkpoint::default()
        };
        let from = covers.map(|covers| covers.writer);
        checkpoint.sealed = life
            .sealed
            .iter()
            .filter(|end| from.is_none_or(|from| end.writer >= from))
            .copied()
            .collect();
        for rows in rows {
            checkpoint.states.extend(rows.states.iter().cloned());
            checkpoint.system.extend(rows.system.iter().cloned());
        }
        let cursor = outbox.map(|at| [at.writer.0.to_be_bytes(), at.commit.0.to_be_bytes()].concat());
        checkpoint.system.push((OUTBOX_ROW.to_vec(), cursor));
        let layout = Layout::of(&self.registry).encode();
        checkpoint.system.push((LAYOUT_ROW.to_vec(), Some(layout)));
        self.store.advance(checkpoint).await?;
        Ok(true)
    }

    /// Removes rows whose hour is over, a few at a time and for at most so long; what is left goes after the next checkpoint.
    async fn expire_rows(&self, life: &Arc<Life>, within: Duration) -> Result<(), Error> {
        let (begun, now) = (self.host.elapsed_micros(), self.host.now());
        let expired = |shard: &mut Shard| shard.expired_rows(now);
        let expired: BTreeSet<Vec<u8>> = life.shards.iter().flat_map(|shard| shard.wait(expired)).collect();
        for prefix in expired {
            let mut after = Vec::new();
            while let Some(last) = self.store.remove_prefix(&prefix, &after, REMOVED_ROWS_MAX).await? {
                after = last;
                let took = self.host.elapsed_micros().saturating_sub(begun);
                let is_awaited = self.checkpoints_awaited.load(Ordering::Relaxed) > 0;
                if is_awaited || life.is_over() || Duration::from_micros(took) > within {
                    return Ok(());
                }
                self.host.sleep(REMOVAL_PAUSE).await;
            }
            for shard in &life.shards {
                shard.wait(|shard| shard.rows_removed(&prefix));
            }
        }
        Ok(())
    }
}
