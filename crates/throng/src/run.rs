//! Running one command: in place under its shard's lock, or in the hands of whoever holds it.

use crate::{
    checkpoint::PENDING_PART,
    deliver::{Asker, Outgoing},
    engine::Inner,
    life::Life,
    share,
};
use bytes::Bytes;
use std::convert::Infallible;
use std::{
    any::Any,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::Poll,
    time::Duration,
};
use throng_core::{
    limits,
    model::Error,
    shard::{Call, Cause, Delivery, Forward, ForwardAgain, Input, JsonReply, Outcome, Output, Parcel, Ran, Shard},
};
use throng_journal::Address;
use throng_turn::{Entered, Job};
use tokio::sync::oneshot;

/// A shard books its bytes once they differ by this part of the budget, a power of two: all shards together by a 256th.
const BOOK_SHIFT: u32 = 16;

/// A command as it waits for its turn.
pub(crate) enum Payload {
    /// The entity's `Option<Command>`.
    Typed(Box<dyn Any + Send>),
    Json {
        name: String,
        body: Bytes,
    },
}

/// Where its answer goes.
pub(crate) enum Reply {
    /// An `Answered<E>`.
    Typed(Box<dyn Any + Send>),
    Json(JsonReply),
    Nobody,
}

impl Reply {
    pub(crate) fn output(&mut self) -> Output<'_> {
        match self {
            Self::Typed(reply) => Output::Typed(reply.as_mut()),
            Self::Json(reply) => Output::Json(reply),
            Self::Nobody => Output::Nobody,
        }
    }
}

/// One command on its way.
pub(crate) struct Ask {
    pub(crate) kind: usize,
    pub(crate) hash: u64,
    pub(crate) id: String,
    pub(crate) payload: Payload,
    pub(crate) reply: Reply,
    pub(crate) key: Option<String>,
    pub(crate) caller: Option<String>,
    /// Who becomes its parent, if this creates it.
    pub(crate) parent: Option<Box<Address>>,
}

/// A command that was executed; its answer may leave once what it rests on is durable.
pub(crate) struct Executed {
    pub(crate) reply: Reply,
    pub(crate) life: Arc<Life>,
    pub(crate) rests_on: u64,
    pub(crate) until: u64,
}

/// Where the answer of a command comes that was forwarded as a message, and the commit it rests on.
pub(crate) type Told = oneshot::Receiver<(Reply, u64)>;

/// What came of running it once.
struct Round {
    ask: Box<Ask>,
    ran: Ran,
    /// It was forwarded as a message; this is where its answer comes.
    answer: Option<Told>,
    /// Messages were sent.
    sent: bool,
}

impl Ask {
    /// `None`: the life is over, another one may have begun.
    fn run(mut self: Box<Self>, shard: &mut Shard, inner: &Arc<Inner>, life: &Life) -> Option<Round> {
        if life.is_over() {
            return None;
        }
        let now = inner.host.now();
        let mut staging = life.staging();
        let mut call = Call {
            kind: self.kind,
            hash: self.hash,
            id: &self.id,
            now,
            entropy: inner.host.entropy(),
            input: match &mut self.payload {
                Payload::Typed(command) => Input::Typed(command.as_mut()),
                Payload::Json { name, body } => Input::Json { name, body },
            },
            output: self.reply.output(),
            cause: Cause::Asked {
                key: self.key.as_deref(),
                caller: self.caller.as_deref(),
                parent: self.parent.as_deref(),
            },
        };
        let mut ran = inner.watched(life, shard, &mut call, inner.host.elapsed_micros(), &mut staging);
        let first = staging.first;
        let (sent, answer) = inner.send_on(life, shard, &mut ran, &mut self.reply);
        let round = Round {
            ask: self,
            ran,
            answer,
            sent,
        };
        inner.after(life, shard, first);
        Some(round)
    }
}

impl Inner {
    /// Puts what a run sent on its way, while the shard's lock is held, so that a checkpoint sees every message that was sent
    /// before it looked. Whether there was any, and where the answer comes if the command itself was forwarded with it.
    pub(crate) fn send_on(
        &self,
        life: &Life,
        shard: &mut Shard,
        ran: &mut Ran,
        reply: &mut Reply,
    ) -> (bool, Option<Told>) {
        let deliveries = shard.take_outbox();
        let sent = !deliveries.is_empty();
        self.enqueue(life, deliveries, None);
        let Some(delivery) = forwarded(ran) else {
            return (sent, None);
        };
        let (asker, answer) = Asker::new(std::mem::replace(reply, Reply::Nobody));
        self.enqueue(life, Vec::new(), Some(Outgoing::new(life, delivery, Some(asker))));
        (true, Some(answer))
    }

