//! The attempts of one worker: admitted within its bounds, each begun and ended by a command of its call.

use super::{
    admission::{Admission, Admitted, Bounds, Ended, Next, WAITING_MAX},
    traced::AttemptSpan,
    worker::{AnyPool, Link, MakesCalls, Owned},
};
use crate::{
    context::Context,
    host::{Host, Signal, Task},
    spans::Tracer,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::Poll,
    time::Duration,
};
use throng_core::model::{
    Attempt, AttemptResult, Call, CallCommand, CallError, CallId, CallOffer, CallReject, CallReply, Entity, Error,
    Outside,
};
use throng_journal::{ShardId, ShardSet};
use throng_services::{
    circuit::CircuitState,
    stats::{Counter, Level},
};

/// Pauses between two tries to record a result.
const RECORD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// The longest time from one look at waiting calls to the next: permits may have come to this engine.
const LOOK: Duration = Duration::from_secs(1);
/// A worker that does not let go of its thread for so long is named.
const BLOCKED: Duration = Duration::from_secs(1);
/// Calls sent on in one command.
const SENT_MAX: usize = 256;
/// Commands under way that send calls on; calls beyond wait here, or for their timers.
const SENDS_MAX: usize = 16;

/// The pool of a worker.
pub(super) struct Pool<W: Outside> {
    worker: Arc<dyn MakesCalls<W>>,
    host: Arc<dyn Host>,
    tracer: Option<Arc<Tracer>>,
    /// The shard of each permit: its owner may have one more attempt under way.
    permits: Box<[ShardId]>,
    /// Set once, when the engine is whole.
    link: OnceLock<Link>,
    queue: Mutex<Queue>,
    /// Wakes the task that admits attempts.
    changed: Signal,
    stats: PoolStats,
}

/// Changed under one lock by the engine, which adds calls, and by the tasks of the pool, which take them.
struct Queue {
    /// Calls that were offered since the last look.
    arrived: Vec<CallOffer>,
    admission: Admission,
    /// Commands under way that send calls on.
    sends: usize,
    /// A task admits attempts, while calls wait.
    is_driven: bool,
    is_closed: bool,
}

struct PoolStats {
    under_way: Level,
    waiting: Level,
    permits: Level,
    breaker: Level,
    begun: Counter,
    failed: Counter,
    refused: Counter,
    forwarded: Counter,
}

