//! The routes of a server in front of a broker.

use axum::{Router, extract::Request, routing::get};
use throng::Engine;

use super::{Service, mounted, rides};
use crate::{
    broker::{
        forward::{self, Consumer},
        server::Rides,
    },
    models::Models,
    recorder::Recorder,
    statistics::Statistics,
};

/// Rides are published, all else is passed on to the consumer.
pub(crate) fn routes(engine: Engine, broker: Rides, consumer: Option<Consumer>) -> Router {
    let pass = move |request: Request| async move {
        match &consumer {
            Some(consumer) => consumer.answer(request).await,
            None => forward::unavailable(),
        }
    };
    let service = Service {
        models: Models::new(engine.clone()),
        recorder: Recorder::Broker(broker),
        engine,
        statistics: Statistics::default(),
    };
    mounted(service, |prefix| {
        rides(prefix)
            .route(&format!("{prefix}/skiers/{{*path}}"), get(pass.clone()))
            .route(&format!("{prefix}/resorts"), get(pass.clone()))
            .route(
                &format!("{prefix}/resorts/{{*path}}"),
                get(pass.clone()).post(pass.clone()),
            )
    })
}
