//! Messages of a queue become commands.

mod flow;
mod letters;
mod session;
mod standing;
mod window;

use crate::{
    Broker, Error, Metrics, Topology,
    connection::reconnect_pauses,
    pace::Pace,
    runner::{Runner, Stop},
};
use letters::Letters;
pub(crate) use letters::{QUEUE, REASON, REFUSED};
use session::{Ended, session};
use standing::Standing;
use std::{
    borrow::Cow,
    cell::Cell,
    fmt,
    ops::RangeInclusive,
    sync::{Arc, mpsc},
    time::Duration,
};
use throng::{Engine, driver::KeyLife};

/// The header with the trace that a message is a part of (W3C Trace Context).
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The time between two looks at the broker while many messages come: nobody waits for their outcome.
const PAUSE: Duration = Duration::from_millis(2);

/// The connections lost in a row before a message was settled, after which messages come one by one: then the guilty one is known.
const BARREN_MAX: u32 = 3;

/// Messages that are out may take this part of the engine's memory.
const MEMORY_PART: usize = 16;

/// The options for consuming a queue.
#[derive(Clone, Debug)]
pub struct IngressOptions {
    /// The broker of the queue, and the login of the consumer.
    pub broker: Broker,
    /// The name of the queue to consume.
    pub queue: String,
    /// The exchanges and queues that are declared or checked at each connection.
    pub topology: Topology,
    /// The exchange for messages nobody can take. Without one they are rejected: what becomes of them is the queue's own `x-dead-letter-exchange` to say,
    /// and without that they are gone.
    pub dead_letters: Option<String>,
    /// The time for which message ids are kept as idempotency keys: as long as a message may live in the queue, its TTL.
    pub keys: KeyLife,
    /// Takes messages only while nobody else does: a second consumer of the queue stands by until it has had none for three seconds. Not wanted only
    /// where every consumer is a node of one cluster; others would each count a part of the messages, in journals of their own.
    pub single_active: bool,
    /// Messages the broker may have out unsettled, at least and at most; between them the number follows from how long messages take.
    pub prefetch: RangeInclusive<u16>,
    /// Bytes that the messages which are out may hold in memory, about; `None`: a sixteenth of [the engine's](throng::Options::memory_bytes_max). AMQP
    /// bounds messages only, so the prefetch is never more than as many of the largest lately as fit. What is held counts against the engine's memory.
    pub prefetch_bytes: Option<usize>,
    /// The intended time from a message's arrival to its commit.
    pub latency: Duration,
    /// The longest time for settling the messages in flight when it is stopped.
    pub drain: Duration,
    /// The metrics that count it.
    pub metrics: Metrics,
}

impl IngressOptions {
    /// Returns the options for this queue, with the usual limits: ids kept for a day, 16 to 8,192 messages out, 100 ms for each.
    #[must_use]
    pub fn new(broker: Broker, queue: impl Into<String>) -> Self {
        Self {
            broker,
            queue: queue.into(),
            topology: Topology::default(),
            dead_letters: None,
            keys: KeyLife::at_least(Duration::from_secs(24 * 3_600)),
            single_active: true,
            prefetch: 16..=8_192,
            prefetch_bytes: None,
            latency: Duration::from_millis(100),
            drain: Duration::from_secs(2),
            metrics: Metrics::default(),
        }
    }
}

/// A message as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The contents.
    pub body: &'a [u8],
    /// The type of the body, if it says so.
    pub content_type: Option<&'a str>,
    /// Its id, if it has one.
    pub id: Option<&'a str>,
    /// The exchange it was published to; empty for a dead letter that was [sent again](fn@crate::resend).
    pub exchange: &'a str,
    /// The routing key it was published with at first.
    pub routing_key: &'a str,
    /// True if it was delivered before, and not acknowledged.
    pub redelivered: bool,
}

/// A command for an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityCommand {
    /// The kind of entity.
    pub kind: &'static str,
    /// The entity within its kind.
    pub id: String,
    /// The command's name.
    pub name: Cow<'static, str>,
    /// Its content as JSON; empty is `{}`.
    pub body: Vec<u8>,
    is_private: bool,
    /// Why the part of a frame that this stands for cannot be read.
    unreadable: Option<String>,
}

impl EntityCommand {
    /// A command that clients may ask: one of the kind's [`PUBLIC`](throng::model::Entity::PUBLIC). Any other is refused, and its message is dead.
    pub fn new(kind: &'static str, id: impl Into<String>, name: impl Into<Cow<'static, str>>, body: Vec<u8>) -> Self {
        Self {
            kind,
            id: id.into(),
            name: name.into(),
            body,
            is_private: false,
            unreadable: None,
        }
    }

    /// Any command of the kind, also one that no client may ask. Only for a name that the intake chooses itself, or a queue
    /// that only the service's own parts can publish to.
    pub fn private(
        kind: &'static str,
        id: impl Into<String>,
        name: impl Into<Cow<'static, str>>,
        body: Vec<u8>,
    ) -> Self {
        Self {
            is_private: true,
            ..Self::new(kind, id, name, body)
        }
    }

