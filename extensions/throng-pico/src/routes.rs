//! The HTTP interface of pico-engine 1.x, with additions.
//!
//! | route | answers |
//! |---|---|
//! | `/c/{eci}/event/{domain}/{name}` | the transaction's id, as a JSON string, once the event is durable |
//! | `/c/{eci}/event-wait/{domain}/{name}` | `{eid, directives}` |
//! | `/c/{eci}/event/{domain}/{name}/query/{rid}/{query}` | the query's result after the event |
//! | `/c/{eci}/query/{rid}/{query}` | the query's result; as text for `{query}.txt` and `{query}.html` |
//! | `/sky/event/{eci}/{eid}/{domain}/{type}` | as `event-wait`; directives `_cookie` and `_redirect` are followed |
//! | `/sky/cloud/{eci}/{rid}/{query}` | as `query` |
//! | `GET /c/{eci}/log?after=&limit=&domain=&name=&failed=` | the pico's events in order; with `Accept: text/event-stream` also the new ones |
//! | `GET /c/{eci}/export` | the pico and all picos below it, as lines of JSON |
//! | `POST /c/{eci}/import?identical=&file=` | makes exported picos children of the pico |
//! | `GET /c/{eci}/query/{rid}/{query}` with `Accept: text/event-stream` | an event each time the query's result may have changed |
//! | `GET /api/ui-context` | `{version, eci}`: the root pico's channel for the console; only for administration if callers are authenticated |
//! | `GET /api/owner-eci` | `{ok, eci}`: the root pico's channel with the tag `owner`, where the students' page of 2017 begins |
//! | `/api/flush?url=` | the ruleset, fetched again |
//! | `POST /api/krl`, for administration | the faults of a ruleset (`source`), with their locations |
//! | `POST /api/krl-format`, for administration | a ruleset (`source`) in its standard layout |
//! | `POST /c/{eci}/try`, for administration | the outcome of an event or a query with a ruleset (`source`); nothing is recorded |
//! | `POST /c/{eci}/install`, for administration | installs a ruleset given as `source` |
//!
//! Every route of events and queries takes any method. Attributes and arguments come from the query string and the body, a JSON map or a form. The
//! body takes precedence.

#![allow(
    clippy::result_large_err,
    reason = "a refusal is rare, and handlers return it as it is"
)]

mod answer;
mod editor;
mod given;
mod log;
mod query_string;
mod transfer;

use crate::{
    Picos,
    id::Eci,
    pico::{Asked, Incoming, Ran},
};
use answer::{JsonAnswer, refused};
use axum::{
    Router,
    extract::{Path, Request, State},
    handler::Handler,
    http::{HeaderMap, Method, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, post},
};
use given::RequestArguments;
use serde_json::json;
use std::sync::Arc;
use throng_http::{Administrator, Described, KnowsCallers, LiveEvents, MayAct, Once, Problem, Route};
use throng_krl::Value;

/// The names below `/api/` that belong to these routes.
pub(crate) const API_NAMES: [&str; 5] = ["ui-context", "owner-eci", "flush", "krl", "krl-format"];

const FLUSH: &str = "/api/flush";

/// Returns the routes, to be mounted on a gateway.
pub fn routes(picos: Picos) -> Router {
    Router::new()
        .route("/c/{eci}/event/{domain}/{name}", every(event))
        .route("/c/{eci}/event-wait/{domain}/{name}", every(event_wait))
        .route("/c/{eci}/event/{domain}/{name}/query/{rid}/{query}", every(event_query))
        .route("/c/{eci}/query/{rid}/{query}", every(query))
        .route("/c/{eci}/log", get(log::read))
        .route("/c/{eci}/export", get(transfer::export))
        .route("/c/{eci}/import", post(transfer::import))
        .route("/sky/event/{eci}/{eid}/{domain}/{type}", every(sky_event))
        .route("/sky/cloud/{eci}/{rid}/{query}", every(query))
        .route("/api/ui-context", get(ui_context))
        .route("/api/owner-eci", get(owner_eci))
        .route(FLUSH, every(flush))
        .route("/api/krl", post(editor::check))
        .route("/api/krl-format", post(editor::format))
        .route("/c/{eci}/try", post(editor::try_out))
        .route("/c/{eci}/install", post(editor::install))
        .with_state(picos)
        .layer(from_fn(of_own_site))
}

