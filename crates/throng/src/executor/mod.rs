//! Executes work under a shard's lock. An [`Attempt`] is tried; it is done, waits for something specific, or is refused.
//!
//! [`Executor::try_now`] takes a shard's lock without blocking, executes the attempt under it, stages its records, passes
//! on its messages, and publishes its values. Nothing else does any of this, whatever the work's origin: a client, another
//! entity's message, a timer, or an operator who retries a dead message.

mod answer;
mod at_work;
mod attempt;
pub(crate) mod batch;
mod books;
mod budget;
mod credit;
mod execution;
mod load;
mod loads;
#[cfg(feature = "services")]
mod open_calls;
mod operator_action;
mod outbox;
mod remote;
mod request;
mod rolling_upgrade;
mod share;
mod traced;
pub(crate) mod watchdog;

pub(crate) use answer::{AnswerSlot, Answered, ForwardedReply, Typed};
pub use attempt::Attempt;
pub(crate) use attempt::{
    Asking, Carried, ClientCommand, Look, NOTHING, Payload, Retry, ShardExecution, Target, Wait, Work,
};
pub use execution::Execution;
pub(crate) use loads::now_or_later;
pub(crate) use outbox::{Behind, Next, Outbox, Outgoing, Parked, PeerQueue, Waiter};
pub use outbox::{Pending, StuckEntity};
pub(crate) use remote::{HOLD, OwnerOf, command_of};
pub(crate) use request::check_key;

use crate::{
    commit::{GroupCommit, Refusal, Staging, recovering},
    context::{Context, unknown_kind},
};
use at_work::AtWork;
use attempt::Moment;
use books::Books;
pub(crate) use budget::ROOM_RETRY;
use loads::Loads;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use throng_commit::{Entered, Job, QueuedLock};
use throng_core::{
    limits,
    model::Error,
    shard::{Call, Delivery, MessageContent, Outcome, Ran, Shard},
};
use throng_journal::{Later, ShardId};
use tokio::sync::oneshot;

/// The sampling rate of executed commands, by which hot entities are found: one in this many.
pub const SAMPLED_ONE_IN: u128 = 32;
/// The pause suggested after a shard's inbox was full.
const INBOX_RETRY: Duration = Duration::from_millis(100);

/// The shards of one writer's epoch, and the only way to execute work on them.
pub(crate) struct Executor {
    pub(crate) context: Arc<Context>,
    pub(crate) group_commit: Arc<GroupCommit>,
    /// Messages on their way.
    pub(crate) outbox: Arc<Outbox>,
    shards: Box<[QueuedLock<Shard>]>,
    /// The command that each shard executes now, for the watchdog.
    at_work: Box<[AtWork]>,
    loads: Loads,
    pub(crate) books: Books,
    #[cfg(feature = "services")]
    open_calls: open_calls::OpenCalls,
    /// When the next timer is due, microseconds of the time of day.
    pub(crate) next_due: AtomicI64,
    /// The second in which slow commands were last named, and their number in it.
    slow_second: AtomicU64,
    slow_named: AtomicU64,
}

impl Executor {
    pub(crate) fn new(
        context: Arc<Context>,
        group_commit: Arc<GroupCommit>,
        outbox: Arc<Outbox>,
        shards: Vec<Shard>,
    ) -> Self {
        let inbox_max = context.options.inbox_max;
        Self {
            #[cfg(feature = "services")]
            open_calls: open_calls::OpenCalls::of(&context),
            context,
            group_commit,
            outbox,
            at_work: shards.iter().map(|_| AtWork::default()).collect(),
            shards: shards
                .into_iter()
                .map(|shard| QueuedLock::new(shard, inbox_max))
                .collect(),
            loads: Loads::default(),
            books: Books::default(),
            next_due: AtomicI64::new(i64::MAX),
            slow_second: AtomicU64::new(0),
            slow_named: AtomicU64::new(0),
        }
    }

