//! A preference engine: what users do is summarised in memory, and what they might like is computed from it, request by
//! request, by rules and weights over a catalogue.
//!
//! The service is written only with what a user of the crates has:
//!
//! - [`user`]: one event-sourced entity a user, whose state is the summary of what the user did;
//! - [`catalogue`]: the items there are;
//! - [`rules`]: from a summary to a list, pure computation of some 30 µs;
//! - [`routes()`]: the service's REST routes, and [`describe`] for their documentation;
//! - [`app`] is all of it as a program; [`kinds`] gives an engine the entity with its queries.
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

/// Gives an engine the users, with their queries.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<User>()
        .query::<User, GetSummary>()
        .query::<User, Recommend>()
}

/// The service: its kinds, its routes, its documentation.
#[must_use]
pub fn app() -> App {
    App::new("preferences")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
        .describe(describe())
}
