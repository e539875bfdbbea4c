//! The attempts of one worker: so many at once, each begun and ended by a command of its call.

use super::worker::{AnyPool, Ask, MakesCalls};
use crate::{
    context::Context,
    host::{Host, Task},
};
use serde_json::Value;
use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::Poll,
    time::Duration,
};
use throng_core::model::{
    Attempt, AttemptResult, Call, CallCommand, CallError, CallId, CallReject, CallReply, Error, Outside,
};
use throng_services::stats::{Counter, Level};

/// Calls that wait in memory for an attempt, 16 bytes each; a timer of the call comes back to those beyond.
const READY_MAX: usize = 65_536;
/// Pauses between two tries to record a result.
const RECORD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The pool of a worker.
pub(super) struct Pool<W: Outside> {
    worker: Arc<dyn MakesCalls<W>>,
    host: Arc<dyn Host>,
    /// Set once, when the engine is whole.
    ask: OnceLock<Ask>,
    queue: Mutex<Queue>,
    stats: PoolStats,
}

/// Changed under one lock by the engine, which adds calls, and by the tasks of the pool, which take them.
#[derive(Default)]
struct Queue {
    ready: VecDeque<CallId>,
    /// Tasks that make attempts, at most [`Outside::CONCURRENCY`].
    under_way: usize,
    is_closed: bool,
}

struct PoolStats {
    under_way: Level,
    waiting: Level,
    begun: Counter,
    failed: Counter,
}

impl<W: Outside> Pool<W> {
    pub(super) fn start(worker: Arc<dyn MakesCalls<W>>, context: &Context) -> Arc<dyn AnyPool> {
        let stats = |what: &str| format!("calls.{}.{what}", W::NAME);
        let pool = Arc::new(Self {
            worker,
            host: context.host.clone(),
            ask: OnceLock::new(),
            queue: Mutex::default(),
            stats: PoolStats {
                under_way: context.stats.level(&stats("under_way")),
                waiting: context.stats.level(&stats("waiting")),
                begun: context.stats.counter(&stats("attempts")),
                failed: context.stats.counter(&stats("attempts_failed")),
            },
        });
        let hears = Arc::downgrade(&pool);
        context.topics.hand_over(&Call::<W>::READY, move |call| {
            if let Some(pool) = hears.upgrade() {
                pool.ready(call);
            }
        });
        pool
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt of this call may begin.
    fn ready(self: Arc<Self>, call: CallId) {
        let mut queue = self.queue();
        if queue.is_closed {
            return;
        }
        if self.ask.get().is_some() && queue.under_way < W::CONCURRENCY.max(1) {
            queue.under_way += 1;
            self.show(&queue);
            drop(queue);
            let host = self.host.clone();
            host.spawn_outside(Box::pin(self.run(call)));
        } else if queue.ready.len() < READY_MAX {
            queue.ready.push_back(call);
            self.show(&queue);
        }
    }

    fn show(&self, queue: &Queue) {
        self.stats.under_way.set(queue.under_way as f64);
        self.stats.waiting.set(queue.ready.len() as f64);
    }

    /// Makes attempts, one after the other, while calls wait.
    async fn run(self: Arc<Self>, first: CallId) {
        let mut next = Some(first);
        while let Some(call) = next {
            self.attempt(call).await;
            let mut queue = self.queue();
            next = queue.ready.pop_front();
            queue.under_way -= usize::from(next.is_none());
            self.show(&queue);
        }
    }

    async fn ask(&self, call: CallId, command: CallCommand) -> Option<Result<CallReply, Error<CallReject>>> {
        self.ask.get()?(call, command).await
    }

    /// Makes an attempt. Where it cannot begin, a timer of the call comes back to it.
    async fn attempt(&self, call: CallId) {
        let Some(Ok(CallReply::Go {
            attempt,
            request,
            deadline,
        })) = self.ask(call, CallCommand::Start {}).await
        else {
            return;
        };
        self.stats.begun.add(1);
        let attempt = Attempt {
            call,
            number: attempt,
            deadline,
        };
        let result = match serde_json::from_value(request) {
            Ok(request) => self.make(request, &attempt).await,
            Err(why) => AttemptResult::NotSent(format!("this program cannot read the request: {why}")),
        };
        if !matches!(result, AttemptResult::Answered(_)) {
            self.stats.failed.add(1);
        }
        self.record(&attempt, result).await;
    }

    /// The result of the worker, or that it took too long or panicked.
    async fn make(&self, request: W::Request, attempt: &Attempt) -> AttemptResult {
        let mut over: Task = self.host.sleep(W::TIMEOUT);
        let mut made = pin!(self.worker.make(request, attempt));
        let made =
            std::future::poll_fn(
                |context| match catch_unwind(AssertUnwindSafe(|| made.as_mut().poll(context))) {
                    Err(_) => Poll::Ready(Err(CallError::InDoubt("the worker panicked".into()))),
                    Ok(Poll::Ready(made)) => Poll::Ready(made),
                    Ok(Poll::Pending) => over
                        .as_mut()
                        .poll(context)
                        .map(|()| Err(CallError::InDoubt(format!("no answer within {:?}", W::TIMEOUT)))),
                },
            )
            .await;
        let in_json = |value: serde_json::Result<Value>, is_answer: bool| match value {
            Ok(value) if is_answer => AttemptResult::Answered(value),
            Ok(value) => AttemptResult::Failed(value),
            Err(why) => AttemptResult::InDoubt(format!("the answer cannot be written as JSON: {why}")),
        };
        match made {
            Ok(answer) => in_json(serde_json::to_value(&answer), true),
            Err(CallError::Failed(failure)) => in_json(serde_json::to_value(&failure), false),
            Err(CallError::NotSent(why)) => AttemptResult::NotSent(why),
            Err(CallError::InDoubt(why)) => AttemptResult::InDoubt(why),
        }
    }

    /// Records the result, however long the journal takes.
    async fn record(&self, attempt: &Attempt, mut result: AttemptResult) {
        let mut pause = RECORD.0;
        loop {
            let finish = CallCommand::Finish {
                attempt: attempt.number,
                result: result.clone(),
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
    fn begin(self: Arc<Self>, ask: Ask) {
        if self.ask.set(ask).is_err() {
            return;
        }
        let waiting = std::mem::take(&mut self.queue().ready);
        for call in waiting {
            self.clone().ready(call);
        }
    }

    fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        queue.ready.clear();
    }

    fn under_way(&self) -> usize {
        self.queue().under_way
    }
}
