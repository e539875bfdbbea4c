//! A broker for all tests of the file that do not stop it, engines, and access to queues.

use crate::counter::{self, Counter, Hits};
use lapin::{
    Channel, Connection, ConnectionProperties,
    message::BasicGetMessage,
    options::{BasicGetOptions, QueueDeclareOptions},
    types::FieldTable,
};
use servers::{RabbitMq, RabbitMqOptions};
use std::{
    path::Path,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use throng::{
    Engine, Options,
    journal::{MemoryJournal, MemoryStore},
    services::health::Status,
};
use throng_amqp::{
    Broker, Error, Ingress, IngressOptions, Intake, Message, Publisher, PublisherOptions, QueueOptions, QueueSource,
    Topology,
};
pub(crate) use throng_testing::eventually as until;

/// Ends with the test's process, see `servers`.
pub(crate) static SERVER: LazyLock<RabbitMq> = LazyLock::new(|| {
    let options = RabbitMqOptions {
        users: [CONSUMER, MAY_CONSUME, MAY_PUBLISH]
            .map(|user| (user.into(), user.into()))
            .into(),
        ..RabbitMqOptions::default()
    };
    RabbitMq::start(options).unwrap()
});

/// Users besides the administrator, whose passwords are their names. Tests restrict the last two.
pub(crate) const CONSUMER: &str = "consumer";
pub(crate) const MAY_CONSUME: &str = "may-consume";
pub(crate) const MAY_PUBLISH: &str = "may-publish";

/// Returns an unused name.
pub(crate) fn name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a number from the environment, for longer manual runs.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap())
}

pub(crate) fn broker(server: &RabbitMq) -> Broker {
    server.url().parse().unwrap()
}

/// Returns the broker's URL with another port, which leads to it.
pub(crate) fn url_by(server: &RabbitMq, port: u16) -> String {
    server
        .url()
        .replace(&format!(":{}", server.port()), &format!(":{port}"))
}

/// Returns a topology of one durable queue.
pub(crate) fn queue(name: &str) -> Topology {
    Topology::durable([name])
}

/// Returns a publisher to a durable queue.
pub(crate) fn publisher(server: &RabbitMq, name: &str) -> Publisher {
    Publisher::start(PublisherOptions {
        name: name.into(),
        topology: queue(name),
        ..PublisherOptions::new(broker(server), "")
    })
    .unwrap()
}

/// Returns a message to a queue, with an id.
pub(crate) fn message(queue: &str, id: &str, body: Vec<u8>) -> Message {
    Message {
        body,
        id: Some(id.into()),
        routing_key: queue.into(),
        ..Message::default()
    }
}

/// Returns options to consume a durable queue. Messages that counters refuse go to the dead letters `{queue}-dead`.
pub(crate) fn ingress_options(broker: Broker, name: &str) -> QueueOptions {
    let dead = format!("{name}-dead");
    QueueOptions {
        topology: queue(name).with_dead_letters(&dead),
        dead_letters: Some(dead),
        ..QueueOptions::new(broker, name)
    }
}

/// Consumes a queue.
pub(crate) fn start(engine: &Engine, options: QueueOptions, intake: impl Intake) -> Result<Ingress, Error> {
    Ingress::start(engine, QueueSource::new(options), IngressOptions::default(), intake)
}

/// Consumes a durable queue into counters.
pub(crate) fn ingress(engine: &Engine, server: &RabbitMq, name: &str) -> Ingress {
    start(engine, ingress_options(broker(server), name), counter::read).unwrap()
}

fn options() -> Options {
    Options {
        // Frequent enough to happen between all other steps.
        checkpoint_every: Duration::from_millis(200),
        ..Options::default()
    }
}

pub(crate) fn builder() -> throng::Builder {
    Engine::builder()
        .with::<Counter>()
        .query::<Counter, Hits>()
        .options(options())
}

/// Returns the status and the reason of an engine's check.
pub(crate) fn check(engine: &Engine, name: &str) -> (Status, String) {
    let checks = engine.checks().checks();
    let found = checks.into_iter().find(|check| check.name == name).unwrap();
    (found.status, found.reason.to_string())
}

/// Starts an engine in memory.
pub(crate) async fn engine() -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    builder().start(journal, store).await.unwrap()
}

/// Starts an engine on a directory.
pub(crate) async fn engine_in(directory: &Path) -> Engine {
    let (log, store) = throng_log::open_embedded(directory, throng_log::Options::default()).unwrap();
    builder().start_shared(log, store).await.unwrap()
}

/// Returns the sum of these counters' hits.
pub(crate) async fn hits(engine: &Engine, counters: impl Iterator<Item = String>) -> u64 {
    let mut sum = 0;
    for counter in counters {
        sum += engine.entity::<Counter>(counter).read(Hits).await.unwrap_or(0);
    }
    sum
}

/// Counts the hits of one counter.
pub(crate) async fn hits_of(engine: &Engine, counter: &str) -> u64 {
    hits(engine, [counter.to_owned()].into_iter()).await
}

/// An operator's connection to a broker. It uses one channel, because opening a channel takes the broker longer than an answer.
pub(crate) struct Look {
    pub(crate) channel: Channel,
    _connection: Connection,
}

pub(crate) async fn look(server: &RabbitMq) -> Look {
    look_at(&server.url()).await
}

/// Opens such a connection to another URL.
pub(crate) async fn look_at(url: &str) -> Look {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    Look {
        channel: connection.create_channel().await.unwrap(),
        _connection: connection,
    }
}

/// Returns the number of messages that wait in a queue.
pub(crate) async fn depth(look: &Look, queue: &str) -> u32 {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = look
        .channel
        .queue_declare(queue.into(), options, FieldTable::default())
        .await;
    declared.unwrap().message_count()
}

/// Takes a message from a queue.
pub(crate) async fn get(look: &Look, queue: &str) -> Option<BasicGetMessage> {
    let options = BasicGetOptions { no_ack: true };
    look.channel.basic_get(queue.into(), options).await.unwrap()
}

/// Returns a text from a message's headers.
pub(crate) fn header(message: &BasicGetMessage, name: &str) -> Option<String> {
    let headers = message.properties.headers().as_ref()?;
    let value = headers.inner().get(name)?.as_long_string()?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}
