//! What happens by the clock: durable timers, deadlines.

use crate::{
    deliver::{Outgoing, woken},
    engine::{Inner, Status},
    life::Life,
    run::{Reply, forwarded},
};
use std::convert::Infallible;
use std::{
    future::Future,
    sync::{Arc, Weak, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::{
    limits,
    model::{Error, Timestamp},
    shard::{Call, Cause, Due, Input, Ran},
};

/// How often waiters past their deadline are woken.
const SWEEP: Duration = Duration::from_millis(100);
/// Timers of one shard fired at a time.
const DUE_MAX: usize = 256;

/// Wakes waiters past their deadline.
pub(crate) async fn sweep(inner: Weak<Inner>) {
    // Also while the engine starts again: who waits for the life before it waits no longer than told.
    let mut last = Weak::new();
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if let Status::Running(life) = &*strong.status() {
            last = Arc::downgrade(life);
        }
        if let Some(life) = last.upgrade() {
            life.open.sweep(strong.host.elapsed_micros());
        }
        let sleep = strong.host.sleep(SWEEP);
        drop(strong);
        sleep.await;
    }
}

/// Fires timers.
pub(crate) async fn task(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let life = match &*strong.status() {
            Status::Running(life) => Some(life.clone()),
            Status::Down(_) => None,
        };
        let mut due = i64::MAX;
        if let Some(life) = life {
            if life.next_due.load(Ordering::Relaxed) <= strong.host.now().micros {
                strong.fire(&life).await;
            }
            due = life.next_due.load(Ordering::Relaxed);
        }
        let wait = due.saturating_sub(strong.host.now().micros).max(0);
        let sleep = strong
            .host
            .sleep(Duration::from_micros(wait.cast_unsigned()).min(Duration::from_secs(60)));
        drop(strong);
        let mut sleep = sleep;
        let mut wakes = std::pin::pin!(woken(&inner, |inner| &inner.alarm));
        std::future::poll_fn(|context| {
            let slept = sleep.as_mut().poll(context).is_ready();
            if slept || wakes.as_mut().poll(context).is_ready() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Inner {
    async fn fire(self: &Arc<Self>, life: &Arc<Life>) {
        // Whoever sets a timer from here on lowers it again.
        life.next_due.store(i64::MAX, Ordering::Relaxed);
        let now = self.host.now();
        for at in 0..life.shards.len() {
            loop {
                let due = life.shards[at].wait(|shard| shard.due(now, DUE_MAX));
                let full = due.len() == DUE_MAX;
                for due in due {
                    if life.is_over() || self.fire_one(life, &due).await.is_err() {
                        return;
                    }
                }
                if !full {
                    break;
                }
            }
            if let Some(next) = life.shards[at].wait(|shard| shard.next_due()) {
                life.next_due.fetch_min(next.micros, Ordering::Relaxed);
            }
        }
    }

    async fn fire_one(self: &Arc<Self>, life: &Arc<Life>, due: &Due) -> Result<(), Error<Infallible>> {
        let hash = limits::hash(&due.address.kind, &due.address.id);
        loop {
            let ran = life.shard_of(hash).wait(|shard| {
                if life.is_over() || !shard.is_due(due) {
                    return None;
                }
                let mut staging = life.staging();
                let Some(kind) = self.registry.find(&due.address.kind) else {
                    shard.clear_timer(due, &mut staging);
                    let first = staging.first;
                    self.after(life, shard, first);
                    return None;
                };
                let mut nobody = Reply::Nobody;
                let mut ran = self.watched(
                    life,
                    shard,
                    &mut Call {
                        kind,
                        hash,
                        id: &due.address.id,
                        now: Timestamp::max(self.host.now(), due.at),
                        entropy: self.host.entropy(),
                        input: Input::Json {
                            name: &due.command,
                            body: &due.body,
                        },
                        output: nobody.output(),
                        cause: Cause::Timer(due),
                    },
                    &mut staging,
                );
                let first = staging.first;
                self.enqueue(life, shard.take_outbox(), None);
                if let Some(delivery) = forwarded(&mut ran) {
                    self.enqueue(life, Vec::new(), Some(Outgoing::new(life, delivery, None)));
                }
                self.after(life, shard, first);
                Some((ran, kind))
            });
            match ran {
                None => return Ok(()),
                Some((Ran::Load | Ran::LoadKey, kind)) => {
                    if let Err(error) = self.load::<Infallible>(life, kind, hash, &due.address.id).await {
                        tracing::error!("the timer {:?} of {} waits: {error}", due.name, due.address);
                        life.next_due
                            .fetch_min(self.host.now().micros + 1_000_000, Ordering::Relaxed);
                        return Ok(());
                    }
                }
                Some(_) => {
                    self.metrics.timers_fired.inc();
                    self.pump(life, self.options.deliveries_per_turn);
                    return Ok(());
                }
            }
        }
    }
}