    /// A part of a frame that cannot be read, and why: the frame's other parts take effect, and it goes to the dead letters for this one.
    #[must_use]
    pub fn unreadable(why: String) -> Self {
        Self {
            unreadable: Some(why),
            ..Self::new("", "", "", Vec::new())
        }
    }
}

/// Reads messages. A function will do.
pub trait Intake: Send + Sync + 'static {
    /// The commands a message stands for; of a frame several, which [`frame::commands`](crate::frame::commands) finds. They are executed in this order
    /// where nothing has to wait.
    ///
    /// # Errors
    /// It cannot be read: why, for people. The message goes to the dead letters.
    fn read(&self, message: &Incoming<'_>) -> Result<Vec<EntityCommand>, String>;
}

impl<F: Fn(&Incoming<'_>) -> Result<Vec<EntityCommand>, String> + Send + Sync + 'static> Intake for F {
    fn read(&self, message: &Incoming<'_>) -> Result<Vec<EntityCommand>, String> {
        self(message)
    }
}

/// A queue that is consumed: on a thread of its own, as a gateway's loop is one. What is there is executed in place, its turn is one commit. Dropped, it ends as with
/// [`stop`](Self::stop).
pub struct Ingress {
    runner: Runner,
    queue: String,
    standing: Arc<Standing>,
}

impl Ingress {
    /// Begins to consume. A broker that is down is tried again behind. The check `queue NAME` of the engine says how it is: it fails until the
    /// broker was reached once, and warns while the queue is not consumed.
    ///
    /// # Errors
    /// Trying again would come to the same: the broker refuses the user, an exchange or a queue is there as another one, a certificate is none.
    pub fn start(engine: &Engine, options: IngressOptions, intake: impl Intake) -> Result<Self, Error> {
        let queue = options.queue.clone();
        let standing = Arc::new(Standing::new(engine.checks(), &queue, &options.broker));
        let letters = Letters::start(&options, standing.clone())?;
        let told = standing.clone();
        let (first, tried) = mpsc::sync_channel(1);
        let (engine, intake) = (engine.clone(), Arc::new(intake) as Arc<dyn Intake>);
        let pace = Arc::new(Pace::new(PAUSE));
        let runner = Runner::start("throng-ingress", pace.clone(), move |stop| {
            let part = Part {
                pace,
                metrics: options.metrics.of_queue(&options.queue),
                engine,
                options,
                intake,
                letters,
                standing: told,
                stood_by: Cell::new(false),
                barren: Cell::new(0),
            };
            consume(part, stop, first)
        })?;
        let ingress = Self {
            runner,
            queue,
            standing,
        };
        match tried.recv() {
            Ok(Err(error)) if error.is_final() => Err(error),
            _ => Ok(ingress),
        }
    }

    /// Takes nothing new, settles what is in flight, and ends. Before the engine stops: what is not settled by then comes again.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        self.runner.stop();
        self.standing.end();
    }
}

impl fmt::Debug for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingress")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// The parts that consuming needs.
struct Part {
    engine: Engine,
    options: IngressOptions,
    intake: Arc<dyn Intake>,
    metrics: crate::metrics::OfQueue,
    letters: Letters,
    standing: Arc<Standing>,
    /// The consumer stood by at its last look.
    stood_by: Cell<bool>,
    /// Connections in a row that were lost before a message was settled.
    barren: Cell<u32>,
    pace: Arc<Pace>,
}

impl Part {
    /// Bounds the bytes of messages in memory.
    fn bytes_max(&self) -> usize {
        let share = self.engine.options().memory_bytes_max / MEMORY_PART;
        self.options.prefetch_bytes.unwrap_or(share)
    }

    fn is_lost(&self, error: &Error) {
        let barren = self.barren.get();
        self.standing.is_lost(&match barren {
            0..BARREN_MAX => error.to_string(),
            _ => format!(
                "{barren} connections in a row were lost before a message was settled; its first message may be why: {error}"
            ),
        });
    }
}

/// Tells whoever started it how the first connection went.
type First = mpsc::SyncSender<Result<(), Error>>;

async fn consume(part: Part, mut stop: Stop, first: First) {
    let committer = tokio::spawn(part.engine.driver().committer());
    let mut pauses = reconnect_pauses();
    let mut first = Some(first);
    loop {
        let mut connected = || {
            pauses.reset();
            if let Some(first) = first.take() {
                let _ = first.send(Ok(()));
            }
        };
        match session(&part, &mut stop, &mut connected).await {
            Ok(Ended::Stopped) => break,
            Ok(Ended::Lost(error)) => {
                part.metrics.reconnects.inc();
                tracing::warn!("the queue {:?}: {error}; connecting again", part.options.queue);
                part.is_lost(&error);
            }
            Err(error) => {
                tracing::warn!("the queue {:?} is not consumed: {error}", part.options.queue);
                part.is_lost(&error);
                if let Some(first) = first.take() {
                    let _ = first.send(Err(error));
                }
            }
        }
        tokio::select! {
            () = pauses.pause() => {}
            () = stop.wait() => break,
        }
    }
    committer.abort();
}
