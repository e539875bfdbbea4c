//! `GET /api/{kind}/{id}` and `GET /api/{kind}/{id}/{query}`, and the only entry for a query.

use super::resolve::{allowed, caller, enter, kind, unknown};
use crate::{
    access::{self, RateOwner},
    answer::{self, ResponseBody},
    caller::Action,
    connection::Connection,
    kinds::Names,
    problem::{Answered, Problem, engine_problem},
    request::{
        headers,
        path::{self, entity_id},
    },
    server::Server,
};
use http::{Response, request::Parts};
use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

/// A query, as its protocol has read it.
pub(crate) struct QueryRequest<'a> {
    pub(crate) kind: &'a str,
    pub(crate) id: Answered<Cow<'a, str>>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) owner: RateOwner<'a>,
    pub(crate) deadline: Answered<Duration>,
    /// A query string.
    pub(crate) arguments: &'a str,
}

/// Authorises and admits a query, and answers it from the entity's state. `no_query` returns the problem for an unknown name. Sets
/// `arrived` once the query is admitted.
pub(crate) async fn ask(
    server: &Server,
    connection: &Connection,
    request: QueryRequest<'_>,
    no_query: impl FnOnce(&Names, &str) -> Problem,
    arrived: &mut Option<Instant>,
) -> Answered<Vec<u8>> {
    let RateOwner { client, caller } = request.owner;
    let (kind, names) = kind(server, request.kind)?;
    let name = &*request.name;
    if !names.has_query(name) {
        return Err(unknown(server, no_query(names, name)));
    }
    let id = request.id?;
    access::may(server, caller, (names.kind, Some(&id)), Action::Query(name))?;
    let left = enter(server, connection, client, request.deadline?, 0, arrived).await?;
    let driver = &server.shared().driver;
    let attempt = driver.query(kind, id, name, request.arguments);
    let mut attempt = attempt.map_err(engine_problem)?.within(left);
    if let Some(caller) = caller {
        attempt = attempt.caller(caller.name());
    }
    driver.answer(attempt).await.map_err(engine_problem)
}

/// Returns the problem for an unknown query.
pub(crate) fn no_query(names: &Names, name: &str) -> Problem {
    Problem::unknown_query(names.kind, name, names.queries.iter().copied())
}

/// Answers a query that a path names.
pub(super) async fn run(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    (kind, id, name): (&str, &str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<Response<ResponseBody>> {
    let limits = server.limits();
    let request = QueryRequest {
        kind,
        id: entity_id(id),
        name: path::decode(name).unwrap_or_default(),
        owner: RateOwner::of(server, connection, &parts.headers, caller(parts)),
        deadline: headers::timeout(&parts.headers, limits.deadline, limits.deadline_max),
        arguments: parts.uri.query().unwrap_or(""),
    };
    let no_query = |names: &Names, name: &str| match names.command(name) {
        Some(_) => Problem::method_not_allowed(&parts.method, allowed(names, name)),
        None => no_query(names, name),
    };
    let answered = ask(server, connection, request, no_query, arrived).await;
    answered.map(answer::json)
}
