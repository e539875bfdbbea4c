//! Actors live in memory and run on [services](throng_services). The actors of a kind are spread over several services by their
//! ids; one service executes all commands of an actor, one after the other.

use crate::{
    Metrics,
    context::{Context, unknown_kind},
    executor::{Answered, Attempt, ClientCommand, Payload, Work},
    host::Host,
};
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use throng_core::{
    limits,
    model::{Actor, Error, Placement},
    shard::JsonRejection,
    tagged,
};
use throng_journal::Later;
use throng_services::{
    AskError, Pending, Reply, Running, Service, SharedAddress,
    health::Health,
    service,
    stats::{PrometheusCollector, Stats},
};

/// The number of services of a kind whose actors run on the asker's thread. No machine has as many loops, so callers rarely meet at one.
const PARTS_IN_PLACE: usize = 64;
/// The pause suggested to a caller that found the kind's queue full.
const RETRY: Duration = Duration::from_millis(100);

/// A kind of actor.
pub struct ActorKind {
    /// Its `KIND`: the first part of its actors' addresses and routes.
    pub name: &'static str,
    /// The commands that clients may ask, [`Actor::PUBLIC`].
    pub public: &'static [&'static str],
    /// The schema of its commands.
    #[cfg(feature = "schemas")]
    pub command_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its reply.
    #[cfg(feature = "schemas")]
    pub reply_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its rejection.
    #[cfg(feature = "schemas")]
    pub rejection_schema: fn(&mut SchemaGenerator) -> Schema,
    actors: Box<dyn Actors>,
}

/// The kinds of actors of an engine, their services, and the metrics of these and of an app's own services.
#[derive(Default)]
pub(crate) struct Services {
    pub(crate) kinds: Vec<ActorKind>,
    pub(crate) stats: Stats,
    pub(crate) health: Health,
}

impl Services {
    /// Starts the kinds of actors, and registers their metrics.
    pub(crate) fn start(kinds: Vec<Starting>, host: &Arc<dyn Host>, metrics: &Metrics) -> std::io::Result<Self> {
        let mut services = Self::default();
        for kind in kinds {
            services.kinds.push((kind.start)(host, &services.stats)?);
        }
        let collector = Box::new(PrometheusCollector::new(&services.stats));
        metrics.register(|registry| registry.register_collector(collector));
        Ok(services)
    }
}

/// A kind of actor to start, once there is a host.
pub(crate) struct Starting {
    pub(crate) name: &'static str,
    pub(crate) start: fn(&Arc<dyn Host>, &Stats) -> std::io::Result<ActorKind>,
}

impl Starting {
    pub(crate) fn of<A: Actor>() -> Self {
        Self {
            name: A::KIND,
            start: |host, stats| {
                Ok(ActorKind {
                    name: A::KIND,
                    public: A::PUBLIC,
                    #[cfg(feature = "schemas")]
                    command_schema: |generator| generator.subschema_for::<A::Command>(),
                    #[cfg(feature = "schemas")]
                    reply_schema: |generator| generator.subschema_for::<A::Reply>(),
                    #[cfg(feature = "schemas")]
                    rejection_schema: |generator| generator.subschema_for::<A::Rejection>(),
                    actors: Box::new(Typed::<A>::start(host, stats)?),
                })
            },
        }
    }
}

type AnswerSlot<A> = Result<<A as Actor>::Reply, Error<<A as Actor>::Rejection>>;

/// A command on its way.
struct Asked<A: Actor> {
    id: String,
    command: A::Command,
    /// The deadline, by the host's clock.
    until: u64,
    reply: Reply<AnswerSlot<A>>,
}

/// Some of a kind's actors.
struct Part<A: Actor> {
    host: Arc<dyn Host>,
    /// The actors asked since the last swap; `old` holds those asked before it. An actor that is asked moves to `young`. When `young` is
    /// full, it becomes `old`, and the former `old` is dropped.
    young: HashMap<String, A>,
    old: HashMap<String, A>,
    young_max: usize,
}

