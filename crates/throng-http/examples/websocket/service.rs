//! Counters, and a page that counts over a WebSocket.

use axum::{Router, http::header, response::Html, routing::get};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::{CommandAnswer, Entity, Event, Moment, Query, Rejection, Turn, View},
};
use throng_http::{Gateway, Running};

/// Counts what it was told to add.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Counter {
    hits: u64,
}

/// The commands of a counter.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Counts one more.
    Hit,
}

/// The events of a counter.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CounterEvent {
    /// The counter grew by one.
    Hit,
}

impl Event for CounterEvent {}

/// A counter never refuses a command.
#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("a counter never says no")]
pub(crate) struct Never;

impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl Entity for Counter {
    const KIND: &'static str = "counter";
    const PUBLIC: &'static [&'static str] = &["hit"];
    type Id = String;
    type Command = Command;
    type Event = CounterEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(CounterEvent::Hit);
        Ok(CommandAnswer::after(|counter: &Self| counter.hits))
    }

    fn evolve(&mut self, _: &CounterEvent) {
        self.hits += 1;
    }
}

/// Returns the count so far.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Look {}

impl Query<Counter> for Look {
    const NAME: &'static str = View::NAME;
    type Answer = u64;

    fn answer(self, counter: &Counter, _: &Moment<'_, Counter>) -> Result<u64, Never> {
        Ok(counter.hits)
    }
}

/// The page, and the client it loads.
pub(crate) const PAGE: &str = include_str!("page.html");
const CLIENT: &str = include_str!("throng.js");

/// Starts the service, with further routes.
pub(crate) async fn start(address: &str, page: String, routes: Router) -> Result<Running, Box<dyn std::error::Error>> {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder().with::<Counter>().query::<Counter, Look>();
    let engine = engine.start(journal, store).await?;
    let routes = routes.route("/", get(async move || Html(page))).route(
        "/throng.js",
        get(async || ([(header::CONTENT_TYPE, "text/javascript")], CLIENT)),
    );
    Ok(Gateway::builder(engine).bind(address).routes(routes).start()?)
}
