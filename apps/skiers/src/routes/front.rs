//! The routes of a server in front of a broker.

use axum::{Router, extract::Request, routing::get};
use throng::Engine;

use super::{Service, mounted, resorts, rides, skiers};
use crate::{
    broker::{
        forward::{self, Consumer},
        read_models::ReadModels,
        server::Rides,
    },
    models::Models,
    recorder::Recorder,
    statistics::Statistics,
};

/// Where a server has its answers from.
pub(crate) struct Behind {
    /// Answers queries, if it is there.
    pub(crate) redis: Option<ReadModels>,
    /// Is passed all that the server cannot answer itself.
    pub(crate) consumer: Option<Consumer>,
}

/// Rides are published; queries are answered from Redis, or else by the consumer.
pub(crate) fn routes(engine: Engine, broker: Rides, behind: Behind) -> Router {
    let Behind { redis, consumer } = behind;
    let pass = move |request: Request| async move {
        match &consumer {
            Some(consumer) => consumer.answer(request).await,
            None => forward::unavailable(None),
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
