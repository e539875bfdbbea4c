//! A server in front of the broker. It publishes rides, and answers once the broker has confirmed them.

use super::{Environment, forward::Consumer, read_models::ReadModels, rides::Rides};
use crate::{describe, routes::front};
use throng_amqp::Metrics;
use throng_app::App;
use throng_breaker::{Breakers, Settings};

/// Returns the service as a server.
///
/// # Errors
///
/// A variable has an invalid value, or the exchange or the queue exists with other properties.
pub fn app(environment: &Environment) -> anyhow::Result<App> {
    let (breakers, metrics) = (Breakers::default(), Metrics::default());
    let rides = Rides::start(environment, &breakers, metrics.clone())?;
    let consumer = environment
        .consumer
        .as_deref()
        .map(|url| Consumer::new(url, &breakers))
        .transpose()?;
    let redis = environment
        .redis
        .as_deref()
        .map(|url| ReadModels::new(url, breakers.breaker("redis", Settings::default())))
        .transpose()?;
    let watched = redis.clone();
    let behind = front::Behind { redis, consumer };
    let publisher = rides.publisher().clone();
    Ok(App::new("skiers")
        .version(env!("CARGO_PKG_VERSION"))
        .routes(|engine| front::routes(engine, rides, behind))
        .describe(describe())
        .background(move |engine| {
            engine.metrics().register(|registry| {
                metrics.register(registry);
                breakers.register(registry);
            });
            publisher.report_to(engine.checks());
            let watch = watched.map(|redis| redis.watch(engine.checks())).transpose()?;
            Ok(Box::new(move || drop(watch)))
        }))
}
