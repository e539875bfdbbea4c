//! Messages in flight: from their delivery, through the engine, to what the broker is told of them.

use super::{
    EntityCommand, Incoming, Part, TRACEPARENT,
    letters::{Fate, Verdict, WAITING_MAX},
};
use crate::{
    properties::header_bytes,
    repair::SUBSTITUTE,
    resend::{ROUTING_KEY, text},
};
use futures_util::{Stream as _, stream::FuturesUnordered};
use lapin::{message::Delivery, types::ShortString};
use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use throng::{
    JsonRejection,
    driver::{Charge, Driver, Executed, Execution},
    model::Error,
    spans::{Attribute, Span, SpanKind, TraceContext},
};
use tokio::task::JoinHandle;

/// The longest idempotency key.
const KEY_BYTES_MAX: usize = 255;

/// The part of the memory that all consumers' messages may take.
const MEMORY_PART: usize = 4;

/// A dead letter on its way.
type Letter = Pin<Box<dyn Future<Output = SentLetter> + Send>>;

/// A dead letter that has arrived, or not.
struct SentLetter {
    tag: u64,
    bytes: usize,
    fate: Fate,
}

/// Messages in flight, in the order of their delivery tags; those that wait to be put aside stand beside.
pub(super) struct Flow<'a> {
    part: &'a Part,
    driver: Driver,
    /// Unlike any other session's: the beginning of keys for messages without an id.
    session: u128,
    messages: VecDeque<Message>,
    /// Dead letters on their way, each with its delivery tag: all of them below those of the messages.
    letters: FuturesUnordered<Letter>,
    /// Commands the engine has no room for at the moment.
    refused_for_now: usize,
    /// Bytes of all these, and of the dead letters among them: charged to the engine's memory.
    bytes: usize,
    letter_bytes: usize,
    charge: Charge,
}

/// A message that is not settled.
struct Message {
    delivery: Delivery,
    came: Instant,
    commands: Vec<(EntityCommand, Step)>,
    /// The reason why it cannot be read.
    unreadable: Option<String>,
    /// Bytes of the message and of its commands.
    bytes: usize,
    /// Its span, and the publisher's, if its trace is recorded.
    span: Option<(TraceContext, Option<TraceContext>)>,
}

/// The progress of a command.
enum Step {
    /// The command has to be tried, or tried again.
    Try,
    /// The command was executed: its answer waits for its commit.
    Executed(Box<Executed>),
    /// A task goes on with it.
    Carried(JoinHandle<Answer>),
    Done,
    Refused(String),
}

type Answer = Result<(), Error<JsonRejection>>;

/// The acknowledgement that the broker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    /// All up to this delivery tag are done.
    UpTo(u64),
    /// Settles one message.
    One(u64),
    Reject(u64),
}

/// Messages that are settled.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) settles: Vec<Settle>,
    pub(super) count: u32,
    /// The sum of their times.
    pub(super) took: Duration,
}

impl Settled {
    /// A message is done; `is_first`: none before it waits.
    fn done(&mut self, tag: u64, is_first: bool) {
        self.count += 1;
        match self.settles.last_mut() {
            Some(Settle::UpTo(up_to)) if is_first => *up_to = tag,
            _ if is_first => self.settles.push(Settle::UpTo(tag)),
            _ => self.settles.push(Settle::One(tag)),
        }
    }

    fn rejected(&mut self, tag: u64) {
        self.count += 1;
        self.settles.push(Settle::Reject(tag));
    }
}

