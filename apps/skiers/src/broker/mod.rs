//! The arrangement with a broker: servers publish rides, and consumers turn them into events of their skiers.
//!
//! The app's README describes the environment variables ([`environment`]).

pub mod consumer;
pub(crate) mod dead_letters;
pub(crate) mod forward;
pub mod read_models;
pub(crate) mod rides;
pub mod server;
pub mod sets;

use std::{str::FromStr, time::Duration};
use throng::driver::KeyLife;
use throng_amqp::{Broker, Exchange, Queue, QueueType, Routing, Topology};

/// The exchange to which servers publish, as in the original.
pub const EXCHANGE: &str = "liftride";
/// The queue to consume, as in the original's `SkierService`.
pub const QUEUE: &str = "skiers";
/// The queue for messages that no consumer can take.
pub const DEAD: &str = "skiers-dead";
/// The time that a message's id is kept beyond the longest wait of a ride.
const MARGIN: Duration = Duration::from_secs(3_600);

/// The declaration of exchange and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Exchange and queue survive a restart of the broker, with their rides.
    Durable,
    /// Like `Durable`, with a quorum queue, which a broker of several nodes replicates.
    Quorum,
    /// Exchange and queue do not survive a restart, as in the original.
    Original,
}

impl Layout {
    /// True if they survive a restart of the broker.
    pub(crate) fn is_durable(self) -> bool {
        self != Self::Original
    }
}

impl FromStr for Layout {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "durable" => Ok(Self::Durable),
            "quorum" => Ok(Self::Quorum),
            "original" => Ok(Self::Original),
            _ => Err(()),
        }
    }
}

/// The settings from environment variables.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The address of the broker.
    pub broker: Broker,
    /// The declaration of exchange and queue.
    pub layout: Layout,
    /// The most rides in one message.
    pub frame: usize,
    /// The longest wait of a ride in the queue.
    pub ttl: Duration,
    /// The address at which the consumer answers queries.
    pub consumer: Option<String>,
    /// The Redis of the read models: the consumer writes them, a server answers from them.
    pub redis: Option<String>,
}

/// The error for a missing or invalid variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be read: {why}")]
pub struct Unreadable {
    /// The variable's name, such as `SKIERS_BROKER`.
    pub name: &'static str,
    /// The values that it may have.
    pub why: String,
}

/// Reads the variables.
///
/// # Errors
///
/// [`Unreadable`]: a variable is missing or has an invalid value.
pub fn environment(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, Unreadable> {
    let said = |name: &'static str| variable(name).filter(|value| !value.is_empty());
    let unreadable = |name| move |why: String| Unreadable { name, why };
    let address = said("SKIERS_BROKER").ok_or_else(|| {
        unreadable("SKIERS_BROKER")(
            "it is not set; say where the broker is, for example amqp://server:admin@localhost:5672".into(),
        )
    })?;
    let broker: Broker = address
        .parse()
        .map_err(|error: throng_amqp::Error| unreadable("SKIERS_BROKER")(error.to_string()))?;
    let number = |name: &'static str, default: u64| match said(name) {
        None => Ok(default),
        Some(text) => {
            let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
            number.ok_or_else(|| unreadable(name)(format!("{text:?} is no number from 1 to 10000")))
        }
    };
    let layout = match said("SKIERS_LAYOUT") {
        None => Layout::Durable,
        Some(text) => {
            let layout = text.parse();
            layout
                .map_err(|()| unreadable("SKIERS_LAYOUT")(format!("{text:?} is none of durable, quorum, original")))?
        }
    };
    Ok(Environment {
        broker: match said("SKIERS_BROKER_CERTIFICATES") {
            Some(certificates) => broker.trust(certificates),
            None => broker,
        },
        layout,
        frame: usize::try_from(number("SKIERS_FRAME", 1)?).unwrap_or(1),
        ttl: Duration::from_secs(3_600 * number("SKIERS_TTL", 24)?),
        consumer: said("SKIERS_CONSUMER"),
        redis: said("SKIERS_REDIS"),
    })
}

impl Environment {
    /// Returns the exchange, and the queue from which consumers take rides. Both sides declare them, so that no published ride is dropped.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let durable = self.layout.is_durable();
        let topology = Topology {
            exchanges: vec![Exchange {
                name: EXCHANGE.into(),
                routing: Routing::Fanout,
                durable,
            }],
            queues: vec![Queue {
                name: QUEUE.into(),
                durable,
                queue_type: match self.layout {
                    Layout::Quorum => QueueType::Quorum,
                    Layout::Durable | Layout::Original => QueueType::Classic,
                },
                bindings: vec![(EXCHANGE.into(), String::new())],
                message_ttl: durable.then_some(self.ttl),
                dead_letters: durable.then(|| DEAD.into()),
                ..Queue::default()
            }],
            must_exist: false,
        };
        match durable {
            true => topology.with_dead_letters(DEAD),
            false => topology,
        }
    }

    /// Returns the time for which message ids are kept.
    #[must_use]
    pub fn keys(&self) -> KeyLife {
        KeyLife::at_least(self.ttl + MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, Unreadable> {
        environment(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_broker_has_to_be_said_and_the_rest_has_defaults() {
        let broker = ("SKIERS_BROKER", "amqp://server:admin@localhost");
        let found = read(&[broker]).unwrap();
        assert_eq!((found.layout, found.frame), (Layout::Durable, 1));
        assert_eq!(found.keys().duration(), Duration::from_secs(25 * 3_600));
        assert!(read(&[]).unwrap_err().to_string().contains("amqp://"));
        for wrong in [
            ("SKIERS_FRAME", "0"),
            ("SKIERS_LAYOUT", "loose"),
            ("SKIERS_TTL", "a day"),
        ] {
            assert_eq!(read(&[broker, wrong]).unwrap_err().name, wrong.0);
        }
    }

    #[test]
    fn the_original_finds_exchange_and_queue_as_it_declares_them() {
        let variables = [("SKIERS_BROKER", "amqp://localhost"), ("SKIERS_LAYOUT", "original")];
        let topology = read(&variables).unwrap().topology();
        assert_eq!((topology.exchanges.len(), topology.queues.len()), (1, 1));
        let queue = &topology.queues[0];
        assert!(!topology.exchanges[0].durable && !queue.durable && queue.message_ttl.is_none());
        assert!(queue.dead_letters.is_none());
    }
}
