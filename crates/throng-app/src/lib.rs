//! The program of a service: the one crate a service adds, and the one call in its `main`.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use throng_app::App;
//! # mod wallet {
//! #     use schemars::JsonSchema;
//! #     use serde::{Deserialize, Serialize};
//! #     use throng_app::model::*;
//! #     #[derive(Default, Serialize, Deserialize)] pub struct Account { cents: u64 }
//! #     #[derive(Serialize, Deserialize, JsonSchema)] pub enum Command { Deposit { cents: u64 } }
//! #     #[derive(Serialize, Deserialize, JsonSchema)] pub enum AccountEvent { Deposited { cents: u64 } }
//! #     impl Event for AccountEvent {}
//! #     #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)] #[error("never")] pub struct Never;
//! #     impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//! #     impl Entity for Account {
//! #         const KIND: &'static str = "account";
//! #         const PUBLIC: &'static [&'static str] = &["Deposit"];
//! #         type Id = String; type Command = Command; type Event = AccountEvent; type Reply = u64; type Rejection = Never;
//! #         fn decide(&self, Command::Deposit { cents }: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
//! #             turn.emit(AccountEvent::Deposited { cents });
//! #             Ok(CommandAnswer::after(|account: &Account| account.cents))
//! #         }
//! #         fn evolve(&mut self, AccountEvent::Deposited { cents }: &AccountEvent) { self.cents += cents }
//! #     }
//! # }
//! # use wallet::Account;
//!
//! #[global_allocator]
//! static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;
//!
//! fn main() -> ExitCode {
//!     App::new("wallet").with::<Account>().run()
//! }
//! ```
//!
//! The program has these commands:
//!
//! | command | |
//! |---|---|
//! | `wallet serve` | the service, until SIGTERM or Ctrl-C: a journal in `data/wallet`, HTTP on `127.0.0.1:8080`, `/docs` |
//! | `wallet journal inspect`, `verify`, `export`, `import`, `backup`, `compact` | the journal's tools |
//! | `wallet projection list`, `rebuild` | the read models' tools |
//! | `wallet token NAME` | a token for a caller, and its line in the file of `serve --tokens` |
//! | `wallet health` | asks a running service whether it is ready: a container's health check |
//! | `wallet check` | whether this program understands all of a journal, before it is rolled out |
//! | `wallet schema export`, `diff` | the contract as JSON Schemas, and whether a new one breaks clients or recorded events |
//! | `wallet trace account/ann` | what led to Ann's last turns, and what came of them |
//! | `wallet bench PLAN` | a load plan (`docs/load.md`) against the service on a fresh journal; with the feature `bench` |
//!
//! besides [commands of the app's own](App::tool),
//! and `--help` on each says what can be set. Exit codes: 0 done, 1 it did not work or a check found a difference, 2 the arguments make
//! no sense, 130 ended by a second signal.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `mimalloc` (on) | [`Allocator`], for a program's `#[global_allocator]`; it compiles C |
//! | `postgres` | journals on PostgreSQL: `--journal postgres://…` |
//! | `s3` | journals on object storage: `--journal s3://…` |
//! | `otlp` (on) | traces to an OpenTelemetry collector: `--otlp http://…` |
//! | `bench` | the command `bench` |
//!
//! The engine's own crates are re-exported: [`model`] is what an entity is written with, [`http`] the gateway, [`Subject`] tests an
//! entity alone. A simulation of the whole service, from `throng-sim`, takes [`App::into_builder`].

mod app;
#[cfg(feature = "bench")]
mod bench;
mod check;
pub mod cli;
#[cfg(feature = "postgres")]
mod cluster;
mod exit;
mod health;
mod history;
mod journal;
mod limits;
mod logging;
#[cfg(feature = "s3")]
mod objects;
mod open_files;
mod operator;
mod place;
mod projection;
mod schema;
mod security;
mod serve;
mod service;
mod telemetry;
mod token;
mod trace;

pub use app::{App, Defaults, End};
/// The router that [an app's own routes](App::routes) are written with, in the version the gateway takes.
#[doc(no_inline)]
pub use axum;
/// The crate that reads the arguments of an app's [own commands](App::tool).
pub use clap;
#[cfg(feature = "postgres")]
pub use cluster::{ClusterArguments, ClusterSettings};
pub use limits::LimitArguments;
/// The allocator for `#[global_allocator]` in a program: requests are many small allocations, and the system's allocator was a third of the
/// engine's instructions.
#[cfg(feature = "mimalloc")]
pub use mimalloc::MiMalloc as Allocator;
pub use place::{Durability, JournalLocation, OnLoss, OpenCalls};
pub use security::SecurityArguments;
pub use service::{Service, Settings};
pub use telemetry::{AccessLogArguments, TraceArguments};
#[doc(no_inline)]
pub use throng::{
    Builder, Done, Engine, EntityEvent, Follow, Handle, Options, Subject, model, projection as projections, services,
};
#[doc(no_inline)]
pub use throng_http as http;
