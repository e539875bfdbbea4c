//! Seat reservations: shows with numbered seats, which are reserved and given back.
//!
//! The service uses only the public crates:
//!
//! - [`show`]: one entity for each show, with its seats and their reservations;
//! - [`available`]: the shows with free seats, a read model of their events;
//! - [`routes()`]: the service's REST routes, beside the generic ones of the gateway, and [`describe`] for their documentation;
//! - [`environment()`]: the environment variables of the original's deployments;
//! - [`app`]: all of it as a program; [`kinds`] registers the entity, its query and its projection with an engine.
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

/// Registers shows, their query and the read model of free seats with an engine.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<Show>()
        .query::<Show, GetShow>()
        .projection(AvailableShows)
}

/// Returns the service with its kinds, routes and documentation.
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
