//! University registration: a thousand students request the same seats in the second that registration opens.
//!
//! The service uses only the public crates:
//!
//! - [`section`]: one entity for each section, with its seats and students;
//! - [`collection`]: the parent of the sections, which creates them and passes requests on;
//! - [`routes()`]: the service's REST routes, beside the generic ones of the gateway, and [`describe`] for their documentation;
//! - [`app`]: all of it as a program; [`kinds`] registers both entities and their queries with an engine.
//!
//! The [`trace`] of a registration day, and its expected outcome by a [`reference`](mod@reference), complete the crate.
//!
//! ```
//! use registration::section::{Change, Section, SectionCommand};
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = registration::kinds(Engine::builder()).start(journal, store).await?;
//! let section = || engine.entity::<Section>("C S 142-1");
//! section().ask(SectionCommand::Open { capacity: 30 }).await?;
//! let reply = section().ask(SectionCommand::Add { student: "10482213".into() }).await?;
//! assert_eq!((reply.change, reply.remaining), (Change::Added, 29));
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod collection;
pub mod reference;
mod routes;
pub mod section;
pub mod trace;

pub use routes::{describe, routes};

use collection::{Collection, ListSections, LookAtCollection};
use section::{GetRoster, InRoster, Look, Section};
use throng_app::App;

/// Registers the entities of registration and their queries with an engine.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<Section>()
        .query::<Section, Look>()
        .query::<Section, GetRoster>()
        .query::<Section, InRoster>()
        .with::<Collection>()
        .query::<Collection, LookAtCollection>()
        .query::<Collection, ListSections>()
}

/// Returns the service with its kinds, routes and documentation.
#[must_use]
pub fn app() -> App {
    App::new("registration")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
}
