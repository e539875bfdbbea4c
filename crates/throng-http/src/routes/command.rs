//! The only entry for a command: its caller is authorised, it is admitted to a batch, it is executed.
//!
//! Each protocol makes a [`CommandRequest`] of what it has read, and [runs](run) it. A command whose body is complete and whose connection
//! has a place in the batch waits for nothing: one poll executes it.

use super::{
    resolve::{commanded, enter, time_left, unknown},
    staged::{CommandExecution, Executing},
};
use crate::{
    access::{self, RateOwner},
    admission::Admitted,
    caller::{Action, Caller},
    connection::Connection,
    key::own_key,
    kinds::Names,
    limits::Limits,
    problem::{Answered, Problem, engine_problem},
    request::trace::{RequestSpan, log_span},
    server::{
        Server,
        body::{self, RequestBody},
    },
};
use http::HeaderMap;
use std::{
    borrow::Cow,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use throng::driver::Execution;
use tracing::{Instrument, Span};

/// A command, as its protocol has read it.
pub(crate) struct CommandRequest<'a> {
    pub(crate) kind: &'a str,
    pub(crate) id: Answered<Cow<'a, str>>,
    pub(crate) name: Cow<'a, str>,
    /// Returns the problem for a name that is no command's.
    pub(crate) no_command: fn(&Names, &str) -> Problem,
    pub(crate) owner: RateOwner<'a>,
    pub(crate) terms: Answered<Terms>,
    pub(crate) span: RequestSpan,
}

/// The limits that a client sets for its command.
pub(crate) struct Terms {
    pub(crate) key: Option<String>,
    pub(crate) deadline: Duration,
}

impl Terms {
    /// Returns the terms of a command whose client sets none.
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            key: None,
            deadline: limits.deadline,
        }
    }
}

pub(crate) enum CommandBody<'a> {
    Here(&'a [u8]),
    /// Read once its caller is authorised. The header fields have its length.
    Coming(&'a mut RequestBody, &'a HeaderMap),
}

/// A command whose caller may have it run.
struct Authorised<'a> {
    kind: usize,
    names: &'a Names,
    name: &'a str,
    id: &'a str,
    terms: &'a Terms,
}

/// Runs a command whose body is complete and whose connection has a place in this batch; `None`: nothing was done, and it has to wait. The
/// future is polled in place: moving it costs as much as authorising.
pub(crate) fn run_now(
    server: &Server,
    connection: &Connection,
    (request, body): (&CommandRequest<'_>, &[u8]),
    place: Admitted,
    arrived: &mut Option<Instant>,
) -> Option<Answered<CommandExecution>> {
    let running = pin!(run(
        server,
        connection,
        (request, CommandBody::Here(body)),
        Some(place),
        arrived
    ));
    match running.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(execution) => Some(execution),
        Poll::Pending => None,
    }
}

/// Authorises, admits and executes a command. With `place` it counts as admitted, because its connection has a place in this batch. Sets
/// `arrived` once the command is admitted.
pub(crate) async fn run(
    server: &Server,
    connection: &Connection,
    (request, body): (&CommandRequest<'_>, CommandBody<'_>),
    place: Option<Admitted>,
    arrived: &mut Option<Instant>,
) -> Answered<CommandExecution> {
    let command = authorise(server, request)?;
    let read;
    let body = match body {
        CommandBody::Here(bytes) => bytes,
        CommandBody::Coming(body, headers) => {
            read = body::read(body, headers, server, connection).await?;
            &read[..]
        }
    };
    let limit = server.limits().body_bytes_max;
    if body.len() > limit {
        return Err(Problem::body_too_large(Some(body.len() as u64), limit).boxed());
    }
    let (client, deadline) = (request.owner.client, command.terms.deadline);
    let left = match place {
        Some(admitted) => time_left(admitted, deadline, arrived)?,
        None => enter(server, connection, client, deadline, body.len(), arrived).await?,
    };
    execute(server, command, (request.owner.caller, &request.span), body, left)
}

/// Checks the caller's rate, the names, and the caller's right to this command.
fn authorise<'a>(server: &'a Server, request: &'a CommandRequest<'_>) -> Answered<Authorised<'a>> {
    access::spend(server, request.owner)?;
    let (kind, names) = commanded(server, request.kind)?;
    let Some(name) = names.command(&request.name) else {
        return Err(unknown(server, (request.no_command)(names, &request.name)));
    };
    if server.tracer().is_some() {
        let place = names.commands.iter().position(|known| known == name);
        request.span.asks_for(kind, place);
    }
    let id = &**request.id.as_ref().map_err(Clone::clone)?;
    access::may(
        server,
        request.owner.caller,
        (names.kind, Some(id)),
        Action::Command(name),
    )?;
    let terms = request.terms.as_ref().map_err(Clone::clone)?;
    Ok(Authorised {
        kind,
        names,
        name,
        id,
        terms,
    })
}

/// Executes a command that is admitted, and has so much time left.
fn execute(
    server: &Server,
    command: Authorised<'_>,
    (caller, span): (Option<&Caller>, &RequestSpan),
    body: &[u8],
    left: Duration,
) -> Answered<CommandExecution> {
    let Authorised {
        kind,
        names,
        name,
        id,
        terms,
    } = command;
    server.has_room_for_reply()?;
    let driver = &server.shared().driver;
    let mut attempt = driver.command(kind, id, name, body).map_err(engine_problem)?;
    if let Some(key) = &terms.key {
        attempt = attempt
            .once(own_key(caller.map(Caller::name), Cow::Borrowed(key)))
            .map_err(engine_problem)?;
    }
    if let Some(caller) = caller {
        attempt = attempt.caller(caller.name());
    }
    if let Some(span) = span.context() {
        attempt = attempt.traced(span);
    }
    let span = log_span(span.parent(), names.kind, id, name);
    let attempt = attempt.within(left);
    let execution = match &span {
        None => driver.try_now(attempt),
        Some(span) => span.in_scope(|| driver.try_now(attempt)),
    };
    match execution {
        Execution::Done(executed) => Ok(Execution::Done(executed)),
        Execution::Wait(waiting) => {
            let (driver, waiting) = (driver.clone(), waiting.into_owned());
            let executing = async move { driver.execute(waiting).await };
            let executing: Executing = Box::pin(executing.instrument(span.unwrap_or_else(Span::none)));
            Ok(Execution::Wait(executing))
        }
        Execution::Refused(error) => Err(engine_problem(error)),
    }
}
