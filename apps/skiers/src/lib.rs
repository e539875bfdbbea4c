//! Lift rides: every skier's rides, and their totals for each day of a resort.
//!
//! The service uses only the public crates:
//!
//! - [`skier`]: one entity for each skier. A [`Ride`](ride::Ride) is an event of its skier, and reaches the resort's day by a durable message;
//! - [`resort_day`]: one entity for each day of a resort, with its skiers, its rides by lift and its rides by hour;
//! - [`resort`]: one entity for each resort, with its seasons;
//! - `broker`: the arrangement with a broker between servers and consumers;
//! - [`routes()`]: the service's REST routes, beside the generic ones of the gateway, and [`describe`] for their documentation;
//! - [`app`]: all of it as a program; [`kinds`] registers the entities and their queries with an engine.
//!
//! The day is an entity, not a [projection](throng::projection). A projection would write a row for each of a ride's four counts, some time after the
//! answer. The entity counts them in memory in the same turn that records the ride, and its events are in the same commit.
//!
//! ```
//! use skiers::{number::Number, resort_day::{GetResortDay, ResortDay}, ride::Ride, skier::{Skier, SkierCommand}};
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = skiers::kinds(Engine::builder()).start(journal, store).await?;
//! let ride = Ride { resort: 56, season: 2022, day: 12, time: 217, lift: 21, wait: None };
//! engine.entity::<Skier>(Number(7)).ask(SkierCommand::Ride(ride)).await?;
//! let day = engine.entity::<ResortDay>(ride.resort_day()).read(GetResortDay {}).await?;
//! assert_eq!((day.skiers, day.rides_on(21)), (1, 1));
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod broker;
pub mod message;
mod models;
mod no_answer;
pub mod number;
mod recorder;
pub mod resort;
pub mod resort_day;
pub mod ride;
mod routes;
pub mod skier;
mod skier_set;
mod statistics;
mod tally;

pub use routes::{describe, routes};

use resort::{GetResort, Resort};
use resort_day::{GetResortDay, ResortDay};
use skier::{GetDay, GetSeason, GetSkier, Skier};
use throng_app::App;

/// Registers skiers, resorts and the days of resorts, with their queries, with an engine.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<Skier>()
        .query::<Skier, GetSkier>()
        .query::<Skier, GetSeason>()
        .query::<Skier, GetDay>()
        .with::<ResortDay>()
        .query::<ResortDay, GetResortDay>()
        .with::<Resort>()
        .query::<Resort, GetResort>()
}

/// Returns the service with its kinds, routes and documentation. `serve --role` selects a side of the broker.
#[must_use]
pub fn app() -> App {
    App::new("skiers")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
        .role("server", roles::server)
        .role("consumer", roles::consumer)
        .tool(broker::dead_letters::command(), broker::dead_letters::run)
}

mod roles {
    use crate::broker::{Environment, Unreadable, consumer, environment, server};
    use throng_app::App;

    pub(super) fn server() -> anyhow::Result<App> {
        server::app(&of_process()?)
    }

    pub(super) fn consumer() -> anyhow::Result<App> {
        consumer::app(super::app(), of_process()?)
    }

    fn of_process() -> Result<Environment, Unreadable> {
        environment(|name| std::env::var(name).ok())
    }
}
