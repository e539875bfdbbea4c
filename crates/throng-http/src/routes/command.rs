//! `POST /api/{kind}/{id}/{command}`: the hot path.

use super::{Answered, admit, engine_problem, entity_id, kind};
use crate::{
    event_loop::{Connection, Local},
    problem::Problem,
    request::{body, headers, path},
};
use http::request::Parts;
use hyper::body::Incoming;
use std::time::Instant;
use throng::CommandJson;

/// Reads the command, waits for its turn, runs it; the reply comes once it is durable.
pub(super) async fn run(
    local: &Local,
    connection: &Connection,
    parts: &Parts,
    body: Incoming,
    (kind_part, id_part, name_part): (&str, &str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<Vec<u8>> {
    let (kind, names) = kind(local, kind_part)?;
    let given = path::decode(name_part).unwrap_or_default();
    let Some(name) = names.command(&given) else {
        if given == "events" || names.has_query(&given) {
            return Err(Problem::method_not_allowed(&parts.method, "GET, HEAD").boxed());
        }
        return Err(Problem::unknown_command(names.kind, &given, names.commands.iter().map(String::as_str)).boxed());
    };
    let id = entity_id(id_part)?;
    headers::json_content(&parts.headers)?;
    let key = headers::idempotency_key(&parts.headers)?;
    let body = body::read(body, &parts.headers, local.limits(), connection).await?;
    let left = admit(local, parts, body.len(), arrived).await?;
    let command = CommandJson {
        kind,
        id,
        name: name.to_owned(),
        body,
        key,
        caller: None,
        deadline: Some(left),
    };
    local.shared().engine.command(command).await.map_err(engine_problem)
}
