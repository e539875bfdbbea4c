//! Commands and queries of a socket: the same way into the engine as over HTTP.

use super::message::{Command, Query};
use crate::{
    access::Action,
    event_loop::{Connection, Local},
    problem::Problem,
    request::trace,
    routes::{self, Answered},
};
use std::time::{Duration, Instant};
use throng::driver::Executed;

/// Executes a command once it has its turn; its answer waits for its commit.
pub(super) async fn stage(
    local: &Local,
    connection: &Connection,
    command: Command<'_>,
    arrived: &mut Option<Instant>,
) -> Answered<Executed> {
    let (kind, names) = routes::commanded(local, &command.kind)?;
    let Some(name) = names.command(&command.command) else {
        return Err(names.no_command(&command.command).boxed());
    };
    let id = entity(&command.entity)?;
    let caller = connection.caller();
    routes::may(local, caller.as_ref(), (names.kind, Some(&id)), Action::Command(name))?;
    let limit = local.limits().body_bytes_max;
    if command.body.len() > limit {
        return Err(Problem::body_too_large(Some(command.body.len() as u64), limit).boxed());
    }
    let wanted = within(local, command.timeout)?;
    let left = routes::enter(
        local,
        connection,
        || connection.client(),
        wanted,
        command.body.len(),
        arrived,
    )
    .await?;
    let span = trace::span(command.traceparent.as_deref(), names.kind, &id, name);
    let driver = &local.shared().driver;
    let attempt = driver.command(kind, &id, name, command.body.as_bytes());
    let attempt = attempt.and_then(|attempt| match command.key {
        Some(key) => attempt.once(key),
        None => Ok(attempt),
    });
    let attempt = routes::by(attempt.map_err(routes::engine_problem)?, caller.as_ref()).within(left);
    routes::execute(driver, attempt, span).await
}

/// Answers a query once it has its turn.
pub(super) async fn query(
    local: &Local,
    connection: &Connection,
    query: Query<'_>,
    arrived: &mut Option<Instant>,
) -> Answered<Vec<u8>> {
    let (kind, names) = routes::kind(local, &query.kind)?;
    let name = query.query.as_deref().unwrap_or(throng::model::View::NAME);
    if !names.has_query(name) {
        return Err(Problem::unknown_query(names.kind, name, names.queries.iter().copied()).boxed());
    }
    let id = entity(&query.entity)?;
    let caller = connection.caller();
    routes::may(local, caller.as_ref(), (names.kind, Some(&id)), Action::Query(name))?;
    let wanted = within(local, query.timeout)?;
    let left = routes::enter(local, connection, || connection.client(), wanted, 0, arrived).await?;
    let driver = &local.shared().driver;
    let attempt = driver.query(kind, id, name, query.arguments);
    let attempt = routes::by(attempt.map_err(routes::engine_problem)?, caller.as_ref());
    let answer = driver.answer(attempt.within(left));
    answer.await.map_err(routes::engine_problem)
}

/// An entity's id, which is a field of that name here.
pub(super) fn entity(id: &str) -> Answered<String> {
    routes::checked_id(id).map_err(|problem| problem.at_field("entity").boxed())
}

fn within(local: &Local, timeout: Option<Duration>) -> Answered<Duration> {
    let longest = local.limits().deadline_max;
    match timeout {
        None => Ok(local.limits().deadline),
        Some(timeout) if !timeout.is_zero() && timeout <= longest => Ok(timeout),
        Some(timeout) => {
            let (found, longest) = (timeout.as_millis(), longest.as_millis());
            let detail = format!("timeout_ms is {found}; it may be 1 to {longest}.");
            Err(Problem::malformed(detail).at_field("timeout_ms").boxed())
        }
    }
}