/// Refuses requests that a page of another site makes through a browser. The gateway checks requests that name their origin. But a `GET` names none
/// here, and a `GET` can be an event. A link to an event may be followed, but not a link that flushes a ruleset.
async fn of_own_site(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let says = |name, value| headers.get(name).is_some_and(|said| said == value);
    // A navigated frame is no link that a person followed.
    let is_framed = headers.get("sec-fetch-dest").is_some_and(|to| to != "document");
    let is_link = says("sec-fetch-mode", "navigate") && !is_framed && request.uri().path() != FLUSH;
    if says("sec-fetch-site", "cross-site") && !headers.contains_key(header::ORIGIN) && !is_link {
        let why = "A page of another site had a browser ask this. Nothing was done.";
        return answer::problem(&format!("Error: {why}"), &Problem::forbidden(why));
    }
    next.run(request).await
}

/// Accepts any method. `OPTIONS` only lists the methods.
fn every<T: 'static>(handler: impl Handler<T, Picos>) -> MethodRouter<Picos> {
    any(handler).options(async || [(header::ALLOW, "GET, POST, OPTIONS")])
}

/// Describes the routes' parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    let eci = |route: Route| route.part("eci", "A channel's id");
    let of_event = |route: Route| {
        let route = eci(route).part("domain", "The first part of the event's type");
        route.part("name", "The second part of the event's type").once()
    };
    let of_query = |route: Route| {
        let route = route.part("rid", "The ruleset's id");
        route.part("query", "What it shares; with `.txt` or `.html` as text")
    };
    Described::new("picos", "Events and queries of picos; any method will do")
        .route(
            of_event(Route::post("/c/{eci}/event/{domain}/{name}", "Sends an event"))
                .replies::<String>(200, "The transaction's id; durable"),
        )
        .route(
            of_event(Route::post(
                "/c/{eci}/event-wait/{domain}/{name}",
                "Sends an event, for its directives",
            ))
            .replies::<serde_json::Value>(200, "`eid` and `directives`; durable"),
        )
        .route(
            of_query(of_event(Route::post(
                "/c/{eci}/event/{domain}/{name}/query/{rid}/{query}",
                "Sends an event, and asks after it",
            )))
            .replies::<serde_json::Value>(200, "The query's result"),
        )
        .route(
            of_query(eci(Route::get("/c/{eci}/query/{rid}/{query}", "Asks a pico")))
                .replies::<serde_json::Value>(200, "The query's result"),
        )
        .route(
            eci(Route::get("/c/{eci}/log", "What has happened to a pico"))
                .query::<crate::outside::LogQuery>()
                .replies::<crate::outside::LogPage>(200, "A page of it"),
        )
        .route(
            eci(Route::get(
                "/c/{eci}/export",
                "A pico with all below it, as lines of JSON",
            ))
            .replies::<String>(200, "Lines; the last one says how many there are"),
        )
        .route(
            eci(Route::post(
                "/c/{eci}/import",
                "Makes exported picos children of a pico",
            ))
            .query::<transfer::ImportQuery>()
            .replies::<serde_json::Value>(200, "`pico`, `eci`, `picos`, `other_versions`"),
        )
        .route(
            eci(Route::post(
                "/sky/event/{eci}/{eid}/{domain}/{type}",
                "Sends an event, for its directives",
            ))
            .part("eid", "A name of its own, or `none`")
            .part("domain", "The first part of the event's type")
            .part("type", "The second part of the event's type")
            .replies::<serde_json::Value>(200, "`eid` and `directives`; durable"),
        )
        .route(
            of_query(eci(Route::get("/sky/cloud/{eci}/{rid}/{query}", "Asks a pico")))
                .replies::<serde_json::Value>(200, "The query's result"),
        )
        .route(
            Route::get("/api/ui-context", "Where the console begins")
                .replies::<serde_json::Value>(200, "`version`, and the root pico's `eci`"),
        )
        .route(
            Route::get("/api/owner-eci", "Where students begin")
                .replies::<serde_json::Value>(200, "`ok`, and the root pico's `eci` that is tagged `owner`"),
        )
        .route(
            Route::post("/api/krl", "What is wrong with a ruleset")
                .body::<editor::Source>()
                .replies::<editor::Checked>(
                    200,
                    "Errors and warnings with their places, and what it can be tried with",
                ),
        )
        .route(
            Route::post("/api/krl-format", "Lays a ruleset out")
                .body::<editor::Source>()
                .replies::<editor::Formatted>(200, "The ruleset in its standard layout"),
        )
        .route(
            eci(Route::post("/c/{eci}/try", "Tries a ruleset out; nothing is recorded"))
                .body::<editor::Trying>()
                .replies::<crate::pico::Tried>(200, "What would come of it"),
        )
        .route(
            eci(Route::post("/c/{eci}/install", "Installs a ruleset as it stands"))
                .body::<editor::Source>()
                .replies::<serde_json::Value>(200, "`url`, `rid`, `hash`"),
        )
        .route(
            Route::get("/api/flush", "Fetches a ruleset anew")
                .replies::<serde_json::Value>(200, "`url`, `rid`, `hash`, `flushed`, `compiler`"),
        )
}

