//! Messages between entities: delivered in the batch that sent them if their receiver is in memory, else soon after.

use super::Deliverer;
use crate::{
    commit::{Origin, Refusal, unreadable},
    context::{Context, unknown_kind},
    executor::{
        AnswerSlot, Attempt, Carried, Execution, ForwardedReply, Outgoing, Parked, PeerQueue, ROOM_RETRY,
        ShardExecution, Target, Wait, Waiter, Work, batch,
    },
    host::{Slice, yield_now},
};
use std::{
    sync::{Arc, TryLockError, atomic::Ordering},
    time::Duration,
};
use throng_commit::Entered;
use throng_core::{
    limits,
    shard::{Delivery, OperatorDecision, Outcome},
};
use throng_journal::{Address, Commit, Error, RecordKind, ShardId, ShardSet};

/// Bytes of commits read at a time.
pub(super) const READ_BYTES: usize = 8 << 20;
/// The most messages that are dropped under one lock of their shard.
const DROPPED_AT_ONCE: usize = 256;
/// The most slow messages delivered at once, and the microseconds until the next ones. Slow are the messages of an entity that multiplies:
/// it gets only a small part of the commits and of the processor, but still runs into its limit within seconds.
const SLOW_AT_ONCE: usize = 32;
const SLOW_EVERY_MICROS: u64 = 2_000;
/// The first and the longest pause before loading a receiver is tried again. Each pause is twice the one before.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The unit that a delivery belongs to: each delivers at most [`Options::deliveries_per_turn`](crate::Options) messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// A batch of the loop that sent them. The bound is for all commands of the batch together.
    Batch,
    /// A pass of the delivery task.
    Pass,
}

impl Deliverer {
    /// Delivers as many messages as one batch may, unless another task is delivering. The delivery task does the rest.
    pub(crate) fn deliver(self: &Arc<Self>, within: Within) {
        self.deliver_in(within, &Slice::new(&*self.context.host));
    }

    /// The same as a part of a task's slice.
    pub(super) fn deliver_in(self: &Arc<Self>, within: Within, slice: &Slice<'_>) {
        self.pass(within, slice);
        if !self.executor.group_commit.is_over() && self.outbox.has_more() {
            self.context.signals.deliver.wake();
        }
    }

    /// Delivers messages, as the delivery task. Returns the time until slow messages may be delivered again, if some wait.
    pub(crate) fn deliver_next(self: &Arc<Self>) -> Option<Duration> {
        self.pass(Within::Pass, &Slice::new(&*self.context.host));
        if self.executor.group_commit.is_over() {
            return None;
        }
        if self.outbox.has_more_at_once() {
            self.context.signals.deliver.wake();
        }
        let from = self.slow_from.load(Ordering::Relaxed);
        let wait = from.saturating_sub(self.context.host.elapsed_micros());
        // Perhaps none may be delivered now.
        let wait = if wait == 0 { SLOW_EVERY_MICROS } else { wait };
        self.outbox.has_slow().then(|| Duration::from_micros(wait))
    }

