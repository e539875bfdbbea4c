//! Asking an entity from Rust: nothing is serialised.

use crate::{
    engine::Engine,
    run::{Ask, Payload, Reply, recovering, unknown_kind, widen},
};
use std::{any::Any, marker::PhantomData, time::Duration};
use throng_core::{
    model::{Entity, Error, Query},
    shard::Answered,
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

    /// Who asks: what [`Moment::caller`](throng_core::model::Moment) says.
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
        let inner = &self.engine.inner;
        let kind = inner.registry.find(E::KIND).ok_or_else(|| unknown_kind(E::KIND))?;
        let hash = inner.hash(kind, &self.id)?;
        let answer: Answered<E> = None;
        let ask = Ask {
            kind,
            hash,
            id: self.id,
            payload: Payload::Typed(Box::new(Some(command))),
            reply: Reply::Typed(Box::new(answer)),
            key: self.key,
            caller: self.caller,
            parent: None,
        };
        let Reply::Typed(answer) = inner.run(Box::new(ask), self.deadline).await.map_err(widen)? else {
            return Err(Error::OutcomeUnknown);
        };
        let answer: Box<dyn Any> = answer;
        answer
            .downcast::<Answered<E>>()
            .ok()
            .and_then(|answer| *answer)
            .unwrap_or(Err(Error::OutcomeUnknown))
    }

    /// Looks at it: creates nothing, writes nothing.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn read<Q: Query<E>>(self, query: Q) -> Result<Q::Answer, Error<E::Rejection>> {
        let inner = &self.engine.inner;
        let kind = inner.registry.find(E::KIND).ok_or_else(|| unknown_kind(E::KIND))?;
        let hash = inner.hash(kind, &self.id)?;
        let until = inner.until_of(self.deadline);
        let life = inner.life()?;
        let mut query = Some(query);
        loop {
            let now = inner.host.now();
            let looked = life.shard_of(hash).wait(|shard| {
                let (entities, common) = shard.entities::<E>(kind)?;
                let looked = entities.look(common, (hash, &self.id), (now, self.caller.as_deref()), &mut query);
                inner.balance(&life, shard);
                Some(looked)
            });
            if life.is_over() {
                // What was looked at may be another engine's to change by now.
                return Err(recovering());
            }
            match looked {
                None => return Err(unknown_kind(E::KIND)),
                Some(Err(None)) => {
                    inner
                        .before(&life, until, inner.load(&life, kind, hash, &self.id))
                        .await?
                }
                Some(Ok((answer, rests_on))) => {
                    inner.metrics.queries.inc();
                    inner.durable(&life, rests_on, until).await?;
                    return Ok(answer);
                }
                Some(Err(Some((error, rests_on)))) => {
                    inner.metrics.queries.inc();
                    inner.durable(&life, rests_on, until).await?;
                    return Err(error);
                }
            }
        }
    }
}
