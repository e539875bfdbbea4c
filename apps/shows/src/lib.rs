//! Seat reservations: shows with numbered seats, which are reserved and given back.
//!
//! The service is written only with what a user of the crates has:
//!
//! - [`show`]: one entity a show, its seats and which of them are reserved;
//! - [`available`]: the shows with seats left, a read model that follows their events;
//! - [`routes()`]: the service's REST routes, beside the generic ones of the gateway; [`describe`] documents them;
//! - [`environment()`]: what the original's deployments say by environment variables;
//! - [`app`] is all of it as a program; [`kinds`] gives an engine the entity with its query and its projection.
//!
//! ```
//! use shows::show::{Show, ShowCommand, ShowId};
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = shows::kinds(Engine::builder()).start(journal, store).await?;
//! let id: ShowId = "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7".parse()?;
//! let show = || engine.entity::<Show>(id);
//! show().ask(ShowCommand::CreateShow { title: "Hamlet".into(), max_seats: 50 }).await?;
//! let reply = show().ask(ShowCommand::ReserveSeat { seat: 7 }).await?;
//! assert_eq!(reply.available, 49);
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod available;
mod environment;
mod routes;
pub mod show;

pub use environment::{Environment, NeitherTrueNorFalse, environment};
pub use routes::{describe, routes};

use available::AvailableShows;
use show::{GetShow, Show};
use throng_app::{App, Defaults};

/// Gives an engine the shows, with their query and the read model of those with seats left.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<Show>()
        .query::<Show, GetShow>()
        .projection(AvailableShows)
}

/// The service: its kinds, its routes, its documentation.
#[must_use]
pub fn app() -> App {
    App::new("shows")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
        .gateway(|gateway| gateway.open_route("/actuator/health"))
        .defaults(|| {
            let Environment { journal, projections } = environment(|name| std::env::var(name).ok())?;
            Ok(Defaults { journal, projections })
        })
}