    /// Delivers until the slice is over, unless another task is delivering.
    //= promise 6: taken exactly once
    fn pass(self: &Arc<Self>, within: Within, slice: &Slice<'_>) {
        let _ours = match self.delivering.try_lock() {
            Ok(ours) => ours,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut at = self.context.host.elapsed_micros();
        let may_be_slow = self.may_be_slow(within, at);
        let mut slow = may_be_slow;
        for _ in 0..self.context.options.deliveries_per_turn {
            // A message waits for the next commit, too: it is in the log.
            let group_commit = &self.executor.group_commit;
            let has_room = self.context.has_room();
            if group_commit.is_over()
                || !has_room
                || group_commit.full_commit(Origin::Inside).is_some()
                || slice.is_over(at)
            {
                break;
            }
            if within == Within::Batch && !batch::may_deliver(&self.context) {
                break;
            }
            let Some(outgoing) = self.outbox.take(&mut slow) else {
                break;
            };
            if !self.deliver_one(outgoing) {
                break;
            }
            at = self.context.host.elapsed_micros();
        }
        if slow < may_be_slow {
            self.slow_from
                .store(at.saturating_add(SLOW_EVERY_MICROS), Ordering::Relaxed);
        }
    }

    /// Returns the number of slow messages that may be delivered now. If messages fill their memory, others wait for these to be taken.
    fn may_be_slow(&self, within: Within, now: u64) -> usize {
        if within == Within::Batch {
            return 0;
        }
        if self.outbox.is_full() || self.context.is_stopping() {
            return usize::MAX;
        }
        match now >= self.slow_from.load(Ordering::Relaxed) {
            true => SLOW_AT_ONCE,
            false => 0,
        }
    }

    /// Resolves once the journal and the open commit have room for the records of messages.
    pub(crate) async fn room(&self) {
        while !self.context.has_room() && !self.executor.group_commit.is_over() && !self.context.is_stopping() {
            self.context.host.sleep(ROOM_RETRY).await;
        }
        self.room_in_commit().await;
    }

    /// The same for the removal of history. It ignores the disk budget, because otherwise it would wait for the room that it makes.
    pub(crate) async fn room_to_remove(&self) {
        while !self.context.journal.has_room() && !self.executor.group_commit.is_over() && !self.context.is_stopping() {
            self.context.host.sleep(ROOM_RETRY).await;
        }
        self.room_in_commit().await;
    }

    async fn room_in_commit(&self) {
        if let Some(number) = self.executor.group_commit.full_commit(Origin::Inside) {
            batch::wake_committer(&self.context);
            // If the commit is lost with its writer, there is nothing to deliver either.
            let _ = self.executor.group_commit.wait(number).await;
        }
    }

    /// Tries one message; `false` if its shard's inbox is full, and the message is the next one again.
    fn deliver_one(self: &Arc<Self>, outgoing: Box<Outgoing>) -> bool {
        let (deliverer, attempt) = (self.clone(), attempt(&self.context, outgoing));
        let shard = self.executor.shard_of(attempt.target.hash);
        let entered = self.executor.enter(attempt, move |attempt, execution| {
            deliverer.came(attempt, execution);
            deliverer.outbox.out_of_inbox(shard);
            deliverer.context.signals.deliver.wake();
        });
        match entered {
            Entered::Ran((attempt, execution)) => self.came(attempt, execution),
            Entered::Queued => self.outbox.move_to_inbox(shard),
            Entered::Full(attempt) => {
                if let Some(outgoing) = message(attempt) {
                    self.outbox.put_back(outgoing);
                }
                return false;
            }
        }
        true
    }

    /// Continues a message after the outcome of its attempt.
    fn came(self: &Arc<Self>, attempt: Attempt<'static>, execution: ShardExecution) {
        let (wait, target) = match execution {
            Execution::Done(outcome) => return self.taken(attempt, outcome),
            // The epoch is over; the next one reads the message from the log.
            Execution::Refused(_) | Execution::Wait(Wait::NextEpoch) => return,
            Execution::Wait(wait) => (wait, attempt.target.clone()),
        };
        let shard = self.executor.shard_of(target.hash);
        let key = attempt.key().filter(|_| matches!(wait, Wait::Key)).map(str::to_owned);
        let is_loadable = matches!(attempt.work, Work::Message(_));
        let Some(outgoing) = message(attempt) else { return };
        match wait {
            Wait::Remote => self.begin(self.outbox.send_remote(shard, outgoing)),
            Wait::Upgrade(why) => self.keep_for_upgrade(shard, outgoing, &why),
            _ => {
                let to = outgoing.delivery.to.clone();
                if self.outbox.park(shard, outgoing) == Parked::Behind {
                } else if is_loadable {
                    let receiver = Receiver { to, target, key };
                    self.context.host.spawn(Box::pin(self.clone().load(receiver)));
                } else {
                    self.outbox.unpark(&to);
                    self.context.signals.deliver.wake();
                }
            }
        }
    }

    /// Puts a message that this program does not understand, with the later ones of the same entity, into a separate queue.
    /// That queue checks whether a newer release is alive, and tries the message again.
    fn keep_for_upgrade(self: &Arc<Self>, to: ShardId, outgoing: Box<Outgoing>, why: &str) {
        let now = self.context.host.now();
        self.begin(self.outbox.keep_for_upgrade(to, outgoing, (why, now)));
    }

    /// Starts a task that sends a new queue until it is empty.
    pub(super) fn begin(self: &Arc<Self>, queue: Option<PeerQueue>) {
        if let Some(queue) = queue {
            self.context.host.spawn(Box::pin(self.clone().deliver_queue(queue)));
        }
    }

    fn taken(&self, attempt: Attempt<'static>, outcome: Outcome) {
        let rests_on = attempt.rests_on;
        let (Work::Message(mut outgoing) | Work::DeadLetter(mut outgoing, _)) = attempt.work else {
            return;
        };
        self.outbox.taken(&mut outgoing);
        self.context.metrics.messages.inc();
        if outcome == Outcome::Failed {
            self.context.metrics.dead.inc();
        }
        // A message that was taken earlier answers nobody: the asker repeats its request.
        if let (Some(waiter), Some(rests_on)) = (outgoing.waiter, rests_on) {
            let answer = attempt.answer;
            drop(waiter.tell.send(ForwardedReply { answer, rests_on }));
        }
    }

    /// Loads a receiver and delivers the messages that wait for it. A receiver that cannot be loaded delays only its own messages.
    async fn load(self: Arc<Self>, receiver: Receiver) {
        let mut loaded = self.try_load(&receiver).await;
        let mut pause = RETRY.0;
        while let Err(error) = loaded {
            if self.executor.group_commit.is_over() {
                return;
            }
            tracing::error!("messages for {} wait, it is tried again: {error}", receiver.to);
            self.outbox
                .set_stuck(&receiver.to, error.to_string(), self.context.host.now());
            self.context.host.sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
            loaded = self.try_load(&receiver).await;
        }
        self.outbox.unpark(&receiver.to);
        self.context.signals.deliver.wake();
        self.take_up(receiver.to).await;
    }

    /// Delivers what waited for entities that were released.
    pub(crate) fn take_up_released(self: &Arc<Self>) {
        for to in self.outbox.take_released() {
            self.context.host.spawn(Box::pin(self.clone().take_up(to)));
        }
    }

    /// Delivers the messages in the log for a receiver that takes messages again.
    async fn take_up(self: Arc<Self>, to: Address) {
        while let Err(error) = self.catch_up_one(&to).await
            && !self.executor.group_commit.is_over()
        {
            tracing::error!("messages for {to} wait, they are tried again: {error}");
            self.context.host.sleep(RETRY.0).await;
        }
    }

    /// Drops the messages that wait for an entity which an operator has quarantined, and returns their number. `None` if it is not
    /// quarantined.
    pub(crate) async fn drop_waiting(
        &self,
        to: &Address,
        by: OperatorDecision<'static>,
    ) -> Result<Option<u64>, Refusal> {
        let group_commit = &self.executor.group_commit;
        let Some(from) = self.outbox.waits_from(to) else {
            return Ok(None);
        };
        // Later messages are not meant.
        let upto = group_commit.position(group_commit.last());
        batch::wake_committer(&self.context);
        group_commit.wait_until(upto.commit.0, u64::MAX).await?;
        let (mut reached, mut dropped) = (from.unwrap_or(upto), 0);
        'all: while reached < upto {
            let read = group_commit.read_after(reached, READ_BYTES).await;
            let (commits, end) = read.map_err(|why| unreadable(format!("messages to {to} cannot be read"), &why))?;
            for commit in commits.iter().filter(|commit| commit.position() <= upto) {
                let mut waiting = messages(commit, &group_commit.shards, |message| message.to == *to).peekable();
                while waiting.peek().is_some() {
                    let some = waiting.by_ref().take(DROPPED_AT_ONCE).collect();
                    self.room_to_remove().await;
                    match self.executor.drop_waiting(to, some, by.clone()).await? {
                        Some(some) => dropped += some,
                        // The entity has been released meanwhile.
                        None => break 'all,
                    }
                    yield_now().await;
                }
            }
            reached = if commits.is_empty() { upto } else { end };
        }
        if reached >= upto {
            self.outbox.dropped(to, upto);
        }
        let last = group_commit.last();
        batch::wake_committer(&self.context);
        group_commit.wait_until(last, u64::MAX).await?;
        Ok(Some(dropped))
    }

