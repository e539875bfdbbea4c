//! Picos: persistent objects with channels, children, and rulesets that are installed while they run.
//!
//! A [`Pico`](pico::Pico) is an entity of one kind. Its behaviour comes from rulesets in KRL, which are loaded from URLs. Clients reach it over
//! channels, whose ids (ECIs) are capabilities with policies. It has a parent and any number of children. Events and queries arrive over HTTP in the
//! form of pico-engine ([`routes`]).
//!
//! An event runs on a *draft* of its pico, with the rules that it selects and all events that they raise. Its effects are recorded as one event of
//! the entity, from which the pico is recovered without its programs. An event that fails leaves nothing behind. Requests to a web server or another
//! pico are made between two runs: then the event runs again from its start with the answers. So no event loop ever waits.

pub mod ask;
pub mod channel;
mod cron;
mod draft;
mod family;
pub mod id;
mod intern;
mod native;
mod outside;
pub mod pico;
mod routes;
pub mod rulesets;
mod run;
mod settings;
mod time;
mod transfer;

pub use outside::{Failure, LogError, LogPage, LogQuery, Picos};
pub use routes::{describe, routes};
pub use settings::Settings;

/// Registers the kinds of picos and their queries with an engine.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
        .with::<pico::Pico>()
        .query::<pico::Pico, pico::PicoQuery>()
        .query::<pico::Pico, pico::Look>()
        .query::<pico::Pico, pico::May>()
        .query::<pico::Pico, pico::TryOut>()
        .query::<pico::Pico, pico::Everything>()
        .on_outcome::<pico::Pico, pico::Pico>()
        .with::<pico::Page>()
        .query::<pico::Page, pico::GetPage>()
        .with::<rulesets::Ruleset>()
        .query::<rulesets::Ruleset, rulesets::GetVersion>()
}

/// Hides the kinds of picos from the generic routes. Their data is reached only over channels.
#[must_use]
pub fn gateway(gateway: throng_http::Gateway) -> throng_http::Gateway {
    let hidden = ["pico", "pico-children", "ruleset"];
    let gateway = gateway.secret_parts(id::holds_secret);
    let gateway = hidden
        .iter()
        .fold(gateway, |gateway, kind| gateway.without_routes(*kind));
    routes::API_NAMES
        .iter()
        .fold(gateway, |gateway, name| gateway.app_name(*name))
}
