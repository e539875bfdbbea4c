//! Commands and queries of a socket. They enter the engine in the same way as over HTTP.

use super::message::{CommandMessage, Query};
use crate::{
    access::{self, RateOwner},
    access_log::Entry,
    caller::Caller,
    connection::Connection,
    kinds::Names,
    problem::{Answered, Problem},
    request::{
        path::checked_id,
        trace::{self, RequestEnd, RequestRoute, RequestSpan},
    },
    routes::{self, CommandBody, CommandRequest, QueryRequest, Staged, Terms},
    server::Server,
};
use http::StatusCode;
use std::{
    borrow::Cow,
    future::poll_fn,
    time::{Duration, Instant},
};

fn request<'a>(
    server: &Server,
    connection: &Connection,
    command: &'a CommandMessage<'_>,
    caller: Option<&'a Caller>,
) -> CommandRequest<'a> {
    let terms = |deadline| Terms {
        key: command.key.clone(),
        deadline,
    };
    let parent = command.traceparent.as_deref().and_then(trace::parent);
    let mut span = RequestSpan::begin(server.tracer(), parent, || Some(command.entity.to_string()));
    span.is_message = server.tracer().is_some();
    CommandRequest {
        kind: &command.kind,
        id: entity(&command.entity),
        name: Cow::Borrowed(&command.command),
        no_command: Names::no_command,
        owner: owner(connection, caller),
        terms: within(server, command.timeout).map(terms),
        span,
    }
}

fn owner<'a>(connection: &Connection, caller: Option<&'a Caller>) -> RateOwner<'a> {
    let client = connection.client();
    RateOwner { client, caller }
}

/// Runs a command without its own terms, if its connection has a place in this batch. `None`: nothing was done; [`stage`] runs the command,
/// and waits.
pub(crate) fn try_now(server: &Server, connection: &Connection, command: &CommandMessage<'_>) -> Option<Staged> {
    if !command.is_plain() {
        return None;
    }
    let place = server.admission.enter_now(&connection.place, command.body.len())?;
    let (caller, mut arrived) = (connection.caller(), Some(place.arrived));
    let request = request(server, connection, command, caller.as_ref());
    let begun = routes::run_now(
        server,
        connection,
        (&request, command.body.as_bytes()),
        place,
        &mut arrived,
    )?;
    let log = log(server, connection, command);
    Some(Staged::new(server, begun, arrived, "", log).traced(request.span))
}

/// Runs a command, after waiting for whatever it needs before it is executed.
pub(super) async fn stage(server: &Server, connection: &Connection, command: CommandMessage<'_>) -> Staged {
    let log = log(server, connection, &command);
    let (caller, mut arrived) = (connection.caller(), None);
    let request = request(server, connection, &command, caller.as_ref());
    let body = CommandBody::Here(command.body.as_bytes());
    let begun = routes::run(server, connection, (&request, body), None, &mut arrived).await;
    let begun = in_turn(server, connection, begun, &mut arrived).await;
    let mut staged = Staged::new(server, begun, arrived, "", log).traced(request.span);
    poll_fn(|context| staged.poll_executed(server, context)).await;
    staged
}

/// Returns the entry of a command for the access log, if it is to be logged.
pub(crate) fn log(server: &Server, connection: &Connection, command: &CommandMessage<'_>) -> Option<Box<Entry>> {
    let parts = || [&*command.kind, &*command.entity, &*command.command];
    server
        .logs_next()
        .then(|| Entry::message(connection, "COMMAND", &parts()))
}

/// Answers a query once it is admitted.
pub(super) async fn query(
    server: &Server,
    connection: &Connection,
    query: Query<'_>,
    arrived: &mut Option<Instant>,
) -> Answered<Vec<u8>> {
    let caller = connection.caller();
    let request = QueryRequest {
        kind: &query.kind,
        id: entity(&query.entity),
        name: Cow::Borrowed(query.query.as_deref().unwrap_or(throng::model::View::NAME)),
        owner: owner(connection, caller.as_ref()),
        deadline: within(server, query.timeout),
        arguments: &query.arguments,
    };
    let name = request.name.clone();
    let answered = match access::spend(server, request.owner) {
        Ok(()) => routes::ask(server, connection, request, routes::no_query, arrived).await,
        Err(too_often) => Err(too_often),
    };
    let answered = in_turn(server, connection, answered, arrived).await;
    if let Some(tracer) = server.tracer() {
        let parent = query.traceparent.as_deref().and_then(trace::parent);
        let span = RequestSpan::begin(Some(tracer), parent, || Some(query.entity.to_string()));
        let problem = answered.as_ref().err();
        // The span names a route, whichever entity was asked.
        let path = format!("/api/{}/-/{name}", query.kind);
        let end = RequestEnd {
            method: "QUERY",
            route: RequestRoute::Generic(&path),
            status: problem.map_or(StatusCode::OK, |problem| problem.http_status()),
            problem: problem.map(|problem| &**problem),
            took: arrived.map(|arrived| arrived.elapsed()),
        };
        span.end(tracer, &server.shared().kinds, &end);
    }
    answered
}

/// Has a refusal of a client's request take its part of a batch, too. Refusals by admission have waited for one already.
async fn in_turn<T>(
    server: &Server,
    connection: &Connection,
    answered: Answered<T>,
    arrived: &mut Option<Instant>,
) -> Answered<T> {
    let refused = answered.as_ref().err().filter(|_| arrived.is_none());
    if refused.is_some_and(|problem| problem.http_status().is_client_error()) {
        turn(server, connection, arrived).await.ok();
    }
    answered
}

/// Waits for admission of a message that is neither a command nor a query.
pub(super) async fn turn(server: &Server, connection: &Connection, arrived: &mut Option<Instant>) -> Answered<()> {
    let (client, deadline) = (connection.client(), server.limits().deadline);
    let entered = routes::enter(server, connection, client, deadline, 0, arrived).await;
    entered.map(drop)
}

/// Counts one request of the caller's rate.
pub(super) fn spend(server: &Server, connection: &Connection) -> Answered<()> {
    access::spend(server, owner(connection, connection.caller().as_ref()))
}

/// Checks an entity's id, which is a field of that name here.
pub(super) fn entity(id: &str) -> Answered<Cow<'_, str>> {
    checked_id(id.into()).map_err(|problem| problem.at_field("entity").boxed())
}

fn within(server: &Server, timeout: Option<Duration>) -> Answered<Duration> {
    let longest = server.limits().deadline_max;
    match timeout {
        None => Ok(server.limits().deadline),
        Some(timeout) if !timeout.is_zero() && timeout <= longest => Ok(timeout),
        Some(timeout) => {
            let (found, longest) = (timeout.as_millis(), longest.as_millis());
            let detail = format!("timeout_ms is {found}; it may be 1 to {longest}.");
            Err(Problem::malformed(detail).at_field("timeout_ms").boxed())
        }
    }
}