    async fn try_load(&self, receiver: &Receiver) -> Result<(), Refusal> {
        match &receiver.key {
            Some(key) => self.executor.load_key(&receiver.target, key).await,
            None => self.executor.load(&receiver.target).await,
        }
    }

    /// Delivers the messages for a formerly stuck receiver that are only in the log.
    async fn catch_up_one(self: &Arc<Self>, to: &Address) -> Result<(), String> {
        while let Some(behind) = self.outbox.stuck_behind(to) {
            let group_commit = &self.executor.group_commit;
            if behind.upto.writer == group_commit.writer && group_commit.wait(behind.upto.commit.0).await.is_err() {
                return Ok(());
            }
            let read = group_commit.read_after(behind.read, READ_BYTES).await;
            let (commits, reached) = read.map_err(|error| error.to_string())?;
            let slice = Slice::new(&*self.context.host);
            let shard = self.executor.shard_of(limits::hash(&to.kind, &to.id));
            for outgoing in commits
                .iter()
                .flat_map(|commit| messages(commit, &group_commit.shards, |message| message.to == *to))
            {
                let Err(mut outgoing) = self.outbox.joins(shard, outgoing) else {
                    continue;
                };
                outgoing.is_first_in_line = true;
                let mut attempt = attempt(&self.context, outgoing);
                let execution = self.executor.try_now(&mut attempt);
                match self.executor.carry(attempt, execution).await {
                    Ok((attempt, Carried::Done(outcome))) => self.taken(attempt, outcome),
                    Ok((attempt, Carried::NotUnderstood(why))) => {
                        if let Some(mut outgoing) = message(attempt) {
                            outgoing.is_first_in_line = false;
                            self.keep_for_upgrade(shard, outgoing, &why);
                        }
                    }
                    // The receiver is quarantined again: its messages go on waiting in the log.
                    Ok((_, Carried::Quarantined(_))) => return Ok(()),
                    Ok(_) => return Ok(()),
                    Err(refusal) => return Err(refusal.to_string()),
                }
                // The receiver may have sent messages.
                self.context.signals.deliver.wake();
                slice.pause().await;
            }
            let is_end = commits.is_empty();
            if self.outbox.caught_up(to, behind, reached, is_end) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads messages that are only in the log, once those in memory are delivered.
    pub(crate) async fn catch_up(&self) -> Result<(), Error> {
        let Some(behind) = self.outbox.to_read() else {
            return Ok(());
        };
        let group_commit = &self.executor.group_commit;
        if behind.upto.writer == group_commit.writer && group_commit.wait(behind.upto.commit.0).await.is_err() {
            return Ok(());
        }
        let (commits, mut reached) = group_commit.read_after(behind.read, READ_BYTES).await?;
        let quarantined = self.outbox.quarantined();
        let mut at = behind.read;
        let slice = Slice::new(&*self.context.host);
        for commit in &commits {
            slice.pause().await;
            let found = messages(commit, &group_commit.shards, |_| true).collect();
            let Ok(found) = self.untaken(found, &quarantined).await else {
                // Its shard's inbox is full.
                self.context.signals.deliver.wake();
                reached = at;
                break;
            };
            at = commit.position();
            // No more than memory may hold; a commit is read whole.
            if !self
                .outbox
                .append(found, commit.position().writer == group_commit.writer)
            {
                reached = at;
                break;
            }
        }
        self.outbox.has_read(behind, reached, commits.is_empty());
        Ok(())
    }

    /// Removes the messages to these receivers, which take none now, that were taken before. For other receivers, delivery itself finds
    /// that out.
    #[expect(clippy::vec_box, reason = "the outbox holds them in boxes")]
    async fn untaken(
        &self,
        mut found: Vec<Box<Outgoing>>,
        quarantined: &[Address],
    ) -> Result<Vec<Box<Outgoing>>, Refusal> {
        for to in quarantined {
            let (mut waiting, others): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|outgoing| outgoing.delivery.to == *to);
            found = others;
            if !waiting.is_empty() {
                let shard = self.executor.shard_of(limits::hash(&to.kind, &to.id));
                let untaken = self.executor.visit(shard, |shard| {
                    waiting.retain(|outgoing| !shard.is_taken(&outgoing.delivery.taking));
                    waiting
                });
                found.extend(untaken.await?);
            }
        }
        Ok(found)
    }
}

/// A receiver that is not in memory.
struct Receiver {
    to: Address,
    target: Target<'static>,
    /// The idempotency key to look for, if the message waits for that.
    key: Option<String>,
}

/// A message as an attempt.
pub(super) fn attempt(context: &Context, mut outgoing: Box<Outgoing>) -> Attempt<'static> {
    let to = &outgoing.delivery.to;
    let hash = limits::hash(&to.kind, &to.id);
    let id = to.id.to_string().into();
    let kind = context.registry.find(&to.kind);
    let unknown = kind.is_none().then(|| unknown_kind(&to.kind));
    let target = Target {
        kind: kind.unwrap_or_default(),
        hash,
        id,
    };
    let mut answer = AnswerSlot::Nobody;
    if let Some(Waiter { answer: wanted, .. }) = &mut outgoing.waiter {
        answer = std::mem::replace(wanted, AnswerSlot::Nobody);
    }
    let work = match unknown {
        None => Work::Message(outgoing),
        Some(reason) => Work::DeadLetter(outgoing, reason),
    };
    Attempt::new(target, work, answer, (context.host.elapsed_micros(), u64::MAX))
}

/// The message of an attempt that has to wait.
fn message(attempt: Attempt<'static>) -> Option<Box<Outgoing>> {
    let (Work::Message(mut outgoing) | Work::DeadLetter(mut outgoing, _)) = attempt.work else {
        return None;
    };
    if let Some(waiter) = &mut outgoing.waiter {
        waiter.answer = attempt.answer;
    }
    Some(outgoing)
}

/// Returns the messages in a commit from these shards that the filter accepts.
pub(super) fn messages<'a>(
    commit: &'a Commit,
    from: &'a ShardSet,
    is_meant: impl Fn(&Delivery) -> bool + 'a,
) -> impl Iterator<Item = Box<Outgoing>> + 'a {
    let sent = commit
        .records()
        .flatten()
        .filter(|record| record.record == RecordKind::Sent && from.contains(record.shard));
    sent.filter_map(move |record| match Delivery::read(&record) {
        Ok(delivery) if is_meant(&delivery) => Some(Box::new(Outgoing::new(delivery, commit.position()))),
        Ok(_) => None,
        Err(why) => {
            tracing::error!("a message of {} cannot be read: {why}", commit.position());
            None
        }
    })
}