impl<'a> Flow<'a> {
    pub(super) fn new(part: &'a Part) -> Self {
        let driver = part.engine.driver();
        Self {
            charge: driver
                .budget()
                .share("broker_messages", driver.budget().part(MEMORY_PART))
                .nothing(),
            driver,
            part,
            session: rand::random(),
            messages: VecDeque::new(),
            letters: FuturesUnordered::new(),
            refused_for_now: 0,
            bytes: 0,
            letter_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len() + self.letters.len()
    }

    /// Dead letters that are not kept yet.
    pub(super) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// The engine has no room for what is here, or no dead letter is kept: more would only wait in memory.
    pub(super) fn is_held_up(&self) -> bool {
        self.refused_for_now > 0 || self.letters.len() >= WAITING_MAX || self.letter_bytes >= self.part.bytes_max()
    }

    fn book(&mut self, bytes: usize) {
        self.bytes += bytes;
        // What has come is held in any case: the prefetch says what may come.
        let _ = self.charge.grow_to(self.bytes);
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.charge.shrink_to(self.bytes);
    }

    /// Takes a message in, and has it done if that can be now. The bytes that it holds.
    pub(super) fn take(&mut self, delivery: Delivery) -> usize {
        let metrics = &self.part.metrics;
        let id = message_id(&delivery);
        let content_type = delivery.properties.content_type().as_ref().map(ShortString::as_str);
        let first_key = first_routing_key(&delivery);
        let incoming = Incoming {
            body: &delivery.data,
            content_type: content_type.filter(|text| !text.contains(SUBSTITUTE)),
            id,
            exchange: delivery.exchange.as_str(),
            routing_key: first_key.as_deref().unwrap_or(delivery.routing_key.as_str()),
            redelivered: delivery.redelivered,
        };
        if delivery.redelivered {
            metrics.redelivered.inc();
        }
        if id.is_none() {
            metrics.unnamed.inc();
        }
        // The app's code: a message that has it panic is one nobody can take, and no end of the queue's consumer.
        let read = || catch_unwind(AssertUnwindSafe(|| self.part.intake.read(&incoming)));
        let read = check_names(&incoming).and_then(|()| read().unwrap_or_else(|_| Err("reading it panicked".into())));
        let (commands, unreadable) = match read {
            Ok(commands) => (commands, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        metrics.commands.inc_by(commands.len() as u64);
        self.part.pace.add(commands.len());
        let of_commands: usize = commands.iter().map(|command| command.body.len()).sum();
        let bytes = delivery.data.len() + header_bytes(&delivery.properties) + of_commands;
        self.book(bytes);
        let span = self.driver.tracer().and_then(|tracer| {
            let headers = delivery.properties.headers().as_ref();
            let parent = headers.and_then(|headers| text(headers, TRACEPARENT)?.parse().ok());
            Some((tracer.begin(parent)?, parent))
        });
        let mut message = Message {
            bytes,
            span,
            came: Instant::now(),
            commands: commands.into_iter().map(|command| (command, Step::Try)).collect(),
            unreadable,
            delivery,
        };
        self.refused_for_now += self.try_all(&mut message);
        self.messages.push_back(message);
        bytes
    }

    /// Tries again what the engine had no room for.
    pub(super) fn try_again(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.part.metrics.retried.inc_by(self.refused_for_now as u64);
        self.refused_for_now = messages.iter_mut().map(|message| self.try_all(message)).sum();
        self.messages = messages;
    }

    /// Tries those commands of a message that have to be; how many still have to be then.
    fn try_all(&self, message: &mut Message) -> usize {
        let tag = message.delivery.delivery_tag;
        let id = message_id(&message.delivery);
        let name = id.map_or_else(|| format!("{:032x}-{tag}", self.session), str::to_owned);
        let is_one = message.commands.len() == 1;
        let span = message.span.map(|(span, _)| span);
        let mut left = 0;
        for (number, (command, step)) in message.commands.iter_mut().enumerate() {
            if matches!(step, Step::Try) {
                let key = if is_one { name.clone() } else { part_key(&name, number) };
                *step = self.try_one(command, key, span);
                left += usize::from(matches!(step, Step::Try));
            }
        }
        left
    }

    fn try_one(&self, command: &EntityCommand, key: String, span: Option<TraceContext>) -> Step {
        if let Some(why) = &command.unreadable {
            return Step::Refused(format!("it cannot be read: {why}"));
        }
        let Some(kind) = self.part.engine.kind(command.kind) else {
            return Step::Refused(format!("the engine has no kind {:?}", command.kind));
        };
        let public = self.part.engine.registry().kinds()[kind].public;
        if !command.is_private && !public.contains(&&*command.name) {
            return Step::Refused(not_public(command, public));
        }
        let attempt = self
            .driver
            .command(kind, &*command.id, &*command.name, &*command.body)
            .and_then(|attempt| attempt.once(key));
        let attempt = match attempt {
            Ok(attempt) => attempt.key_life(self.part.options.keys),
            Err(error) => return Step::of(Err(error)),
        };
        let attempt = match span {
            Some(span) => attempt.traced(span),
            None => attempt,
        };
        match self.driver.try_now(attempt) {
            Execution::Done(executed) if executed.is_elsewhere() => {
                let mut executed = executed;
                Step::Carried(tokio::spawn(async move { executed.answer().await.map(drop) }))
            }
            Execution::Done(executed) => Step::Executed(Box::new(executed)),
            Execution::Wait(waiting) => {
                let (driver, waiting) = (self.driver.clone(), waiting.into_owned());
                Step::Carried(tokio::spawn(async move {
                    driver.execute(waiting).await?.answer().await.map(drop)
                }))
            }
            Execution::Refused(error) => Step::of(Err(error)),
        }
    }

    /// Settles messages from the front, as far as they are. A dead one stands aside until it is kept, and holds up none.
    pub(super) fn poll_settled(&mut self, context: &mut Context<'_>) -> Settled {
        let mut settled = Settled::default();
        self.settle_letters(&mut settled, context);
        while let Some(message) = self.messages.front_mut() {
            match message.poll_end(context) {
                Poll::Ready(End::Done) => {}
                Poll::Ready(End::Dead) if self.letters.len() < WAITING_MAX => {}
                Poll::Ready(End::Again) => {
                    self.refused_for_now += 1;
                    break;
                }
                Poll::Ready(End::Dead) | Poll::Pending => break,
            }
            let Some(message) = self.messages.pop_front() else {
                break;
            };
            self.export_span(&message);
            if message.is_dead() {
                self.part.metrics.dead.inc();
                let (verdict, tag, bytes) = (message.verdict(), message.delivery.delivery_tag, message.bytes);
                let sent = self.part.letters.send(message.delivery, &verdict);
                self.letter_bytes += bytes;
                self.letters.push(Box::pin(async move {
                    let fate = sent.await;
                    SentLetter { tag, bytes, fate }
                }));
                self.settle_letters(&mut settled, context);
            } else {
                self.release(message.bytes);
                settled.took += message.came.elapsed();
                settled.done(message.delivery.delivery_tag, self.letters.is_empty());
            }
        }
        settled
    }

    /// Exports the span of a message that is settled, if its trace is recorded.
    fn export_span(&self, message: &Message) {
        let (Some((context, parent)), Some(tracer)) = (message.span, self.driver.tracer()) else {
            return;
        };
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let now = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let queue = &self.part.options.queue;
        tracer.export(&Span {
            name: &format!("process {queue}"),
            kind: SpanKind::Consumer,
            context,
            parent: parent.map(|parent| parent.span),
            begun_micros: now.saturating_sub(micros(message.came.elapsed())),
            ended_micros: now,
            attributes: &[
                ("messaging.system", Attribute::Text("rabbitmq")),
                ("messaging.destination.name", Attribute::Text(queue)),
            ],
            links: &[],
            links_dropped: 0,
            is_failed: message.is_dead(),
        });
    }

    fn settle_letters(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        while let Poll::Ready(Some(SentLetter { tag, bytes, fate })) = Pin::new(&mut self.letters).poll_next(context) {
            self.letter_bytes -= bytes;
            self.release(bytes);
            match fate {
                Fate::Kept => settled.done(tag, false),
                Fate::Rejected => settled.rejected(tag),
            }
        }
    }
}

/// A message's id, if it has one. An empty one, which some clients set, is none.
fn message_id(delivery: &Delivery) -> Option<&str> {
    let id = delivery.properties.message_id().as_ref().map(ShortString::as_str);
    id.filter(|id| !id.is_empty())
}

/// The routing key that a dead letter had before it was sent again to its queue.
fn first_routing_key(delivery: &Delivery) -> Option<String> {
    if !delivery.exchange.as_str().is_empty() {
        return None;
    }
    text(delivery.properties.headers().as_ref()?, ROUTING_KEY)
}

/// The key of one command of several. An id that leaves no room for the number is shortened to its SHA-256.
fn part_key(id: &str, number: usize) -> String {
    let key = format!("{id}/{number}");
    if key.len() <= KEY_BYTES_MAX {
        return key;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
    let mut key = String::with_capacity(KEY_BYTES_MAX);
    for byte in digest.as_ref() {
        // A text takes all that is written to it.
        let _ = write!(key, "{byte:02x}");
    }
    let _ = write!(key, "/{number}");
    key
}

/// Tells whether the message's identity is as it was sent.
fn check_names(message: &Incoming<'_>) -> Result<(), String> {
    for (name, text) in [("message-id", message.id), ("routing key", Some(message.routing_key))] {
        if text.is_some_and(|text| text.contains(SUBSTITUTE)) {
            return Err(format!("its {name} is not UTF-8, or its properties are damaged"));
        }
    }
    Ok(())
}

/// The names of private commands are nobody's to know.
fn not_public(command: &EntityCommand, public: &[&str]) -> String {
    let EntityCommand { kind, name, .. } = command;
    let known = public.join(", ");
    format!(
        "the kind {kind:?} has no public command {name:?}, and its intake asks for no private one; public are: {known}"
    )
}

/// The end of a message.
enum End {
    Done,
    Dead,
    /// A command of it has to be tried again.
    Again,
}

impl Message {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<End> {
        for (_, step) in &mut self.commands {
            let answer = match step {
                Step::Done | Step::Refused(_) => continue,
                Step::Try => return Poll::Pending,
                Step::Carried(task) => match Pin::new(task).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    // The runtime is ending, or a command has ended its task: whether it took effect its key says.
                    Poll::Ready(told) => told.unwrap_or(Err(Error::OutcomeUnknown)),
                },
                Step::Executed(executed) => match executed.poll_answer(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => answer.map(drop),
                },
            };
            *step = Step::of(answer);
            if matches!(step, Step::Try) {
                return Poll::Ready(End::Again);
            }
        }
        Poll::Ready(if self.is_dead() { End::Dead } else { End::Done })
    }

    /// The message cannot be read, or a command of it is refused.
    fn is_dead(&self) -> bool {
        let is_refused = |(_, step): &(EntityCommand, Step)| matches!(step, Step::Refused(_));
        self.unreadable.is_some() || self.commands.iter().any(is_refused)
    }

    fn verdict(&self) -> Verdict {
        let refused = self
            .commands
            .iter()
            .enumerate()
            .filter_map(|(number, (_, step))| match step {
                Step::Refused(reason) => Some((number, reason.as_str())),
                _ => None,
            });
        let (refused, reasons): (Vec<usize>, Vec<&str>) = refused.unzip();
        let unreadable = self.unreadable.as_ref().map(|why| format!("it cannot be read: {why}"));
        Verdict {
            reason: unreadable.unwrap_or_else(|| reasons.join("; ")),
            refused,
            commands: self.commands.len(),
        }
    }
}

impl Step {
    fn of(answer: Answer) -> Self {
        match answer {
            Ok(()) => Self::Done,
            Err(
                Error::Overloaded { .. }
                | Error::StorageFull { .. }
                | Error::Unavailable { .. }
                | Error::Expired
                | Error::OutcomeUnknown,
            ) => Self::Try,
            Err(Error::Rejected(rejection)) => Self::Refused(rejection.message),
            Err(error) => match error.engine::<Infallible>() {
                Ok(error) => Self::Refused(error.to_string()),
                Err(rejection) => Self::Refused(rejection.message),
            },
        }
    }
}