impl<W: Outside> Pool<W> {
    pub(super) fn start(worker: Arc<dyn MakesCalls<W>>, context: &Context) -> Arc<dyn AnyPool> {
        let name = |what: &str| format!("calls.{}.{what}", W::NAME);
        let (level, counter) = (
            |what: &str| context.stats.level(&name(what)),
            |what: &str| context.stats.counter(&name(what)),
        );
        let bounds = Bounds::of::<W>();
        let permit = |number| {
            let address = Call::<W>::permit(number).to_string();
            context.registry.shard_of(Call::<W>::KIND, &address)
        };
        let pool = Arc::new(Self {
            worker,
            host: context.host.clone(),
            tracer: context.tracer.clone(),
            permits: (0..bounds.concurrency).map(permit).collect(),
            link: OnceLock::new(),
            queue: Mutex::new(Queue {
                arrived: Vec::new(),
                admission: Admission::new(bounds),
                sends: 0,
                is_driven: false,
                is_closed: false,
            }),
            changed: Signal::default(),
            stats: PoolStats {
                under_way: level("under_way"),
                waiting: level("waiting"),
                permits: level("permits"),
                breaker: level("breaker"),
                begun: counter("attempts"),
                failed: counter("attempts_failed"),
                refused: counter("refused_by_breaker"),
                forwarded: counter("forwarded"),
            },
        });
        let hears = Arc::downgrade(&pool);
        context.topics.hand_over(&Call::<W>::READY, move |offer| {
            if let Some(pool) = hears.upgrade() {
                pool.ready(offer);
            }
        });
        pool
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.host.elapsed_micros())
    }

    /// An attempt of this call may begin. Called with locks of the engine held.
    fn ready(self: Arc<Self>, offer: CallOffer) {
        let mut queue = self.queue();
        if queue.is_closed || queue.arrived.len() >= WAITING_MAX {
            return;
        }
        queue.arrived.push(offer);
        self.drive(queue);
    }

    /// Sees to it that a task looks at the calls that wait.
    fn drive(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if self.link.get().is_none() {
            return;
        }
        let is_driven = std::mem::replace(&mut queue.is_driven, true);
        drop(queue);
        if is_driven {
            return self.changed.wake();
        }
        let pool = self.clone();
        self.host.spawn_outside(
            W::NAME,
            Box::pin(async move {
                while let Some(pause) = pool.look() {
                    pool.changed.within(pool.host.sleep(pause)).await;
                }
            }),
        );
    }

    /// Begins the attempts that may begin; returns the time until the next look, while calls wait.
    fn look(self: &Arc<Self>) -> Option<Duration> {
        let owned = self.link.get().map_or(Owned::Ended, |link| (link.owned)());
        let now = self.now();
        let mut queue = self.queue();
        let shards = match owned {
            Owned::Shards(shards) if !queue.is_closed => shards,
            Owned::Down if !queue.is_closed => return Some(LOOK),
            _ => {
                queue.is_driven = false;
                return None;
            }
        };
        let permits = self.permits.iter().filter(|shard| shards.contains(**shard)).count();
        let forwarded = self.distribute(&mut queue, &shards, permits);
        let mut admitted = Vec::new();
        let pause = loop {
            match queue.admission.next(now, permits) {
                Next::Begin(attempt) => admitted.push(attempt),
                Next::At(until) => break Some((until - now).min(LOOK)),
                Next::Full => break Some(LOOK),
                Next::Idle => break None,
            }
        };
        queue.is_driven = pause.is_some();
        self.stats.permits.set(permits as f64);
        self.show(&queue);
        drop(queue);
        for (permit, calls) in forwarded {
            let forward = self.clone().forward(permit, calls);
            self.host.spawn_outside(W::NAME, Box::pin(forward));
        }
        for attempt in admitted {
            self.host.spawn_outside(W::NAME, Box::pin(self.clone().run(attempt)));
        }
        pause
    }

    /// Has calls that arrived wait here, or returns them for the owner of a permit drawn at random: so each engine has as large a part of them as
    /// of the permits.
    fn distribute(&self, queue: &mut Queue, shards: &ShardSet, permits: usize) -> BTreeMap<usize, Vec<CallOffer>> {
        let mut forwarded = BTreeMap::<_, Vec<_>>::new();
        if permits == 0 {
            queue.admission.clear();
        }
        for offer in std::mem::take(&mut queue.arrived) {
            let admission = &mut queue.admission;
            let is_free = admission.under_way() + admission.waiting() < permits;
            if permits < self.permits.len() && !is_free && !offer.is_forwarded {
                let drawn = (self.host.entropy() % self.permits.len() as u128) as usize;
                let has_place = forwarded.len() + queue.sends < SENDS_MAX || forwarded.contains_key(&drawn);
                if has_place && !shards.contains(self.permits[drawn]) {
                    let calls = forwarded.entry(drawn).or_default();
                    if calls.len() < SENT_MAX {
                        calls.push(CallOffer {
                            is_forwarded: true,
                            ..offer
                        });
                        continue;
                    }
                }
            }
            if permits > 0 {
                if admission.breaker() == CircuitState::Open {
                    self.stats.refused.add(1);
                }
                admission.add(&offer);
            }
        }
        queue.sends += forwarded.len();
        forwarded
    }

    /// Offers calls at the owner of a permit. They may be lost: timers of the calls offer them again.
    async fn forward(self: Arc<Self>, permit: usize, calls: Vec<CallOffer>) {
        self.stats.forwarded.add(calls.len() as u64);
        let sent = self.ask(Call::<W>::permit(permit), CallCommand::Offer { calls }).await;
        if let Some(Err(why)) = sent {
            tracing::debug!("calls of {} wait for their timers: {why}", W::NAME);
        }
        self.queue().sends -= 1;
    }

    fn show(&self, queue: &Queue) {
        self.stats.under_way.set(queue.admission.under_way() as f64);
        self.stats.waiting.set(queue.admission.waiting() as f64);
        self.stats.breaker.set(match queue.admission.breaker() {
            CircuitState::Closed => 0.0,
            CircuitState::HalfOpen => 1.0,
            CircuitState::Open => 2.0,
        });
    }

    /// Makes an admitted attempt.
    async fn run(self: Arc<Self>, admitted: Admitted) {
        let ended = self.attempt(admitted.call).await;
        let now = self.now();
        let mut queue = self.queue();
        queue.admission.ended(admitted, now, ended);
        self.show(&queue);
        drop(queue);
        self.changed.wake();
    }

    async fn ask(&self, call: CallId, command: CallCommand) -> Option<Result<CallReply, Error<CallReject>>> {
        (self.link.get()?.ask)(call, command).await
    }

    /// Makes an attempt. Where it cannot begin, a timer of the call comes back to it.
    async fn attempt(&self, call: CallId) -> Ended {
        let Some(Ok(CallReply::Go {
            attempt,
            request,
            deadline,
            trace,
        })) = self.ask(call, CallCommand::Start {}).await
        else {
            return Ended::NotBegun;
        };
        self.stats.begun.add(1);
        let span = AttemptSpan::begin(self.tracer.as_deref(), &*self.host, trace.as_deref().copied());
        let attempt = Attempt {
            call,
            number: attempt,
            begun: self.host.now(),
            deadline,
            trace: span.passed_on(),
        };
        let is_first = attempt.number == 1;
        let (result, after, ended) = match serde_json::from_value(request) {
            Ok(request) => match self.make(request, &attempt).await {
                (result @ (AttemptResult::Answered(_) | AttemptResult::Failed(_)), after) => {
                    (result, after, Ended::Answered { is_first })
                }
                (result, after) => (result, after, Ended::Unanswered { is_first }),
            },
            Err(why) => {
                let why = format!("this program cannot read the request: {why}");
                (AttemptResult::NotSent(why), Duration::ZERO, Ended::NotMade)
            }
        };
        if !matches!(result, AttemptResult::Answered(_)) {
            self.stats.failed.add(1);
        }
        if let Some(tracer) = &self.tracer {
            span.end(tracer, &*self.host, Call::<W>::KIND, &attempt, &result);
        }
        self.record(&attempt, result, after).await;
        ended
    }

    /// The result of the worker, or that it took too long or panicked; and the pause that the provider asks for.
    async fn make(&self, request: W::Request, attempt: &Attempt) -> (AttemptResult, Duration) {
        let mut over: Task = self.host.sleep(W::TIMEOUT);
        let mut made = pin!(self.worker.make(request, attempt));
        let made = std::future::poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| {
                self.watched(attempt, || made.as_mut().poll(context))
            })) {
                Err(_) => Poll::Ready(Err(CallError::InDoubt("the worker panicked".into()))),
                Ok(Poll::Ready(made)) => Poll::Ready(made),
                Ok(Poll::Pending) => over
                    .as_mut()
                    .poll(context)
                    .map(|()| Err(CallError::InDoubt(format!("no answer within {:?}", W::TIMEOUT)))),
            }
        })
        .await;
        let in_json = |value: serde_json::Result<Value>, is_answer: bool| match value {
            Ok(value) if is_answer => AttemptResult::Answered(value),
            Ok(value) => AttemptResult::Failed(value),
            Err(why) => AttemptResult::InDoubt(format!("the answer cannot be written as JSON: {why}")),
        };
        let mut pause = Duration::ZERO;
        let result = match made {
            Ok(answer) => in_json(serde_json::to_value(&answer), true),
            Err(CallError::Failed(failure)) => in_json(serde_json::to_value(&failure), false),
            Err(CallError::NotSent(why)) => AttemptResult::NotSent(why),
            Err(CallError::InDoubt(why)) => AttemptResult::InDoubt(why),
            Err(CallError::RetryAfter { after, is_sent, why }) => {
                pause = after;
                match is_sent {
                    true => AttemptResult::InDoubt(why),
                    false => AttemptResult::NotSent(why),
                }
            }
        };
        (result, pause)
    }

    /// Runs a worker's own code, and names the worker if that blocked its thread.
    fn watched<T>(&self, attempt: &Attempt, run: impl FnOnce() -> T) -> T {
        let begun = self.host.elapsed_micros();
        let ran = run();
        let took = Duration::from_micros(self.host.elapsed_micros().saturating_sub(begun));
        if took >= BLOCKED {
            tracing::warn!(
                "the worker {} blocked its thread for {took:?} in the call {}, and other calls of it waited: use spawn_blocking",
                W::NAME,
                attempt.call
            );
        }
        ran
    }

    /// Records the result, however long the journal takes.
    async fn record(&self, attempt: &Attempt, mut result: AttemptResult, after: Duration) {
        let mut pause = RECORD.0;
        loop {
            let finish = CallCommand::Finish {
                attempt: attempt.number,
                result: result.clone(),
                after_micros: u64::try_from(after.as_micros()).unwrap_or(u64::MAX),
            };
            match self.ask(attempt.call, finish).await {
                // The engine has ended, or the call has: another attempt had the outcome.
                None | Some(Ok(_) | Err(Error::Ended { .. } | Error::Unknown { .. } | Error::Rejected(_))) => return,
                Some(Err(why @ (Error::TooLarge { .. } | Error::Malformed(_)))) => {
                    let told = AttemptResult::InDoubt(format!("the answer cannot be recorded: {why}"));
                    if std::mem::replace(&mut result, told) == result {
                        return;
                    }
                }
                // A person decides on it, and the call has no place here until then.
                Some(Err(why @ (Error::Quarantined { .. } | Error::Crashed { .. }))) => {
                    tracing::warn!("the result of the call {} is lost: {why}", attempt.call);
                    return;
                }
                Some(Err(why)) => tracing::debug!("the result of the call {} waits: {why}", attempt.call),
            }
            self.host.sleep(pause).await;
            pause = (pause * 2).min(RECORD.1);
        }
    }
}

impl<W: Outside> AnyPool for Pool<W> {
    fn begin(self: Arc<Self>, link: Link) {
        if self.link.set(link).is_ok() {
            let queue = self.queue();
            // The threads for calls begin with the first one.
            if !queue.arrived.is_empty() {
                self.drive(queue);
            }
        }
    }

    fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        queue.arrived = Vec::new();
        queue.admission.clear();
        drop(queue);
        self.changed.wake();
    }

    fn under_way(&self) -> usize {
        self.queue().admission.under_way()
    }
}
