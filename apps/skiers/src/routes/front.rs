//! The routes of a server in front of a broker.

use axum::{
    Router,
    extract::{Request, State},
    http::Method,
    routing::get,
};
use throng::Engine;

use super::{
    mounted,
    path::{ResortsPath, SkiersPath},
    resorts, rides,
    site::{Service, Site},
    skiers,
};
use crate::{
    broker::{
        forward::{self, Consumer},
        read_models::ReadModels,
        rides::Rides,
    },
    models::Models,
    recorder::Recorder,
    statistics::{Endpoint, Statistics},
};

/// The sources of answers behind a server.
pub(crate) struct Behind {
    /// Answers queries, if it is configured.
    pub(crate) redis: Option<ReadModels>,
    /// The consumer, which gets all requests that the server cannot answer itself.
    pub(crate) consumer: Option<Consumer>,
}

/// Returns the routes: rides are published, and queries are answered from Redis or else by the consumer.
pub(crate) fn routes(engine: Engine, broker: Rides, behind: Behind) -> Router {
    let Behind { redis, consumer } = behind;
    let pass = move |State(site): State<Site>, request: Request| async move {
        let endpoint = endpoint(&site, request.method(), request.uri().path());
        let answer = async {
            match &consumer {
                Some(consumer) => consumer.answer(request).await,
                None => forward::unavailable(None),
            }
        };
        match endpoint {
            Some(endpoint) => site.answer(endpoint, async { Ok(answer.await) }).await,
            None => answer.await,
        }
    };
    let answers_itself = redis.is_some();
    let service = Service {
        models: redis.map_or_else(|| Models::Entities(engine.clone()), Models::Redis),
        recorder: Recorder::Broker(broker),
        engine,
        statistics: Statistics::default(),
    };
    mounted(service, |prefix| {
        let (list, of_skiers, of_resorts) = match answers_itself {
            true => (get(resorts::list), get(skiers::get), get(resorts::get)),
            false => (get(pass.clone()), get(pass.clone()), get(pass.clone())),
        };
        rides(prefix)
            .route(&format!("{prefix}/skiers/{{*path}}"), of_skiers)
            .route(&format!("{prefix}/resorts"), list)
            .route(&format!("{prefix}/resorts/{{*path}}"), of_resorts.post(pass.clone()))
    })
}

/// Returns the endpoint that a forwarded request counts for; `None` if the path has none.
fn endpoint(site: &Site, method: &Method, path: &str) -> Option<Endpoint> {
    let below = |collection: &str| {
        let is_there = path.get(site.prefix.len()..)?.starts_with(collection);
        is_there.then(|| site.below(collection, path))
    };
    if method == Method::POST {
        return Some(Endpoint::PostSeason);
    }
    match (below(skiers::COLLECTION), below(resorts::COLLECTION)) {
        (Some(path), _) => SkiersPath::parse(path).ok().map(SkiersPath::endpoint),
        (_, Some(path)) => ResortsPath::parse(path).ok().map(ResortsPath::endpoint),
        _ => Some(Endpoint::GetResorts),
    }
}
