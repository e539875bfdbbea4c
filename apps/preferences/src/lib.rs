//! A preference engine. Users' actions are summarised in memory. For each request, recommendations are computed from the summary by rules and
//! weights over a catalogue.
//!
//! The service uses only the public crates:
//!
//! - [`user`]: one event-sourced entity for each user, whose state is the summary of the user's actions;
//! - [`catalogue`]: the items;
//! - [`rules`]: from a summary to a list, a pure computation of some 30 µs;
//! - [`routes()`]: the service's REST routes, and [`describe`] for their documentation;
//! - [`app`]: all of it as a program; [`kinds`] registers the entity and its queries with an engine.
//!
//! ```
//! use preferences::{catalogue::Catalogue, user::{Act, ActionKind, Recommend, User, UserCommand}};
//! use throng::{Engine, journal::{MemoryJournal, MemoryStore}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = MemoryJournal::new();
//! let store = MemoryStore::new(journal.clone());
//! let engine = preferences::kinds(Engine::builder()).start(journal, store).await?;
//! let anna = || engine.entity::<User>("anna");
//! let actions = vec![Act { action: ActionKind::Buy, item: 17 }, Act { action: ActionKind::Like, item: 40 }];
//! anna().ask(UserCommand::Act { actions }).await?;
//! let list = anna().read(Recommend { limit: 10 }).await?;
//! assert_eq!(list.items.len(), 10);
//! assert!(list.items.iter().all(|recommended| recommended.item != 17), "it was bought");
//! assert!(list.items.iter().any(|recommended| recommended.category == Catalogue::get().category(17)));
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod catalogue;
mod routes;
pub mod rules;
pub mod user;

pub use routes::{describe, routes};

use throng_app::App;
use user::{GetSummary, Recommend, User};

/// Registers users and their queries with an engine.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<User>()
        .query::<User, GetSummary>()
        .query::<User, Recommend>()
}

/// Returns the service with its kinds, routes and documentation.
#[must_use]
pub fn app() -> App {
    App::new("preferences")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
}
