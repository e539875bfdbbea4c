//! Publishes messages to an exchange, each confirmed by the broker.

use crate::{
    Broker, Error, Message, Metrics, Topology,
    connection::{FRAME_BYTES, RECONNECT, reconnect_pauses},
    metrics::OfPublisher,
    properties::{header_bytes, published},
    rare_log::RareLog,
};
use futures_util::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ErrorKind, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
    types::ShortString,
};
use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};
use throng::services::health::{Health, Reason, Registered, Status};
use throng_breaker::Breaker;
use throng_connectors::{Pace, Runner, Stop};
use tokio::time::timeout;

/// Delivery mode of a message that survives a restart of the broker in a durable queue.
const PERSISTENT: u8 = 2;
/// The interval at which the channel's state is polled, since not every change is reported.
const LOOK: Duration = Duration::from_secs(1);

/// The pause of the I/O thread under load, while clients wait for confirms.
const PAUSE: Duration = Duration::from_micros(500);

/// The options for publishing.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// The broker of the exchange, and the login of the publisher.
    pub broker: Broker,
    /// The name shown to the broker's operators and in metrics.
    pub name: String,
    /// The exchange. If empty, the routing key names a queue.
    pub exchange: String,
    /// The exchanges and queues that are declared or checked at each connection.
    pub topology: Topology,
    /// True if a message is written to disk in a durable queue.
    pub persistent: bool,
    /// True if a message that reaches no queue is an error.
    pub mandatory: bool,
    /// The most unconfirmed messages. Beyond it publishing fails with [`PublishError::Full`].
    pub unconfirmed_max: usize,
    /// The longest wait for a confirm.
    pub confirm_max: Duration,
    /// The breaker that refuses messages while the broker is down.
    pub breaker: Breaker,
    /// The metrics that count the messages.
    pub metrics: Metrics,
}

impl PublisherOptions {
    /// Returns the options for this exchange with the default limits: 10,000 unconfirmed messages, 5 s for a confirm.
    #[must_use]
    pub fn new(broker: Broker, exchange: impl Into<String>) -> Self {
        let exchange = exchange.into();
        Self {
            broker,
            name: exchange.clone(),
            exchange,
            topology: Topology::default(),
            persistent: true,
            mandatory: false,
            unconfirmed_max: 10_000,
            confirm_max: Duration::from_secs(5),
            breaker: Breaker::new("broker", throng_breaker::Settings::default()),
            metrics: Metrics::default(),
        }
    }
}

/// A message was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker is down, or was a moment ago. The message was not sent.
    #[error("the broker is not available; the message was not sent; try again in {retry_after:?}")]
    Unavailable {
        /// The time after which another attempt may succeed.
        retry_after: Duration,
    },
    /// Too many messages wait for confirms. This one was not sent.
    #[error("{0} messages wait for the broker's confirm; this one was not sent")]
    Full(usize),
    /// The broker did not accept the message for now (`basic.nack`): a queue is full and rejects messages, or cannot store it. Other queues
    /// of the exchange may have accepted it.
    #[error("the broker has not taken the message: a queue is full, or cannot keep it")]
    NotTaken,
    /// The broker refused the message, or no queue took it.
    #[error("the broker has refused the message: {0}")]
    Refused(String),
    /// The broker closed the channel over this message or over one in flight at the same time. If over this one, sending it again would do
    /// so again.
    #[error("the broker has closed the channel over this message, or over another beside it: {0}")]
    Violation(String),
    /// The broker may have the message, but did not confirm it. Send it again only under the same id.
    #[error("the broker may or may not have the message: {0}")]
    Unknown(String),
}

/// Publishes to one exchange over one connection, which reconnects by itself. Clones share it; it closes with the last one.
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    runner: Arc<Runner>,
}

/// The state of the connection, and the health checks that show it.
struct Standing {
    status: Status,
    reason: Reason,
    check: Option<Registered>,
}

