//! `POST /api/{kind}/{id}/{command}`: the hot path.

use super::{Answered, Asked, Begins, Begun, Noted, admit, commanded, engine_problem, entity_id, may};
use crate::{
    access::{self, Action, Caller, RateOwner},
    connection::Connection,
    gate::Admitted,
    kinds::Names,
    problem::Problem,
    request::{body, body::RequestBody, headers, own_key, path, trace},
    server::Server,
};
use futures_util::future::Either;
use http::Method;
use std::{
    future::{Future, ready},
    time::Instant,
};
use throng::{
    JsonRejection,
    driver::{Attempt, Driver, Executed, Tried},
    model::Error,
};
use tracing::{Instrument, Span};

/// Reads the command, waits for its turn, executes it. What it needs no more is not kept while it waits.
pub(super) async fn stage(
    server: &Server,
    connection: &Connection,
    asked: &Asked<'_>,
    body: &mut RequestBody,
    noted: &mut Noted,
) -> Answered<Executed> {
    let headers = asked.headers;
    let known = access::key_is_known(server, asked.sender.authorization).await;
    let entered = headers::are_single(headers)
        .and(known)
        .and_then(|()| access::enter(server, connection, &asked.sender));
    noted.caller = access::spent(server, connection, headers, entered).await?;
    let (kind, names) = commanded(server, asked.place.0)?;
    let name = command_name(server, names, asked.place.2)?;
    let id = entity_id(asked.place.1)?;
    may(
        server,
        noted.caller.as_ref(),
        (names.kind, Some(&id)),
        Action::Command(name),
    )?;
    match asked.sender.is_json {
        true => headers::uncoded(headers)?,
        false => headers::json_content(headers)?,
    }
    let key = headers::idempotency_key(headers)?;
    let body = body::read(body, headers, server, connection).await?;
    let left = admit(server, connection, headers, body.len(), &mut noted.arrived)?.await?;
    server.has_room_for_reply()?;
    let executing = {
        let traceparent = headers.get(trace::TRACEPARENT).and_then(|value| value.to_str().ok());
        let span = trace::span(traceparent, names.kind, &id, name);
        let driver = &server.shared().driver;
        let attempt = driver
            .command(kind, &id, name, &body[..])
            .and_then(|attempt| once(attempt, key, noted.caller.as_ref()))
            .map(|attempt| by(attempt, noted.caller.as_ref()));
        execute(driver, attempt.map_err(engine_problem)?.within(left), span)
    };
    executing.await
}

/// A command's own name for the one in a path.
fn command_name<'a>(server: &Server, names: &'a Names, part: &str) -> Answered<&'a str> {
    let given = path::decode(part).unwrap_or_default();
    if let Some(name) = names.command(&given) {
        return Ok(name);
    }
    if given == "events" && !names.is_actor || names.has_query(&given) {
        return Err(Problem::method_not_allowed(&Method::POST, "GET, HEAD").boxed());
    }
    Err(super::unknown(server, names.no_command(&given)))
}

/// Has a command executed: at once, if it has to wait for nothing. What it returns is small, whatever was asked.
pub(crate) fn execute(
    driver: &Driver,
    attempt: Attempt<'_>,
    span: Option<Span>,
) -> impl Future<Output = Answered<Executed>> + use<> {
    let tried = match &span {
        None => driver.try_now(attempt),
        Some(span) => span.in_scope(|| driver.try_now(attempt)),
    };
    let tried = match tried {
        Tried::Executed(executed) => Ok(executed),
        Tried::Refused(error) => Err(engine_problem(error)),
        Tried::Waits(waiting) => {
            let (driver, waiting) = (driver.clone(), waiting.into_owned());
            let executed = async move { driver.execute(waiting).await.map_err(engine_problem) };
            let executed = executed.instrument(span.unwrap_or_else(Span::none));
            return Either::Right(Box::pin(executed));
        }
    };
    Either::Left(ready(tried))
}

/// The attempt, as this caller's.
pub(crate) fn by<'a>(attempt: Attempt<'a>, caller: Option<&'a Caller>) -> Attempt<'a> {
    match caller {
        Some(caller) => attempt.caller(caller.name()),
        None => attempt,
    }
}

/// The attempt, under this key of its caller.
pub(crate) fn once<'a>(
    attempt: Attempt<'a>,
    key: Option<String>,
    caller: Option<&Caller>,
) -> Result<Attempt<'a>, Error<JsonRejection>> {
    match key {
        Some(key) => attempt.once(own_key(caller, key)),
        None => Ok(attempt),
    }
}

/// Tries a command whose header fields are [plain](headers::is_plain), if it has its turn; and when it can have arrived at the
/// earliest, and whose it is.
pub(super) fn try_now(server: &Server, connection: &Connection, asked: &Asked<'_>, body: &[u8]) -> Option<Begins> {
    let caller = access::enter(server, connection, &asked.sender).ok()?;
    let (headers, (kind_part, id, name_part)) = (asked.headers, asked.place);
    let (kind, names) = server.shared().kinds.find(kind_part)?;
    if !asked.sender.is_json || names.is_actor || id.contains('%') || name_part.contains('%') {
        return None;
    }
    let name = names.command(name_part)?;
    may(server, caller.as_ref(), (names.kind, Some(id)), Action::Command(name)).ok()?;
    let key = if headers.is_empty() {
        None
    } else {
        headers::idempotency_key(headers).ok()?
    };
    let driver = &server.shared().driver;
    let attempt = driver.command(kind, id, name, body).ok()?;
    let attempt = by(once(attempt, key, caller.as_ref()).ok()?, caller.as_ref());
    let owner = RateOwner {
        client: server.shared().client(connection, headers),
        caller: caller.as_ref(),
    };
    let (begun, arrived) = begin_now(server, connection, attempt, body.len(), owner)?;
    Some(Begins { begun, arrived, caller })
}

/// Tries an attempt whose command has so many bytes, if it has its turn, and says when it can have arrived at the earliest. It spends its
/// owner's rate.
pub(crate) fn begin_now(
    server: &Server,
    connection: &Connection,
    attempt: Attempt<'_>,
    bytes: usize,
    owner: RateOwner<'_>,
) -> Option<(Begun, Instant)> {
    let Admitted { arrived, now } = server.gate.enter_now(&connection.place, bytes)?;
    if let Err(problem) = access::spend(server, owner).and_then(|()| server.has_room_for_reply()) {
        return Some((Begun::Failed(problem), arrived));
    }
    let waited = now.saturating_duration_since(arrived);
    let begun = match server.limits().deadline.checked_sub(waited) {
        None => Begun::Failed(Problem::expired().boxed()),
        Some(left) => match server.shared().driver.try_now(attempt.within(left)) {
            Tried::Executed(executed) => Begun::Executed(executed),
            Tried::Waits(waiting) => Begun::Waits(Box::new(waiting.into_owned())),
            Tried::Refused(error) => Begun::Failed(engine_problem(error)),
        },
    };
    Some((begun, arrived))
}
