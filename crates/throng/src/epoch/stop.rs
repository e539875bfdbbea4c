//! A graceful end.

use super::{Down, Epoch, Epochs};
use crate::{executor::batch, host::Task};
use std::{future::Future, sync::atomic::Ordering, task::Poll, time::Duration};
use throng_journal::Pace;

/// The last checkpoint has at least this long.
const CHECKPOINT_LEAST: Duration = Duration::from_secs(5);

/// `None`: the time was over first.
async fn within<T>(mut time: Task, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(move |context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => time.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl Epochs {
    /// Takes nothing new, lets what is in flight land, makes a last checkpoint, and ends. `ended` is waited for before the end.
    pub(crate) async fn stop(&self, ended: impl AsyncFnOnce(u64)) {
        let context = &self.context;
        if context.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(epoch) = self.running() {
            let until = context.until(Some(context.options.drain));
            self.drain(&epoch, until).await;
            // A journal or a store that hangs does not hold up the end.
            let most = context.options.drain.max(CHECKPOINT_LEAST);
            match within(context.host.sleep(most), self.make_checkpoint(&epoch, Pace::default())).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::error!("the last checkpoint failed; the next start reads more of the journal: {error}");
                }
                None => tracing::error!(
                    "the last checkpoint was not done within {most:?}; the next start reads more of the journal"
                ),
            }
            ended(until).await;
            epoch.group_commit.close();
        } else {
            // A recovery that is under way ends first, and begins no epoch.
            let recovered = self.checkpoints.lock.lock();
            drop(within(context.host.sleep(context.options.drain), recovered).await);
        }
        self.end(Down::new("the engine has stopped"));
        batch::wake_committer(context);
        context.signals.wake_watchers();
    }

    /// Until nothing is in flight any more.
    async fn drain(&self, epoch: &Epoch, until: u64) {
        let (context, group_commit) = (&self.context, &epoch.group_commit);
        let is_done = || group_commit.is_over() || group_commit.is_idle() && epoch.executor.outbox.is_empty();
        while !is_done() && context.host.elapsed_micros() < until {
            batch::wake_committer(context);
            context.signals.deliver.wake();
            context.host.sleep(Duration::from_millis(2)).await;
        }
    }
}
