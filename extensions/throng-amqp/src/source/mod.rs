//! A queue as a source of messages.

mod letters;
mod session;
mod window;

use crate::{Broker, Error, Metrics, Topology};
use lapin::{BasicProperties, types::ShortString};
use letters::Letters;
pub(crate) use letters::{QUEUE, REASON, REFUSED};
use prometheus_client::metrics::gauge::Gauge;
use session::Session;
use std::{
    fmt,
    future::poll_fn,
    ops::RangeInclusive,
    time::{Duration, Instant},
};
use throng_connectors::{Received, Settled, Source};

/// The connections lost in a row before a message was settled, after which messages come one by one: then the guilty one is known.
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
    /// The exchange for messages nobody can take. Without one they are rejected: what becomes of them is the queue's own `x-dead-letter-exchange` to say,
    /// and without that they are gone.
    pub dead_letters: Option<String>,
    /// Takes messages only while nobody else does: a second consumer of the queue stands by until it has had none for three seconds. Not wanted only
    /// where every consumer is a node of one cluster; others would each count a part of the messages, in journals of their own.
    pub single_active: bool,
    /// Messages the broker may have out unsettled, at least and at most; between them the number follows from how long messages take. AMQP
    /// bounds messages only, so it is never more than as many of the largest lately as fit
    /// [`IngressOptions::bytes_max`](throng_connectors::IngressOptions::bytes_max).
    pub prefetch: RangeInclusive<u16>,
    /// The intended time from a message's arrival to its commit.
    pub latency: Duration,
    /// The metrics that count it.
    pub metrics: Metrics,
}

impl QueueOptions {
    /// Returns the options for this queue, with the usual limits: 16 to 8,192 messages out, 100 ms for each.
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

/// A queue that is consumed: a [`Source`], for an [`Ingress`](throng_connectors::Ingress).
pub struct QueueSource {
    options: QueueOptions,
    prefetch: Gauge,
    letters: Option<Letters>,
    session: Option<Session>,
    /// The last session stood by at its end.
    stood_by: bool,
    /// Connections in a row that were lost before a message was settled.
    barren: u32,
}

/// A message's place at the broker, with its properties as they came.
#[derive(Debug)]
pub struct Arrived {
    tag: u64,
    came: Instant,
    routing_key: ShortString,
    properties: BasicProperties,
}

impl QueueSource {
    /// The queue that these options name. The [`Ingress`](throng_connectors::Ingress) connects.
    #[must_use]
    pub fn new(options: QueueOptions) -> Self {
        Self {
            prefetch: options.metrics.prefetch_of(&options.queue),
            options,
            letters: None,
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
        if self.letters.is_none() {
            self.letters = Some(Letters::start(&self.options)?);
        }
        let limits = (bytes_max, self.barren >= BARREN_MAX);
        let opened = Session::open(&self.options, limits, self.stood_by, self.prefetch.clone());
        // A session that ends with its first delivery is barren, too.
        self.session.insert(opened.await?).consume().await
    }

    async fn receive(&mut self) -> Result<Vec<Received<Arrived>>, Error> {
        let Some(session) = &mut self.session else {
            return std::future::pending().await;
        };
        poll_fn(|context| session.poll_receive(context)).await
    }

    async fn settle(&mut self, settled: Vec<Settled<Arrived>>) -> Result<(), Error> {
        if let (Some(session), Some(letters)) = (&mut self.session, &self.letters) {
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
        let why = self.letters.as_ref()?.trouble()?;
        Some(format!("dead letters of {place} wait: {why}"))
    }

    fn is_final(error: &Error) -> bool {
        error.is_final()
    }
}