struct Shared {
    options: PublisherOptions,
    exchange: ShortString,
    channel: Mutex<Option<Channel>>,
    /// True if the broker blocks messages for now. Written by the connecting task when the broker says so.
    is_blocked: AtomicBool,
    /// The largest frame of the last connection. Written by the connecting task at each connection.
    frame_bytes_max: AtomicUsize,
    standing: Mutex<Standing>,
    /// The number of messages that wait for a confirm. Each publishing task increments it before it sends, and decrements it at the end.
    unconfirmed: AtomicUsize,
    /// Prefix of all ids this publisher generates, unique to it.
    prefix: String,
    /// The number of the next id. Incremented for each message without an id.
    ids: AtomicU64,
    metrics: OfPublisher,
    pace: Arc<Pace>,
    returned: RareLog,
}

impl Publisher {
    /// Connects. If the broker is down, it retries in the background and refuses messages meanwhile.
    ///
    /// # Errors
    /// A retry would fail the same way: the broker refuses the user, an exchange or queue exists with other settings, or a certificate
    /// cannot be read.
    pub fn start(options: PublisherOptions) -> Result<Self, Error> {
        let (publisher, tried) = Self::begin(options)?;
        match tried.recv() {
            Ok(Err(error)) if error.is_final() => Err(error),
            _ => Ok(publisher),
        }
    }

    /// Connects in the background, whatever the result.
    pub(crate) fn start_behind(options: PublisherOptions) -> Result<Self, Error> {
        Self::begin(options).map(|(publisher, _)| publisher)
    }

    fn begin(options: PublisherOptions) -> Result<(Self, mpsc::Receiver<Result<(), Error>>), Error> {
        let shared = Arc::new(Shared {
            exchange: crate::topology::short(&options.exchange)?,
            channel: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            frame_bytes_max: AtomicUsize::new(FRAME_BYTES),
            standing: Mutex::new(Standing {
                status: Status::Fail,
                reason: format!("the broker at {} was not reached yet", options.broker)
                    .as_str()
                    .into(),
                check: None,
            }),
            unconfirmed: AtomicUsize::new(0),
            prefix: format!("{:032x}", rand::random::<u128>()),
            ids: AtomicU64::new(0),
            pace: Arc::new(Pace::new(PAUSE)),
            metrics: options.metrics.of_publisher(&options.name),
            returned: RareLog::default(),
            options,
        });
        let (first, tried) = mpsc::sync_channel(1);
        let task = shared.clone();
        let pace = shared.pace.clone();
        let runner = Runner::start("throng-publisher", pace, move |stop| keep_connected(task, stop, first))?;
        let publisher = Self {
            shared,
            runner: Arc::new(runner),
        };
        Ok((publisher, tried))
    }

    /// Publishes a message and waits for the broker's confirm. Needs a tokio runtime with time.
    ///
    /// # Errors
    /// [`PublishError`]: the message was not confirmed. The variant tells whether it was sent.
    pub async fn publish(&self, message: Message) -> Result<(), PublishError> {
        let named = || {
            let routing_key = ShortString::try_new(message.routing_key.as_str())?;
            Ok((routing_key, self.shared.properties(&message)?))
        };
        match named() {
            Ok((routing_key, properties)) => self.publish_as(routing_key, properties, &message.body).await,
            Err(error) => {
                let error: lapin::types::ShortStringError = error;
                self.shared.metrics.unpublished.inc();
                Err(PublishError::Refused(error.to_string()))
            }
        }
    }

    /// Publishes a message with these properties.
    pub(crate) async fn publish_as(
        &self,
        routing_key: ShortString,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), PublishError> {
        let Shared { options, metrics, .. } = &*self.shared;
        let published = match self.shared.channel() {
            // The next attempt to connect is due soon, and its success ends this state. So it does not count as a failed call.
            None => Err(PublishError::Unavailable { retry_after: RECONNECT }),
            Some(channel) => match options.breaker.enter() {
                Err(refused) => Err(PublishError::Unavailable {
                    retry_after: refused.retry_after,
                }),
                Ok(call) => {
                    let published = self.shared.publish(&channel, routing_key, properties, body).await;
                    match &published {
                        Ok(())
                        | Err(PublishError::NotTaken | PublishError::Refused(_) | PublishError::Violation(_)) => {
                            call.succeeded();
                        }
                        Err(PublishError::Full(_)) => drop(call),
                        Err(PublishError::Unavailable { .. } | PublishError::Unknown(_)) => call.failed(),
                    }
                    published
                }
            },
        };
        match published {
            Ok(()) => metrics.published.inc(),
            Err(_) => metrics.unpublished.inc(),
        };
        published
    }

