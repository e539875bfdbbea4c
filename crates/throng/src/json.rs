//! Asking an entity in JSON: what a gateway needs.

use crate::{
    actors::JsonAnswer,
    at_once::Now,
    engine::{Engine, Inner},
    life::Life,
    run::{Ask, Executed, Payload, Reply, recovering, widen},
};
use bytes::Bytes;
use std::{collections::BTreeMap, convert::Infallible, pin::Pin, sync::Arc, task::Waker, time::Duration};
use throng_core::{
    model::Error,
    shard::{JsonRejection, JsonReply, QueryCall, Ran},
};
use throng_journal::EntityHead;

/// A command in JSON.
#[derive(Clone, Debug)]
pub struct CommandJson {
    /// The kind's index in the registry; those of [actors](Engine::actor_kinds) come after.
    pub kind: usize,
    /// The entity's id.
    pub id: String,
    /// The command's name.
    pub name: String,
    /// Its content; empty is `{}`.
    pub body: Bytes,
    /// Takes effect once under this key.
    pub key: Option<String>,
    /// Who asks.
    pub caller: Option<String>,
    /// How long to wait at most.
    pub deadline: Option<Duration>,
}

/// A command in JSON as it stands in a request: nothing is copied to execute it.
#[derive(Clone, Copy, Debug)]
pub struct PlainCommand<'a> {
    /// The kind's index in the registry.
    pub kind: usize,
    /// The entity's id.
    pub id: &'a str,
    /// The command's name.
    pub name: &'a str,
    /// Its content; empty is `{}`.
    pub body: &'a [u8],
    /// Takes effect once under this key.
    pub key: Option<&'a str>,
    /// How long its answer is waited for at most.
    pub deadline: Duration,
}

/// A query with its fields as a query string.
#[derive(Clone, Debug)]
pub struct QueryJson {
    /// The kind's index in the registry.
    pub kind: usize,
    /// The entity's id.
    pub id: String,
    /// The query's name.
    pub name: String,
    /// Its fields, `a=1&b=x`.
    pub arguments: String,
    /// Who asks.
    pub caller: Option<String>,
    /// How long to wait at most.
    pub deadline: Option<Duration>,
}

/// A command that was executed and whose answer waits for its commit.
pub struct StagedJson(Answering);

enum Answering {
    Entity(Arc<Inner>, Executed),
    /// It was forwarded as a message, and another entity answers.
    Elsewhere(Pin<Box<dyn Future<Output = Result<Reply, Error<Infallible>>> + Send>>),
    Actor(JsonAnswer),
}

fn written(reply: Reply) -> Result<Vec<u8>, Error<JsonRejection>> {
    let Reply::Json(reply) = reply else {
        return Err(Error::OutcomeUnknown);
    };
    reply.error.map_or(Ok(reply.body), |error| Err(*error))
}

impl StagedJson {
    /// The answer, if it may leave now; given once, like [`settled`](Self::settled)'s. For who looks after many at once, and has
    /// itself [woken](Self::wake) for the one it waits for.
    pub fn settled_now(&mut self) -> Option<Result<Vec<u8>, Error<JsonRejection>>> {
        let Answering::Entity(inner, executed) = &mut self.0 else {
            return None;
        };
        let durable = inner.durable_now(&executed.life, executed.rests_on, executed.until)?;
        Some(durable.and_then(|()| written(std::mem::replace(&mut executed.reply, Reply::Nobody))))
    }

    /// Has this waker told when [`settled_now`](Self::settled_now) may say more, or its deadline has passed. `false`: it may
    /// already, or its answer comes from elsewhere and can only be waited for.
    #[must_use]
    pub fn wake(&self, waker: &Waker) -> bool {
        match &self.0 {
            Answering::Entity(_, executed) => executed.life.open.wake_at(executed.rests_on, executed.until, waker),
            _ => false,
        }
    }

    /// Its answer comes from elsewhere: it can only be waited for.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        !matches!(self.0, Answering::Entity(..))
    }

    /// It was executed, and its answer is a "no".
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(&self.0, Answering::Entity(_, Executed { reply: Reply::Json(reply), .. }) if reply.error.is_some())
    }

    /// The reply as JSON, once it is durable; it is given once. By reference, so that what waits stays where it is.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn settled(&mut self) -> Result<Vec<u8>, Error<JsonRejection>> {
        let (inner, executed) = match &mut self.0 {
            Answering::Entity(inner, executed) => (inner, executed),
            Answering::Elsewhere(answer) => return answer.await.map_err(widen).and_then(written),
            Answering::Actor(answer) => return answer.await,
        };
        inner.durable(&executed.life, executed.rests_on, executed.until).await?;
        written(std::mem::replace(&mut executed.reply, Reply::Nobody))
    }
}

