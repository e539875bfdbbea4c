//! University registration: a thousand students reach for the same seats the second a day opens.
//!
//! The service is written only with what a user of the crates has:
//!
//! - [`section`]: one entity a section, some seats and who sits on them;
//! - [`collection`]: the parent of the sections, which creates them and passes requests on;
//! - [`routes()`]: REST routes of its own, beside the generic ones of the gateway, and [`describe`] for their documentation;
//! - [`app`] is all of it as a program; [`kinds`] gives an engine both entities with their queries.
//!
//! Beside it stand the [`trace`] of a registration day, and the [`reference`](mod@reference) that says what it must come to.
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

/// Gives an engine the entities of registration, with their queries.
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

/// The service: its kinds, its routes, its documentation.
#[must_use]
pub fn app() -> App {
    App::new("registration")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
}