impl<A: Actor> Part<A> {
    /// Removes an actor for the time of its command, so that one that panics is gone.
    fn take(&mut self, id: &str) -> Result<A, Error<A::Rejection>> {
        if let Some(actor) = self.young.remove(id).or_else(|| self.old.remove(id)) {
            return Ok(actor);
        }
        let kind = A::KIND;
        let id = id
            .parse()
            .map_err(|why| Error::Malformed(format!("{id:?} is not the id of a {kind}: {why}")))?;
        Ok(A::start(&id))
    }

    fn keep(&mut self, id: String, actor: A) {
        if self.young.len() >= self.young_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, actor);
    }
}

impl<A: Actor> Service for Part<A> {
    type Message = Asked<A>;

    fn receive(&mut self, asked: Asked<A>, _: &mut throng_services::Context<Asked<A>>) {
        let Asked {
            id,
            command,
            until,
            reply,
        } = asked;
        if self.host.elapsed_micros() >= until {
            return reply.send(Err(Error::Expired));
        }
        let answer = self.take(&id).and_then(|mut actor| {
            let answer = actor.receive(command, self.host.now()).map_err(Error::Rejected);
            self.keep(id, actor);
            answer
        });
        reply.send(answer);
    }
}

/// A kind at work.
struct Typed<A: Actor> {
    parts: Vec<SharedAddress<Asked<A>>>,
    /// Dropping these stops the services. Only their owner drops them, so the lock is never contended.
    _running: Mutex<Vec<Running<Asked<A>>>>,
}

impl<A: Actor> Typed<A> {
    fn start(host: &Arc<dyn Host>, stats: &Stats) -> std::io::Result<Self> {
        let count = match A::PLACEMENT {
            Placement::InTurn => PARTS_IN_PLACE,
            Placement::Workers => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let young_max = (A::KEPT_MAX / count / 2).max(1);
        let part = |_| {
            let host = host.clone();
            let setup = service(A::KIND, move || Part::<A> {
                host: host.clone(),
                young: HashMap::new(),
                old: HashMap::new(),
                young_max,
            });
            let setup = setup.stats(stats);
            match A::PLACEMENT {
                Placement::InTurn => Ok(setup.in_place()),
                Placement::Workers => setup.start(),
            }
        };
        let running = (0..count).map(part).collect::<std::io::Result<Vec<_>>>()?;
        Ok(Self {
            parts: running.iter().map(|part| part.address().share()).collect(),
            _running: Mutex::new(running),
        })
    }

    /// Sends a command. A command of an actor on the asker's thread is executed when this returns.
    fn send(&self, id: String, command: A::Command, until: u64) -> Result<Pending<AnswerSlot<A>>, Error<A::Rejection>> {
        if !limits::is_id(&id) {
            let most = throng_journal::Address::ID_BYTES_MAX;
            let found = id.len();
            return Err(Error::Malformed(format!(
                "an id has 1 to {most} bytes, this one {found}"
            )));
        }
        // The low bits of the hash are spread as evenly as the others.
        let part = &self.parts[limits::hash(A::KIND, &id) as usize % self.parts.len()];
        let make = |reply| Asked {
            id,
            command,
            until,
            reply,
        };
        let asked = match A::PLACEMENT {
            // The work is not done with the shared address locked.
            Placement::InTurn => part.address().try_ask(make),
            Placement::Workers => part.try_ask(make),
        };
        asked.map_err(|error| match error {
            AskError::Full => Error::Overloaded { retry_after: RETRY },
            AskError::Gone | AskError::TimedOut => Error::Unavailable {
                reason: format!("the actors of the kind {} have stopped", A::KIND),
            },
        })
    }
}

async fn answered<A: Actor>(pending: Pending<AnswerSlot<A>>, left: Duration) -> AnswerSlot<A> {
    let answered = match A::PLACEMENT {
        // The answer exists, or another thread is executing the command just now.
        Placement::InTurn => pending.await,
        Placement::Workers => pending.within(left).await,
    };
    answered.unwrap_or_else(|error| {
        Err(match error {
            AskError::TimedOut => Error::OutcomeUnknown,
            AskError::Full | AskError::Gone => Error::Crashed {
                reason: format!("the {} panicked, and begins anew", A::KIND),
            },
        })
    })
}

/// A future answer as JSON.
type JsonAnswer = Later<'static, Answered>;

/// A kind, whatever its type.
trait Actors: Any + Send + Sync {
    fn send_json(
        &self,
        id: String,
        command: (&str, &[u8]),
        until: u64,
        left: Duration,
    ) -> Result<JsonAnswer, Error<JsonRejection>>;
}

impl<A: Actor> Actors for Typed<A> {
    fn send_json(
        &self,
        id: String,
        (name, body): (&str, &[u8]),
        until: u64,
        left: Duration,
    ) -> Result<JsonAnswer, Error<JsonRejection>> {
        let (found, limit) = (body.len(), limits::COMMAND_BYTES_MAX);
        if found > limit {
            let what = "the command";
            return Err(Error::TooLarge { what, found, limit });
        }
        let command = tagged::from_client(name, body).map_err(Error::Malformed)?;
        let pending = self.send(id, command, until).map_err(in_json)?;
        Ok(Box::pin(async move {
            let reply = answered::<A>(pending, left).await.map_err(in_json)?;
            serde_json::to_vec(&reply).map_err(|why| Error::Crashed {
                reason: format!("the reply cannot be written as JSON: {why}"),
            })
        }))
    }
}

fn in_json<R: throng_core::model::Rejection>(error: Error<R>) -> Error<JsonRejection> {
    error
        .engine()
        .unwrap_or_else(|rejection| Error::Rejected(rejection.into()))
}

impl Services {
    fn actors<A: Actor>(&self, context: &Context) -> Result<&Typed<A>, Error<A::Rejection>> {
        serves_actors(context)?;
        let kind = self.kinds.iter().find(|kind| kind.name == A::KIND);
        let typed = kind.and_then(|kind| (&*kind.actors as &dyn Any).downcast_ref());
        typed.ok_or_else(|| Error::Malformed(unknown_kind(A::KIND)))
    }

