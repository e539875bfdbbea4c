//! The engine's face for gateways, brokers and simulators: executions as values, the loop's committer, what is durable.
//!
//! A service asks entities with [`Engine::entity`](crate::Engine::entity); it needs nothing of this. A gateway makes an [`Attempt`]
//! of each request, [tries](Driver::try_now) it on the loop that read it, and answers when the [`Executed`] may leave. An attempt
//! that has to wait is [carried on](Driver::execute) by a task; nothing that was done is done again.
//!
//! ```
//! # use throng::{Engine, driver::Tried, journal::{MemoryJournal, MemoryStore}};
//! # async fn gateway(engine: &Engine) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//! let driver = engine.driver();
//! let attempt = driver.command(0, "front-page", "hit", b"{}".as_slice())?;
//! let mut executed = match driver.try_now(attempt) {
//!     Tried::Executed(executed) => executed,
//!     Tried::Waits(waiting) => driver.execute(waiting.into_owned()).await?,
//!     Tried::Refused(error) => return Err(error.into()),
//! };
//! Ok(executed.answer().await?) // once its commit is durable
//! # }
//! ```

mod executed;
pub mod peers;
mod remote_error;

pub use crate::{
    budget::{Budget, Charge, Share},
    door::Attempt,
};
pub use executed::Executed;
pub use throng_core::shard::KeyLife;

use crate::{
    door::{Answer, Carried, ClientCommand, Payload, Progress, Target, Work, turn},
    engine::{Core, Engine},
    ledger::Refusal,
    life::{HOLD, Life, tasks::Seat},
};
use std::{
    borrow::Cow,
    future::Future,
    sync::Arc,
    task::{Context, Poll},
};
use throng_core::{
    limits,
    model::Error,
    shard::{JsonRejection, JsonReply},
};
use throng_journal::{Address, Position};

/// The engine, as a gateway drives it. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    core: Arc<Core>,
}

/// What came of trying.
#[expect(
    clippy::large_enum_variant,
    reason = "few commands wait, and a box would cost all of them an allocation"
)]
pub enum Tried<'a> {
    /// It was executed; its answer waits for its commit.
    Executed(Executed),
    /// It has to wait; [`Driver::execute`] goes on with it.
    Waits(Waiting<'a>),
    /// Nothing was done, and nothing will be.
    Refused(Error<JsonRejection>),
}

/// An attempt that has to wait, and for what.
pub struct Waiting<'a> {
    attempt: Attempt<'a>,
    /// What it was tried by and has to wait for; nothing while there is nobody to try it.
    tried: Option<(Arc<Life>, Progress)>,
}

impl Waiting<'_> {
    /// The same, with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Waiting<'static> {
        Waiting {
            attempt: self.attempt.into_owned(),
            tried: self.tried,
        }
    }
}

impl Engine {
    /// This engine, as a gateway drives it.
    #[must_use]
    pub fn driver(&self) -> Driver {
        Driver {
            core: self.core.clone(),
        }
    }
}