    /// What follows every run while the shard's lock is still held.
    pub(crate) fn after(self: &Arc<Self>, life: &Life, shard: &mut Shard, first: bool) {
        self.balance(life, shard);
        let published = shard.take_published();
        if !published.is_empty() {
            self.publish(life, published);
        }
        if let Some(due) = shard.next_due()
            && due.micros < life.next_due.load(Ordering::Relaxed)
        {
            life.next_due.fetch_min(due.micros, Ordering::Relaxed);
            self.alarm.wake();
        }
        if first {
            self.kick();
        }
    }

    /// Keeps the memory's books, and the memory within its budget.
    pub(crate) fn balance(&self, life: &Life, shard: &mut Shard) {
        let load = shard.load();
        // Small changes are booked together: the books are every thread's.
        let budget = i64::try_from(self.options.memory_bytes_max).unwrap_or(i64::MAX);
        let booked = life.books.bytes.load(Ordering::Relaxed) + life.books.pending_bytes.load(Ordering::Relaxed);
        if booked <= budget && !shard.differs(load, self.options.memory_bytes_max >> BOOK_SHIFT) {
            return;
        }
        let add = |total: &AtomicI64, delta: i64| {
            if delta == 0 {
                total.load(Ordering::Relaxed)
            } else {
                total.fetch_add(delta, Ordering::Relaxed) + delta
            }
        };
        let delta = shard.book(load);
        add(&life.books.entities, delta.entities);
        let pending = add(&life.books.pending_bytes, delta.pending_bytes);
        let bytes = add(&life.books.bytes, delta.bytes);
        if bytes + pending > budget && load.entities > 1 {
            let over = usize::try_from(bytes + pending - budget).unwrap_or_default();
            // No more than this shard's share: the others give theirs when they are used.
            shard.passivate(over.min(load.bytes / 4).max(1));
            let delta = shard.book(shard.load());
            add(&life.books.entities, delta.entities);
            add(&life.books.bytes, delta.bytes);
            if add(&life.books.pending_bytes, delta.pending_bytes) > budget / PENDING_PART {
                self.checkpoint.wake();
            }
        }
    }

    /// Runs a command, wherever forwarding takes it, and waits until its answer may leave.
    pub(crate) async fn run(
        self: &Arc<Self>,
        ask: Box<Ask>,
        deadline: Option<Duration>,
    ) -> Result<Reply, Error<Infallible>> {
        let executed = self.execute(ask, deadline).await?;
        self.durable(&executed.life, executed.rests_on, executed.until).await?;
        Ok(executed.reply)
    }

