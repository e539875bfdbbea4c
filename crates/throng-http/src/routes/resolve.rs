//! The names of a request, their meaning, and the request's admission to a batch of its loop.

use crate::{
    access,
    admission::{Admitted, Client},
    caller::{Action, Caller},
    connection::Connection,
    kinds::Names,
    problem::{Answered, Problem},
    request::{
        headers,
        path::{self, ApiPath},
    },
    server::Server,
};
use http::{HeaderMap, request::Parts};
use std::time::{Duration, Instant};

/// Returns the answer to a `POST`, `PUT`, … for a read-only path.
pub(super) fn wrong_method(server: &Server, parts: &Parts) -> Box<Problem> {
    let allow = match path::place(parts.uri.path()) {
        Some(ApiPath::Member(kind, _, name)) => match server.shared().kinds.find(kind) {
            None => return unknown_kind(server, kind),
            Some((_, names)) => allowed(names, name),
        },
        _ => "GET, HEAD",
    };
    Problem::method_not_allowed(&parts.method, allow).boxed()
}

/// The methods of a name below an entity.
pub(super) fn allowed(names: &Names, name: &str) -> &'static str {
    let reads = name == "events" && !names.is_actor || names.has_query(name);
    match (reads, names.command(name).is_some()) {
        (true, true) => "GET, HEAD, POST",
        (true, false) => "GET, HEAD",
        (false, _) => "POST",
    }
}

/// Returns the caller, if it was authenticated.
pub(super) fn caller(parts: &Parts) -> Option<&Caller> {
    parts.extensions.get()
}

/// Checks that the caller may follow the events of a kind, or of one of its entities.
pub(crate) fn may_follow(server: &Server, caller: Option<&Caller>, names: &Names, id: Option<&str>) -> Answered<()> {
    access::may(server, caller, (names.kind, id), Action::Events)
}

/// A kind of entity.
pub(crate) fn kind<'a>(server: &'a Server, name: &str) -> Answered<(usize, &'a Names)> {
    let (kind, names) = commanded(server, name)?;
    if names.is_actor {
        return Err(Problem::only_commands(names.kind).boxed());
    }
    Ok((kind, names))
}

/// A kind of entity or actor.
pub(super) fn commanded<'a>(server: &'a Server, name: &str) -> Answered<(usize, &'a Names)> {
    server
        .shared()
        .kinds
        .find(name)
        .ok_or_else(|| unknown_kind(server, name))
}

fn unknown_kind(server: &Server, name: &str) -> Box<Problem> {
    unknown(server, Problem::unknown_kind(name, &server.shared().kinds.names()))
}

/// Returns the problem of a name that this program does not know. While a newer release may live, the client is asked to retry, because
/// that release may know the name.
pub(super) fn unknown(server: &Server, problem: Problem) -> Box<Problem> {
    let left = problem
        .is_unknown_name()
        .then(|| server.shared().driver.left_to_upgrade(problem.detail()))
        .flatten();
    left.map_or(problem, Problem::of_engine).boxed()
}

/// Passes admission, and returns the time left to the deadline.
pub(super) async fn admit(
    server: &Server,
    connection: &Connection,
    headers: &HeaderMap,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let limits = server.limits();
    let deadline = headers::timeout(headers, limits.deadline, limits.deadline_max)?;
    let client = server.shared().client(connection, headers);
    enter(server, connection, client, deadline, bytes, arrived).await
}

/// The same, for a request without header fields of its own.
pub(crate) async fn enter(
    server: &Server,
    connection: &Connection,
    client: Client,
    deadline: Duration,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let admitted = server.admission.enter(&connection.place, bytes, || client).await;
    let admitted = admitted.map_err(|refused| Problem::refused(refused.reason, refused.wait).boxed())?;
    time_left(admitted, deadline, arrived)
}

/// Returns the time left to the deadline of an admitted request.
pub(super) fn time_left(admitted: Admitted, deadline: Duration, arrived: &mut Option<Instant>) -> Answered<Duration> {
    *arrived = Some(admitted.arrived);
    let waited = admitted.now.saturating_duration_since(admitted.arrived);
    match deadline.saturating_sub(waited) {
        Duration::ZERO => Err(Problem::expired().boxed()),
        left => Ok(left),
    }
}
