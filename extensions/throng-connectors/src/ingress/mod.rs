//! Messages of a source become commands.

mod flow;
mod standing;

use crate::{Message, Metrics, Pace, Runner, Settled, Source, Stop, metrics::OfSource};
use flow::Flow;
use standing::Standing;
use std::{
    borrow::Cow,
    fmt,
    pin::pin,
    sync::{Arc, mpsc},
    time::Duration,
};
use throng::{Engine, driver::KeyLife};
use throng_breaker::Pauses;
use tokio::time::{Instant, interval, sleep, timeout_at};

/// The time between two looks at the source while many messages come: nobody waits for their outcome.
const PAUSE: Duration = Duration::from_millis(2);
/// The pauses before a lost source is opened again.
const REOPEN: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1_500)];
/// When what the engine had no room for is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// The time between two looks at what troubles a source.
const LOOK: Duration = Duration::from_secs(1);
/// Messages in flight may take this part of the engine's memory.
const MEMORY_PART: usize = 16;

/// The options for taking a source's messages.
#[derive(Clone, Debug)]
pub struct IngressOptions {
    /// The time for which message ids are kept as idempotency keys: as long as a message may wait at its source.
    pub keys: KeyLife,
    /// Bytes that the messages in flight may hold in memory, about; `None`: a sixteenth of [the engine's](throng::Options::memory_bytes_max). What is
    /// held counts against the engine's memory.
    pub bytes_max: Option<usize>,
    /// The longest time for settling the messages in flight when it is stopped.
    pub drain: Duration,
    /// The metrics that count it.
    pub metrics: Metrics,
}

impl Default for IngressOptions {
    /// Ids are kept for a day, and the end takes two seconds at most.
    fn default() -> Self {
        Self {
            keys: KeyLife::at_least(Duration::from_secs(24 * 3_600)),
            bytes_max: None,
            drain: Duration::from_secs(2),
            metrics: Metrics::default(),
        }
    }
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

    /// Any command of the kind, also one that no client may ask. Only for a name that the intake chooses itself, or a source
    /// that only the service's own parts can write to.
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
    /// It cannot be read: why, for people. The message is dead.
    fn read(&self, message: &Message) -> Result<Vec<EntityCommand>, String>;
}

impl<F: Fn(&Message) -> Result<Vec<EntityCommand>, String> + Send + Sync + 'static> Intake for F {
    fn read(&self, message: &Message) -> Result<Vec<EntityCommand>, String> {
        self(message)
    }
}

/// A source whose messages are taken: on a thread of its own, as a gateway's loop is one. What is there is executed in place, its turn is one
/// commit. Dropped, it ends as with [`stop`](Self::stop).
pub struct Ingress {
    runner: Runner,
    name: String,
    standing: Arc<Standing>,
}