    /// Tells whether a message's properties fit a frame: the broker takes them in one.
    pub(crate) fn fits(&self, properties: &BasicProperties) -> bool {
        self.shared.fits(properties)
    }

    /// Runs a task on the publisher's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runner.spawn(task);
    }

    /// Adds the check `broker NAME` to a service's health. The check fails until the broker was reached once. It warns while the broker is
    /// not reached or blocks messages. Given [`Engine::checks`](throng::Engine::checks), it shows on `/health/ready`.
    pub fn report_to(&self, health: &Health) {
        let name = format!("broker {}", self.shared.options.name);
        let check = health.register(name.trim_end(), None);
        let mut standing = self.shared.standing.lock().unwrap_or_else(PoisonError::into_inner);
        check.check_in(standing.status, standing.reason.clone());
        standing.check = Some(check);
    }

    /// Tells whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.channel().is_some()
    }

    /// Returns the most unconfirmed messages.
    #[must_use]
    pub fn unconfirmed_max(&self) -> usize {
        self.shared.options.unconfirmed_max
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("exchange", &self.shared.options.exchange)
            .finish_non_exhaustive()
    }
}

/// A place among the unconfirmed messages, given back on drop.
struct Unconfirmed<'a>(&'a Shared);

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.0.unconfirmed.fetch_sub(1, Ordering::AcqRel);
        self.0.metrics.unconfirmed.dec();
    }
}

impl Shared {
    fn channel(&self) -> Option<Channel> {
        if self.is_blocked.load(Ordering::Acquire) {
            return None;
        }
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.as_ref().filter(|channel| channel.status().connected()).cloned()
    }

    fn fits(&self, properties: &BasicProperties) -> bool {
        header_bytes(properties) <= self.frame_bytes_max.load(Ordering::Acquire)
    }

    /// Sets the check to passing, or to a warning with this cause. It stays failing until the connection was well once.
    fn stands(&self, trouble: Option<&str>) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.status = match trouble {
            None => Status::Pass,
            Some(_) if standing.status == Status::Fail => Status::Fail,
            Some(_) => Status::Warn,
        };
        standing.reason = trouble.map_or(Reason::None, Reason::from);
        if let Some(check) = &standing.check {
            check.check_in(standing.status, standing.reason.clone());
        }
    }

    fn set_channel(&self, channel: Option<Channel>) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    fn place(&self) -> Result<Unconfirmed<'_>, PublishError> {
        let max = self.options.unconfirmed_max;
        let taken = self
            .unconfirmed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < max).then_some(taken + 1)
            });
        taken.map_err(PublishError::Full)?;
        self.metrics.unconfirmed.inc();
        Ok(Unconfirmed(self))
    }

    async fn publish(
        &self,
        channel: &Channel,
        routing_key: ShortString,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), PublishError> {
        let _place = self.place()?;
        self.pace.add(1);
        if !self.fits(&properties) {
            let bytes = header_bytes(&properties);
            return Err(PublishError::Refused(format!(
                "its properties take {bytes} bytes, more than a frame"
            )));
        }
        let options = BasicPublishOptions {
            mandatory: self.options.mandatory,
            ..BasicPublishOptions::default()
        };
        let exchange = self.exchange.clone();
        let confirmed = async {
            let sent = channel.basic_publish(exchange, routing_key, options, body, properties);
            sent.await?.await
        };
        match timeout(self.options.confirm_max, confirmed).await {
            Ok(Ok(Confirmation::Ack(None))) => Ok(()),
            Ok(Ok(Confirmation::Ack(Some(returned)))) => {
                let why = returned.reply_text.to_string();
                self.returned.say(|more| {
                    let name = &self.options.name;
                    tracing::warn!("a message of the publisher {name:?} is refused by the broker: {why}{more}");
                });
                Err(PublishError::Refused(why))
            }
            Ok(Ok(Confirmation::Nack(_))) => Err(PublishError::NotTaken),
            Ok(Ok(Confirmation::NotRequested)) => Err(PublishError::Unknown("it was not asked for a confirm".into())),
            Ok(Err(error)) if is_violation(&error) => Err(PublishError::Violation(error.to_string())),
            Ok(Err(error)) => Err(PublishError::Unknown(error.to_string())),
            Err(_) => Err(PublishError::Unknown("it has not confirmed it in time".into())),
        }
    }

    fn properties(&self, message: &Message) -> Result<BasicProperties, lapin::types::ShortStringError> {
        let properties = match &message.id {
            Some(id) => published(message, id)?,
            None => {
                let number = self.ids.fetch_add(1, Ordering::Relaxed);
                published(message, &format!("{}-{number}", self.prefix))?
            }
        };
        Ok(match self.options.persistent {
            true => properties.with_delivery_mode(PERSISTENT),
            false => properties,
        })
    }
}

