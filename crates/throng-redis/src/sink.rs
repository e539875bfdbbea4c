//! The sink that writes to Redis.

use crate::place::SinkPosition;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection,
};
use std::{fmt, sync::Arc, time::Duration};
use throng::{
    journal::Later,
    model::Entity,
    projection::{Seen, Sink, SinkError},
};
use throng_breaker::{Breaker, Settings};
use tokio::{runtime::Runtime, sync::Mutex};

/// How long Redis may take to let us in, and to answer a batch.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Says which commands an event becomes.
pub trait Mapping: Send + Sync + 'static {
    /// 1 to 64 of `[a-z0-9-]`, unlike any other sink's or projection's: the place in history is kept under this name, here and in Redis.
    const NAME: &'static str;
    /// Raise it to have everything written again from the first event; what the version before has written is the mapping's own to remove.
    const VERSION: u32 = 1;
    /// The entity whose events are written.
    type Of: Entity;

    /// Adds an event's commands. Their answers are not looked at; they are part of a transaction.
    fn map(&self, seen: &Seen<Self::Of>, commands: &mut Pipeline);
}

/// A sink cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was given as the address is none.
    #[error("this is no address of a Redis, write redis://user:password@host:port/number, or rediss:// for TLS: {0}")]
    Address(String),
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Writes a kind's events to Redis: a [`Sink`], to be given to an engine.
pub struct RedisSink<M> {
    inner: Arc<Inner<M>>,
    /// A thread of its own: the engine's wait for no sockets.
    runtime: Option<Runtime>,
}

/// What is known of Redis.
#[derive(Default)]
struct Session {
    connection: Option<MultiplexedConnection>,
    /// The place that was stored last.
    stored: Option<SinkPosition>,
}

struct Inner<M> {
    mapping: M,
    client: Client,
    /// Used by one batch at a time: a watched key is the connection's.
    session: Mutex<Session>,
    breaker: Breaker,
}

impl<M: Mapping> RedisSink<M> {
    /// Writes to the Redis at `redis://host:port/database`, under TLS at `rediss://`. It is connected to with the first event.
    ///
    /// # Errors
    /// That is no address.
    pub fn new(mapping: M, url: &str) -> Result<Self, Error> {
        Self::with_breaker(mapping, url, Breaker::new("redis", Settings::default()))
    }

    /// As [`new`](Self::new), with a breaker whose state metrics show.
    ///
    /// # Errors
    /// That is no address.
    pub fn with_breaker(mapping: M, url: &str, breaker: Breaker) -> Result<Self, Error> {
        let client = Client::open(url).map_err(|error| Error::Address(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("throng-redis")
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        Ok(Self {
            inner: Arc::new(Inner {
                mapping,
                client,
                session: Mutex::default(),
                breaker,
            }),
            runtime: Some(runtime),
        })
    }
}

impl<M> Drop for RedisSink<M> {
    fn drop(&mut self) {
        // It may be dropped on a runtime's thread, which must not wait for another's end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<M> fmt::Debug for RedisSink<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSink").finish_non_exhaustive()
    }
}

impl<M: Mapping> Sink for RedisSink<M> {
    const NAME: &'static str = M::NAME;
    const VERSION: u32 = M::VERSION;
    type Of = M::Of;

    fn deliver(&self, batch: Vec<Seen<M::Of>>) -> Later<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let ended = || SinkError::Retry("the sink is ending".into());
            let inner = self.inner.clone();
            let stored = self
                .runtime
                .as_ref()
                .map(|runtime| runtime.spawn(async move { inner.deliver(batch).await }));
            match stored {
                Some(stored) => stored.await.map_err(|_| ended())?,
                None => Err(ended()),
            }
        })
    }
}

fn retry(error: impl fmt::Display) -> SinkError {
    SinkError::Retry(format!("Redis: {error}"))
}

