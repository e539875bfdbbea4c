//! From a request to its answer.

mod app;
mod command;
mod entities;
mod history;
mod live;
mod pages;
mod query;

use crate::{
    answer::Answer,
    event_loop::{Connection, Local},
    gate::Admitted,
    kinds::Names,
    metrics::Route,
    problem::Problem,
    request::{
        headers,
        path::{self, Place},
    },
};
use http::{Method, Request, Response, request::Parts};
use hyper::body::Incoming;
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

/// An answer, or why there is none.
type Answered<T> = Result<T, Box<Problem>>;

/// Answers a request. Commands take the short way; all else is boxed, so that a connection stays small.
pub(crate) async fn answer(
    local: &Rc<Local>,
    connection: &Rc<Connection>,
    request: Request<Incoming>,
) -> Response<Answer> {
    let _in_flight = connection.begin(request.version());
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::POST
        && let Some(Place::Member(kind, id, name)) = path::place(parts.uri.path())
    {
        let mut arrived = None;
        let reply = command::run(local, connection, &parts, body, (kind, id, name), &mut arrived).await;
        let answered = reply.map(|body| crate::answer::reply(std::mem::take(&mut parts.headers), body));
        return finish(local, &parts, Route::Command, arrived, answered);
    }
    Box::pin(other(local, connection, parts, body)).await
}

async fn other(local: &Rc<Local>, connection: &Rc<Connection>, mut parts: Parts, body: Incoming) -> Response<Answer> {
    let mut arrived = None;
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let path = parts.uri.path();
    if path.starts_with("/api/") {
        let (route, answered) = match path::place(path) {
            None => (Route::Other, Err(Problem::unknown_route(path).boxed())),
            Some(_) if !is_read => (Route::Other, Err(wrong_method(local, &parts))),
            Some(Place::Kind(kind)) => (Route::Entities, entities::list(local, &parts, kind, &mut arrived).await),
            Some(Place::Entity(kind, id)) => (
                Route::Query,
                query::run(local, &parts, (kind, id, throng::model::View::NAME), &mut arrived).await,
            ),
            Some(Place::Member(kind, id, "events")) if headers::wants_stream(&parts.headers) => {
                (Route::Live, live::open(local, &parts, (kind, id)).await)
            }
            Some(Place::Member(kind, id, "events")) => (
                Route::History,
                history::page(local, &parts, (kind, id), &mut arrived).await,
            ),
            Some(Place::Member(kind, id, name)) => (
                Route::Query,
                query::run(local, &parts, (kind, id, name), &mut arrived).await,
            ),
        };
        return finish(local, &parts, route, arrived, answered);
    }
    if let Some(answered) = pages::answer(local, &parts) {
        return finish(local, &parts, Route::Other, None, answered);
    }
    let answered = app::run(local, connection, &mut parts, body, &mut arrived).await;
    finish(local, &parts, Route::App, arrived, answered)
}

fn finish(
    local: &Local,
    parts: &Parts,
    route: Route,
    arrived: Option<Instant>,
    answered: Answered<Response<Answer>>,
) -> Response<Answer> {
    let response = answered.unwrap_or_else(|problem| {
        local.metrics().problem(problem.slug());
        problem.at_instance(parts.uri.path()).response()
    });
    local
        .metrics()
        .answered(route, response.status(), arrived.map(|arrived| arrived.elapsed()));
    response
}

/// What a `POST`, `PUT`, … to a read-only path is told.
fn wrong_method(local: &Local, parts: &Parts) -> Box<Problem> {
    let allow = match path::place(parts.uri.path()) {
        Some(Place::Member(kind, _, name)) => match local.shared().kinds.find(kind) {
            None => return unknown_kind(local, kind),
            Some((_, names)) => allowed(names, name),
        },
        _ => "GET, HEAD",
    };
    Problem::method_not_allowed(&parts.method, allow).boxed()
}

/// The methods of a name below an entity.
fn allowed(names: &Names, name: &str) -> &'static str {
    let reads = name == "events" || names.has_query(name);
    match (reads, names.command(name).is_some()) {
        (true, true) => "GET, HEAD, POST",
        (true, false) => "GET, HEAD",
        (false, _) => "POST",
    }
}

fn kind<'a>(local: &'a Local, name: &str) -> Answered<(usize, &'a Names)> {
    local.shared().kinds.find(name).ok_or_else(|| unknown_kind(local, name))
}

fn unknown_kind(local: &Local, name: &str) -> Box<Problem> {
    Problem::unknown_kind(name, &local.shared().kinds.names()).boxed()
}

/// An entity's id from its part of the path.
fn entity_id(part: &str) -> Answered<String> {
    let Some(id) = path::decode(part) else {
        return Err(
            Problem::malformed("The id is not UTF-8 once its %-escapes are decoded.")
                .at_field("id")
                .boxed(),
        );
    };
    if !throng::limits::is_id(&id) {
        let most = throng::journal::Address::ID_BYTES_MAX;
        return Err(
            Problem::malformed(format!("The id has {} bytes; it may have 1 to {most}.", id.len()))
                .at_field("id")
                .boxed(),
        );
    }
    Ok(id.into_owned())
}

/// Passes the turn's gate, and says how much time is left to the deadline.
async fn admit(local: &Local, parts: &Parts, bytes: usize, arrived: &mut Option<Instant>) -> Answered<Duration> {
    let limits = local.limits();
    let deadline = headers::timeout(&parts.headers, limits.deadline, limits.deadline_max)?;
    let admitted = local.gate.enter(bytes).await.map_err(|refused| {
        let waited = refused.wait.as_millis();
        Problem::overloaded(
            format!("Too much is waiting (about {waited} ms). Nothing was done; try again later."),
            refused.wait,
        )
        .boxed()
    })?;
    let Admitted { arrived: at, now } = admitted;
    *arrived = Some(at);
    let left = deadline.saturating_sub(now.saturating_duration_since(at));
    if left.is_zero() {
        Err(Problem::expired().boxed())
    } else {
        Ok(left)
    }
}

/// What the engine said, as a problem.
fn engine_problem(error: throng::model::Error<throng::JsonRejection>) -> Box<Problem> {
    Problem::of_engine(error).boxed()
}