    /// Runs a command, wherever forwarding takes it.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        mut ask: Box<Ask>,
        deadline: Option<Duration>,
    ) -> Result<Executed, Error<Infallible>> {
        let begun = self.host.elapsed_micros();
        let deadline = deadline.unwrap_or(self.options.deadline);
        let until = begun.saturating_add(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX));
        if ask
            .key
            .as_ref()
            .is_some_and(|key| key.len() > limits::NAME_BYTES_MAX || key.is_empty())
        {
            return Err(Error::Malformed(format!(
                "an idempotency key has 1 to {} bytes",
                limits::NAME_BYTES_MAX
            )));
        }
        let life = self.life()?;
        self.admit(&life, until).await?;
        let (mut rests_on, mut waited) = (0, false);
        if share::may_be_hot(ask.hash) {
            waited = Box::pin(self.await_share(&life, ask.hash, until)).await?;
        }
        loop {
            if waited && self.host.elapsed_micros() >= until {
                return Err(Error::Expired);
            }
            let round = self.round(&life, ask).await?;
            ask = round.ask;
            match round.ran {
                Ran::Done { rests_on: on, outcome } => {
                    self.count(outcome);
                    rests_on = rests_on.max(on);
                    if round.sent {
                        self.pump(&life, self.options.deliveries_per_turn);
                    }
                    if let Some(answer) = round.answer {
                        ask.reply = self.answered(&life, (rests_on, until), answer).await?;
                    }
                    return Ok(Executed {
                        reply: ask.reply,
                        life,
                        rests_on,
                        until,
                    });
                }
                Ran::Load => {
                    waited = true;
                    let load = Box::pin(self.load(&life, ask.kind, ask.hash, &ask.id));
                    self.before(&life, until, load).await?;
                }
                Ran::LoadKey => {
                    waited = true;
                    let key = ask.key.as_deref().unwrap_or_default();
                    let load = Box::pin(self.load_key(&life, ask.hash, &ask.id, key));
                    self.before(&life, until, load).await?;
                }
                Ran::Forward(forward) => {
                    let Forward {
                        to, key, rests_on: on, ..
                    } = *forward;
                    rests_on = rests_on.max(on);
                    let kind = self.registry.find(to.kind).ok_or_else(|| unknown_kind(to.kind))?;
                    let (hash, id) = (limits::hash(to.kind, &to.id), to.id.clone());
                    let Parcel::Typed(command) = Parcel::typed(to) else {
                        return Err(Error::OutcomeUnknown);
                    };
                    *ask = Ask {
                        kind,
                        hash,
                        id,
                        payload: Payload::Typed(command),
                        key,
                        parent: None,
                        ..*ask
                    };
                }
                Ran::ForwardAgain(again) => {
                    let ForwardAgain {
                        to,
                        name,
                        body,
                        key,
                        parent,
                        rests_on: on,
                    } = *again;
                    rests_on = rests_on.max(on);
                    let kind = self.registry.find(&to.kind).ok_or_else(|| unknown_kind(&to.kind))?;
                    let payload = Payload::Json {
                        name,
                        body: body.into(),
                    };
                    let hash = limits::hash(&to.kind, &to.id);
                    *ask = Ask {
                        kind,
                        hash,
                        id: to.id.into(),
                        payload,
                        key: Some(key),
                        parent: parent.map(Box::new),
                        ..*ask
                    };
                }
            }
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.metrics.done.inc(),
            Outcome::Refused => self.metrics.refused.inc(),
            Outcome::Failed => self.metrics.failed.inc(),
        };
    }

    /// Waits for the answer of a command that was forwarded as a message, and until that is durable.
    pub(crate) async fn answered(
        &self,
        life: &Life,
        (rests_on, until): (u64, u64),
        answer: Told,
    ) -> Result<Reply, Error<Infallible>> {
        let told = self.in_time(life, until, answer).await.and_then(Result::ok);
        let (reply, on) = told.ok_or(Error::OutcomeUnknown)?;
        // The answer may be lost where the message it answers is not: that will be taken again.
        let durable = self.durable(life, rests_on.max(on), until).await;
        durable.map_err(|_: Error<Infallible>| Error::OutcomeUnknown)?;
        Ok(reply)
    }

    /// Waits while its entity has had its share of the turn and others wait. `true`: it did.
    async fn await_share(&self, life: &Life, hash: u64, until: u64) -> Result<bool, Error<Infallible>> {
        match self.enter_hot(hash) {
            share::Entry::Go => Ok(false),
            share::Entry::Refuse(wait) => self.overloaded(wait).map(|()| false),
            share::Entry::Wait(ticket) => {
                let wait = async {
                    ticket.await;
                    Ok(())
                };
                Box::pin(self.before(life, until, wait)).await.map(|()| true)
            }
        }
    }

    /// Runs it once, in place if the lock is free.
    async fn round(self: &Arc<Self>, life: &Arc<Life>, ask: Box<Ask>) -> Result<Round, Error<Infallible>> {
        let mut answer = None;
        let entered = life.shard_of(ask.hash).enter(
            ask,
            |shard, ask| ask.run(shard, self, life),
            |ask| -> Job<Shard> {
                let (tell, told) = oneshot::channel();
                answer = Some(told);
                let (inner, life) = (self.clone(), life.clone());
                Box::new(move |shard| drop(tell.send(ask.run(shard, &inner, &life))))
            },
        );
        match (entered, answer) {
            (Entered::Ran(round), _) => round.ok_or_else(recovering),
            (Entered::Queued, Some(told)) => told.await.map_err(|_| Error::OutcomeUnknown)?.ok_or_else(recovering),
            _ => {
                self.metrics.overloaded.inc();
                Err(Error::Overloaded {
                    retry_after: Duration::from_millis(100),
                })
            }
        }
    }

    /// Brings what a command or query needs back, before its deadline: so far nothing was done.
    pub(crate) async fn before<R>(
        &self,
        life: &Life,
        until: u64,
        load: impl Future<Output = Result<(), Error<R>>>,
    ) -> Result<(), Error<R>> {
        match self.in_time(life, until, load).await {
            Some(loaded) => loaded,
            None if life.is_over() => Err(recovering()),
            None => Err(Error::Expired),
        }
    }

    /// Waits, but not past the deadline, nor for a life that is over.
    async fn in_time<T>(&self, life: &Life, until: u64, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        // Waiting for the open commit too, because its waiters are swept at their deadline and woken at the end.
        let mut commit = life.open.wait(life.open.number(), until);
        let mut polled = false;
        std::future::poll_fn(move |context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            while let Poll::Ready(landed) = Pin::new(&mut commit).poll(context) {
                if landed.is_err() {
                    return Poll::Ready(None);
                }
                commit = life.open.wait(life.open.number(), until);
            }
            if std::mem::replace(&mut polled, true) && self.host.elapsed_micros() >= until {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// What [`durable`](Self::durable) would say at once; `None`: it would wait.
    pub(crate) fn durable_now<R>(&self, life: &Life, number: u64, until: u64) -> Option<Result<(), Error<R>>> {
        match life.open.state(number) {
            // What was looked at may have been another engine's to change.
            Poll::Ready(Ok(())) if self.journal.holds(life.writer) => Some(Ok(())),
            Poll::Ready(Err(_)) => Some(Err(lost())),
            Poll::Pending if self.host.elapsed_micros() < until => None,
            _ => Some(Err(Error::OutcomeUnknown)),
        }
    }

    /// Waits until a commit is durable, or says what is known at the deadline.
    pub(crate) async fn durable<R>(&self, life: &Life, number: u64, until: u64) -> Result<(), Error<R>> {
        let wait = life.open.wait(number, until);
        if wait.is_durable() {
            // It may rest on memory alone: what was looked at may have been another engine's to change.
            let holds = self.journal.holds(life.writer);
            return if holds { Ok(()) } else { Err(Error::OutcomeUnknown) };
        }
        self.until(until, wait).await?.map_err(|_| lost())
    }

    /// Waits, but not past the deadline. Wakers are swept at least ten times a second (`timers::sweep`).
    async fn until<T, R>(&self, until: u64, future: impl Future<Output = T>) -> Result<T, Error<R>> {
        let mut future = std::pin::pin!(future);
        let mut polled = false;
        std::future::poll_fn(move |context| {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                return std::task::Poll::Ready(Ok(value));
            }
            if std::mem::replace(&mut polled, true) && self.host.elapsed_micros() >= until {
                return std::task::Poll::Ready(Err(Error::OutcomeUnknown));
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// A command that was forwarded as a message: the message, and for its sender it is done.
pub(crate) fn forwarded(ran: &mut Ran) -> Option<Delivery> {
    let Ran::Forward(forward) = ran else { return None };
    let taking = forward.taking.take()?;
    let done = Ran::Done {
        rests_on: forward.rests_on,
        outcome: Outcome::Done,
    };
    let Ran::Forward(forward) = std::mem::replace(ran, done) else {
        return None;
    };
    let Forward { to, rests_on, .. } = *forward;
    Some(Delivery {
        to: to.address(),
        parcel: Parcel::typed(to),
        taking,
        commit: rests_on,
    })
}

fn lost<R>() -> Error<R> {
    Error::Unavailable {
        reason: "the commit did not land; the engine starts again from its journal".into(),
    }
}

/// Asked at the end of a writer's life: nothing was done.
pub(crate) fn recovering<R>() -> Error<R> {
    Error::Unavailable {
        reason: "the engine starts again from its journal".into(),
    }
}

pub(crate) fn unknown_kind<R>(kind: &str) -> Error<R> {
    Error::Malformed(format!("the engine was not given the kind {kind:?}"))
}

/// The engine's part of a typed answer.
pub(crate) fn widen<R>(error: Error<Infallible>) -> Error<R> {
    error.engine().unwrap_or_else(|never| match never {})
}