impl Driver {
    /// A command in JSON, to be [tried](Self::try_now): `kind` is the kind's index in the registry, those of
    /// [actors](Engine::actor_kinds) come after; an empty body is `{}`.
    ///
    /// # Errors
    /// The id or the kind is none.
    pub fn command<'a>(
        &self,
        kind: usize,
        id: impl Into<Cow<'a, str>>,
        name: impl Into<Cow<'a, str>>,
        body: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Attempt<'a>, Error<JsonRejection>> {
        let work = Work::Command(ClientCommand {
            input: Payload::Json {
                name: name.into(),
                body: body.into(),
            },
            key: None,
            caller: None,
            forwarded: None,
        });
        let target = self.core.target(kind, id.into())?;
        Ok(self.core.attempt(target, work, Answer::Json(JsonReply::default())))
    }

    /// A query, to be [tried](Self::try_now): its fields as a query string, `a=1&b=x`.
    ///
    /// # Errors
    /// The id or the kind is none.
    pub fn query<'a>(
        &self,
        kind: usize,
        id: impl Into<Cow<'a, str>>,
        name: impl Into<Cow<'a, str>>,
        arguments: impl Into<Cow<'a, str>>,
    ) -> Result<Attempt<'a>, Error<JsonRejection>> {
        let work = Work::Query {
            name: name.into(),
            arguments: arguments.into(),
            caller: None,
        };
        let target = self.core.target(kind, id.into())?;
        Ok(self.core.attempt(target, work, Answer::Json(JsonReply::default())))
    }

    /// Tries an attempt here and now, without waiting for anything.
    #[must_use]
    pub fn try_now<'a>(&self, mut attempt: Attempt<'a>) -> Tried<'a> {
        if attempt.target.kind >= self.core.context.registry.kinds().len() {
            #[cfg(feature = "services")]
            return match self.core.ask_actor(attempt) {
                Ok(answer) => Tried::Executed(Executed::of_actor(answer)),
                Err(error) => Tried::Refused(error),
            };
            #[cfg(not(feature = "services"))]
            return Tried::Refused(Error::Malformed("the engine has no kind of this number".into()));
        }
        let life = match self.core.lives.current() {
            Ok(life) => life,
            Err(_) if self.core.lives.is_short() => return Tried::Waits(Waiting { attempt, tried: None }),
            Err(error) => return Tried::Refused(error),
        };
        match life.try_now(&mut attempt) {
            Progress::Done(outcome) => {
                self.core.count(&attempt, outcome);
                Tried::Executed(Executed::of(life, attempt, outcome))
            }
            Progress::Refused(refusal) => Tried::Refused(widen(refusal)),
            progress @ Progress::Wait(_) => Tried::Waits(Waiting {
                attempt,
                tried: Some((life, progress)),
            }),
        }
    }

    /// Goes on with an attempt that has to wait.
    ///
    /// # Errors
    /// The engine's. The entity's "no" comes with the answer, since it, too, rests on what may not be durable yet.
    pub async fn execute(&self, waiting: Waiting<'static>) -> Result<Executed, Error<JsonRejection>> {
        self.core.execute(waiting).await.map_err(widen)
    }

    /// Has an attempt done, and waits for its answer.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn answer(&self, attempt: Attempt<'_>) -> Result<Vec<u8>, Error<JsonRejection>> {
        let mut executed = match self.try_now(attempt) {
            Tried::Executed(executed) => executed,
            Tried::Waits(waiting) => self.execute(waiting.into_owned()).await?,
            Tried::Refused(error) => return Err(error),
        };
        executed.answer().await
    }

    /// The committer of one loop: run it as a task of that loop. The first record of a turn wakes it, and so it runs behind all
    /// that is ready: the turn's records become one commit. Ends when the engine stops.
    pub fn committer(&self) -> impl Future<Output = ()> + Send + 'static {
        let turns = turn::Turns::new(self.core.context.clone());
        let seat = Seat::new(self.core.lives.clone());
        let woken = self.core.context.signals.relay.end();
        std::future::poll_fn(move |context: &mut Context<'_>| {
            let end = turns.end(context);
            // What others' commits woke here has its go before this one's commit.
            let has_woken = woken.deliver(context.waker());
            if end.more || has_woken {
                context.waker().wake_by_ref();
            }
            if end.early || has_woken {
                seat.poll()
            } else {
                seat.lead(context)
            }
        })
    }

    /// What a client is told of a name that this program does not know, if a newer release of the service lives at another node and may:
    /// to come again. `why` is a sentence about the name.
    #[must_use]
    pub fn left_to_a_newer(&self, why: &str) -> Option<Error<JsonRejection>> {
        self.core.context.left_to_a_newer(why)
    }

    /// The budget that whatever a gateway holds for its clients is charged to.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.core.context.budget
    }

    /// The newest durable commit; `None` while no writer is open. Another writer is another position: a recovery is a change even
    /// before anything happens in the new life.
    #[must_use]
    pub fn durable(&self) -> Option<Position> {
        self.core.lives.durable()
    }

    /// Waits until the newest durable commit is not this one any more, and returns it. Returns at once while the engine stops.
    pub async fn changed(&self, seen: Option<Position>) -> Option<Position> {
        std::future::poll_fn(|context| {
            let is_over = |durable| durable != seen || self.core.context.is_stopping();
            let durable = self.durable();
            if is_over(durable) {
                return Poll::Ready(durable);
            }
            self.core.context.signals.watch(context.waker());
            let durable = self.durable();
            if is_over(durable) {
                Poll::Ready(durable)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl<'a> Attempt<'a> {
    /// The command takes effect once under this key (1 to 255 bytes), and the same answer is given again for an hour.
    ///
    /// # Errors
    /// It is no key.
    pub fn once(mut self, key: impl Into<Cow<'a, str>>) -> Result<Self, Error<JsonRejection>> {
        let key = key.into();
        check_key(&key)?;
        if let Work::Command(command) = &mut self.work {
            command.key = Some(key);
        }
        Ok(self)
    }

    /// How long the key of [`once`](Self::once) is kept, instead of an hour: as long as the same command may come again.
    #[must_use]
    pub fn key_life(mut self, life: KeyLife) -> Self {
        self.key_life = life;
        self
    }

    /// How long its answer is waited for at most, from when the attempt was made.
    #[must_use]
    pub fn within(mut self, deadline: std::time::Duration) -> Self {
        self.until = self.made().saturating_add(crate::context::micros(deadline));
        self
    }

    /// Who asks: what [`Asker::Client`](throng_core::model::Asker) says.
    #[must_use]
    pub fn caller(mut self, by: impl Into<Cow<'a, str>>) -> Self {
        if let Work::Command(ClientCommand { caller, .. }) | Work::Query { caller, .. } = &mut self.work {
            *caller = Some(by.into());
        }
        self
    }
}

pub(crate) fn check_key<R>(key: &str) -> Result<(), Error<R>> {
    if (1..=limits::NAME_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::Malformed(format!(
        "an idempotency key has 1 to {} bytes",
        limits::NAME_BYTES_MAX
    )))
}

impl Core {
    /// An entity, or an actor, of a kind.
    pub(crate) fn target<'a, R>(&self, kind: usize, id: Cow<'a, str>) -> Result<Target<'a>, Error<R>> {
        let registry = &self.context.registry;
        let name = registry.kinds().get(kind).map(|kind| kind.name);
        let limit = Address::ID_BYTES_MAX;
        match id.len() {
            _ if limits::is_id(&id) => Ok(Target {
                kind,
                hash: name.map_or(0, |name| limits::hash(name, &id)),
                id,
            }),
            0 => Err(Error::Malformed("the id is empty; an id has 1 to 256 bytes".into())),
            found => Err(Error::TooLarge {
                what: "the id",
                found,
                limit,
            }),
        }
    }

    pub(crate) fn attempt<'a>(&self, target: Target<'a>, work: Work<'a>, answer: Answer) -> Attempt<'a> {
        let now = self.context.host.elapsed_micros();
        let until = now.saturating_add(crate::context::micros(self.context.options.deadline));
        Attempt::new(target, work, answer, (now, until))
    }

    /// Goes on with an attempt that has to wait.
    pub(crate) async fn execute(&self, waiting: Waiting<'static>) -> Result<Executed, Refusal> {
        let Waiting { mut attempt, mut tried } = waiting;
        let hold = self.context.until(Some(HOLD));
        loop {
            let (life, progress) = match tried.take() {
                Some(tried) => tried,
                None => {
                    let life = self.lives.next(attempt.until).await?;
                    attempt.has_waited(self.context.host.elapsed_micros());
                    let progress = life.try_now(&mut attempt);
                    (life, progress)
                }
            };
            let carried;
            (attempt, carried) = life.carry(attempt, progress).await?;
            match carried {
                Carried::Done(outcome) => {
                    self.count(&attempt, outcome);
                    return Ok(Executed::of(life, attempt, outcome));
                }
                Carried::Answered(outcome) => {
                    self.count(&attempt, outcome);
                    return Ok(Executed::elsewhere(attempt, outcome));
                }
                Carried::Again if self.context.host.elapsed_micros() >= hold.min(attempt.until) => {
                    return Err(Error::Unavailable {
                        reason: "the node that owns the entity cannot be reached".into(),
                    });
                }
                // Never of what comes from outside.
                Carried::NotUnderstood(why) | Carried::Quarantined(why) => return Err(Error::Malformed(why)),
                Carried::Again => {}
            }
        }
    }

    /// Has an attempt done that nothing is borrowed by.
    pub(crate) async fn run(&self, attempt: Attempt<'static>) -> Result<Executed, Refusal> {
        self.execute(Waiting { attempt, tried: None }).await
    }
}

/// The engine's part of a typed answer.
pub(crate) fn widen<R>(error: Refusal) -> Error<R> {
    error.engine().unwrap_or_else(|never| match never {})
}
