//! `POST /api/{kind}/{id}/{command}`: the hot path.

use super::{Answered, admit, commanded, engine_problem, entity_id};
use crate::{
    event_loop::{Connection, Local},
    gate::Admitted,
    problem::Problem,
    request::{body, body::RequestBody, headers, path, trace},
};
use http::{HeaderMap, Method};
use std::time::Instant;
use throng::{CommandJson, PlainCommand, StagedJson};
use tracing::Instrument;

/// Reads the command, waits for its turn, executes it.
pub(super) async fn stage(
    local: &Local,
    connection: &Connection,
    headers: &HeaderMap,
    body: RequestBody,
    (kind_part, id_part, name_part): (&str, &str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<StagedJson> {
    let (kind, names) = commanded(local, kind_part)?;
    let given = path::decode(name_part).unwrap_or_default();
    let Some(name) = names.command(&given) else {
        if given == "events" && !names.is_actor || names.has_query(&given) {
            return Err(Problem::method_not_allowed(&Method::POST, "GET, HEAD").boxed());
        }
        return Err(Problem::unknown_command(names.kind, &given, names.commands.iter().map(String::as_str)).boxed());
    };
    let id = entity_id(id_part)?;
    headers::json_content(headers)?;
    let key = headers::idempotency_key(headers)?;
    let body = body::read(body, headers, local.limits(), connection).await?;
    let left = admit(local, connection, headers, body.len(), arrived).await?;
    let traceparent = headers.get(trace::TRACEPARENT).and_then(|value| value.to_str().ok());
    let span = trace::span(traceparent, names.kind, &id, name);
    let command = CommandJson {
        kind,
        id,
        name: name.to_owned(),
        body,
        key,
        caller: None,
        deadline: Some(left),
    };
    let engine = &local.shared().engine;
    match span {
        None => engine.stage(command).await,
        // Boxed, so that a command without a trace pays nothing for it.
        Some(span) => Box::pin(engine.stage(command).instrument(span)).await,
    }
    .map_err(engine_problem)
}

/// Executes a command whose header fields are [plain](headers::is_plain), if nothing holds it up; and when it can have arrived at the earliest.
pub(super) fn stage_now(
    local: &Local,
    connection: &Connection,
    headers: &HeaderMap,
    body: &[u8],
    (kind_part, id, name_part): (&str, &str, &str),
) -> Option<(StagedJson, Instant)> {
    let (kind, names) = local.shared().kinds.find(kind_part)?;
    if names.is_actor || id.contains('%') || name_part.contains('%') {
        return None;
    }
    let name = names.command(name_part)?;
    let key = if headers.is_empty() {
        None
    } else {
        headers::idempotency_key(headers).ok()?
    };
    let Admitted { arrived, now } = local.gate.enter_now(&connection.place, body.len())?;
    let deadline = local
        .limits()
        .deadline
        .checked_sub(now.saturating_duration_since(arrived))?;
    let staged = local.shared().engine.stage_now(&PlainCommand {
        kind,
        id,
        name,
        body,
        key: key.as_deref(),
        deadline,
    })?;
    Some((staged, arrived))
}
