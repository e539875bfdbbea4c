//! Asking an entity from Rust: nothing is serialised.

use crate::{
    door::{Answer, Command, Look, NOTHING, Payload, Work},
    driver::{check_key, widen},
    engine::Engine,
};
use std::{any::Any, marker::PhantomData, time::Duration};
use throng_core::{
    model::{Entity, Error, Query},
    shard::{Answered, Outcome, Ran},
};

/// An entity, to be asked.
pub struct Handle<E: Entity> {
    engine: Engine,
    id: String,
    key: Option<String>,
    caller: Option<String>,
    deadline: Option<Duration>,
    of: PhantomData<fn() -> E>,
}

impl<E: Entity> Handle<E> {
    pub(crate) fn new(engine: Engine, id: &E::Id) -> Self {
        Self {
            engine,
            id: id.to_string(),
            key: None,
            caller: None,
            deadline: None,
            of: PhantomData,
        }
    }

    /// The command takes effect once under this key (1 to 255 bytes), and the same answer is given again for an hour.
    #[must_use]
    pub fn once(mut self, idempotency_key: impl Into<String>) -> Self {
        self.key = Some(idempotency_key.into());
        self
    }

    /// Who asks: what [`Asker::Client`](throng_core::model::Asker) says.
    #[must_use]
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.caller = Some(caller.into());
        self
    }

    /// How long to wait at most.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Asks it to do something; the answer rests only on what is durable. Runs in place when first polled.
    ///
    /// # Errors
    /// The entity's "no", or the engine's; see [`Error`] for which of them mean that nothing was done.
    pub async fn ask(self, command: E::Command) -> Result<E::Reply, Error<E::Rejection>> {
        if let Some(key) = &self.key {
            check_key(key)?;
        }
        let work = Work::Command(Command {
            input: Payload::Typed(Box::new(Some(command))),
            key: self.key.clone().map(Into::into),
            caller: self.caller.clone().map(Into::into),
            forwarded: None,
        });
        let answer: Answered<E> = None;
        self.answered::<E::Reply>(work, Box::new(answer)).await
    }

    /// Looks at it: creates nothing, writes nothing.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn read<Q: Query<E>>(self, query: Q) -> Result<Q::Answer, Error<E::Rejection>> {
        let (mut query, caller) = (Some(query), self.caller.clone());
        let look: Look = Box::new(move |shard, now, target, answer| {
            let Some((entities, common)) = shard.entities::<E>(target.kind) else {
                return NOTHING;
            };
            let looked = entities.look(common, (target.hash, &target.id), (now, caller.as_deref()), &mut query);
            let (found, rests_on) = match looked {
                Err(None) => return Ran::Load,
                Ok((found, rests_on)) => (Ok(found), rests_on),
                Err(Some((error, rests_on))) => (Err(error), rests_on),
            };
            let outcome = if found.is_ok() { Outcome::Done } else { Outcome::Failed };
            if let Answer::Typed(answer) = answer
                && let Some(answer) = answer.downcast_mut::<Found<E, Q::Answer>>()
            {
                *answer = Some(found);
            }
            Ran::Done { rests_on, outcome }
        });
        let answer: Found<E, Q::Answer> = None;
        self.answered::<Q::Answer>(Work::Look(look), Box::new(answer)).await
    }

    /// Has it done, and waits for the answer.
    async fn answered<T: Send + 'static>(
        self,
        work: Work<'static>,
        answer: Box<dyn Any + Send>,
    ) -> Result<T, Error<E::Rejection>> {
        let core = &self.engine.core;
        let kind = core.context.registry.find(E::KIND);
        let kind = kind.ok_or_else(|| unknown_kind(E::KIND))?;
        let target = core.target(kind, self.id.into())?;
        let mut attempt = core.attempt(target, work, Answer::Typed(answer));
        if let Some(deadline) = self.deadline {
            attempt = attempt.within(deadline);
        }
        let executed = core.run(attempt).await.map_err(widen)?;
        let Answer::Typed(answer) = executed.settled().await.map_err(widen)? else {
            return Err(Error::OutcomeUnknown);
        };
        let answer: Box<dyn Any> = answer;
        let answer = answer.downcast::<Found<E, T>>().ok().and_then(|answer| *answer);
        answer.unwrap_or(Err(Error::OutcomeUnknown))
    }
}

/// What came of asking: an [`Answered`], or the same of a query.
type Found<E, T> = Option<Result<T, Error<<E as Entity>::Rejection>>>;

pub(crate) fn unknown_kind<R>(kind: &str) -> Error<R> {
    Error::Malformed(format!("the engine was not given the kind {kind:?}"))
}