impl Ingress {
    /// Begins to take messages. A source that cannot be reached is tried again behind. A check of the engine with the source's
    /// [name](Source::name) says how it is: it fails until the source was open once, and warns while nothing can be taken.
    ///
    /// # Errors
    /// Trying again would [come to the same](Source::is_final), or the system gives no thread.
    pub fn start<S: Source>(
        engine: &Engine,
        source: S,
        options: IngressOptions,
        intake: impl Intake,
    ) -> Result<Self, S::Error> {
        let name = source.name();
        let standing = Arc::new(Standing::new(engine.checks(), &name, source.place()));
        let told = standing.clone();
        let (first, tried) = mpsc::sync_channel(1);
        let (engine, intake) = (engine.clone(), Arc::new(intake) as Arc<dyn Intake>);
        let pace = Arc::new(Pace::new(PAUSE));
        let runner = Runner::start("throng-ingress", pace.clone(), move |stop| {
            let share = engine.options().memory_bytes_max / MEMORY_PART;
            let part = Part {
                pace,
                name: source.name(),
                metrics: options.metrics.of_source(&source.name()),
                bytes_max: options.bytes_max.unwrap_or(share),
                engine,
                options,
                intake,
                standing: told,
            };
            consume(part, source, stop, first)
        })?;
        let ingress = Self { runner, name, standing };
        match tried.recv() {
            Ok(Err(error)) if S::is_final(&error) => Err(error),
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
        f.debug_tuple("Ingress").field(&self.name).finish()
    }
}

/// The parts that consuming needs.
struct Part {
    engine: Engine,
    /// The source's name.
    name: String,
    options: IngressOptions,
    intake: Arc<dyn Intake>,
    metrics: OfSource,
    standing: Arc<Standing>,
    pace: Arc<Pace>,
    bytes_max: usize,
}

/// Opens the source, and again when it is lost, until it is stopped. Tells whoever started it how the first attempt went.
async fn consume<S: Source>(part: Part, mut source: S, mut stop: Stop, first: mpsc::SyncSender<Result<(), S::Error>>) {
    let committer = tokio::spawn(part.engine.driver().committer());
    let mut pauses = Pauses::new(REOPEN[0], REOPEN[1]);
    let (mut first, place) = (Some(first), source.place());
    loop {
        let opened = tokio::select! {
            opened = source.open(part.bytes_max) => opened,
            () = stop.wait() => break,
        };
        let error = match opened {
            Ok(()) => {
                pauses.reset();
                look_at(&part, &source);
                tracing::info!("{place} is consumed");
                if let Some(first) = first.take() {
                    let _ = first.send(Ok(()));
                }
                let mut flow = Flow::new(&part);
                let ended = take_until_stop(&part, &mut source, &mut flow, &mut stop).await;
                if let Ok(Some(until)) = ended {
                    // What is not settled by then comes again.
                    let _ = timeout_at(until, drain(&part, &mut source, &mut flow)).await;
                }
                part.metrics.in_flight.set(0);
                match ended {
                    Ok(_) => break,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        part.metrics.reconnects.inc();
        tracing::warn!("{place} is not consumed: {error}; trying again");
        part.standing.is_lost(&error, source.trouble());
        if let Some(first) = first.take() {
            let _ = first.send(Err(error));
        }
        tokio::select! {
            () = pauses.pause() => {}
            () = stop.wait() => break,
        }
    }
    committer.abort();
}

/// Takes messages until it is stopped, and returns the time until which those in flight may be settled; `None`: that is over.
async fn take_until_stop<S: Source>(
    part: &Part,
    source: &mut S,
    flow: &mut Flow<'_, S::Position>,
    stop: &mut Stop,
) -> Result<Option<Instant>, S::Error> {
    let drained_by = || Instant::now() + part.options.drain;
    let mut again = pin!(sleep(AGAIN));
    let mut look = interval(LOOK);
    let mut is_troubled = true;
    loop {
        let (is_held_up, has_room) = (flow.is_held_up(), flow.has_room());
        tokio::select! {
            biased;
            () = stop.wait() => return Ok(Some(drained_by())),
            settled = flow.settled() => {
                let mut settling = pin!(settle(part, source, flow.len(), settled));
                tokio::select! {
                    settled = &mut settling => settled?,
                    () = stop.wait() => {
                        let until = drained_by();
                        // Messages behind these would be settled without them: a source that goes by the last position would lose dead ones.
                        return match timeout_at(until, settling).await {
                            Ok(settled) => settled.map(|()| Some(until)),
                            Err(_) => Ok(None),
                        };
                    }
                }
            }
            () = &mut again, if is_held_up => {
                again.as_mut().reset(Instant::now() + AGAIN);
                flow.try_again();
            }
            _ = look.tick() => is_troubled = look_at(part, source),
            received = source.receive(), if has_room => {
                for received in received? {
                    flow.take(received);
                }
                if is_troubled {
                    is_troubled = look_at(part, source);
                }
                part.metrics.in_flight.set(flow.len() as i64);
                // There may be more; others of this thread have their turn first, and the committer is one of them.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Tells the service how an open source is, and whether something troubles it.
fn look_at<S: Source>(part: &Part, source: &S) -> bool {
    let trouble = source.trouble();
    let is_troubled = trouble.is_some();
    part.standing.is_open(trouble);
    is_troubled
}

async fn settle<S: Source>(
    part: &Part,
    source: &mut S,
    in_flight: usize,
    settled: Vec<Settled<S::Position>>,
) -> Result<(), S::Error> {
    if settled.is_empty() {
        return Ok(());
    }
    part.metrics.taken.inc_by(settled.len() as u64);
    part.metrics.in_flight.set(in_flight as i64);
    source.settle(settled).await
}

/// Settles what is in flight.
async fn drain<S: Source>(part: &Part, source: &mut S, flow: &mut Flow<'_, S::Position>) {
    while flow.len() > 0 {
        let settled = tokio::select! {
            settled = flow.settled() => settled,
            () = sleep(AGAIN) => {
                flow.try_again();
                continue;
            }
        };
        if let Err(error) = settle(part, source, flow.len(), settled).await {
            return tracing::warn!("{} is lost: {error}", source.place());
        }
    }
    source.close().await;
}