    /// The numbers of the shards this epoch owns.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<'_> {
        self.group_commit.shards.iter()
    }

    /// Returns whether this epoch owns the shard.
    fn owns(&self, shard: ShardId) -> bool {
        self.context.peers.is_none() || self.group_commit.shards.contains(shard)
    }

    pub(crate) fn shard_of(&self, hash: u64) -> ShardId {
        limits::shard_of(hash, self.shards.len() as u16)
    }

    fn queued_lock(&self, shard: ShardId) -> &QueuedLock<Shard> {
        &self.shards[usize::from(shard.0)]
    }

    /// Tries an attempt without waiting for anything.
    pub(crate) fn try_now(&self, attempt: &mut Attempt<'_>) -> ShardExecution {
        loop {
            if let Err(execution) = self.budget(attempt) {
                return execution;
            }
            let shard = self.queued_lock(self.shard_of(attempt.target.hash));
            match shard.try_enter(|shard| self.run(shard, attempt)) {
                None => return Execution::Wait(Wait::Lock),
                Some(Execution::Wait(Wait::Next)) => {}
                Some(execution) => return execution,
            }
        }
    }

    /// Tries an attempt like [`try_now`](Self::try_now) if the shard's lock is free. Otherwise the holder of the lock executes it, and
    /// passes the outcome to `later`. An attempt that continues at another entity comes back with [`Wait::Next`].
    pub(crate) fn enter(
        self: &Arc<Self>,
        attempt: Attempt<'static>,
        later: impl FnOnce(Attempt<'static>, ShardExecution) + Send + 'static,
    ) -> Entered<(Attempt<'static>, ShardExecution), Attempt<'static>> {
        let run = |executor: &Self, shard: &mut Shard, mut attempt: Attempt<'static>| {
            let execution = executor.run(shard, &mut attempt);
            (attempt, execution)
        };
        let shard = self.queued_lock(self.shard_of(attempt.target.hash));
        shard.enter(
            attempt,
            |shard, attempt| run(self, shard, attempt),
            |attempt| -> Job<Shard> {
                let executor = self.clone();
                Box::new(move |shard| {
                    let mut attempt = attempt;
                    // The time it waited is not its own work.
                    attempt.now = executor.context.host.elapsed_micros();
                    let (attempt, execution) = run(&executor, shard, attempt);
                    later(attempt, execution);
                })
            },
        )
    }

    /// Reads a shard, or changes what is only in memory. Waits for the shard's lock without blocking the thread.
    pub(crate) async fn visit<R: Send + 'static>(
        self: &Arc<Self>,
        shard: ShardId,
        look: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let run = |executor: &Self, shard: &mut Shard, look: Box<dyn FnOnce(&mut Shard) -> R + Send>| {
            let looked = look(shard);
            executor.settle(shard, false);
            looked
        };
        let mut answer = None;
        let entered = self.queued_lock(shard).enter(
            Box::new(look) as Box<dyn FnOnce(&mut Shard) -> R + Send>,
            |shard, look| run(self, shard, look),
            |look| -> Job<Shard> {
                let (tell, told) = oneshot::channel();
                answer = Some(told);
                let executor = self.clone();
                Box::new(move |shard| drop(tell.send(run(&executor, shard, look))))
            },
        );
        match (entered, answer) {
            (Entered::Ran(looked), _) => Ok(looked),
            (Entered::Queued, Some(told)) => told.await.map_err(|_| recovering()),
            _ => Err(self.overloaded(INBOX_RETRY)),
        }
    }

    /// Does the same as [`visit`](Self::visit), for the engine's own tasks. It blocks the thread, and so must never run on a gateway's loop.
    pub(crate) fn visit_blocking<R>(&self, shard: ShardId, look: impl FnOnce(&mut Shard) -> R) -> R {
        self.queued_lock(shard).wait(look)
    }

    /// Books memory and timers as they are after a recovery.
    pub(crate) fn settle_all(&self) {
        for shard in &self.shards {
            shard.wait(|shard| self.settle(shard, false));
        }
    }

    /// The only place that executes work: under its shard's lock.
    //= promise 1: one command at a time
    fn run(&self, shard: &mut Shard, attempt: &mut Attempt<'_>) -> ShardExecution {
        let writer = self.group_commit.writer;
        if self.group_commit.is_closing() {
            return Execution::Wait(Wait::NextEpoch);
        }
        if self.group_commit.is_over() || attempt.rests_on.is_some_and(|at| at.writer != writer) {
            return Execution::Refused(recovering());
        }
        if !self.owns(shard.id()) {
            return Execution::Wait(Wait::Remote);
        }
        let mut staging = self.group_commit.staging_of(attempt.origin());
        if let Some(execution) = self.prepare(shard, attempt, &mut staging) {
            self.send(shard, attempt);
            self.settle(shard, staging.has_staged);
            return execution;
        }
        let moment = Moment {
            now: self.context.clock.just_after(attempt.now),
            entropy: self.context.host.entropy(),
            may_wait: self.may_wait(attempt),
        };
        let tracer = self.context.tracer.as_deref();
        let span = tracer.and_then(|tracer| attempt.span(tracer));
        let trace = span.map(|span| span.context);
        let (begun, before) = (attempt.now, shard.timers_set());
        let ran = attempt.run(shard, moment, |shard: &mut Shard, call: &mut Call<'_>| {
            call.trace = trace;
            self.watched(shard, call, begun, &mut staging)
        });
        if matches!(ran, Ran::Done { .. }) && !attempt.is_inspection() {
            let Target { kind, hash, id } = &attempt.target;
            // The sample is chosen by a random number, so that callers cannot foresee it.
            shard.seen(
                (*kind, *hash, id),
                moment.now,
                moment.entropy.is_multiple_of(SAMPLED_ONE_IN),
            );
        }
        if let Some(tracer) = tracer {
            self.trace_turn(tracer, attempt, span, &ran, &staging);
        }
        let spends = self.spends_too_much(shard, attempt, before);
        self.send(shard, attempt);
        if let Some(why) = spends {
            self.quarantine_by_engine(shard, &attempt.target, why, &mut staging);
        }
        let has_staged = staging.has_staged;
        let step = self.step(attempt, ran);
        if let Work::Timer(due) = &attempt.work
            && matches!(step, Execution::Done(_))
            && shard.is_due(due)
        {
            // Its entity is quarantined.
            shard.defer_timer(due, self.context.host.now());
        }
        self.settle(shard, has_staged);
        step
    }

    /// Returns the outcome of work that can be settled without the entity; `None` if the entity has to be asked.
    fn prepare(
        &self,
        shard: &mut Shard,
        attempt: &mut Attempt<'_>,
        staging: &mut Staging<'_>,
    ) -> Option<ShardExecution> {
        let nothing = Some(Execution::Done(Outcome::Done));
        let may_wait = self.may_wait(attempt);
        match &mut attempt.work {
            Work::Message(outgoing) if shard.is_taken(&outgoing.delivery.taking) => nothing,
            Work::DeadLetter(outgoing, _) if shard.is_taken(&outgoing.delivery.taking) => {
                Some(Execution::Done(Outcome::Failed))
            }
            // Earlier messages wait for the same receiver, so this one must come after them.
            Work::Message(outgoing) | Work::DeadLetter(outgoing, _) if self.outbox.is_awaited(shard.id(), outgoing) => {
                Some(Execution::Wait(Wait::Load))
            }
            Work::Timer(due) | Work::ClearTimer(due) if !shard.is_due(due) => nothing,
            Work::DeadLetter(_, reason) if may_wait => Some(Execution::Wait(Wait::Upgrade(reason.clone()))),
            Work::ClearTimer(due) if may_wait => Some(Execution::Wait(Wait::Upgrade(unknown_kind(&due.address.kind)))),
            Work::ClearTimer(due) => {
                shard.clear_timer(due, staging);
                nothing
            }
            Work::DeadLetter(outgoing, reason) => {
                shard.record_dead(&outgoing.delivery, self.context.host.now(), reason, staging);
                Some(Execution::Done(Outcome::Failed))
            }
            Work::Retry(retry) => retry.prepare(shard),
            Work::Drop(..) | Work::CancelTimer(..) | Work::Quarantine(_) | Work::Release(_) => {
                Some(self.operator_action(shard, attempt, staging))
            }
            _ => None,
        }
    }

    /// Passes on the messages of an attempt.
    fn send(&self, shard: &mut Shard, attempt: &mut Attempt<'_>) {
        let deliveries = shard.take_outbox();
        if !deliveries.is_empty() {
            attempt.has_sent = true;
            self.outbox
                .push(deliveries.into_iter().map(|delivery| self.outgoing(delivery)));
        }
    }

    /// Returns the outcome of a run for its attempt: it is done, waits, continues at another entity, or is refused.
    fn step(&self, attempt: &mut Attempt<'_>, ran: Ran) -> ShardExecution {
        let writer = self.group_commit.writer;
        let wait = |wait| Execution::Wait(wait);
        let forwarded = match ran {
            Ran::Done { rests_on, outcome } => {
                attempt.rests_on(writer, rests_on);
                self.left_to_upgrade(attempt);
                return Execution::Done(outcome);
            }
            Ran::NotUnderstood(why) => return self.not_understood(attempt, why),
            Ran::Quarantined(why) => return wait(Wait::Release(why)),
            Ran::Load => return wait(Wait::Load),
            Ran::LoadKey => return wait(Wait::Key),
            Ran::Forward(mut forward) => {
                attempt.rests_on(writer, forward.rests_on);
                if let Some(taking) = forward.taking.take() {
                    let delivery = Delivery {
                        to: forward.to.address(),
                        content: MessageContent::typed(forward.to),
                        taking,
                        commit: forward.rests_on,
                    };
                    let mut outgoing = self.outgoing(delivery);
                    outgoing.waiter = attempt.hand_over_waiter();
                    attempt.has_sent = true;
                    self.outbox.push([outgoing]);
                    return Execution::Done(Outcome::Done);
                }
                if !attempt.is_from_outside() {
                    return Execution::Done(Outcome::Done);
                }
                attempt.forward(&self.context.registry, *forward)
            }
            Ran::ForwardAgain(again) => {
                attempt.rests_on(writer, again.rests_on);
                if !matches!(attempt.work, Work::Command(_)) {
                    // The message was taken earlier under this key. The asker repeats its request.
                    return Execution::Done(Outcome::Done);
                }
                attempt.forward_again(&self.context.registry, *again)
            }
        };
        match forwarded {
            Ok(()) => Execution::Wait(Wait::Next),
            Err(why) => Execution::Refused(self.context.left_to_upgrade(&why).unwrap_or(Error::Malformed(why))),
        }
    }

    /// A message this epoch sends.
    fn outgoing(&self, delivery: Delivery) -> Box<Outgoing> {
        let sent = self.group_commit.position(delivery.commit);
        Box::new(Outgoing::new(delivery, sent))
    }

    /// Accounts for the shard's memory, publishes its values, and wakes the tasks that have work now. Follows every run, with the lock
    /// still held.
    fn settle(&self, shard: &mut Shard, has_staged: bool) {
        self.balance(shard);
        if shard.take_unresolved_changed() {
            self.context.signals.unresolved.wake();
        }
        #[cfg(feature = "services")]
        self.open_calls.settle(shard);
        let published = shard.take_published();
        #[cfg(feature = "services")]
        if !published.is_empty() {
            self.group_commit.publish(published);
        }
        // Without services there are no topics, and so no listeners.
        #[cfg(not(feature = "services"))]
        drop(published);
        if let Some(due) = shard.next_due()
            && due.micros < self.next_due.load(Ordering::Relaxed)
        {
            self.next_due.fetch_min(due.micros, Ordering::Relaxed);
            self.context.signals.timers.wake();
        }
        if has_staged {
            batch::has_staged(&self.context);
        }
    }

    /// Carries an attempt to its end, waiting for whatever it needs, starting from the outcome of its first try.
    ///
    /// # Errors
    /// The [`Refusal`], if it was not executed.
    pub(crate) async fn carry(
        self: &Arc<Self>,
        mut attempt: Attempt<'static>,
        mut execution: ShardExecution,
    ) -> Result<(Attempt<'static>, Carried), Refusal> {
        loop {
            execution = match execution {
                Execution::Done(outcome) => return Ok((attempt, Carried::Done(outcome))),
                Execution::Refused(refusal) => return Err(refusal),
                Execution::Wait(Wait::NextEpoch) => {
                    // All of this epoch is durable, or its answers are never given.
                    attempt.rests_on = None;
                    return Ok((attempt, Carried::Again));
                }
                Execution::Wait(Wait::Remote) => return self.ask_owner(attempt).await,
                Execution::Wait(Wait::Upgrade(why)) => return Ok((attempt, Carried::NotUnderstood(why))),
                Execution::Wait(Wait::Release(why)) => return Ok((attempt, Carried::Quarantined(why))),
                Execution::Wait(Wait::Lock | Wait::Next) => {
                    let (tell, told) = oneshot::channel();
                    let entered = self.enter(attempt, |attempt, execution| {
                        drop(tell.send((attempt, execution)));
                    });
                    let execution;
                    (attempt, execution) = match entered {
                        Entered::Ran(ran) => ran,
                        Entered::Queued => told.await.map_err(|_| Error::OutcomeUnknown)?,
                        Entered::Full(_) => return Err(self.overloaded(INBOX_RETRY)),
                    };
                    execution
                }
                Execution::Wait(wait) => match self.resolve(wait, &mut attempt).await {
                    Err(Error::Unavailable { .. }) if self.group_commit.is_closing() => {
                        Execution::Wait(Wait::NextEpoch)
                    }
                    resolved => {
                        resolved?;
                        self.try_now(&mut attempt)
                    }
                },
            };
        }
    }

    /// Waits for what an attempt needs, until its deadline. Nothing has been done so far.
    ///
    /// # Errors
    /// `Expired`, or the reason why the wait failed.
    fn resolve<'a>(
        self: &'a Arc<Self>,
        wait: Wait,
        attempt: &'a mut Attempt<'static>,
    ) -> Later<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let until = attempt.until;
            match wait {
                Wait::Lock | Wait::Next | Wait::Remote | Wait::NextEpoch | Wait::Upgrade(_) | Wait::Release(_) => {}
                Wait::Commit(number) => {
                    let durable = self.group_commit.wait_until(number, until).await;
                    durable.map_err(|error| match error {
                        Error::OutcomeUnknown => Error::Expired,
                        other => other,
                    })?;
                }
                Wait::Load => self.before(until, self.load(&attempt.target)).await??,
                Wait::Key => {
                    let key = attempt.key().unwrap_or_default().to_owned();
                    self.before(until, Box::pin(self.load_key(&attempt.target, &key)))
                        .await??;
                }
                Wait::DeadMessage(seen) => {
                    if let Work::Retry(retry) | Work::Drop(retry, _) = &mut attempt.work {
                        let read = now_or_later(self.context.store.system(&retry.row)).await;
                        let read = read.map_err(|why| Error::Unavailable {
                            reason: format!("the dead messages cannot be read: {why}"),
                        })?;
                        retry.stored = Some((seen, read));
                    }
                }
                Wait::Share(ticket) => {
                    self.before(until, ticket).await?;
                    attempt.has_share = true;
                }
            }
            attempt.now = self.context.host.elapsed_micros();
            if attempt.now >= until {
                Err(Error::Expired)
            } else {
                Ok(())
            }
        })
    }

    /// Waits for a future, until the deadline or the end of the epoch.
    async fn before<T>(&self, until: u64, future: impl Future<Output = T>) -> Result<T, Refusal> {
        match self.group_commit.in_time(until, future).await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Error::Expired),
            Err(_) => Err(recovering()),
        }
    }
}
