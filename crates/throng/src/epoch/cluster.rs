//! The sequence of epochs in a cluster. A node that gains or loses shards ends its stream and opens the next one.
//!
//! A stream may hold records of one set of shards from its beginning to its end. So whoever's stream is sealed can write nothing for any of
//! them, and a shard's history is a list of whole streams; nothing inside a stream says whose a shard is.

use super::{Down, Epoch, Epochs, Member, Status};
use crate::{
    commit::Refusal,
    error::StartError,
    executor::{HOLD, batch},
};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::model::Error as Refused;
use throng_journal::{Error, Pace};

/// Between two looks whether all that was begun is durable.
const LOOK: Duration = Duration::from_millis(1);
/// Messages on their way to entities at hand are let arrive for so long, with their answers, before the stream ends.
const MESSAGES: Duration = Duration::from_millis(20);

/// A stream that ends while shards wait for it leaves so many bytes to be read by the next one.
const TAIL_BYTES: u64 = 2 << 20;

const CHANGES: &str = "shards change their owner";

impl Epochs {
    /// Returns the node and the shards that this engine serves, if it belongs to a cluster.
    pub(crate) fn member(&self) -> Option<Member> {
        self.member.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves exactly these shards from now on.
    pub(crate) async fn serve(&self, member: Member) -> Result<(), Error> {
        let _one_at_a_time = self.changes.lock().await;
        let is_served = self.member().is_some_and(|now| now == member) && self.running().is_some();
        if is_served {
            return Ok(());
        }
        if let Some(epoch) = self.running() {
            let gains = !member.shards.without(&epoch.group_commit.shards).is_empty();
            self.end_in_order(&epoch, gains).await?;
        }
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = Some(member);
        let next = self.recover().await.map_err(|error| {
            self.end(Down::of(&error));
            self.context.signals.wake_watchers();
            match error {
                StartError::Journal(error) => error,
                other => Error::Refused(other.to_string()),
            }
        })?;
        self.begin(next);
        self.context.signals.deliver.wake();
        self.context.signals.timers.wake();
        self.context.signals.wake_watchers();
        Ok(())
    }

    /// Ends the stream, and serves nothing until told to.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        let _one_at_a_time = self.changes.lock().await;
        match self.running() {
            Some(epoch) => self.end_in_order(&epoch, false).await,
            None => Ok(()),
        }
    }

    /// Ends an epoch in order: nothing that was begun is lost or left in doubt, and whoever comes meanwhile waits. One whose stream was sealed by
    /// others ends as if an append had told it so: with nothing under way, nobody else would. `is_awaited`: shards that nobody serves wait for it.
    async fn end_in_order(&self, epoch: &Arc<Epoch>, is_awaited: bool) -> Result<(), Error> {
        let ended = self.close_stream(epoch, is_awaited).await;
        if let Err(error) = &ended {
            epoch.group_commit.fail_if_over(error);
        }
        ended
    }

    async fn close_stream(&self, epoch: &Arc<Epoch>, is_awaited: bool) -> Result<(), Error> {
        let (context, group_commit) = (&self.context, &epoch.group_commit);
        // While all goes on: so that the next owner has little to read. Where somebody waits, that little is read sooner than stored.
        if !is_awaited || group_commit.appended_bytes.load(Ordering::Relaxed) > TAIL_BYTES {
            self.make_checkpoint(epoch, Pace::default()).await?;
        }
        let begun = context.host.elapsed_micros();
        let messages = crate::context::micros(MESSAGES);
        while !epoch.executor.outbox.is_empty() && context.host.elapsed_micros().saturating_sub(begun) < messages {
            context.signals.deliver.wake();
            context.host.sleep(LOOK).await;
        }
        group_commit.begin_close();
        // Whoever was at work under a shard's lock has staged by now.
        for shard in epoch.executor.shards() {
            epoch.executor.visit_blocking(shard, |_| ());
        }
        while !group_commit.end_in_order() {
            if group_commit.is_over() || !context.journal.holds(group_commit.writer) {
                return Err(Error::Sealed(group_commit.writer));
            }
            batch::wake_committer(context);
            context.host.sleep(LOOK).await;
        }
        self.end(Down::shortly(CHANGES, context.host.elapsed_micros()));
        context.journal.seal(group_commit.writer).await?;
        context.signals.wake_watchers();
        Ok(())
    }

    /// The epoch that runs, or the next one if there is one shortly.
    pub(crate) async fn next(&self, until: u64) -> Result<Arc<Epoch>, Refusal> {
        let running = || match self.look() {
            Ok(epoch) if !epoch.group_commit.is_closing() => Some(Ok(epoch)),
            Err(_) if !self.is_short() => Some(self.current()),
            _ => None,
        };
        // Each request comes by here: a clock, and a place among those who are woken, are for those who wait.
        if let Some(running) = running() {
            return running;
        }
        let context = &self.context;
        let until = until.min(context.until(Some(HOLD)));
        let left = Duration::from_micros(until.saturating_sub(context.host.elapsed_micros()));
        let mut over = context.host.sleep(left);
        std::future::poll_fn(move |task| {
            context.signals.watch(task.waker());
            if let Some(running) = running() {
                return Poll::Ready(running);
            }
            over.as_mut()
                .poll(task)
                .map(|()| Err(Refused::Unavailable { reason: CHANGES.into() }))
        })
        .await
    }

    /// Whoever asks waits, for it takes a moment.
    pub(crate) fn is_short(&self) -> bool {
        match &*self.status() {
            Status::Running(epoch) => epoch.group_commit.is_closing(),
            Status::Down(down) => down.short_since.is_some(),
        }
    }

    /// Returns true if requests wait for the end of it, and none of them has waited too long.
    pub(crate) fn holds_for(&self, down: &Down) -> bool {
        let now = self.context.host.elapsed_micros();
        let is_held = |since| now.saturating_sub(since) < crate::context::micros(HOLD);
        down.short_since.is_some_and(is_held)
    }
}
