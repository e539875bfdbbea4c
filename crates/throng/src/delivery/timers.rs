//! Durable timers: finding the due ones, firing them, setting them again.

use super::{Deliverer, Within, stored_timers};
use crate::{
    executor::{AnswerSlot, Attempt, Carried, Target, Work},
    host::Slice,
};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::{
    limits,
    shard::{Due, Outcome, TimersPage},
};
use throng_journal::{Address, ShardId};

/// The most timers of one shard that fire at a time.
const DUE_MAX: usize = 256;
/// The most entities with due timers that are loaded at a time.
const LOADS_MAX: usize = 32;

impl Deliverer {
    /// Returns the time until the next timer is due.
    pub(crate) fn until_due(&self) -> Duration {
        let due = self.executor.next_due.load(Ordering::Relaxed);
        let wait = due.saturating_sub(self.context.host.now().micros).max(0);
        Duration::from_micros(wait.cast_unsigned())
    }

    /// Fires the timers that are due.
    pub(crate) async fn fire(self: &Arc<Self>) {
        // Every timer that is set after this lowers it again.
        self.executor.next_due.store(i64::MAX, Ordering::Relaxed);
        let now = self.context.host.now();
        let slice = Slice::new(&*self.context.host);
        for shard in self.executor.shards() {
            slice.pause().await;
            loop {
                let Ok(due) = self.executor.visit(shard, move |shard| shard.due(now, DUE_MAX)).await else {
                    break;
                };
                let is_full = due.len() == DUE_MAX;
                // Timers of one entity fire in order, those of several entities concurrently.
                let mut by_entity: BTreeMap<Address, Vec<Due>> = BTreeMap::new();
                for due in due {
                    by_entity.entry(due.address.clone()).or_default().push(due);
                }
                let mut by_entity = by_entity.into_values();
                loop {
                    let some = by_entity.by_ref().take(LOADS_MAX);
                    let fires: Vec<_> = some.map(|due| Box::pin(self.fire_all(due, &slice))).collect();
                    if fires.is_empty() {
                        break;
                    }
                    all(fires).await;
                }
                if self.executor.group_commit.is_over() {
                    return;
                }
                if is_full {
                    continue;
                }
                let now = self.context.host.now();
                let next = self
                    .executor
                    .visit(shard, move |shard| (shard.timers_page(now), shard.next_due()));
                let Ok((page, mut next)) = next.await else { break };
                if let Some(page) = page {
                    if self.read_page(shard, page).await {
                        continue;
                    }
                    next = self
                        .executor
                        .visit(shard, |shard| shard.next_due())
                        .await
                        .ok()
                        .flatten();
                }
                if let Some(next) = next {
                    self.executor.next_due.fetch_min(next.micros, Ordering::Relaxed);
                }
                break;
            }
        }
    }

    /// Reads a shard's next timers from the store; `false` if it cannot be read now.
    async fn read_page(self: &Arc<Self>, shard: ShardId, page: TimersPage) -> bool {
        let now = self.context.host.now();
        match stored_timers::read_page(&*self.context.store, &page, stored_timers::kept(&self.context)).await {
            Ok(read) => {
                // A page that does not count is read again.
                let taken = self.executor.visit(shard, move |shard| shard.timers_read(&page, read));
                taken.await.is_ok()
            }
            Err(error) => {
                tracing::error!("timers of shard {} cannot be read, they are late: {error}", shard.0);
                let unread = self.executor.visit(shard, move |shard| shard.timers_unread(now));
                // Without an answer its shard is the next epoch's.
                _ = unread.await;
                false
            }
        }
    }

    /// Fires timers of one entity in order. If it cannot be loaded, they are tried again later.
    async fn fire_all(self: &Arc<Self>, due: Vec<Due>, slice: &Slice<'_>) {
        let mut failed = false;
        for due in due {
            slice.pause().await;
            failed = failed || !self.fire_one(&due, slice).await;
            if failed && !self.defer(&due).await {
                return;
            }
        }
    }

    /// Defers the timer to a later try; `false` if its epoch is over.
    async fn defer(&self, due: &Due) -> bool {
        let (now, shard, due) = (self.context.host.now(), self.shard_of(due), due.clone());
        let deferred = self.executor.visit(shard, move |shard| shard.defer_timer(&due, now));
        deferred.await.is_ok()
    }

    fn shard_of(&self, due: &Due) -> ShardId {
        self.executor.shard_of(limits::hash(&due.address.kind, &due.address.id))
    }

    /// True if the timer stays due because its entity is quarantined. Otherwise it is done, and a failed one is dead.
    async fn is_waiting(&self, due: &Due) -> bool {
        let due = due.clone();
        let is_due = self
            .executor
            .visit(self.shard_of(&due), move |shard| shard.is_due(&due));
        is_due.await.unwrap_or(true)
    }

    /// `false`: its entity cannot be loaded.
    async fn fire_one(self: &Arc<Self>, due: &Due, slice: &Slice<'_>) -> bool {
        let host = &self.context.host;
        let Address { kind, id } = &due.address;
        let known = self.context.registry.find(kind);
        let target = Target {
            kind: known.unwrap_or_default(),
            hash: limits::hash(kind, id),
            id: id.to_string().into(),
        };
        let work = match known {
            Some(_) => Work::Timer(Box::new(due.clone())),
            None => Work::ClearTimer(Box::new(due.clone())),
        };
        let mut attempt = Attempt::new(target, work, AnswerSlot::Nobody, (host.elapsed_micros(), u64::MAX));
        let progress = self.executor.try_now(&mut attempt);
        let mut carried = self.executor.carry(attempt, progress).await;
        if let Ok((mut attempt, Carried::NotUnderstood(why))) = carried {
            if let Some(newer) = self.context.waits_for().await {
                tracing::warn!("the timer {:?} of {} waits: {why}; {newer}", due.name, due.address);
                self.defer(due).await;
                return true;
            }
            attempt.is_final = true;
            let progress = self.executor.try_now(&mut attempt);
            carried = self.executor.carry(attempt, progress).await;
        }
        match carried {
            // Its shard is the next epoch's.
            Ok((_, Carried::Again | Carried::Answered(_) | Carried::NotUnderstood(_) | Carried::Quarantined(_))) => {
                true
            }
            Ok((_, Carried::Done(outcome))) => {
                self.context.metrics.timers_fired.inc();
                if outcome == Outcome::Failed && !self.is_waiting(due).await {
                    self.context.metrics.dead.inc();
                }
                self.deliver_in(Within::Pass, slice);
                true
            }
            Err(_) if self.executor.group_commit.is_over() => true,
            Err(error) => {
                tracing::error!("the timer {:?} of {} waits: {error}", due.name, due.address);
                false
            }
        }
    }
}

/// Waits for all of a few futures.
pub(crate) async fn all(mut futures: Vec<Pin<Box<impl Future<Output = ()>>>>) {
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
