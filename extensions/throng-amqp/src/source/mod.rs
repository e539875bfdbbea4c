//! A queue as a source of messages.

mod dead_letters;
mod session;
mod window;

use crate::{Broker, Error, Metrics, Topology};
use dead_letters::DeadLetters;
pub(crate) use dead_letters::{QUEUE, REASON, REFUSED};
use lapin::{BasicProperties, types::ShortString};
use prometheus_client::metrics::gauge::Gauge;
use session::Session;
use std::{
    fmt,
    future::poll_fn,
    ops::RangeInclusive,
    time::{Duration, Instant},
};
use throng_connectors::{Received, Settled, Source};

/// After this many connections in a row were lost before a message was settled, messages are taken one by one, to find the one at fault.
const BARREN_MAX: u32 = 3;

/// The options for consuming a queue.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The broker of the queue, and the login of the consumer.
    pub broker: Broker,
    /// The name of the queue to consume.
    pub queue: String,
    /// The exchanges and queues that are declared or checked at each connection.
    pub topology: Topology,
    /// The exchange for messages that no entity accepts. Without one they are rejected: the queue's own `x-dead-letter-exchange` gets them,
    /// or the broker drops them.
    pub dead_letters: Option<String>,
    /// Consumes only while nobody else does: a second consumer waits until the queue had no consumer for three seconds. Set it to `false`
    /// only if every consumer is a node of one cluster; otherwise each would process a part of the messages, in separate journals.
    pub single_active: bool,
    /// The least and most unsettled messages at a time. Between them the number follows the latency. AMQP bounds only the number of
    /// messages, so it is also limited by the size of recent messages and
    /// [`IngressOptions::bytes_max`](throng_connectors::IngressOptions::bytes_max).
    pub prefetch: RangeInclusive<u16>,
    /// The intended time from a message's arrival to its commit.
    pub latency: Duration,
    /// The metrics that count the messages.
    pub metrics: Metrics,
}

impl QueueOptions {
    /// Returns the options for this queue with the default limits: 16 to 8,192 unsettled messages, 100 ms for each.
    #[must_use]
    pub fn new(broker: Broker, queue: impl Into<String>) -> Self {
        Self {
            broker,
            queue: queue.into(),
            topology: Topology::default(),
            dead_letters: None,
            single_active: true,
            prefetch: 16..=8_192,
            latency: Duration::from_millis(100),
            metrics: Metrics::default(),
        }
    }
}

/// A [`Source`] that consumes a queue, for an [`Ingress`](throng_connectors::Ingress).
pub struct QueueSource {
    options: QueueOptions,
    prefetch: Gauge,
    dead_letters: Option<DeadLetters>,
    session: Option<Session>,
    /// True if the last session was standing by when it ended.
    stood_by: bool,
    /// The number of connections in a row lost before a message was settled.
    barren: u32,
}

/// The delivery of a message, with its original properties.
#[derive(Debug)]
pub struct Arrived {
    tag: u64,
    came: Instant,
    routing_key: ShortString,
    properties: BasicProperties,
}

impl QueueSource {
    /// Returns a source for the queue in these options. The [`Ingress`](throng_connectors::Ingress) connects it.
    #[must_use]
    pub fn new(options: QueueOptions) -> Self {
        Self {
            prefetch: options.metrics.prefetch_of(&options.queue),
            options,
            dead_letters: None,
            session: None,
            stood_by: false,
            barren: 0,
        }
    }
}

impl fmt::Debug for QueueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueSource").field(&self.options.queue).finish()
    }
}

impl Source for QueueSource {
    type Position = Arrived;
    type Error = Error;

    fn name(&self) -> String {
        format!("queue {}", self.options.queue)
    }

    fn place(&self) -> String {
        format!(
            "the queue {:?} of the broker at {}",
            self.options.queue, self.options.broker
        )
    }

    async fn open(&mut self, bytes_max: usize) -> Result<(), Error> {
        if let Some(lost) = self.session.take() {
            self.barren += u32::from(lost.is_barren());
            self.stood_by = lost.stands_by();
            lost.close().await;
        }
        if self.dead_letters.is_none() {
            self.dead_letters = Some(DeadLetters::start(&self.options)?);
        }
        let limits = (bytes_max, self.barren >= BARREN_MAX);
        let opened = Session::open(&self.options, limits, self.stood_by, self.prefetch.clone());
        // A session that ends at its first delivery counts as barren, too.
        self.session.insert(opened.await?).consume().await
    }

    async fn receive(&mut self) -> Result<Vec<Received<Arrived>>, Error> {
        let Some(session) = &mut self.session else {
            return std::future::pending().await;
        };
        poll_fn(|context| session.poll_receive(context)).await
    }

    async fn settle(&mut self, settled: Vec<Settled<Arrived>>) -> Result<(), Error> {
        if let (Some(session), Some(letters)) = (&mut self.session, &self.dead_letters) {
            session.settle(settled, letters).await?;
            self.barren = 0;
        }
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.drain().await;
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }

    fn trouble(&self) -> Option<String> {
        let place = self.place();
        if self.session.as_ref().is_some_and(Session::stands_by) {
            return Some(format!("stands by: another consumer has {place}"));
        }
        let has_settled = self.session.as_ref().is_some_and(Session::has_settled);
        if self.barren >= BARREN_MAX && !has_settled {
            let barren = self.barren;
            return Some(format!(
                "{barren} connections to {place} in a row were lost before a message was settled; its first message may be why"
            ));
        }
        let why = self.dead_letters.as_ref()?.trouble()?;
        Some(format!("dead letters of {place} wait: {why}"))
    }

    fn is_final(error: &Error) -> bool {
        error.is_final()
    }
}
