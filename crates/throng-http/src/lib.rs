//! The HTTP gateway of Throng: every kind of the engine as routes, an app's own routes beside them, problem details,
//! OpenAPI, metrics, health.
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
//! enum Happened { Hit }
//! impl Event for Happened {}
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
//!     type Event = Happened;
//!     type Reply = u64;
//!     type Rejection = Never;
//!     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
//!         turn.emit(Happened::Hit);
//!         Ok(Answer::after(|counter: &Counter| counter.hits))
//!     }
//!     fn evolve(&mut self, _: &Happened) { self.hits += 1 }
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
//! `HEAD` is answered as `GET` is, without the body, on each of them. `OPTIONS` is answered 204 with the methods of the path in
//! `Allow`, unless the app has its own answer, or a browser's preflight is to be answered.
//!
//! All of them stand in `/openapi.json` and on `/docs`, generated from the types: the kinds' by themselves, an app's own
//! as it describes them ([`Described`], [`Gateway::describe`]).
//!
//! A command's name in the path is its serde name; `add-student` is taken for `add_student` and `AddStudent`, too.
//! Parts of a path are percent-encoded UTF-8.
//!
//! Header fields honoured: `Idempotency-Key` (at most 255 characters: a command takes effect once under a key),
//! `Request-Timeout` or `X-Request-Timeout` (seconds, or `500ms`; the deadline, 5 s unless said), `Last-Event-ID` on a live
//! stream, `traceparent` (W3C trace context: a command runs in a span of that trace). Errors are [`Problem`] details (RFC 9457).
//!
//! A page or stream of events after the last event is empty, or waits. After a number that is beyond it, it is refused as
//! `history-lost` (410): the number is of a history that a restore has taken back.
//!
//! # Who asks
//!
//! A command is a route if its kind names it in [`Entity::PUBLIC`](throng::model::Entity::PUBLIC); a kind may have no routes
//! ([`Gateway::without_routes`]), and a hook decides about each access ([`Gateway::authorize`]). Callers are known by tokens
//! ([`Gateway::tokens`]), JSON web tokens ([`Gateway::jwt`]) or certificates ([`Gateway::tls`]); administration may have a listener of its own
//! ([`Gateway::admin`]). Every request is held against the names of the service and the origins of pages that may ask ([`Gateway::host`],
//! [`Gateway::origin`]). `docs/security.md` has all of it.
//!
//! An app's own routes answer as the gateway's do: [`extract`] has axum's extractors with refusals that are problem details, and [`Problem`] is
//! what a handler returns.
//!
//! # A batch
//!
//! A loop is one thread with all of its connections. It reads every socket that is ready, executes the commands in place,
//! and only then runs the engine's committer: one write and one sync for all of them, after which the answers go out. While
//! the loop sits in the sync, the kernel collects the next batch; there is no timer and no hand-off to another thread.
//!
//! A batch takes at most 5 ms of the loop's own CPU time or 8 MiB of bodies. What is ready beyond that waits for a later batch,
//! in the order it came: a connection unread, so that its bytes stay in the kernel and waiting costs nothing. How many may wait
//! follows from how fast the loop works them off: who would wait longer than 500 ms is refused with 503, from the head of the
//! request alone, in a small part of the loop's time. Health, metrics and administration never wait and are never refused.
//!
//! A request's age, on which its deadline rests, counts from the end of the loop's previous read pass, or from the moment the
//! loop woke if it was idle: the earliest moment at which it can have come.
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