    /// Sends a command to an actor, and returns its answer. On the asker's thread it runs at the first poll.
    pub(crate) async fn ask<A: Actor>(
        &self,
        context: &Context,
        id: String,
        command: A::Command,
        deadline: Option<Duration>,
    ) -> AnswerSlot<A> {
        let left = deadline.unwrap_or(context.options.deadline);
        let pending = self.tell::<A>(context, id, command, Some(left))?;
        answered::<A>(pending, left).await
    }

    /// Sends a command to an actor without waiting for its answer.
    pub(crate) fn tell<A: Actor>(
        &self,
        context: &Context,
        id: String,
        command: A::Command,
        deadline: Option<Duration>,
    ) -> Result<Pending<AnswerSlot<A>>, Error<A::Rejection>> {
        self.actors::<A>(context)?.send(id, command, context.until(deadline))
    }

    /// Sends a JSON command to an actor. The numbers of actors' kinds follow those of entities' kinds.
    pub(crate) fn ask_json(&self, context: &Context, attempt: Attempt<'_>) -> Result<JsonAnswer, Error<JsonRejection>> {
        serves_actors(context)?;
        let number = attempt.target.kind - context.registry.kinds().len();
        let Some(kind) = self.kinds.get(number) else {
            return Err(Error::Malformed("the engine has no kind of this number".into()));
        };
        let Work::Command(ClientCommand {
            input: Payload::Json { name, body },
            key,
            ..
        }) = attempt.work
        else {
            return Err(Error::Malformed("an actor answers commands only".into()));
        };
        if key.is_some() {
            let name = kind.name;
            return Err(Error::Malformed(format!(
                "a {name} keeps nothing, so it cannot know an idempotency key again; ask without one"
            )));
        }
        let left = attempt.until.saturating_sub(context.host.elapsed_micros());
        let id = attempt.target.id.into_owned();
        kind.actors
            .send_json(id, (&name, &body), attempt.until, Duration::from_micros(left))
    }
}

fn serves_actors<R>(context: &Context) -> Result<(), Error<R>> {
    if context.is_stopping() {
        let reason = "the engine is stopping".into();
        return Err(Error::Unavailable { reason });
    }
    Ok(())
}
