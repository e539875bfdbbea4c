//! The processes of a service of lift rides.

use clap::ValueEnum;
use servers::{RabbitMq, RabbitMqOptions, Redis};
use std::{net::SocketAddr, path::Path, time::Duration};
use yardsticks::echo::EchoProcess;

use crate::yardstick;

/// The most rides in one message, if it may carry several.
const FRAME: &str = "1000";

/// The parts between a ride and the read models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Arrangement {
    /// None: one process.
    Embedded,
    /// A server, RabbitMQ with confirms, and a consumer, with a message for each ride.
    Broker,
    /// The same parts, with the rides that arrive together in one message.
    Frames,
    /// A broker, with a consumer that keeps the data which the class project keeps in Redis.
    Redis,
}

impl Arrangement {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Broker => "broker",
            Self::Frames => "broker, frames",
            Self::Redis => "broker, Redis",
        }
    }
}

/// A service on a new journal, with private servers. Dropping it ends all of them.
pub(super) struct Processes {
    /// The server to which clients send their rides.
    front: EchoProcess,
    /// The process with the journal, if that is another one.
    back: Option<EchoProcess>,
    _redis: Option<Redis>,
    is_watched: bool,
    broker: Option<RabbitMq>,
}

impl Processes {
    pub(super) fn start(
        arrangement: Arrangement,
        data: &Path,
        commit_bytes_max: Option<usize>,
        is_watched: bool,
    ) -> anyhow::Result<Self> {
        let mut engine = yardstick("serve")?;
        engine.args(["--app", "skiers", "--data"]).arg(data);
        if let Some(bytes) = commit_bytes_max {
            engine.args(["--commit-bytes-max", &bytes.to_string()]);
        }
        if arrangement == Arrangement::Embedded {
            return Ok(Self {
                front: EchoProcess::start(engine, 1)?,
                back: None,
                _redis: None,
                is_watched: false,
                broker: None,
            });
        }
        let broker = RabbitMq::start(RabbitMqOptions {
            management: is_watched,
            ..RabbitMqOptions::default()
        })?;
        let redis = match arrangement {
            Arrangement::Redis => Some(Redis::start()?),
            _ => None,
        };
        engine.args(["--role", "consumer"]).env("SKIERS_BROKER", broker.url());
        if let Some(redis) = &redis {
            engine.env("SKIERS_REDIS", redis.url());
        }
        // A quorum queue confirms few large messages sooner than a classic queue does.
        let is_framed = arrangement == Arrangement::Frames;
        let layout = if is_framed { "quorum" } else { "durable" };
        engine.env("SKIERS_LAYOUT", layout);
        let back = EchoProcess::start(engine, 1)?;
        let mut server = yardstick("serve")?;
        server
            .args(["--app", "skiers", "--role", "server"])
            .env("SKIERS_BROKER", broker.url())
            .env("SKIERS_CONSUMER", format!("http://{}", back.address()));
        server.env("SKIERS_LAYOUT", layout);
        if is_framed {
            server.env("SKIERS_FRAME", FRAME);
        }
        Ok(Self {
            front: EchoProcess::start(server, 1)?,
            back: Some(back),
            _redis: redis,
            is_watched,
            broker: Some(broker),
        })
    }

    /// Returns the address for rides.
    pub(super) fn front(&self) -> SocketAddr {
        self.front.address()
    }

    /// Returns the address of the read models.
    pub(super) fn back(&self) -> SocketAddr {
        self.back.as_ref().unwrap_or(&self.front).address()
    }

    /// Returns the address of the broker's management API, if it is watched.
    pub(super) fn management(&self) -> Option<String> {
        let broker = self.broker.as_ref().filter(|_| self.is_watched)?;
        let (user, password) = (RabbitMq::USER, RabbitMq::PASSWORD);
        Some(format!("http://{user}:{password}@{}", broker.management()))
    }

    /// Returns the CPU of the service's processes, without the broker and Redis.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let back = self.back.as_ref().map_or(Ok(Duration::ZERO), EchoProcess::cpu_time)?;
        Ok(self.front.cpu_time()? + back)
    }
}
