//! Typed access to entities from Rust, without serialization.

#[cfg(feature = "services")]
mod actor;

#[cfg(feature = "services")]
pub use actor::ActorHandle;

use crate::{
    commit::{Refusal, widen},
    engine::{Core, Engine},
    executor::{AnswerSlot, Asking, ClientCommand, Look, NOTHING, Payload, Target, Typed, Work, check_key},
    spans::TraceContext,
};
use serde::de::DeserializeOwned;
use std::{any::Any, marker::PhantomData, time::Duration};
use throng_core::{
    model::{Entity, Error, Query, Timestamp},
    shard::{JsonRejection, KeyLife, Outcome, Ran, Shard},
};

/// An address of an entity, to send it commands and queries.
pub struct Handle<E: Entity> {
    engine: Engine,
    id: String,
    key: Option<String>,
    key_life: KeyLife,
    caller: Option<String>,
    deadline: Option<Duration>,
    trace: Option<TraceContext>,
    of: PhantomData<fn() -> E>,
}

impl Engine {
    /// An entity, to ask it.
    pub fn entity<E: Entity>(&self, id: impl Into<E::Id>) -> Handle<E> {
        Handle::new(self.clone(), &id.into())
    }
}

impl<E: Entity> Handle<E> {
    fn new(engine: Engine, id: &E::Id) -> Self {
        Self {
            engine,
            id: id.to_string(),
            key: None,
            key_life: KeyLife::default(),
            caller: None,
            deadline: None,
            trace: None,
            of: PhantomData,
        }
    }

    /// Has the command take effect once under this key (1 to 255 bytes). A repetition within an hour gets the same answer.
    #[must_use]
    pub fn once(mut self, idempotency_key: impl Into<String>) -> Self {
        self.key = Some(idempotency_key.into());
        self
    }

    /// Sets the time for which the key of [`once`](Self::once) is kept, instead of an hour. It should be as long as the command may be
    /// repeated.
    #[must_use]
    pub fn key_life(mut self, life: KeyLife) -> Self {
        self.key_life = life;
        self
    }

    /// Sets the caller's name, which [`Asker::Client`](throng_core::model::Asker) gives the entity.
    #[must_use]
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.caller = Some(caller.into());
        self
    }

    /// Sets the longest time to wait.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Makes the command a part of this span, if there is one: a handler of a route finds that of its request as
    /// `Option<axum::Extension<TraceContext>>`, where its trace is recorded.
    #[must_use]
    pub fn traced(mut self, span: Option<TraceContext>) -> Self {
        self.trace = span;
        self
    }

    /// Asks it to do something; the answer rests only on what is durable. Runs in place when first polled.
    ///
    /// # Errors
    /// `Error::Rejected` with the entity's rejection, or the engine's refusal; see [`Error`] for the variants that mean that nothing was
    /// done.
    pub async fn ask(self, command: E::Command) -> Result<E::Reply, Error<E::Rejection>> {
        if let Some(key) = &self.key {
            check_key(key)?;
        }
        let work = Work::Command(ClientCommand {
            input: Payload::Typed(Box::new(Some(command))),
            key: self.key.clone().map(Into::into),
            caller: self.caller.clone().map(Into::into),
            forwarded: None,
        });
        self.answered::<E::Reply>(work).await
    }

    /// Answers a query. It creates nothing and writes nothing.
    ///
    /// # Errors
    /// `Error::Rejected` with the entity's rejection, or the engine's refusal.
    pub async fn read<Q: Query<E>>(self, query: Q) -> Result<Q::Answer, Error<E::Rejection>> {
        let remote = match self.engine.core.context.peers.is_some() {
            false => None,
            true => Some(Asking {
                name: Q::NAME,
                arguments: serde_json::to_string(&query)
                    .map_err(|why| Error::Malformed(format!("the query cannot be written as JSON: {why}")))?,
                caller: self.caller.clone(),
            }),
        };
        let (mut query, caller) = (Some(query), self.caller.clone());
        let look = Box::new(
            move |shard: &mut Shard, now: Timestamp, target: &Target<'_>, answer: &mut AnswerSlot| {
                let Some((entities, common)) = shard.entities::<E>(target.kind) else {
                    return NOTHING;
                };
                let (entity, asked) = ((target.hash, &*target.id), (now, caller.as_deref()));
                let looked = entities.look(common, entity, asked, |state, moment| match query.take() {
                    Some(query) => query.answer(state, moment).map_err(Error::Rejected),
                    None => Err(Error::Malformed("the query was taken already".into())),
                });
                let Some((found, rests_on)) = looked else {
                    return Ran::Load;
                };
                let outcome = if found.is_ok() { Outcome::Done } else { Outcome::Failed };
                if let AnswerSlot::Typed(answer) = answer
                    && let Some(answer) = answer.slot.downcast_mut::<Found<E, Q::Answer>>()
                {
                    *answer = Some(found);
                }
                Ran::Done { rests_on, outcome }
            },
        );
        let look = Look {
            look,
            remote,
            is_inspection: false,
        };
        self.answered::<Q::Answer>(Work::Look(look)).await
    }

    /// Has it done, and waits for the answer.
    async fn answered<T: DeserializeOwned + Send + 'static>(
        self,
        work: Work<'static>,
    ) -> Result<T, Error<E::Rejection>> {
        let found: Found<E, T> = None;
        let answer = Typed {
            slot: Box::new(found),
            read: read_answer::<E, T>,
        };
        let Self {
            engine,
            id,
            deadline,
            key_life,
            trace,
            ..
        } = self;
        let until = (deadline, key_life);
        let answer = engine.core.answered((E::KIND, id), until, trace, work, answer).await;
        let answer = answer.map_err(widen)?.downcast::<Found<E, T>>();
        answer
            .ok()
            .and_then(|answer| *answer)
            .unwrap_or(Err(Error::OutcomeUnknown))
    }
}