impl Engine {
    /// Runs a command and returns the reply as JSON.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn command(&self, command: CommandJson) -> Result<Vec<u8>, Error<JsonRejection>> {
        self.stage(command).await?.settled().await
    }

    /// Executes a command; its answer is [settled](StagedJson::settled) once what it rests on is durable. A gateway
    /// executes all that came together before it waits, so that one commit takes them.
    ///
    /// # Errors
    /// The engine's. The entity's "no" comes with the answer, since it, too, rests on what may not be durable yet.
    pub async fn stage(&self, command: CommandJson) -> Result<StagedJson, Error<JsonRejection>> {
        let CommandJson {
            kind,
            id,
            name,
            body,
            key,
            caller,
            deadline,
        } = command;
        let entities = self.inner.registry.kinds().len();
        if kind >= entities {
            let asked = self
                .inner
                .ask_actor(kind - entities, id, (&name, &body), key.as_deref(), deadline);
            return asked.map(|answer| StagedJson(Answering::Actor(answer)));
        }
        let hash = self.inner.hash(kind, &id)?;
        let payload = Payload::Json { name, body };
        let ask = Ask {
            kind,
            hash,
            id,
            payload,
            reply: Reply::Json(JsonReply::default()),
            key,
            caller,
            parent: None,
        };
        let executed = self.inner.execute(Box::new(ask), deadline).await.map_err(widen)?;
        Ok(StagedJson(Answering::Entity(self.inner.clone(), executed)))
    }

    /// Executes a command if that can be done here and now: its entity is in memory and free, nothing holds it up. Otherwise
    /// `None`, and [`stage`](Self::stage), given the same, says why or waits; nothing was done that it would do once more.
    #[must_use]
    pub fn stage_now(&self, command: &PlainCommand<'_>) -> Option<StagedJson> {
        let executed = self.inner.execute_now(command)?;
        Some(StagedJson(match executed {
            Now::Here(executed) => Answering::Entity(self.inner.clone(), executed),
            Now::Elsewhere(answer) => Answering::Elsewhere(answer),
        }))
    }

    /// Answers a query as JSON.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn query(&self, query: QueryJson) -> Result<Vec<u8>, Error<JsonRejection>> {
        let inner = &self.inner;
        let hash = inner.hash(query.kind, &query.id)?;
        let until = inner.until_of(query.deadline);
        let life = inner.life()?;
        loop {
            let mut reply = JsonReply::default();
            let now = inner.host.now();
            let ran = life.shard_of(hash).wait(|shard| {
                let ran = shard.query(&mut QueryCall {
                    kind: query.kind,
                    hash,
                    id: &query.id,
                    name: &query.name,
                    arguments: &query.arguments,
                    now,
                    caller: query.caller.as_deref(),
                    output: &mut reply,
                });
                inner.balance(&life, shard);
                ran
            });
            if life.is_over() {
                return Err(recovering());
            }
            match ran {
                Ran::Done { rests_on, .. } => {
                    inner.metrics.queries.inc();
                    inner.durable(&life, rests_on, until).await?;
                    return reply.error.map_or(Ok(reply.body), |error| Err(*error));
                }
                _ => {
                    let load = inner.load(&life, query.kind, hash, &query.id);
                    inner.before(&life, until, load).await?;
                }
            }
        }
    }

    /// The entities of a kind in the order of their ids, after an id, at most `limit`.
    ///
    /// # Errors
    /// The engine's.
    pub async fn entities(
        &self,
        kind: usize,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EntityHead>, Error<JsonRejection>> {
        let inner = &self.inner;
        let life = inner.life()?;
        let mut found = BTreeMap::new();
        fresh(&life, kind, (after, limit), &mut found);
        let name = inner.registry.kinds()[kind].name;
        let stored = inner
            .store
            .entities(name, after, limit)
            .await
            .map_err(|error| Error::Unavailable {
                reason: format!("the entities of {name} cannot be listed: {error}"),
            })?;
        for head in stored {
            let seq = found.entry(head.id).or_default();
            *seq = head.seq.max(*seq);
        }
        Ok(found
            .into_iter()
            .take(limit)
            .map(|(id, seq)| EntityHead { id, seq })
            .collect())
    }

    /// A kind's index by name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<usize> {
        self.inner.registry.find(name)
    }
}

fn fresh(life: &Arc<Life>, kind: usize, (after, limit): (Option<&str>, usize), found: &mut BTreeMap<Box<str>, u64>) {
    let durable = life.durable();
    for shard in &life.shards {
        shard.wait(|shard| shard.fresh(kind, after, limit, found, durable));
    }
}

impl crate::engine::Inner {
    /// When a call with this deadline has waited long enough.
    pub(crate) fn until_of(&self, deadline: Option<Duration>) -> u64 {
        let deadline = deadline.unwrap_or(self.options.deadline);
        self.host
            .elapsed_micros()
            .saturating_add(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX))
    }
}
