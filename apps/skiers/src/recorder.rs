//! The recorder of rides: a queue or the engine.

use throng::Engine;
use throng_http::Once;

use crate::{
    number::Number,
    ride::Ride,
    routes::answers::Failure,
    skier::{Skier, SkierCommand},
};

/// The part that makes a ride durable.
pub(crate) enum Recorder {
    /// The skier, in this process.
    Skier(Engine),
    /// A broker, whose consumer hands the ride to the skier.
    Broker(crate::broker::rides::Rides),
}

impl Recorder {
    /// Returns once the ride is durable. Under a key, twice is once.
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
