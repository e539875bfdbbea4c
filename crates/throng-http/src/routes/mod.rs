//! Routes: a request becomes an answer.

pub(crate) mod admin;
mod answering;
mod app;
mod coding;
mod command;
mod conclude;
mod entities;
mod history;
mod let_in;
mod live;
mod pages;
mod post;
mod query;
mod resolve;
mod staged;

pub(crate) use answering::{Answering, answer};
pub(crate) use app::{Handling, handle_now};
pub(crate) use command::{CommandBody, CommandRequest, Terms, run, run_now};
pub(crate) use let_in::is_urgent;
pub use live::LiveEvents;
pub(crate) use post::{HttpCommand, try_now};
pub(crate) use query::{QueryRequest, ask, no_query};
pub(crate) use resolve::{enter, kind, may_follow};
pub(crate) use staged::Staged;

use crate::{
    access::{self, RateOwner},
    answer::{self, ResponseBody},
    connection::Connection,
    console,
    guard::{TICKET_LIFE, take_offered},
    metrics::Route,
    problem::{Answered, Problem},
    request::{
        headers,
        path::{self, ApiPath},
        query::{self as query_string, TicketQuery},
    },
    server::{Server, body::RequestBody},
};
use bytes::Bytes;
use coding::coded;
use conclude::finish;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use let_in::{is_uncounted, let_in, tell_handler};
use resolve::{caller, wrong_method};
use serde::Serialize;
use std::{rc::Rc, time::Instant};

/// The names below `/api/` that are no kind's: the second for `POST` only.
const SOCKET: &str = "ws";
const TICKET: &str = "ticket";

async fn other(
    server: &Rc<Server>,
    connection: &Rc<Connection>,
    mut parts: Parts,
    body: RequestBody,
) -> Response<ResponseBody> {
    if matches!(parts.uri.path(), "/api/ws" | "/admin/live") {
        take_offered(&mut parts.headers);
    }
    let redeemed = server.shared().guard.tickets.redeem(&mut parts, Instant::now());
    let entered = match headers::are_single(&parts.headers).and(redeemed) {
        Ok(()) => {
            let shown = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
            access::key_is_known(server, shown).await
        }
        Err(problem) => Err(problem),
    };
    let entered = entered.and_then(|()| let_in(server, connection, &parts));
    let entered = match entered {
        // Health, metrics and administration are not counted.
        Ok(None) if is_uncounted(server, connection, parts.uri.path()) => Ok(None),
        Ok(caller) => {
            let owner = RateOwner::of(server, connection, &parts.headers, caller.as_ref());
            access::spend(server, owner).map(|()| caller)
        }
        Err(problem) => Err(access::refused(server, connection, &parts.headers, problem).await),
    };
    match entered {
        Ok(None) => {}
        Ok(Some(caller)) => drop(parts.extensions.insert(caller)),
        Err(problem) => return finish(server, connection, &parts, Route::Other, None, Err(problem)),
    }
    tell_handler(server, connection, &mut parts);
    let mut arrived = None;
    let is_generic = server.shared().is_generic(parts.uri.path());
    let is_gateways = is_generic || is_urgent(parts.uri.path());
    // A body that is not read is not kept while the request waits.
    let body = if is_gateways && !console::reads_body(parts.uri.path()) {
        RequestBody::Here(Bytes::new())
    } else {
        body
    };
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let path = parts.uri.path();
    if is_generic {
        let (route, answered) = match path::place(path) {
            Some(ApiPath::Kind(SOCKET)) if is_read => {
                // Its messages have no header fields that would show it.
                let shared = server.shared();
                connection.speaks_for(
                    shared.client_address(connection, &parts.headers),
                    shared.client(connection, &parts.headers),
                );
                (Route::Socket, access::accept(connection, &parts))
            }
            None => (Route::Other, Err(Problem::unknown_route(path).boxed())),
            Some(ApiPath::Kind(TICKET)) if parts.method == Method::POST => (Route::Other, ticket(server, &parts)),
            Some(_) if !is_read => (Route::Other, Err(wrong_method(server, &parts))),
            Some(ApiPath::Kind(kind)) => (
                Route::Entities,
                entities::list(server, connection, &parts, kind, &mut arrived).await,
            ),
            Some(ApiPath::Entity(kind, id)) => (
                Route::Query,
                query::run(
                    server,
                    connection,
                    &parts,
                    (kind, id, throng::model::View::NAME),
                    &mut arrived,
                )
                .await,
            ),
            Some(ApiPath::Member(kind, id, "events")) if headers::wants_stream(&parts.headers) => {
                (Route::Live, live::open(server, &parts, (kind, id)).await)
            }
            Some(ApiPath::Member(kind, id, "events")) => (
                Route::History,
                history::page(server, connection, &parts, (kind, id), &mut arrived).await,
            ),
            Some(ApiPath::Member(kind, id, name)) => (
                Route::Query,
                query::run(server, connection, &parts, (kind, id, name), &mut arrived).await,
            ),
        };
        let mut answered = coded(answered, &parts).await;
        if let Ok(response) = &mut answered
            && let Some(ApiPath::Entity(kind, id) | ApiPath::Member(kind, id, _)) = path::place(parts.uri.path())
            && let Some(owner) = server.told_shard(kind, id).and_then(|shard| server.owner(shard))
        {
            response.headers_mut().insert(answer::OWNER, owner);
        }
        return finish(server, connection, &parts, route, arrived, answered);
    }
    if console::page::is_page(path) {
        let answered = console::page::answer(&parts);
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    if path.starts_with("/admin/") {
        let answered = admin::answer(server, connection, &parts, body).await;
        let answered = slowed(server, connection, &parts, answered).await;
        let answered = coded(answered, &parts).await;
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    if let Some(answered) = pages::answer(server, connection, &parts) {
        let answered = slowed(server, connection, &parts, answered).await;
        let answered = coded(answered, &parts).await;
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    app::handle(server, connection, parts, body).await
}

#[derive(Serialize)]
struct MadeTicket {
    ticket: String,
    expires_in: u64,
}

/// Makes a ticket by which a browser follows events at a path.
fn ticket(server: &Server, parts: &Parts) -> Answered<Response<ResponseBody>> {
    let TicketQuery { path } = query_string::read(parts.uri.query())?;
    if !path.starts_with('/') || path.contains(['?', '#']) {
        let detail = "path is not the path of a stream of events, such as /api/account/ann/events.";
        return Err(Problem::malformed(detail).at_field("path").boxed());
    }
    let Some(shown) = parts
        .headers
        .get(header::AUTHORIZATION)
        .filter(|_| caller(parts).is_some())
    else {
        return Err(Problem::unauthorized("A ticket stands for a token: show one.").boxed());
    };
    let made = MadeTicket {
        ticket: server.shared().guard.tickets.make(shown, &path, Instant::now())?,
        expires_in: TICKET_LIFE.as_secs(),
    };
    let mut response = answer::json(serde_json::to_vec(&made).unwrap_or_default());
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// Returns an answer of administration. The refusal of wrong credentials may be delayed.
async fn slowed<T>(server: &Server, connection: &Connection, parts: &Parts, answered: Answered<T>) -> Answered<T> {
    match answered {
        Err(problem) if problem.http_status() == StatusCode::UNAUTHORIZED => {
            Err(access::refused(server, connection, &parts.headers, problem).await)
        }
        answered => answered,
    }
}
