//! A command on its way to its answer.

use super::conclude::counted;
use crate::{
    access_log::Entry,
    answer::Reply,
    metrics::Route,
    problem::{Answered, Problem, engine_problem},
    request::trace::{RequestEnd, RequestRoute, RequestSpan},
    server::Server,
};
use http::{Method, StatusCode};
use std::{
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Instant,
};
use throng::{
    JsonRejection,
    driver::{Charge, Executed, Execution},
    journal::ShardId,
    model::Error,
};

/// A command on its way to its answer.
pub(crate) struct Staged {
    execution: CommandExecution,
    /// The memory of a large answer.
    charge: Option<Charge>,
    arrived: Option<Instant>,
    /// The entity's shard, if clients get its owner.
    shard: Option<ShardId>,
    /// The path that a problem reports as its `instance`; empty for a message of a WebSocket.
    path: Box<str>,
    log: Option<Box<Entry>>,
    span: Option<Box<RequestSpan>>,
}

/// The outcome of a command so far. If it has to wait, a future executes it.
pub(super) type CommandExecution = Execution<Executed, Executing, Box<Problem>>;

/// The execution of a command that had to wait.
pub(super) type Executing = Pin<Box<dyn Future<Output = Result<Executed, Error<JsonRejection>>>>>;

/// Charges a large answer that exists already. It has to be sent, so the charge needs no room.
fn charge(server: &Server, execution: &CommandExecution) -> Option<Charge> {
    match execution {
        Execution::Done(executed) => server.charge_anyway(executed.answer_bytes()),
        Execution::Wait(_) | Execution::Refused(_) => None,
    }
}

impl Staged {
    /// Returns its answer, if it may leave now; only once. For callers that serve many at once and were [woken](Self::wake_at).
    pub(crate) fn answer_now(&mut self, server: &Server, now: Instant) -> Option<Answered<Reply>> {
        let answered = match &mut self.execution {
            Execution::Done(executed) => executed.answer_now()?.map_err(engine_problem),
            Execution::Wait(_) => return None,
            Execution::Refused(problem) => Err(problem.clone()),
        };
        Some(self.counted(server, answered, now))
    }

    /// Has this waker woken when [`answer_now`](Self::answer_now) may have more to say. `false`: it has already, or the answer has to be
    /// [polled](Self::poll_answer).
    pub(crate) fn wake_at(&self, waker: &Waker) -> bool {
        matches!(&self.execution, Execution::Done(executed) if executed.wake_at(waker))
    }

    /// Continues a command that has to wait before it is executed; ready once it is executed.
    pub(crate) fn poll_executed(&mut self, server: &Server, context: &mut Context<'_>) -> Poll<()> {
        if let Execution::Wait(executing) = &mut self.execution {
            let executed = ready!(executing.as_mut().poll(context));
            self.execution = executed.map_or_else(|error| Execution::Refused(engine_problem(error)), Execution::Done);
            self.charge = charge(server, &self.execution);
        }
        Poll::Ready(())
    }

    /// Its answer, whatever that waits for; given once.
    pub(crate) fn poll_answer(&mut self, server: &Server, context: &mut Context<'_>) -> Poll<Answered<Reply>> {
        ready!(self.poll_executed(server, context));
        let answered = match &mut self.execution {
            Execution::Done(executed) => ready!(executed.poll_answer(context)).map_err(engine_problem),
            Execution::Wait(_) => return Poll::Pending,
            Execution::Refused(problem) => Err(problem.clone()),
        };
        Poll::Ready(self.counted(server, answered, Instant::now()))
    }

    /// True if the command has to wait before it is executed.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.execution, Execution::Wait(_))
    }

    /// True if others should not wait for it: another node or entity answers, or its command has to wait.
    pub(crate) fn is_waited_for(&self) -> bool {
        match &self.execution {
            Execution::Done(executed) => executed.is_remote(),
            Execution::Wait(_) => true,
            Execution::Refused(_) => false,
        }
    }

    /// `path` is where a problem happened; a message has none.
    #[inline]
    pub(crate) fn new(
        server: &Server,
        execution: Answered<CommandExecution>,
        arrived: Option<Instant>,
        path: &str,
        log: Option<Box<Entry>>,
    ) -> Self {
        let execution = execution.unwrap_or_else(Execution::Refused);
        Self {
            charge: charge(server, &execution),
            execution,
            arrived,
            shard: None,
            path: path.into(),
            log,
            span: None,
        }
    }

    /// Has the answer name the owner of this shard, if there is one.
    pub(super) fn tells_owner_of(&mut self, shard: Option<ShardId>) {
        self.shard = shard;
    }

    /// The same, with the span of its request.
    #[inline]
    pub(crate) fn traced(self, span: RequestSpan) -> Self {
        let span = span.boxed();
        Self { span, ..self }
    }

    fn counted(&mut self, server: &Server, answered: Answered<Vec<u8>>, now: Instant) -> Answered<Reply> {
        // Only for an entity's own answer: a refused caller may not be allowed to learn the owner.
        let owner = match &self.execution {
            Execution::Done(_) => self.shard.and_then(|shard| server.owner(shard)),
            Execution::Wait(_) | Execution::Refused(_) => None,
        };
        let answered = answered.map_err(|problem| counted(server, *problem, &self.path).boxed());
        let status = answered
            .as_ref()
            .map_or_else(|problem| problem.http_status(), |_| StatusCode::OK);
        let took = self.arrived.map(|arrived| now.saturating_duration_since(arrived));
        server.metrics().answered(Route::Command, status, took);
        if let Some(tracer) = server.tracer() {
            let end = RequestEnd {
                method: Method::POST.as_str(),
                route: RequestRoute::Generic(&self.path),
                status,
                problem: answered.as_ref().err().map(|problem| &**problem),
                took,
            };
            let span = self.span.take().map_or_else(RequestSpan::default, |span| *span);
            span.end(tracer, &server.shared().kinds, &end);
        }
        if let Some(entry) = self.log.take() {
            match &answered {
                Ok(_) => entry.answered(server, status, took),
                Err(problem) => entry.refused(server, problem, took),
            }
        }
        match answered {
            Ok(body) => {
                let charge = self.charge.take();
                let charge = charge.or_else(|| server.charge_anyway(body.len()));
                let owner = owner.map(Box::new);
                Ok(Reply { body, charge, owner })
            }
            Err(mut problem) => {
                problem.owned_by(owner);
                Err(problem)
            }
        }
    }
}