/// Tells whether the broker closed the channel over a message's content, not over its exchange or user.
fn is_violation(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(error) = error.kind() else {
        return false;
    };
    matches!(
        error.kind(),
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE)
            | AMQPErrorKind::Hard(AMQPHardError::FRAMEERROR | AMQPHardError::SYNTAXERROR)
    )
}

/// Connects, and reconnects whenever the connection is lost.
async fn keep_connected(shared: Arc<Shared>, mut stop: Stop, first: mpsc::SyncSender<Result<(), Error>>) {
    let mut pauses = reconnect_pauses();
    let mut first = Some(first);
    let Shared { options, metrics, .. } = &*shared;
    while !stop.is_now() {
        let connected = connect(options).await;
        if let Ok((connection, channel)) = &connected {
            let frame = connection.configuration().frame_max() as usize;
            let frame = if frame == 0 { usize::MAX } else { frame };
            shared.frame_bytes_max.store(frame, Ordering::Release);
            shared.is_blocked.store(false, Ordering::Release);
            shared.set_channel(Some(channel.clone()));
            options.breaker.close();
            shared.stands(None);
            tracing::info!(
                "connected to the broker at {}, to publish {}",
                options.broker,
                options.name
            );
        }
        if let Some(first) = first.take() {
            // The starter receives only the first result.
            let _ = first.send(connected.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        match connected {
            Ok((connection, channel)) => {
                pauses.reset();
                tokio::select! {
                    () = until_lost(&shared, &connection, &channel) => {}
                    () = stop.wait() => {}
                }
                shared.set_channel(None);
                if stop.is_now() {
                    let _ = timeout(Duration::from_secs(1), connection.close(200, "done".into())).await;
                    return;
                }
                metrics.reconnects.inc();
                let why = format!("the connection to the broker at {} is lost", options.broker);
                tracing::warn!("{why}");
                shared.stands(Some(&why));
            }
            Err(error) => {
                tracing::warn!("{error}");
                shared.stands(Some(&error.to_string()));
            }
        }
        tokio::select! {
            () = pauses.pause() => {}
            () = stop.wait() => {}
        }
    }
}

async fn connect(options: &PublisherOptions) -> Result<(Connection, Channel), Error> {
    let connection = options.broker.connect(&options.name).await?;
    options.topology.apply(&connection).await?;
    let failed = || Error::broker("opening a channel with confirms");
    let channel = connection.create_channel().await.map_err(failed())?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await.map_err(failed())?;
    Ok((connection, channel))
}

/// Waits until the connection or its channel is unusable.
async fn until_lost(shared: &Shared, connection: &Connection, channel: &Channel) {
    let mut events = std::pin::pin!(connection.events_listener());
    // Changes before the first poll cause no event.
    while channel.status().connected() {
        match timeout(LOOK, events.next()).await {
            Ok(None | Some(Event::Error(_))) => return,
            Ok(Some(Event::ConnectionBlocked(why))) => {
                shared.is_blocked.store(true, Ordering::Release);
                let broker = &shared.options.broker;
                let why = format!("the broker at {broker} takes no messages for now: {why}");
                tracing::warn!("{why}");
                shared.stands(Some(&why));
            }
            Ok(Some(Event::ConnectionUnblocked)) => {
                shared.is_blocked.store(false, Ordering::Release);
                // Messages in flight failed for no other reason.
                shared.options.breaker.close();
                tracing::info!("the broker takes messages again");
                shared.stands(None);
            }
            Ok(Some(_)) | Err(_) => {}
        }
    }
}
