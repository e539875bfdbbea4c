//! The tasks that run beside the callers, for as long as the engine is there.

use super::{
    Epoch, Epochs,
    signalled::{signalled, signalled_within},
};
use crate::{
    context::Context,
    executor::{ROOM_RETRY, watchdog},
};
use std::{
    sync::{Arc, Weak},
    task::{self, Poll},
    time::Duration,
};
use throng_commit::Candidate;

/// The interval at which waiters past their deadline are woken.
const SWEEP: Duration = Duration::from_millis(100);
/// When what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The timers' task looks at least this often.
const TIMERS_EVERY: Duration = Duration::from_secs(60);

/// Starts them all.
pub(crate) fn start(epochs: &Arc<Epochs>) {
    let host = &epochs.context.host;
    let weak = || Arc::downgrade(epochs);
    host.spawn(Box::pin(commit(weak())));
    if !epochs.context.options.quiet {
        host.spawn(Box::pin(deliver(weak())));
        host.spawn(Box::pin(timers(weak())));
    }
    host.spawn(Box::pin(sweep(weak())));
    host.spawn(Box::pin(watch(weak())));
    host.spawn(Box::pin(super::recovery::task(weak())));
    host.spawn(Box::pin(super::checkpoint::task(weak())));
    epochs.context.signals.deliver.wake();
}

/// A committer's place among those who lead commits. Dropped, another one leads in its stead.
pub(crate) struct Seat {
    epochs: Arc<Epochs>,
    candidate: Candidate,
}

impl Seat {
    pub(crate) fn new(epochs: Arc<Epochs>) -> Self {
        let candidate = Candidate::new();
        Self { epochs, candidate }
    }

    /// Leads a commit, if nobody else does; ready once the engine has stopped.
    pub(crate) fn lead(&self, context: &mut task::Context<'_>) -> Poll<()> {
        if let Some(epoch) = self.epochs.running() {
            epoch.group_commit.lead(self.candidate, context);
        }
        self.poll()
    }

    /// Ready once the engine has stopped.
    pub(crate) fn poll(&self) -> Poll<()> {
        if self.epochs.has_stopped() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(epoch) = self.epochs.running() {
            epoch.group_commit.leave(self.candidate);
        }
    }
}

/// Commits for all callers outside of a gateway's loops.
async fn commit(epochs: Weak<Epochs>) {
    let candidate = Candidate::new();
    std::future::poll_fn(|context| {
        let Some(epochs) = epochs.upgrade() else {
            return Poll::Ready(());
        };
        // Whoever signals from here on is seen at the next poll.
        epochs.context.signals.commit.watch(context.waker());
        if let Some(epoch) = epochs.running() {
            epoch.group_commit.lead(candidate, context);
        }
        if epochs.has_stopped() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Delivers what the turns left over.
async fn deliver(epochs: Weak<Epochs>) {
    loop {
        let Some(strong) = epochs.upgrade() else { return };
        if strong.has_stopped() {
            return;
        }
        let mut slow = None;
        if let Some(epoch) = strong.running() {
            slow = deliver_once(&strong.context, &epoch).await;
        }
        let slow = slow.map(|wait| strong.context.host.sleep(wait));
        drop(strong);
        crate::host::yield_now().await;
        match slow {
            Some(sleep) => signalled_within(&epochs, sleep, |context| &context.signals.deliver).await,
            None => _ = signalled(&epochs, |context| &context.signals.deliver).await,
        }
    }
}

/// The time until slow messages may be delivered again, if some wait.
async fn deliver_once(context: &Context, epoch: &Epoch) -> Option<Duration> {
    if let Err(error) = epoch.deliverer.catch_up().await {
        tracing::error!("messages in the log cannot be read: {error}");
        context.host.sleep(RETRY).await;
        context.signals.deliver.wake();
    }
    epoch.deliverer.take_up_released();
    epoch.deliverer.room().await;
    epoch.deliverer.deliver_next()
}

async fn timers(epochs: Weak<Epochs>) {
    loop {
        let Some(strong) = epochs.upgrade() else { return };
        let mut wait = TIMERS_EVERY;
        if let Some(epoch) = strong.running() {
            // Timers that are due while the stream ends are the next epoch's, and stay due until then.
            let may_fire = || strong.context.has_room() && !epoch.group_commit.is_closing();
            if may_fire() && epoch.deliverer.until_due().is_zero() {
                epoch.deliverer.fire().await;
                if epoch.deliverer.until_due().is_zero() {
                    // A timer that is due again already would keep this task running, and no other of its thread would run.
                    crate::host::yield_now().await;
                }
            }
            wait = match may_fire() {
                true => epoch.deliverer.until_due().min(wait),
                false => ROOM_RETRY,
            };
        }
        let sleep = strong.context.host.sleep(wait);
        drop(strong);
        signalled_within(&epochs, sleep, |context| &context.signals.timers).await;
    }
}

/// Wakes waiters past their deadline. Notices, though nothing is committed, that another engine has taken over or that the database was
/// rolled back, that nodes of a newer release come and go, and that the time of day was set forward.
async fn sweep(epochs: Weak<Epochs>) {
    // Also while the engine starts again: who waits for the epoch before it waits no longer than told.
    let mut last = Weak::new();
    loop {
        let Some(strong) = epochs.upgrade() else { return };
        if let Some(epoch) = strong.running() {
            if let Some(why) = strong.context.journal.ended(epoch.group_commit.writer) {
                epoch.group_commit.fail(why);
            }
            last = Arc::downgrade(&epoch.group_commit);
        }
        let losses = strong.context.journal.losses();
        strong.context.metrics.losses.set(losses.len() as i64);
        if let Some(group_commit) = last.upgrade() {
            group_commit.sweep();
        }
        strong.context.newer();
        if strong.context.clock.look() {
            strong.context.signals.timers.wake();
        }
        let sleep = strong.context.host.sleep(SWEEP);
        drop(strong);
        sleep.await;
    }
}

/// Names commands that do not end.
async fn watch(epochs: Weak<Epochs>) {
    let mut named = Vec::new();
    loop {
        let Some(strong) = epochs.upgrade() else { return };
        if let Some(epoch) = strong.running() {
            epoch.executor.name_stuck(&mut named);
        }
        let sleep = strong.context.host.sleep(watchdog::LOOK_EVERY);
        drop(strong);
        sleep.await;
    }
}
