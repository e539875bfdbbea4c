//! The end of a request: it is counted and logged.

use super::resolve::caller;
use crate::{
    access_log::Entry,
    answer::{self, ResponseBody},
    caller::Caller,
    connection::Connection,
    metrics::Route,
    problem::{Answered, Problem},
    request::{
        path::{self, ApiPath},
        trace::{self, RequestEnd, RequestRoute, RequestSpan},
    },
    server::Server,
};
use http::{HeaderMap, Method, Response, request::Parts};
use std::{borrow::Cow, time::Instant};

pub(super) fn finish(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    route: Route,
    arrived: Option<Instant>,
    answered: Answered<Response<ResponseBody>>,
) -> Response<ResponseBody> {
    let log = logged(server, connection, parts);
    let answered = or_options(&parts.method, answered);
    if let Some(tracer) = server.tracer()
        && matches!(
            route,
            Route::Query | Route::History | Route::Live | Route::Entities | Route::App
        )
    {
        let path = parts.uri.path();
        let problem = answered.as_ref().err();
        let end = RequestEnd {
            method: parts.method.as_str(),
            route: match route {
                Route::App => RequestRoute::Own(&server.shared().own_routes, path),
                _ => RequestRoute::Generic(path),
            },
            status: match &answered {
                Ok(response) => response.status(),
                Err(problem) => problem.http_status(),
            },
            problem: problem.map(|problem| &**problem),
            took: arrived.map(|arrived| arrived.elapsed()),
        };
        let id = || match path::place(path)? {
            ApiPath::Entity(_, id) | ApiPath::Member(_, id, _) => path::decode(id).map(Cow::into_owned),
            ApiPath::Kind(_) => None,
        };
        let span = RequestSpan::begin(Some(tracer), trace::parent_of(&parts.headers), id);
        span.end(tracer, &server.shared().kinds, &end);
    }
    conclude(server, parts.uri.path(), (route, arrived, log), answered)
}

/// Answers `OPTIONS` with the methods of a path, for which another method would be refused.
pub(super) fn or_options(
    method: &Method,
    answered: Answered<Response<ResponseBody>>,
) -> Answered<Response<ResponseBody>> {
    let refused = answered.as_ref().err().filter(|_| *method == Method::OPTIONS);
    match refused.and_then(|problem| problem.allowed()) {
        Some(allow) => Ok(answer::options(&format!("{allow}, OPTIONS"))),
        None => answered,
    }
}

/// Returns the entry of the access log for a request, if it is to be logged.
pub(super) fn logged(server: &Server, connection: &Connection, parts: &Parts) -> Option<Box<Entry>> {
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    entry(server, connection, method, path, &parts.headers, caller(parts))
}

/// Returns the entry of the access log for the next request, if it is to be logged.
pub(super) fn entry(
    server: &Server,
    connection: &Connection,
    method: &str,
    path: &str,
    headers: &HeaderMap,
    caller: Option<&Caller>,
) -> Option<Box<Entry>> {
    server.logs_next().then(|| {
        let client = server.shared().client_address(connection, headers);
        let mut entry = Entry::new(connection, method, path).from(client);
        entry.by(caller);
        entry
    })
}

/// A request has its answer: it is counted and logged.
pub(super) fn conclude(
    server: &Server,
    path: &str,
    (route, arrived, log): (Route, Option<Instant>, Option<Box<Entry>>),
    answered: Answered<Response<ResponseBody>>,
) -> Response<ResponseBody> {
    let took = arrived.map(|arrived| arrived.elapsed());
    if let Some(entry) = log {
        match &answered {
            Ok(response) => entry.answered(server, response.status(), took),
            Err(problem) => entry.refused(server, problem, took),
        }
    }
    let response = answered.unwrap_or_else(|problem| counted(server, *problem, path).response());
    server.metrics().answered(route, response.status(), took);
    response
}

/// Counts a problem and sets the path it belongs to.
pub(super) fn counted(server: &Server, problem: Problem, path: &str) -> Problem {
    server.metrics().problem(problem.slug());
    if path.is_empty() {
        problem
    } else {
        problem.at_instance(path)
    }
}
