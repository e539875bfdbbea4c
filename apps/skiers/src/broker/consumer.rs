//! The consumer. It takes rides from the queue and answers queries.

use super::{
    DEAD, Environment, QUEUE,
    read_models::{ResortSeasons, RideCounts, owns_resort_key, owns_ride_key},
    sets::{OriginalSets, owns_set_key},
};
use crate::{message::RideMessage, skier::Skier};
use throng::{Engine, model::Entity as _};
use throng_amqp::{
    Egress, EntityCommand, Ingress, IngressOptions, Message, Metrics, QueueOptions, QueueSource, SourceMetrics, frame,
};
use throng_app::App;
use throng_breaker::{Breakers, Settings};
use throng_redis::{ReadModel, RedisTarget};

/// Returns the service with a queue to consume.
///
/// # Errors
///
/// A variable has an invalid value.
pub fn app(mut app: App, environment: Environment) -> anyhow::Result<App> {
    let breakers = Breakers::default();
    if let Some(redis) = &environment.redis {
        let breaker = breakers.breaker("redis", Settings::default());
        let target = |model, owns: fn(&str) -> bool| {
            RedisTarget::new(model, owns, redis).map(|target| target.with_breaker(breaker.clone()))
        };
        let (sets, rides) = (ReadModel::of::<OriginalSets>(), ReadModel::of::<RideCounts>());
        let resorts = ReadModel::of::<ResortSeasons>();
        app = app
            .sink(Egress::new(OriginalSets, target(sets, owns_set_key)?))
            .sink(Egress::new(RideCounts, target(rides, owns_ride_key)?))
            .sink(Egress::new(ResortSeasons, target(resorts, owns_resort_key)?));
    }
    Ok(app.background(move |engine| {
        let metrics = SourceMetrics::default();
        let of_queue = Metrics::default();
        engine.metrics().register(|registry| {
            metrics.register(registry);
            of_queue.register(registry);
            breakers.register(registry);
        });
        let ingress = start(engine, &environment, metrics, of_queue)?;
        Ok(Box::new(move || ingress.stop()))
    }))
}

/// Starts to consume.
///
/// # Errors
///
/// The exchange or the queue exists with other properties.
pub fn start(
    engine: &Engine,
    environment: &Environment,
    metrics: SourceMetrics,
    of_queue: Metrics,
) -> Result<Ingress, throng_amqp::Error> {
    let queue = QueueSource::new(QueueOptions {
        topology: environment.topology(),
        dead_letters: environment.layout.is_durable().then(|| DEAD.into()),
        metrics: of_queue,
        ..QueueOptions::new(environment.broker.clone(), QUEUE)
    });
    let options = IngressOptions {
        keys: environment.keys(),
        metrics,
        ..IngressOptions::default()
    };
    Ingress::start(engine, queue, options, read)
}

/// Returns the commands of a message: one for its ride, or one for each ride of its frame.
fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
    frame::commands(message, |body| {
        let message: RideMessage = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let ride = serde_json::to_vec(&message.ride()).map_err(|error| error.to_string())?;
        Ok(EntityCommand::new(Skier::KIND, message.skier.to_string(), "ride", ride))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_messages_and_frames_are_read_without_a_wait() {
        let body = b"{\n  \"time\": 1,\n  \"liftID\": 2,\n  \"skierID\": 3,\n  \"day\": 4,\n  \"seasonID\": 2022,\n  \"resortID\": 56\n}";
        let incoming = |body: &[u8], content_type: Option<&'static str>| Message {
            body: body.to_vec(),
            content_type: content_type.map(Into::into),
            ..Message::default()
        };
        let commands = read(&incoming(body, None)).unwrap();
        assert_eq!((commands.len(), &*commands[0].id, &*commands[0].name), (1, "3", "ride"));
        let frame = frame::encode(&[body, body]);
        assert_eq!(read(&incoming(&frame, Some(frame::CONTENT_TYPE))).unwrap().len(), 2);
        for wrong in [&b""[..], b"{}", b"[]", br#"{"time":1.5}"#] {
            assert!(read(&incoming(wrong, None)).is_err());
        }
    }
}
