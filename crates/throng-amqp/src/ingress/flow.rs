//! Messages in flight: from their delivery, through the engine, to what the broker is told of them.

use super::{
    EntityCommand, Incoming, Part,
    letters::{Letters, Verdict},
};
use crate::metrics::OfQueue;
use lapin::message::Delivery;
use std::{
    collections::VecDeque,
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use throng::{
    JsonRejection,
    driver::{Driver, Executed, Tried},
    model::Error,
};
use tokio::task::JoinHandle;

/// Messages in flight, in the order of their delivery tags.
pub(super) struct Flow<'a> {
    part: &'a Part,
    driver: Driver,
    letters: Letters,
    /// Unlike any other session's: the beginning of keys for messages without an id.
    session: u128,
    messages: VecDeque<Message>,
    /// Commands the engine has no room for at the moment.
    refused_for_now: usize,
}

/// A message that is not settled.
struct Message {
    delivery: Option<Delivery>,
    tag: u64,
    came: Instant,
    commands: Vec<(EntityCommand, Step)>,
    /// On its way to the dead letters.
    letter: Option<Pin<Box<dyn Future<Output = lapin::Result<bool>> + Send>>>,
    /// It cannot be read.
    unreadable: Option<String>,
}

/// How far a command has come.
enum Step {
    /// It has to be tried, or tried again.
    Try,
    /// It was executed: its answer waits for its commit.
    Executed(Box<Executed>),
    /// A task goes on with it.
    Carried(JoinHandle<Answer>),
    Done,
    Refused(String),
}

type Answer = Result<(), Error<JsonRejection>>;

/// Messages that are settled.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// All up to this delivery tag are to be acknowledged.
    pub(super) up_to: Option<u64>,
    pub(super) count: u32,
    /// How long they took, all together.
    pub(super) took: std::time::Duration,
}

impl<'a> Flow<'a> {
    pub(super) fn new(part: &'a Part, letters: Letters) -> Self {
        Self {
            driver: part.engine.driver(),
            part,
            letters,
            session: rand::random(),
            messages: VecDeque::new(),
            refused_for_now: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The engine has no room for what is here: more would only wait in memory.
    pub(super) fn is_held_up(&self) -> bool {
        self.refused_for_now > 0
    }

    /// Takes a message in, and has it done if that can be now.
    pub(super) fn take(&mut self, delivery: Delivery) {
        let metrics = &self.part.metrics;
        let properties = &delivery.properties;
        let id = properties.message_id().as_ref().map(lapin::types::ShortString::as_str);
        let incoming = Incoming {
            body: &delivery.data,
            content_type: properties
                .content_type()
                .as_ref()
                .map(lapin::types::ShortString::as_str),
            id,
            exchange: delivery.exchange.as_str(),
            routing_key: delivery.routing_key.as_str(),
            redelivered: delivery.redelivered,
        };
        if delivery.redelivered {
            metrics.redelivered.inc();
        }
        if id.is_none() {
            metrics.unnamed.inc();
        }
        // The app's code: a message that has it panic is one nobody can take, and no end of the queue's consumer.
        let read = catch_unwind(AssertUnwindSafe(|| self.part.intake.read(&incoming)));
        let (commands, unreadable) = match read.unwrap_or_else(|_| Err("reading it panicked".into())) {
            Ok(commands) => (commands, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        metrics.commands.inc_by(commands.len() as u64);
        self.part.pace.add(commands.len());
        let mut message = Message {
            tag: delivery.delivery_tag,
            came: Instant::now(),
            commands: commands.into_iter().map(|command| (command, Step::Try)).collect(),
            letter: None,
            unreadable,
            delivery: Some(delivery),
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
    fn try_all(&self, message: &mut Message) -> usize {
        let Some(delivery) = &message.delivery else { return 0 };
        let id = delivery.properties.message_id().as_ref();
        let name = id.map_or_else(|| format!("{:032x}-{}", self.session, message.tag), ToString::to_string);
        let is_one = message.commands.len() == 1;
        let mut left = 0;
        for (number, (command, step)) in message.commands.iter_mut().enumerate() {
            if matches!(step, Step::Try) {
                let key = if is_one {
                    name.clone()
                } else {
                    format!("{name}/{number}")
                };
                *step = self.try_one(command, key);
                left += usize::from(matches!(step, Step::Try));
            }
        }
        left
    }

    fn try_one(&self, command: &EntityCommand, key: String) -> Step {
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
        match self.driver.try_now(attempt) {
            Tried::Executed(executed) if executed.is_elsewhere() => {
                let mut executed = executed;
                Step::Carried(tokio::spawn(async move { executed.answer().await.map(drop) }))
            }
            Tried::Executed(executed) => Step::Executed(Box::new(executed)),
            Tried::Waits(waiting) => {
                let (driver, waiting) = (self.driver.clone(), waiting.into_owned());
                Step::Carried(tokio::spawn(async move {
                    driver.execute(waiting).await?.answer().await.map(drop)
                }))
            }
            Tried::Refused(error) => Step::of(Err(error)),
        }
    }

    /// Settles messages from the front, as far as they are. An error is the connection's.
    pub(super) fn poll_settled(&mut self, context: &mut Context<'_>) -> lapin::Result<Settled> {
        let mut settled = Settled::default();
        while let Some(message) = self.messages.front_mut() {
            let end = match message.poll_end(context) {
                Poll::Ready(End::Done) => Poll::Ready(Ok(false)),
                Poll::Ready(End::Dead) => message.poll_dead(&self.letters, &self.part.metrics, context),
                Poll::Ready(End::Again) => {
                    self.refused_for_now += 1;
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            };
            let Poll::Ready(was_rejected) = end else { break };
            // One that was rejected is settled by that, and is named no more.
            if !was_rejected? {
                settled.up_to = Some(message.tag);
            }
            settled.count += 1;
            settled.took += message.came.elapsed();
            self.messages.pop_front();
        }
        Ok(settled)
    }
}

/// The names of private commands are nobody's to know.
fn not_public(command: &EntityCommand, public: &[&str]) -> String {
    let EntityCommand { kind, name, .. } = command;
    let known = public.join(", ");
    format!(
        "the kind {kind:?} has no public command {name:?}, and its intake asks for no private one; public are: {known}"
    )
}

/// What came of a message.
enum End {
    Done,
    Dead,
    /// A command of it has to be tried again.
    Again,
}

impl Message {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let mut is_dead = self.unreadable.is_some();
        for (_, step) in &mut self.commands {
            let answer = match step {
                Step::Done => continue,
                Step::Refused(_) => {
                    is_dead = true;
                    continue;
                }
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
            match step {
                Step::Try => return Poll::Ready(End::Again),
                Step::Refused(_) => is_dead = true,
                _ => {}
            }
        }
        Poll::Ready(if is_dead { End::Dead } else { End::Done })
    }

    /// Puts it aside; whether it was settled by that.
    fn poll_dead(
        &mut self,
        letters: &Letters,
        metrics: &OfQueue,
        context: &mut Context<'_>,
    ) -> Poll<lapin::Result<bool>> {
        if let Some(delivery) = self.delivery.take() {
            metrics.dead.inc();
            let verdict = self.verdict();
            self.letter = Some(Box::pin(letters.send(delivery, &verdict)));
        }
        match &mut self.letter {
            Some(letter) => letter.as_mut().poll(context),
            None => Poll::Ready(Ok(false)),
        }
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
