//! Messages in flight: from their delivery, through the engine, to what the broker is told of them.

use super::{EntityCommand, Part};
use crate::{Dead, Message, Outcome, Received, Settled, TRACEPARENT};
use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};
use throng::{
    JsonRejection,
    driver::{Charge, Driver, Executed, Execution, Share},
    model::Error,
    spans::{Attribute, Span, SpanKind, TraceContext},
};
use tokio::task::JoinHandle;

/// The longest idempotency key.
const KEY_BYTES_MAX: usize = 255;

/// The part of the memory that all consumers' messages may take.
const MEMORY_PART: usize = 4;

/// Messages in flight at most, for a source that gives all it has.
const MESSAGES_MAX: usize = 65_536;

/// Messages in flight, in the order in which they were received.
pub(super) struct Flow<'a, P> {
    part: &'a Part,
    driver: Driver,
    /// Unlike any other session's: the beginning of keys for messages without an id.
    session: u128,
    /// All messages so far.
    count: u64,
    messages: VecDeque<InFlight<P>>,
    /// Commands the engine has no room for at the moment.
    refused_for_now: usize,
    /// Bytes of the messages: charged to the engine's memory.
    bytes: usize,
    share: Share,
    charge: Charge,
}

/// A message that is not settled.
struct InFlight<P> {
    position: P,
    message: Message,
    /// Its key, or the beginning of its commands' keys.
    key: String,
    commands: Vec<(EntityCommand, Step)>,
    /// The reason why it cannot be read.
    unreadable: Option<String>,
    /// Bytes of the message and of its commands.
    bytes: usize,
    span: Option<MessageSpan>,
}

/// The span of a message whose trace is recorded.
#[derive(Clone, Copy)]
struct MessageSpan {
    context: TraceContext,
    publisher: Option<TraceContext>,
    begun_micros: i64,
}

fn now_micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
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

