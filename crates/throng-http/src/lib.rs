//! The HTTP gateway of Throng: routes for every kind of the engine, an app's own routes, problem details, OpenAPI, metrics, health.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}, model::*};
//! use throng_http::Gateway;
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Counter { hits: u64 }
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! #[serde(rename_all = "snake_case")]
//! enum Command { Hit }
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! enum CounterEvent { Hit }
//! impl Event for CounterEvent {}
//! #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
//! #[error("a counter never says no")]
//! struct Never;
//! impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//!
//! impl Entity for Counter {
//!     const KIND: &'static str = "counter";
//!     const PUBLIC: &'static [&'static str] = &["hit"];
//!     type Id = String;
//!     type Command = Command;
//!     type Event = CounterEvent;
//!     type Reply = u64;
//!     type Rejection = Never;
//!     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
//!         turn.emit(CounterEvent::Hit);
//!         Ok(CommandAnswer::after(|counter: &Counter| counter.hits))
//!     }
//!     fn evolve(&mut self, _: &CounterEvent) { self.hits += 1 }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = Engine::builder().with::<Counter>().start(journal, store).await?;
//! let gateway = Gateway::builder(engine).bind("127.0.0.1:0").start()?;
//!
//! use std::io::{Read, Write};
//! let mut client = std::net::TcpStream::connect(gateway.address())?;
//! client.write_all(b"POST /api/counter/front-page/hit HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\n1"));
//! gateway.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Routes
//!
//! | route | |
//! |---|---|
//! | `POST /api/{kind}/{id}/{command}` | a public command's content as JSON in, the reply out, once it is durable |
//! | `GET /api/{kind}/{id}`, `GET /api/{kind}/{id}/{query}?fields` | a query; `view` answers the short path |
//! | `GET /api/{kind}/{id}/events?after=&limit=` | what has happened; with `Accept: text/event-stream` also what happens |
//! | `GET /api/{kind}?after=&limit=` | the entities of a kind |
//! | `/health/live`, `/health/ready`, `/metrics`, `/openapi.json`, `/docs`, `/problems/{type}` | the gateway's own |
//! | `GET /api/ws` | a WebSocket: all of the above over one socket, many at a time, in batches (`docs/websocket.md`) |
//! | `GET /admin/dead`, `/admin/dead/export`, `POST /admin/dead/retry` | messages nobody could take, and trying them again ([`Gateway::admin_token`]) |
//! | `GET /admin/audit`, `/admin/audit/export` | the actions of administration: by whom, why, and how they ended ([`Audit`]) |
//! | all else | the app's [`routes`](Gateway::routes) |
//!
//! `HEAD` is answered like `GET`, without the body, on each of them. `OPTIONS` is answered with 204 and the methods of the path in `Allow`,
//! unless the app has its own answer, or it is a browser's preflight.
//!
//! All of them are listed in `/openapi.json` and on `/docs`, generated from the types: the kinds' automatically, an app's own from its
//! descriptions ([`Described`], [`Gateway::describe`]).
//!
//! A command's name in the path is its serde name; `add-student` also matches `add_student` and `AddStudent`. Parts of a path are
//! percent-encoded UTF-8.
//!
//! Header fields honoured: `Idempotency-Key` (at most 255 characters: a command takes effect once under a key),
//! `Request-Timeout` or `X-Request-Timeout` (seconds, or `500ms`; the deadline, 5 s unless said), `Last-Event-ID` on a live
//! stream, `traceparent` (W3C trace context: a command runs in a span of that trace). Errors are [`Problem`] details (RFC 9457).
//!
//! A page or stream of events after the last event is empty, or waits. A number beyond the last event is refused as `history-lost` (410):
//! it comes from a history that a restore has undone.
//!
//! # Who asks
//!
//! A command has a route if its kind lists it in [`Entity::PUBLIC`](throng::model::Entity::PUBLIC). A kind may have no routes
//! ([`Gateway::without_routes`]), and a hook may decide about each access ([`Gateway::authorize`]). Callers are authenticated by tokens
//! ([`Gateway::tokens`]), JSON web tokens ([`Gateway::jwt`]) or certificates ([`Gateway::tls`]). Administration may have its own listener
//! ([`Gateway::admin`]). Every request is checked against the host names of the service and the allowed origins of pages
//! ([`Gateway::host`], [`Gateway::origin`]). `docs/security.md` has the details.
//!
//! An app's own routes answer like the gateway's: [`extract`] has axum's extractors with problem details as refusals, and a handler returns
//! a [`Problem`].
//!
//! # A batch
//!
//! A loop is one thread with its connections. It reads every ready socket, executes the commands, and only then runs the engine's
//! committer: one write and one sync for all of them, after which the answers are sent. During the sync, the kernel collects the next
//! batch. There is no timer and no hand-off to another thread.
//!
//! A batch takes at most 5 ms of the loop's CPU time or 8 MiB of bodies. Requests beyond that wait for a later batch, in order: a
//! connection waits unread, so that its bytes stay in the kernel and waiting costs nothing. The number that may wait follows from the
//! loop's speed: a request that would wait longer than 500 ms is refused with 503, after reading only its head, in a small part of the
//! loop's time. Health, metrics and administration never wait and are never refused.
//!
//! A request's age, for its deadline, counts from the end of the loop's previous read pass or, if the loop was idle, from the moment it
//! woke: the earliest moment at which the request can have arrived.
//!
//! # Limits
//!
//! See [`Limits`]: header 16 KiB, body 1 MiB, 10,000 connections, 128 HTTP/2 streams, 75 s idle, and others. JSON may be
//! nested 128 deep (`serde_json`'s limit). Unknown fields of a command or query are refused, unless its entity says otherwise
//! (`Entity::IGNORES_UNKNOWN_FIELDS`), and so are repeated ones.

mod access;
mod access_log;
mod admission;
mod answer;
mod audit;
mod behind;
mod caller;
mod checks;
mod clients;
mod connection;
mod console;
mod console_state;
mod error;
mod event_loop;
pub mod extract;
mod follow;
mod gateway;
mod guard;
mod http1;
mod key;
mod kinds;
mod limits;
mod listen;
mod metrics;
mod openapi;
mod places;
mod problem;
mod refused;
mod request;
mod routes;
mod running;
mod scale;
mod server;
mod signal;
mod websocket;

/// Properties that hold for any bytes, for fuzzers and property tests.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::{
        http1::fuzzing::{exchange, head},
        request::path::fuzzed as path,
        websocket::fuzzing::{frames, messages},
    };
}

pub use access_log::AccessLog;
pub use audit::{Audit, AuditCommand, AuditEvent, AuditId, AuditRejection, AuditedAction, AuditedEnd};
pub use behind::Behind;
pub use caller::{Access, Action, Administrator, Caller, KnowsCallers, MayAct, Means, Role};
pub use console_state::Cluster;
pub use error::{FileError, StartError};
pub use gateway::Gateway;
pub use guard::{Jwt, Tls, check_private_key, make_token};
pub use limits::{LOOPS_MAX, Limits};
pub use openapi::{Described, Route, contract};
pub use problem::Problem;
pub use request::Once;
pub use routes::LiveEvents;
pub use running::{NodeReport, Running};
pub use server::PageRoom;
pub use signal::StopSignal;
