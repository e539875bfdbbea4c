//! `GET /api/{kind}/{id}` and `GET /api/{kind}/{id}/{query}`.

use super::{Answered, admit, allowed, by, caller, engine_problem, entity_id, kind, may};
use crate::{
    access::Action,
    answer::{self, Answer},
    connection::Connection,
    problem::Problem,
    request::path,
    server::Server,
};
use http::{Response, request::Parts};
use std::time::Instant;

/// Answers a query from the entity's state.
pub(super) async fn run(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    (kind_part, id_part, name_part): (&str, &str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<Response<Answer>> {
    let (kind, names) = kind(server, kind_part)?;
    let name = path::decode(name_part).unwrap_or_default();
    if !names.has_query(&name) {
        if names.command(&name).is_some() {
            return Err(Problem::method_not_allowed(&parts.method, allowed(names, &name)).boxed());
        }
        let unknown = Problem::unknown_query(names.kind, &name, names.queries.iter().copied());
        return Err(super::unknown(server, unknown));
    }
    let id = entity_id(id_part)?;
    may(server, caller(parts), (names.kind, Some(&id)), Action::Query(&name))?;
    let left = admit(server, connection, &parts.headers, 0, arrived)?.await?;
    let driver = &server.shared().driver;
    let attempt = driver.query(kind, id, name, parts.uri.query().unwrap_or(""));
    let answer = driver.answer(by(attempt.map_err(engine_problem)?, caller(parts)).within(left));
    answer.await.map(answer::json).map_err(engine_problem)
}
