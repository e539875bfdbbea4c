//! Picos: persistent objects with channels, children, and rulesets that are installed while they run.
//!
//! A [`Pico`](pico::Pico) is an entity of one kind. What it can do is written in rulesets, in KRL, found at URLs; it is reached over channels,
//! whose ids (ECIs) are capabilities with policies; it has a parent and any number of children. Events and queries come over HTTP as the
//! pico-engine's do ([`routes`]).
//!
//! An event runs on a *draft* of its pico: the rules it selects, what they raise, all of it. What they did is recorded as one event of the
//! entity, by which the pico is brought back without its programs; an event that fails leaves nothing behind. What has to be
//! asked elsewhere, a web server or another pico, is asked between two runs: the event is run again from its start with the answers, so that no
//! loop ever waits.

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

/// Gives an engine the kinds of picos, with their queries.
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

/// Keeps the picos' kinds off the generic routes: what they keep is reached over channels only.
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
