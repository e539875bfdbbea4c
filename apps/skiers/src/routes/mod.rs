//! The service's own routes, beside the generic ones.
//!
//! | route | answers |
//! |---|---|
//! | `POST /skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}` `{time, liftID, waitTime?}` | 201 `Lift ride created!`: the ride is
//! durable |
//! | `GET` of the same | 200 the vertical of the skier's day, a number |
//! | the same and `/lifts` | 200 `{lifts: [{liftID, rides}]}` |
//! | `GET /skiers/{resortID}/seasons/{seasonID}/skiers/{skierID}` | 200 `{daysSkied, rides, totalVert, days: [{dayID, rides, vertical}]}` |
//! | `GET /skiers/{skierID}/vertical?resort=&season=` | 200 `{resorts: [{seasonID, totalVert}]}` |
//! | `GET /resorts` | 200 `{resorts: [{resortName, resortID}]}` |
//! | `GET /resorts/{resortID}/seasons` | 200 `{seasons: ["2022"]}` |
//! | `POST /resorts/{resortID}/seasons` `{year}` | 201 `Season created!` |
//! | `GET /resorts/{resortID}/seasons/{seasonID}/day/{dayID}/skiers` | 200 `{time, numSkiers}`: different skiers |
//! | the same with `/lifts`, `/lifts/{liftID}`, `/hours` | 200 rides by lift, on one lift, by hour of the ski day |
//! | `GET /statistics` | 200 `{endpointStats: [{URL, operation, mean, max}]}` |
//!
//! `/day/` and `/days/` mean the same everywhere. An invalid request is 400 and a missing resource 404, both with `{"message":text}`.
//!
//! The original's clients use paths below `/Server_war`. All routes exist there a second time, with messages in the original's form: plain text. A
//! body that is no JSON is 400 there, too, where the original fails with 500.

pub(crate) mod answers;
mod body;
mod describe;
pub(crate) mod front;
mod path;
mod resorts;
mod site;
mod skiers;

pub use describe::describe;

use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use std::sync::Arc;
use throng::Engine;

use crate::{
    models::Models,
    recorder::Recorder,
    statistics::{ApiStatistics, Statistics},
};
use answers::Dialect;
use site::{Service, Site};

/// The prefix of the original's paths.
const WAR: &str = "/Server_war";

/// Returns the routes, to be mounted on a gateway.
pub fn routes(engine: Engine) -> Router {
    let service = Service {
        models: Models::Entities(engine.clone()),
        recorder: Recorder::Skier(engine.clone()),
        engine,
        statistics: Statistics::default(),
    };
    mounted(service, |prefix| {
        rides(prefix)
            .route(&format!("{prefix}/skiers/{{*path}}"), get(skiers::get))
            .route(&format!("{prefix}/resorts"), get(resorts::list))
            .route(
                &format!("{prefix}/resorts/{{*path}}"),
                get(resorts::get).post(resorts::post),
            )
    })
}

/// Returns the routes that take rides, with their response times measured.
fn rides(prefix: &str) -> Router<Site> {
    Router::new()
        .route(&format!("{prefix}/skiers"), get(skiers::no_path).post(skiers::no_path))
        .route(&format!("{prefix}/skiers/{{*path}}"), post(skiers::post))
        .route(&format!("{prefix}/statistics"), get(statistics))
}

/// Mounts the routes at the root, and again for the original's clients.
fn mounted(service: Service, routes: impl Fn(&'static str) -> Router<Site>) -> Router {
    let service = Arc::new(service);
    let below = |prefix, dialect| {
        routes(prefix).with_state(Site {
            service: Arc::clone(&service),
            prefix,
            dialect,
        })
    };
    below("", Dialect::Definition).merge(below(WAR, Dialect::Original))
}

async fn statistics(State(site): State<Site>) -> Json<ApiStatistics> {
    Json(site.service.statistics.read())
}
