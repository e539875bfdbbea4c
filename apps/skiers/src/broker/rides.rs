//! The publishing of rides to the broker.

use super::{EXCHANGE, Environment};
use crate::{
    message::RideMessage,
    ride::{Refused, Ride},
    routes::answers::Failure,
};
use std::time::Duration;
use throng::model::Error;
use throng_amqp::{FrameOptions, Frames, Message, Metrics, PublishError, Publisher, PublisherOptions};
use throng_breaker::{Breakers, Settings};
use throng_http::Problem;

/// The pause for a client whose ride finds the queue full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The publisher of rides.
#[derive(Clone, Debug)]
pub(crate) struct Rides {
    publisher: Publisher,
    /// Collects concurrent rides into one message.
    frames: Option<Frames>,
}

impl Rides {
    /// Connects to the broker. If the broker is down, it keeps trying in the background.
    ///
    /// # Errors
    ///
    /// The exchange or the queue exists with other properties.
    pub(super) fn start(environment: &Environment, breakers: &Breakers, metrics: Metrics) -> anyhow::Result<Self> {
        let publisher = Publisher::start(PublisherOptions {
            topology: environment.topology(),
            persistent: environment.layout.is_durable(),
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

    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Publishes a ride and waits for the broker's confirmation. With a key, a repeated ride counts once.
    pub(crate) async fn publish(&self, skier: u32, ride: Ride, key: Option<&str>) -> Result<(), Failure> {
        ride.check().map_err(Error::Rejected)?;
        let body = serde_json::to_vec(&RideMessage::new(skier, &ride));
        let body = body.map_err(|error| Error::<Refused>::Malformed(error.to_string()))?;
        let published = match &self.frames {
            // A ride with a key needs a message of its own, which carries the key.
            Some(frames) if key.is_none() => frames.publish(body).await,
            _ => {
                let message = Message {
                    body,
                    content_type: Some("application/json".into()),
                    id: key.map(str::to_owned),
                    ..Message::default()
                };
                self.publisher.publish(message).await
            }
        };
        published.map_err(refused)
    }
}

/// Turns a publishing error into a problem. With an open breaker, it has the time until the next attempt is allowed.
fn refused(error: PublishError) -> Failure {
    let unavailable = |reason| Error::Unavailable { reason };
    let (error, retry_after) = match error {
        PublishError::Full(_) => (
            Error::Overloaded {
                retry_after: FULL_PAUSE,
            },
            None,
        ),
        PublishError::Unavailable { retry_after } => {
            (unavailable("the broker cannot be reached".into()), Some(retry_after))
        }
        PublishError::NotTaken => (
            unavailable("the queue is full, or the broker cannot keep the ride; nothing was done".into()),
            Some(FULL_PAUSE),
        ),
        PublishError::Refused(why) => (unavailable(format!("the broker takes no rides: {why}")), None),
        PublishError::Unknown(_) | PublishError::Violation(_) => (Error::OutcomeUnknown, None),
    };
    let problem = Problem::from(error as Error<Refused>);
    Failure::Problem(Box::new(match retry_after {
        Some(pause) => problem.retry_after(pause),
        None => problem,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;

    #[test]
    fn open_breaker_tells_clients_when_to_come_again() {
        let retry_after = Duration::from_millis(16_200);
        let Failure::Problem(problem) = refused(PublishError::Unavailable { retry_after }) else {
            panic!("a problem of the broker's");
        };
        let response = problem.into_response();
        assert_eq!(
            (
                response.status().as_u16(),
                response.headers()["retry-after"].to_str().unwrap()
            ),
            (503, "17")
        );
    }
}
