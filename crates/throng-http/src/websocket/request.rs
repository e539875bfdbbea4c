//! Commands and queries of a socket: the same way into the engine as over HTTP.

use super::message::{CommandMessage, Query};
use crate::{
    access::{self, Action, RateOwner},
    access_log::Entry,
    connection::Connection,
    problem::Problem,
    request::trace,
    routes::{self, Answered, Begun, Staged},
    server::Server,
};
use std::time::{Duration, Instant};
use throng::driver::Executed;

/// Tries a command that has to wait for nothing, if it has its turn. Otherwise `None`, nothing was done, and [`stage`] says why or waits.
pub(crate) fn try_now(server: &Server, connection: &Connection, command: &CommandMessage<'_>) -> Option<Staged> {
    let (kind, names) = server.shared().kinds.find(&command.kind)?;
    let is_too_large = command.body.len() > server.limits().body_bytes_max;
    if names.is_actor || is_too_large || !command.is_plain() {
        return None;
    }
    let name = names.command(&command.command)?;
    let (caller, id) = (connection.caller(), &*command.entity);
    routes::may(server, caller.as_ref(), (names.kind, Some(id)), Action::Command(name)).ok()?;
    let driver = &server.shared().driver;
    let attempt = driver.command(kind, id, name, command.body.as_bytes()).ok()?;
    let attempt = routes::once(attempt, command.key.clone(), caller.as_ref()).ok()?;
    let attempt = routes::by(attempt, caller.as_ref());
    let owner = RateOwner {
        client: connection.client(),
        caller: caller.as_ref(),
    };
    let (begun, arrived) = routes::begin_now(server, connection, attempt, command.body.len(), owner)?;
    Some(Staged::of_message(
        server,
        begun,
        Some(arrived),
        log(server, connection, command),
    ))
}

/// Executes a command once it has its turn; its answer waits for its commit.
pub(super) async fn stage(server: &Server, connection: &Connection, command: CommandMessage<'_>) -> Staged {
    let (log, mut arrived) = (log(server, connection, &command), None);
    let executed = execute(server, connection, command, &mut arrived).await;
    Staged::of_message(server, Begun::of(executed), arrived, log)
}

/// What the access log is to say of a command, if anything.
pub(crate) fn log(server: &Server, connection: &Connection, command: &CommandMessage<'_>) -> Option<Box<Entry>> {
    let parts = || [&*command.kind, &*command.entity, &*command.command];
    server
        .logs_next()
        .then(|| Entry::message(connection, "COMMAND", &parts()))
}

async fn execute(
    server: &Server,
    connection: &Connection,
    command: CommandMessage<'_>,
    arrived: &mut Option<Instant>,
) -> Answered<Executed> {
    let wanted = within(server, command.timeout);
    let left = enter(server, connection, &wanted, command.body.len(), arrived).await?;
    server.has_room_for_reply()?;
    let left = left.min(wanted?);
    let (kind, names) = routes::commanded(server, &command.kind)?;
    let Some(name) = names.command(&command.command) else {
        return Err(routes::unknown(server, names.no_command(&command.command)));
    };
    let id = entity(&command.entity)?;
    let caller = connection.caller();
    routes::may(server, caller.as_ref(), (names.kind, Some(&id)), Action::Command(name))?;
    let limit = server.limits().body_bytes_max;
    if command.body.len() > limit {
        return Err(Problem::body_too_large(Some(command.body.len() as u64), limit).boxed());
    }
    let span = trace::span(command.traceparent.as_deref(), names.kind, &id, name);
    let driver = &server.shared().driver;
    let attempt = driver.command(kind, &id, name, command.body.as_bytes());
    let attempt = attempt.and_then(|attempt| routes::once(attempt, command.key, caller.as_ref()));
    let attempt = routes::by(attempt.map_err(routes::engine_problem)?, caller.as_ref()).within(left);
    routes::execute(driver, attempt, span).await
}

/// Answers a query once it has its turn.
pub(super) async fn query(
    server: &Server,
    connection: &Connection,
    query: Query<'_>,
    arrived: &mut Option<Instant>,
) -> Answered<Vec<u8>> {
    let wanted = within(server, query.timeout);
    let left = enter(server, connection, &wanted, 0, arrived).await?;
    let left = left.min(wanted?);
    let (kind, names) = routes::kind(server, &query.kind)?;
    let name = query.query.as_deref().unwrap_or(throng::model::View::NAME);
    if !names.has_query(name) {
        let unknown = Problem::unknown_query(names.kind, name, names.queries.iter().copied());
        return Err(routes::unknown(server, unknown));
    }
    let id = entity(&query.entity)?;
    let caller = connection.caller();
    routes::may(server, caller.as_ref(), (names.kind, Some(&id)), Action::Query(name))?;
    let driver = &server.shared().driver;
    let attempt = driver.query(kind, id, name, query.arguments);
    let attempt = routes::by(attempt.map_err(routes::engine_problem)?, caller.as_ref());
    let answer = driver.answer(attempt.within(left));
    answer.await.map_err(routes::engine_problem)
}

/// Waits for its turn: before anything else, so that what is refused takes its part of it, too. It spends its caller's rate.
pub(super) async fn enter(
    server: &Server,
    connection: &Connection,
    wanted: &Answered<Duration>,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let deadline = *wanted.as_ref().unwrap_or(&server.limits().deadline);
    let client = connection.client();
    let left = routes::enter(server, connection, || client, deadline, bytes, arrived).await?;
    let caller = connection.caller();
    let owner = RateOwner {
        client,
        caller: caller.as_ref(),
    };
    access::spend(server, owner).map(|()| left)
}

/// An entity's id, which is a field of that name here.
pub(super) fn entity(id: &str) -> Answered<String> {
    routes::checked_id(id).map_err(|problem| problem.at_field("entity").boxed())
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