/// Parses a channel's id in a path.
fn channel(text: &str) -> Result<Eci, Response> {
    text.parse().map_err(|_| {
        let no = crate::pico::PicoRejection::NoChannel { eci: text.into() };
        refused(throng::model::Error::Rejected(no))
    })
}

/// Sends a client's event to a pico.
async fn send(
    picos: &Picos,
    eci: &str,
    once: &Once,
    event: (&str, &str),
    attributes: Value,
    then: Option<Asked>,
) -> Result<Ran, Response> {
    let to = channel(eci)?;
    let incoming = Incoming {
        via: to.secret,
        domain: event.0.into(),
        name: event.1.into(),
        attributes,
        then,
        ..Incoming::default()
    };
    let ran = picos.event(to.pico, incoming, once.key().map(str::to_owned)).await;
    let ran = ran.map_err(refused)?;
    match &ran.error {
        Some(error) => Err(answer::failed(&ran, error)),
        None => Ok(ran),
    }
}

async fn event(
    State(picos): State<Picos>,
    Path((eci, domain, name)): Path<(String, String, String)>,
    once: Once,
    given: RequestArguments,
) -> Result<Response, Response> {
    let ran = send(&picos, &eci, &once, (&domain, &name), given.value, None).await?;
    Ok(JsonAnswer(Value::from(ran.eid)).into_response())
}

fn directives(ran: Ran) -> Response {
    let Ran { eid, directives, .. } = ran;
    JsonAnswer(Value::map([
        ("eid", Value::from(eid)),
        ("directives", directives.into()),
    ]))
    .into_response()
}

async fn event_wait(
    State(picos): State<Picos>,
    Path((eci, domain, name)): Path<(String, String, String)>,
    once: Once,
    given: RequestArguments,
) -> Result<Response, Response> {
    send(&picos, &eci, &once, (&domain, &name), given.value, None)
        .await
        .map(directives)
}

async fn sky_event(
    State(picos): State<Picos>,
    Path((eci, eid, domain, name)): Path<(String, String, String, String)>,
    once: Once,
    given: RequestArguments,
) -> Result<Response, Response> {
    let mut attributes = given.value;
    if eid != "none" && attributes.child("__eid").is_none() {
        attributes.set_at_path(&["__eid".into()], eid.into());
    }
    let ran = send(&picos, &eci, &once, (&domain, &name), attributes, None).await?;
    let (cookies, location) = answer::orders(&ran.directives);
    let mut response = match location {
        Some(location) => answer::redirect(&location),
        None => directives(ran),
    };
    answer::set_cookies(&mut response, &cookies);
    Ok(response)
}

