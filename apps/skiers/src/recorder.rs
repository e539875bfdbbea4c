//! The recorder of rides: the engine or a broker.

use throng::Engine;
use throng_http::Once;

use crate::{
    number::Number,
    ride::Ride,
    routes::answers::Failure,
    skier::{Skier, SkierCommand},
};

/// The target that makes a ride durable.
pub(crate) enum Recorder {
    /// The skier's entity in this process.
    Skier(Engine),
    /// A broker, whose consumer passes the ride to the skier.
    Broker(crate::broker::rides::Rides),
}

impl Recorder {
    /// Returns once the ride is durable. With a key, a repeated ride counts once.
    pub(crate) async fn record(&self, skier: u32, ride: Ride, once: Once) -> Result<(), Failure> {
        match self {
            Self::Skier(engine) => {
                let skier = once.of(engine.entity::<Skier>(Number(skier)));
                skier.ask(SkierCommand::Ride(ride)).await?;
                Ok(())
            }
            Self::Broker(rides) => rides.publish(skier, ride, once.key()).await,
        }
    }
}