/// Why a batch is not stored.
enum Failed {
    /// The connection, or what was said on it: anew, from the place that is stored.
    Redis(RedisError),
    /// Another one has written meanwhile.
    Overtaken,
    /// Trying again comes to the same.
    Poison(String),
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl<M: Mapping> Inner<M> {
    async fn deliver(&self, batch: Vec<Seen<M::Of>>) -> Result<(), SinkError> {
        let Some(first) = batch.first().map(|seen| seen.offset) else {
            return Ok(());
        };
        let mut session = self.session.lock().await;
        let call = self.breaker.enter().map_err(retry)?;
        match self.store(&mut session, batch).await {
            Ok(()) => {
                call.succeeded();
                Ok(())
            }
            Err(Failed::Redis(error)) => {
                session.connection = None;
                call.failed();
                Err(retry(error))
            }
            Err(Failed::Overtaken) => {
                call.succeeded();
                Err(SinkError::Retry(
                    "another engine has written to this read model in Redis".into(),
                ))
            }
            Err(Failed::Poison(reason)) => {
                call.succeeded();
                Err(SinkError::Poison { offset: first, reason })
            }
        }
    }

    async fn store(&self, session: &mut Session, batch: Vec<Seen<M::Of>>) -> Result<(), Failed> {
        let connection = match &mut session.connection {
            Some(connection) => connection,
            none => none.insert(self.connect().await?),
        };
        let key = format!("throng:{}:{}", M::NAME, M::VERSION);
        let mut look = redis::pipe();
        look.cmd("WATCH").arg(&key).ignore().get(&key);
        let (found,): (Option<String>,) = look.query_async(connection).await?;
        let place = found.map(|found| {
            found.parse::<SinkPosition>().map_err(|()| {
                Failed::Poison(format!(
                    "the key {key:?} in Redis holds {found:?} and no place in history"
                ))
            })
        });
        let place = place.transpose()?;
        let (found, stored) = (
            place.map(|place| place.offset),
            session.stored.map(|place| place.offset),
        );
        // Unless it begins anew: then all of it comes again.
        if found < stored && batch.first().map(|seen| seen.offset) > stored {
            return Err(Failed::Poison(
                "Redis has lost events it had taken; clear the read model and have the projection rebuilt".into(),
            ));
        }
        let Some((commands, last)) = self.commands(place, &key, batch)? else {
            return Ok(());
        };
        match commands.query_async::<Value>(connection).await {
            Ok(Value::Nil) => Err(Failed::Overtaken),
            Ok(_) => {
                session.stored = Some(last);
                Ok(())
            }
            Err(error) if is_refusal(&error) => Err(Failed::Poison(format!(
                "Redis refuses a command of the batch that begins with it: {error}"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// The transaction of those events of a batch that were not taken before, and the place of the last of them.
    fn commands(
        &self,
        place: Option<SinkPosition>,
        key: &str,
        batch: Vec<Seen<M::Of>>,
    ) -> Result<Option<(Pipeline, SinkPosition)>, Failed> {
        let mut commands = redis::pipe();
        commands.atomic();
        let mut last = None;
        for seen in batch {
            let event = SinkPosition {
                offset: seen.offset,
                at_micros: seen.at.micros,
            };
            let is_taken = place.map_or(Ok(false), |place| place.has(event));
            let is_taken = is_taken.map_err(|()| {
                Failed::Poison(format!(
                    "what Redis holds is of another history than the journal's (its key {key:?}): clear it, or bring the journal back"
                ))
            })?;
            if !is_taken {
                self.mapping.map(&seen, &mut commands);
                last = Some(event);
            }
        }
        Ok(last.map(|last| {
            commands.set(key, last.to_string());
            (commands, last)
        }))
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }
}

/// Redis is well, and refuses a command of a transaction that it has executed: it would again. (One that it has not executed, say for want of memory, is
/// tried again.)
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Extension | ErrorKind::Server(ServerErrorKind::ResponseError)
    )
}
