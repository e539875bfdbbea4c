//! The engine's interface for gateways, brokers and simulators: executions as values, the loop's committer, the durable position.
//!
//! A service needs none of this; it asks entities with [`Engine::entity`](crate::Engine::entity). A gateway makes an [`Attempt`]
//! of each request, [tries](Driver::try_now) it on the loop that read it, and answers when the [`Executed`] may leave. An attempt
//! that has to wait is [continued](Driver::execute) by a task; finished steps are not repeated.
//!
//! ```
//! # use throng::{Engine, driver::Execution, journal::{MemoryJournal, MemoryStore}};
//! # async fn gateway(engine: &Engine) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//! let driver = engine.driver();
//! let attempt = driver.command(0, "front-page", "hit", b"{}".as_slice())?;
//! let mut executed = match driver.try_now(attempt) {
//!     Execution::Done(executed) => executed,
//!     Execution::Wait(waiting) => driver.execute(waiting.into_owned()).await?,
//!     Execution::Refused(error) => return Err(error.into()),
//! };
//! Ok(executed.answer().await?) // once its commit is durable
//! # }
//! ```

pub mod peers;

pub use crate::{
    budget::{Budget, Charge, Share},
    epoch::{Executed, Waiting},
    executor::{Attempt, Execution},
};
pub use throng_core::shard::KeyLife;

use crate::{
    commit::widen,
    engine::{Core, Engine},
    epoch::tasks::Seat,
    executor::{AnswerSlot, ClientCommand, Payload, Work, batch},
    spans::Tracer,
};
use std::{borrow::Cow, future::Future, sync::Arc, task::Context};
use throng_core::{
    model::Error,
    shard::{JsonRejection, JsonReply},
};
use throng_journal::Position;

/// The engine, as a gateway drives it. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    core: Arc<Core>,
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
    /// Returns a JSON command, to be [tried](Self::try_now). `kind` is the kind's index in the registry; the indices of
    /// [actors](Engine::actor_kinds) follow. An empty body counts as `{}`.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the id is not valid or the kind does not exist.
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
        let target = self.core.context.target(kind, id.into())?;
        Ok(self
            .core
            .context
            .attempt(target, work, AnswerSlot::Json(JsonReply::default())))
    }

    /// Returns a query, to be [tried](Self::try_now). Its fields are a query string, `a=1&b=x`.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the id is not valid or the kind does not exist.
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
        let target = self.core.context.target(kind, id.into())?;
        Ok(self
            .core
            .context
            .attempt(target, work, AnswerSlot::Json(JsonReply::default())))
    }

    /// Tries an attempt without waiting for anything.
    #[must_use]
    #[inline]
    pub fn try_now<'a>(&self, attempt: Attempt<'a>) -> Execution<Executed, Waiting<'a>, Error<JsonRejection>> {
        if attempt.target.kind >= self.core.context.registry.kinds().len() {
            #[cfg(feature = "services")]
            return match self.core.services.ask_json(&self.core.context, attempt) {
                Ok(answer) => Execution::Done(Executed::of_actor(answer)),
                Err(error) => Execution::Refused(error),
            };
            #[cfg(not(feature = "services"))]
            return Execution::Refused(Error::Malformed("the engine has no kind of this number".into()));
        }
        self.core.epochs.try_now(attempt)
    }

    /// Continues an attempt that has to wait.
    ///
    /// # Errors
    /// The engine's refusal. The entity's rejection comes with the answer, because it too may rest on commits that are not durable yet.
    pub async fn execute(&self, waiting: Waiting<'static>) -> Result<Executed, Error<JsonRejection>> {
        self.core.epochs.execute(waiting).await.map_err(widen)
    }

    /// Executes an attempt, and waits for its answer.
    ///
    /// # Errors
    /// The entity's rejection ([`Error::Rejected`]), or the engine's refusal.
    pub async fn answer(&self, attempt: Attempt<'_>) -> Result<Vec<u8>, Error<JsonRejection>> {
        let mut executed = match self.try_now(attempt) {
            Execution::Done(executed) => executed,
            Execution::Wait(waiting) => self.execute(waiting.into_owned()).await?,
            Execution::Refused(error) => return Err(error),
        };
        executed.answer().await
    }

    /// Returns the committer of one loop, to be run as a task of that loop. The first record of a batch wakes it. So it runs after all
    /// tasks that are ready, and the batch's records become one commit. It ends when the engine stops.
    pub fn committer(&self) -> impl Future<Output = ()> + Send + 'static {
        let batches = batch::Batches::new(self.core.context.clone());
        let seat = Seat::new(self.core.epochs.clone());
        let woken = self.core.context.signals.relay.end();
        std::future::poll_fn(move |context: &mut Context<'_>| {
            let end = batches.end(context);
            // Tasks of this loop that other loops' commits have woken run before this loop commits.
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

    /// Returns the error that asks a client to retry. `None` unless a newer release on another node may know the name that this
    /// program does not. `why` is a sentence about the name.
    #[must_use]
    pub fn left_to_upgrade(&self, why: &str) -> Option<Error<JsonRejection>> {
        self.core.context.left_to_upgrade(why)
    }

    /// Returns the tracer, which decides about each request; `None` without tracing.
    #[must_use]
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.core.context.tracer.as_ref()
    }

    /// The budget that whatever a gateway holds for its clients is charged to.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.core.context.budget
    }

    /// Returns the newest durable commit; `None` while there is no writer. Every writer has its own positions, so a recovery counts as a
    /// change even before the new epoch commits anything.
    #[must_use]
    pub fn durable(&self) -> Option<Position> {
        self.core.epochs.durable()
    }

    /// Waits until the newest durable commit differs from this one, and returns it. Returns at once while the engine stops.
    pub async fn changed(&self, seen: Option<Position>) -> Option<Position> {
        self.core.epochs.changed(seen).await
    }
}
