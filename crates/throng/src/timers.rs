//! What happens by the clock: durable timers, deadlines.

use crate::{
    deliver::{Outgoing, woken},
    engine::{Inner, Status},
    life::Life,
    run::{Reply, forwarded},
};
use std::convert::Infallible;
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::{
    limits,
    model::Timestamp,
    shard::{Call, Cause, Due, Input, Ran},
};
use throng_journal::Address;

/// How often waiters past their deadline are woken.
const SWEEP: Duration = Duration::from_millis(100);
/// Timers of one shard fired at a time.
const DUE_MAX: usize = 256;
/// Entities whose timers are due loaded at a time.
const LOADS_MAX: usize = 32;

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

/// What came of trying to fire a timer.
enum Fired {
    /// It fired, or was not set any more.
    Over,
    /// Its entity has to be loaded first.
    Load { kind: usize },
}

/// Timers of one entity that wait for it to be loaded, in the order they are due.
struct Waiting {
    kind: usize,
    due: Vec<Due>,
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
                let mut waiting: BTreeMap<Address, Waiting> = BTreeMap::new();
                for due in due {
                    if life.is_over() {
                        return;
                    }
                    if let Some(waiting) = waiting.get_mut(&due.address) {
                        waiting.due.push(due);
                    } else if let Fired::Load { kind } = self.fire_one(life, &due) {
                        let (address, due) = (due.address.clone(), vec![due]);
                        waiting.insert(address, Waiting { kind, due });
                    }
                }
                let mut waiting = waiting.into_values();
                loop {
                    let some = waiting.by_ref().take(LOADS_MAX);
                    let loads: Vec<_> = some.map(|waiting| Box::pin(self.fire_loaded(life, waiting))).collect();
                    if loads.is_empty() {
                        break;
                    }
                    all(loads).await;
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

    /// Loads an entity, and fires its timers in order; if it cannot be loaded, they are tried again later.
    async fn fire_loaded(self: &Arc<Self>, life: &Arc<Life>, Waiting { kind, due }: Waiting) {
        let mut failed = false;
        for due in due {
            let hash = limits::hash(&due.address.kind, &due.address.id);
            while !failed
                && !life.is_over()
                && let Fired::Load { .. } = self.fire_one(life, &due)
            {
                if let Err(error) = self.load::<Infallible>(life, kind, hash, &due.address.id).await {
                    tracing::error!("the timer {:?} of {} waits: {error}", due.name, due.address);
                    failed = true;
                }
            }
            if failed {
                let now = self.host.now();
                life.shard_of(hash).wait(|shard| shard.defer_timer(&due, now));
            }
        }
    }

    fn fire_one(self: &Arc<Self>, life: &Arc<Life>, due: &Due) -> Fired {
        let hash = limits::hash(&due.address.kind, &due.address.id);
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
                self.host.elapsed_micros(),
                &mut staging,
            );
            let first = staging.first;
            self.enqueue(life, shard.take_outbox(), None);
            if let Some(delivery) = forwarded(&mut ran) {
                self.enqueue(life, Vec::new(), Some(Outgoing::new(life, delivery, None)));
            }
            self.after(life, shard, first);
            if matches!(ran, Ran::Done { .. }) && shard.is_due(due) {
                // Its entity is quarantined.
                shard.defer_timer(due, self.host.now());
            }
            Some((ran, kind))
        });
        match ran {
            None => Fired::Over,
            Some((Ran::Load | Ran::LoadKey, kind)) => Fired::Load { kind },
            Some(_) => {
                self.metrics.timers_fired.inc();
                self.pump(life, self.options.deliveries_per_turn);
                Fired::Over
            }
        }
    }
}

/// Waits for all of a few futures.
async fn all(mut futures: Vec<Pin<Box<impl Future<Output = ()>>>>) {
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
