//! A server in front of the broker: publishes rides, and answers once the broker has confirmed them.

use super::{EXCHANGE, Environment, Layout, forward::Consumer};
use crate::{describe, message::RideMessage, ride::Ride, routes};
use throng::model::Error;
use throng_amqp::{FrameOptions, Frames, Message, Metrics, PublishError, Publisher, PublisherOptions};
use throng_app::App;
use throng_breaker::{Breakers, Settings};

/// The service as a server.
///
/// # Errors
/// What the variables say cannot be, or the exchange or the queue is there as another one.
pub fn app(environment: &Environment) -> anyhow::Result<App> {
    let (breakers, metrics) = (Breakers::default(), Metrics::default());
    let rides = Rides::start(environment, &breakers, metrics.clone())?;
    let consumer = environment
        .consumer
        .as_deref()
        .map(|url| Consumer::new(url, &breakers))
        .transpose()?;
    Ok(App::new("skiers")
        .version(env!("CARGO_PKG_VERSION"))
        .routes(|engine| routes::front(engine, rides, consumer))
        .describe(describe())
        .beside(move |engine| {
            engine.metrics().register(|registry| {
                metrics.register(registry);
                breakers.register(registry);
            });
            Ok(Box::new(|| ()))
        }))
}

/// Where rides are published.
#[derive(Clone, Debug)]
pub struct Rides {
    publisher: Publisher,
    /// Those that come together leave in one message.
    frames: Option<Frames>,
}

impl Rides {
    /// Connects to the broker; one that is down is tried again behind.
    ///
    /// # Errors
    /// The exchange or the queue is there as another one.
    pub fn start(environment: &Environment, breakers: &Breakers, metrics: Metrics) -> anyhow::Result<Self> {
        let publisher = Publisher::start(PublisherOptions {
            topology: environment.topology(),
            persistent: environment.layout == Layout::Durable,
            mandatory: true,
            breaker: breakers.breaker("broker", Settings::default()),
            metrics,
            ..PublisherOptions::new(environment.broker.clone(), EXCHANGE)
        })?;
        let frames = (environment.frame > 1).then(|| {
            let options = FrameOptions {
                messages_max: environment.frame,
                ..FrameOptions::default()
            };
            Frames::start(publisher.clone(), String::new(), options)
        });
        Ok(Self { publisher, frames })
    }

    /// Publishes a ride and waits for the broker's confirm; under a key, twice is once.
    pub(crate) async fn publish(
        &self,
        skier: u32,
        ride: Ride,
        key: Option<&str>,
    ) -> Result<(), Error<crate::ride::Refused>> {
        ride.check().map_err(Error::Rejected)?;
        let body = serde_json::to_vec(&RideMessage::new(skier, &ride));
        let body = body.map_err(|error| Error::Malformed(error.to_string()))?;
        let published = match &self.frames {
            // What has a key of its own has a message of its own.
            Some(frames) if key.is_none() => frames.publish(body).await,
            _ => {
                let message = Message {
                    body,
                    content_type: "application/json",
                    id: key.map(str::to_owned),
                    ..Message::default()
                };
                self.publisher.publish(message).await
            }
        };
        published.map_err(|error| match error {
            PublishError::Full(_) => Error::Overloaded {
                retry_after: std::time::Duration::from_secs(1),
            },
            PublishError::Unavailable { .. } => Error::Unavailable {
                reason: "the broker cannot be reached".into(),
            },
            PublishError::Refused(why) => Error::Unavailable {
                reason: format!("the broker takes no rides: {why}"),
            },
            PublishError::Unknown(_) => Error::OutcomeUnknown,
        })
    }
}