impl Core {
    /// Executes an attempt, and waits for the answer in its slot. Not generic, so that it is compiled once.
    async fn answered(
        &self,
        (kind, id): (&str, String),
        (deadline, key_life): (Option<Duration>, KeyLife),
        trace: Option<TraceContext>,
        work: Work<'static>,
        answer: Typed,
    ) -> Result<Box<dyn Any + Send>, Refusal> {
        let target = self.context.target(self.context.kind(kind)?, id.into())?;
        let mut attempt = self
            .context
            .attempt(target, work, AnswerSlot::Typed(answer))
            .key_life(key_life);
        if let Some(deadline) = deadline {
            attempt = attempt.within(deadline);
        }
        if let Some(span) = trace {
            attempt = attempt.traced(span);
        }
        match self.epochs.run(attempt).await?.settled().await? {
            AnswerSlot::Typed(answer) => Ok(answer.slot),
            _ => Err(Error::OutcomeUnknown),
        }
    }
}

/// Reads the JSON answer of another node into the slot.
fn read_answer<E: Entity, T: DeserializeOwned + 'static>(
    slot: &mut (dyn Any + Send),
    answer: Result<Vec<u8>, Error<JsonRejection>>,
) {
    let unreadable = |what: &str, why: serde_json::Error| Error::Crashed {
        reason: format!("the {what} of another node cannot be read: {why}"),
    };
    let read = match answer {
        Ok(body) => serde_json::from_slice(&body).map_err(|why| unreadable("answer", why)),
        Err(error) => Err(match error.engine::<E::Rejection>() {
            Ok(error) => error,
            Err(rejection) => match serde_json::from_slice(&rejection.body) {
                Ok(rejection) => Error::Rejected(rejection),
                Err(why) => unreadable("rejection", why),
            },
        }),
    };
    if let Some(slot) = slot.downcast_mut::<Found<E, T>>() {
        *slot = Some(read);
    }
}

/// The result of a command or a query; `None` before it exists.
type Found<E, T> = Option<Result<T, Error<<E as Entity>::Rejection>>>;