impl<'a, P> Flow<'a, P> {
    pub(super) fn new(part: &'a Part) -> Self {
        let driver = part.engine.driver();
        let share = driver
            .budget()
            .share("source_messages", driver.budget().part(MEMORY_PART));
        Self {
            charge: share.nothing(),
            share,
            driver,
            part,
            session: rand::random(),
            count: 0,
            messages: VecDeque::new(),
            refused_for_now: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The engine has no room for what is here: more would only wait in memory.
    pub(super) fn is_held_up(&self) -> bool {
        self.refused_for_now > 0
    }

    /// More may be received.
    pub(super) fn has_room(&self) -> bool {
        !self.is_held_up() && self.messages.len() < MESSAGES_MAX && self.bytes < self.part.bytes_max
    }

    fn book(&mut self, bytes: usize) {
        self.bytes += bytes;
        // What has come is held in any case: the source was told what may come.
        let _ = self.charge.grow_to(self.bytes);
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.charge.shrink_to(self.bytes);
    }

    /// Takes a message in, and has it done if that can be now.
    pub(super) fn take(&mut self, received: Received<P>) {
        let Received {
            position,
            message,
            is_again,
            bytes,
            damaged,
        } = received;
        let metrics = &self.part.metrics;
        metrics.redelivered.inc_by(u64::from(is_again));
        self.count += 1;
        // An empty id, which some clients set, is none.
        let id = message.id.as_deref().filter(|id| !id.is_empty());
        metrics.unnamed.inc_by(u64::from(id.is_none()));
        let key = id.map_or_else(|| format!("{:032x}-{}", self.session, self.count), str::to_owned);
        // The app's code: a message that has it panic is one nobody can take, and no end of the ingress.
        let read = || catch_unwind(AssertUnwindSafe(|| self.part.intake.read(&message)));
        let read = damaged.map_or_else(|| read().unwrap_or_else(|_| Err("reading it panicked".into())), Err);
        let (commands, unreadable) = match read {
            Ok(commands) => (commands, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        metrics.commands.inc_by(commands.len() as u64);
        self.part.pace.add(commands.len());
        let of_commands: usize = commands.iter().map(|command| command.body.len()).sum();
        let bytes = bytes + of_commands;
        self.book(bytes);
        let span = self.driver.tracer().and_then(|tracer| {
            let publisher = message.header(TRACEPARENT).and_then(|header| header.parse().ok());
            Some(MessageSpan {
                context: tracer.begin(publisher)?,
                publisher,
                begun_micros: now_micros(),
            })
        });
        let mut message = InFlight {
            position,
            message,
            key,
            commands: commands.into_iter().map(|command| (command, Step::Try)).collect(),
            unreadable,
            bytes,
            span,
        };
        self.refused_for_now += self.try_all(&mut message);
        self.messages.push_back(message);
    }

    /// Tries again what the engine had no room for.
    pub(super) fn try_again(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.part.metrics.retried.inc_by(self.refused_for_now as u64);
        self.refused_for_now = messages.iter_mut().map(|message| self.try_all(message)).sum();
        self.messages = messages;
    }

    /// Tries those commands of a message that have to be; how many still have to be then.
    fn try_all(&self, message: &mut InFlight<P>) -> usize {
        let is_one = message.commands.len() == 1;
        let span = message.span.map(|span| span.context);
        let mut left = 0;
        for (number, (command, step)) in message.commands.iter_mut().enumerate() {
            if matches!(step, Step::Try) {
                let key = match is_one {
                    true => message.key.clone(),
                    false => part_key(&message.key, number),
                };
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
            Execution::Done(executed) if executed.is_remote() => {
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

    /// Waits until messages at the front are settled, or the engine has no room for one of them: then there may be none.
    pub(super) async fn settled(&mut self) -> Vec<Settled<P>> {
        poll_fn(|context| self.poll_settled(context)).await
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Vec<Settled<P>>> {
        let (mut settled, was_held_up) = (Vec::new(), self.is_held_up());
        while let Some(message) = self.messages.front_mut() {
            match message.poll_end(context) {
                Poll::Ready(End::Settled) => {}
                Poll::Ready(End::Again) => {
                    self.refused_for_now += 1;
                    break;
                }
                Poll::Pending => break,
            }
            let Some(message) = self.messages.pop_front() else {
                break;
            };
            self.release(message.bytes);
            self.export_span(&message);
            settled.push(self.end(message));
        }
        match settled.is_empty() && self.is_held_up() == was_held_up {
            true => Poll::Pending,
            false => Poll::Ready(settled),
        }
    }

    /// Exports the span of a message that is settled, if its trace is recorded.
    fn export_span(&self, message: &InFlight<P>) {
        let (Some(span), Some(tracer)) = (message.span, self.driver.tracer()) else {
            return;
        };
        let source = &self.part.name;
        tracer.export(&Span {
            name: &format!("process {source}"),
            kind: SpanKind::Consumer,
            context: span.context,
            parent: span.publisher.map(|publisher| publisher.span),
            begun_micros: span.begun_micros,
            ended_micros: now_micros(),
            attributes: &[("messaging.destination.name", Attribute::Text(source))],
            links: &[],
            links_dropped: 0,
            is_failed: message.is_dead(),
        });
    }

    fn end(&self, ended: InFlight<P>) -> Settled<P> {
        let outcome = match ended.is_dead() {
            false => Outcome::Done,
            true => {
                self.part.metrics.dead.inc();
                let (refused, reasons) = ended.refused();
                let unreadable = ended.unreadable.map(|why| format!("it cannot be read: {why}"));
                Outcome::Dead(Box::new(Dead {
                    reason: unreadable.unwrap_or_else(|| reasons.join("; ")),
                    refused,
                    commands: ended.commands.len(),
                    message: ended.message,
                    bytes: ended.bytes,
                    _held: self.share.take_anyway(ended.bytes),
                }))
            }
        };
        Settled {
            position: ended.position,
            outcome,
        }
    }
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
    Settled,
    /// A command of it has to be tried again.
    Again,
}

impl<P> InFlight<P> {
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
        Poll::Ready(End::Settled)
    }

    /// The message cannot be read, or a command of it is refused.
    fn is_dead(&self) -> bool {
        let is_refused = |(_, step): &(EntityCommand, Step)| matches!(step, Step::Refused(_));
        self.unreadable.is_some() || self.commands.iter().any(is_refused)
    }

    /// The numbers of the commands that were refused, and why.
    fn refused(&self) -> (Vec<usize>, Vec<String>) {
        let refused = |(number, (_, step)): (usize, &(EntityCommand, Step))| match step {
            Step::Refused(reason) => Some((number, reason.clone())),
            _ => None,
        };
        self.commands.iter().enumerate().filter_map(refused).unzip()
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