async fn event_query(
    State(picos): State<Picos>,
    Path((eci, domain, name, rid, query)): Path<(String, String, String, String, String)>,
    once: Once,
    given: RequestArguments,
) -> Result<Response, Response> {
    let asked = Asked {
        rid: rid.into(),
        name: query.into(),
        arguments: given.value.clone(),
    };
    let eci_read = channel(&eci)?;
    let ran = send(&picos, &eci, &once, (&domain, &name), given.value, Some(asked.clone())).await?;
    let answered = match ran.answer {
        Some(Ok(value)) => Ok(value),
        Some(Err(crate::pico::PicoRejection::Waits { .. })) | None => picos.query(eci_read, asked).await,
        Some(Err(no)) => Err(throng::model::Error::Rejected(no)),
    };
    let value = answered.map_err(refused)?;
    Ok(JsonAnswer(value).into_response())
}

async fn query(
    State(picos): State<Picos>,
    Path((eci, rid, name)): Path<(String, String, String)>,
    method: Method,
    headers: HeaderMap,
    given: RequestArguments,
) -> Result<Response, Response> {
    let eci = channel(&eci)?;
    if method == Method::GET && LiveEvents::are_accepted(&headers) {
        return log::changes(&picos, eci, (&rid, &name)).await;
    }
    let (name, form) = name
        .split_once('.')
        .map_or((name.as_str(), None), |(name, form)| (name, Some(form)));
    let asked = Asked {
        rid: rid.into(),
        name: Arc::from(name),
        arguments: given.value,
    };
    let value = picos.query(eci, asked).await.map_err(refused)?;
    Ok(match form {
        Some("html") => answer::page(&value),
        Some("txt") => answer::text(&value),
        _ => JsonAnswer(value).into_response(),
    })
}

/// Answers with the console's entry, the root pico's channel. Its holder may do everything, so with authenticated callers not all of them get it.
async fn ui_context(
    State(picos): State<Picos>,
    knows_callers: Option<KnowsCallers>,
    administrator: Result<Administrator, Problem>,
) -> Result<Response, Response> {
    if knows_callers.is_some() && administrator.is_err() {
        let why = "The root pico's channel is for administration: ask the listener that is for it.";
        return Err(answer::problem(&format!("Error: {why}"), &Problem::forbidden(why)));
    }
    let root = picos.root().await.map_err(refused)?;
    Ok(axum::Json(json!({ "version": env!("CARGO_PKG_VERSION"), "eci": root.ui })).into_response())
}

/// Answers with the students' entry: the root's channel with the tag `owner`.
async fn owner_eci(State(picos): State<Picos>) -> Result<Response, Response> {
    let owner = picos.owner().await.map_err(refused)?;
    match owner {
        Some(eci) => Ok(axum::Json(json!({ "ok": true, "eci": eci })).into_response()),
        None => {
            let why = "The root pico has no channel that is tagged `owner`.";
            let problem = Problem::new("no-owner", 404, "There is no owner", why);
            Err(answer::problem(&format!("Error: {why}"), &problem))
        }
    }
}

async fn flush(State(picos): State<Picos>, _: MayAct, given: RequestArguments) -> Result<Response, Response> {
    let Some(url) = given.value.child("url").and_then(Value::as_str).map(str::to_owned) else {
        let problem = Problem::malformed("Expected `url`.").at_field("url");
        return Err(answer::problem("TypeError: Expected `url`", &problem));
    };
    match picos.flush(&url).await {
        Ok(loaded) => {
            let shown = loaded.shown();
            Ok(axum::Json(json!({
                "url": loaded.url, "rid": loaded.rid(), "hash": loaded.hash,
                "flushed": shown["flushed"], "compiler": shown["compiler"],
            }))
            .into_response())
        }
        Err(why) => {
            let problem = Problem::new("ruleset-unusable", 422, "The ruleset cannot be used", why.to_string());
            Err(answer::problem(&format!("Error: {why}"), &problem))
        }
    }
}
