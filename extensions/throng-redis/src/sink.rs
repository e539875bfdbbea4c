//! The sink that writes to Redis.

use crate::place::SinkPosition;
use redis::{
    AsyncCommands as _, AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value,
    aio::MultiplexedConnection,
};
use std::{fmt, future::Future, sync::Arc, time::Duration};
use throng::{
    journal::Later,
    model::Entity,
    projection::{EventOffset, Seen, Sink, SinkError},
};
use throng_breaker::{Breaker, Settings};
use tokio::{runtime::Runtime, sync::Mutex};

/// The longest wait for Redis to let us in, and to answer a batch.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Says which commands an event becomes.
pub trait Mapping: Send + Sync + 'static {
    /// 1 to 64 of `[a-z0-9-]`, unlike any other sink's or projection's: the place in history is kept under this name, here and in Redis.
    const NAME: &'static str;
    /// Raise it to have everything written again from the first event; what the version before has written is removed.
    const VERSION: u32 = 1;
    /// The entity whose events are written.
    type Of: Entity;

    /// Tells whether a key is one that it writes. Such keys are removed before everything is written again: counters would go on from what they
    /// are.
    fn owns(&self, key: &str) -> bool;

    /// Adds an event's commands. Their answers are not looked at; they are part of a transaction.
    fn map(&self, seen: &Seen<Self::Of>, commands: &mut Pipeline);
}

/// A sink cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is malformed.
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

/// The knowledge of Redis.
#[derive(Default)]
struct Session {
    connection: Option<MultiplexedConnection>,
    /// The place that was stored, or found, last.
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

    /// Returns a sink like [`new`](Self::new), with a breaker whose state metrics show.
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
    const IS_IDEMPOTENT: bool = true;
    type Of = M::Of;

    fn deliver(&self, batch: Vec<Seen<M::Of>>) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move {
            let first = batch.first().map(|seen| seen.offset);
            inner
                .attempt(first, async |session| inner.store(session, batch).await)
                .await
        })
    }

    fn compare(&self, delivered: Option<EventOffset>) -> Later<'_, Result<(), SinkError>> {
        self.run(move |inner| async move {
            inner
                .attempt(None, async |session| inner.compare(session, delivered).await)
                .await
        })
    }

    fn clear(&self) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move {
            inner
                .attempt(None, async |session| inner.begin_anew(session).await)
                .await
        })
    }

    fn complete(&self) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move { inner.attempt(None, async |session| inner.complete(session).await).await })
    }
}

impl<M: Mapping> RedisSink<M> {
    /// Has its own thread do something.
    fn run<F>(&self, work: impl FnOnce(Arc<Inner<M>>) -> F) -> Later<'_, Result<(), SinkError>>
    where
        F: Future<Output = Result<(), SinkError>> + Send + 'static,
    {
        let done = self
            .runtime
            .as_ref()
            .map(|runtime| runtime.spawn(work(self.inner.clone())));
        Box::pin(async move {
            let ended = || SinkError::Retry("the sink is ending".into());
            match done {
                Some(done) => done.await.map_err(|_| ended())?,
                None => Err(ended()),
            }
        })
    }
}

fn retry(error: impl fmt::Display) -> SinkError {
    SinkError::Retry(format!("Redis: {error}"))
}

/// Why something is not done.
enum Failed {
    /// The connection, or what was said on it: anew, from the place that is stored.
    Redis(RedisError),
    /// Another one has written meanwhile.
    Overtaken,
    /// Redis has only come to this event.
    Behind(Option<EventOffset>),
    /// Trying again comes to the same.
    Poison(String),
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// Keys looked at in one go.
const SCAN_KEYS: usize = 1_000;

impl<M: Mapping> Inner<M> {
    /// Does something with Redis, one at a time, and says what became of it; `first`: the first event of a batch.
    async fn attempt(
        &self,
        first: Option<EventOffset>,
        work: impl AsyncFnOnce(&mut Session) -> Result<(), Failed>,
    ) -> Result<(), SinkError> {
        let mut session = self.session.lock().await;
        let call = self.breaker.enter().map_err(retry)?;
        let Err(failed) = work(&mut session).await else {
            call.succeeded();
            return Ok(());
        };
        let error = match failed {
            Failed::Redis(error) if is_reply(&error) => retry(error),
            Failed::Redis(error) => {
                session.connection = None;
                call.failed();
                return Err(retry(error));
            }
            Failed::Overtaken => SinkError::Retry("another engine has written to this read model in Redis".into()),
            Failed::Behind(reached) => SinkError::Behind { reached },
            Failed::Poison(reason) => match first {
                Some(offset) => SinkError::Poison { offset, reason },
                None => SinkError::Unusable(reason),
            },
        };
        call.succeeded();
        Err(error)
    }

    async fn connection<'a>(&self, session: &'a mut Session) -> Result<&'a mut MultiplexedConnection, Failed> {
        Ok(match &mut session.connection {
            Some(connection) => connection,
            none => none.insert(self.connect().await?),
        })
    }

    /// Tells whether Redis has what it was delivered.
    async fn compare(&self, session: &mut Session, delivered: Option<EventOffset>) -> Result<(), Failed> {
        let (key, filling) = (place_key::<M>(), filling_key::<M>());
        let connection = self.connection(session).await?;
        let mut look = redis::pipe();
        look.get(&key).exists(&filling);
        let (found, is_filling): (Option<String>, bool) = look.query_async(connection).await?;
        let Some(found) = found else {
            // Who has delivered nothing, as far as is known, has no keys there to remove.
            if delivered.is_none() && !is_filling {
                self.check_no_own_keys(connection).await?;
            }
            self.begin_anew(session).await?;
            return Err(Failed::Behind(None));
        };
        let found = read_place(&key, &found)?;
        let is_behind = delivered.is_some_and(|delivered| !found.has_come_to(delivered));
        session.stored = Some(found.clone());
        match is_behind {
            true => self.go_back(session, found).await,
            false => Ok(()),
        }
    }

    /// Marks the read model as incomplete until what was lost is delivered again; readers are told so.
    async fn go_back(&self, session: &mut Session, found: SinkPosition) -> Result<(), Failed> {
        let newest = found.newest();
        session.stored = Some(found);
        let connection = self.connection(session).await?;
        let () = connection.set(filling_key::<M>(), "").await?;
        Err(Failed::Behind(newest))
    }

    /// Removes what it has written, and begins with the first event. Whatever ends it half-way, the key that says so is there before.
    async fn begin_anew(&self, session: &mut Session) -> Result<(), Failed> {
        let (key, filling) = (place_key::<M>(), filling_key::<M>());
        session.stored = None;
        let connection = self.connection(session).await?;
        let mut begin = redis::pipe();
        begin.atomic().set(&filling, "").ignore().del(&key).ignore();
        // The place may be watched, and another engine may have written it.
        if begin.query_async::<Value>(connection).await? == Value::Nil {
            return Err(Failed::Overtaken);
        }
        let mut cursor = 0_u64;
        loop {
            let own: Vec<String>;
            (cursor, own) = self.own_keys(connection, cursor).await?;
            if !own.is_empty() {
                let () = connection.unlink(own).await?;
            }
            if cursor == 0 {
                break;
            }
        }
        let beginning = SinkPosition::default();
        let () = connection.set(&key, beginning.to_string()).await?;
        session.stored = Some(beginning);
        Ok(())
    }

    async fn check_no_own_keys(&self, connection: &mut MultiplexedConnection) -> Result<(), Failed> {
        let mut cursor = 0_u64;
        loop {
            let own: Vec<String>;
            (cursor, own) = self.own_keys(connection, cursor).await?;
            if let Some(own) = own.first() {
                return Err(Failed::Poison(format!(
                    "Redis has keys of this read model ({own:?}) and not how far they have come ({:?}): have it rebuilt, which removes them, or use another database",
                    place_key::<M>()
                )));
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Its own among some of the keys there are, and where the next ones are; also what earlier versions have left.
    async fn own_keys(
        &self,
        connection: &mut MultiplexedConnection,
        cursor: u64,
    ) -> Result<(u64, Vec<String>), Failed> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_KEYS);
        let (cursor, keys): (u64, Vec<Vec<u8>>) = scan.query_async(connection).await?;
        let (of_name, place, filling) = (format!("throng:{}:", M::NAME), place_key::<M>(), filling_key::<M>());
        let is_own =
            |key: &String| self.mapping.owns(key) || (key.starts_with(&of_name) && *key != place && *key != filling);
        let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
        Ok((cursor, keys.filter(is_own).collect()))
    }

    async fn complete(&self, session: &mut Session) -> Result<(), Failed> {
        let connection = self.connection(session).await?;
        let () = connection.del(filling_key::<M>()).await?;
        Ok(())
    }

    async fn store(&self, session: &mut Session, batch: Vec<Seen<M::Of>>) -> Result<(), Failed> {
        let key = place_key::<M>();
        let connection = self.connection(session).await?;
        let mut look = redis::pipe();
        look.cmd("WATCH").arg(&key).ignore().get(&key);
        let (found,): (Option<String>,) = look.query_async(connection).await?;
        let Some(found) = found else {
            self.begin_anew(session).await?;
            return Err(Failed::Behind(None));
        };
        let found = read_place(&key, &found)?;
        if session.stored.as_ref().is_some_and(|stored| !found.covers(stored)) {
            return self.go_back(session, found).await;
        }
        let Some((commands, last)) = self.commands(found, &key, batch)? else {
            return Ok(());
        };
        let connection = self.connection(session).await?;
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

    /// The transaction of those events of a batch that were not taken before, and the place they come to.
    fn commands(
        &self,
        mut place: SinkPosition,
        key: &str,
        batch: Vec<Seen<M::Of>>,
    ) -> Result<Option<(Pipeline, SinkPosition)>, Failed> {
        let mut commands = redis::pipe();
        commands.atomic();
        let mut is_new = false;
        for seen in batch {
            let is_taken = place.has(seen.offset, seen.at.micros).map_err(|()| {
                Failed::Poison(format!(
                    "what Redis holds is of another history than the journal's (its key {key:?}): clear it, or bring the journal back"
                ))
            })?;
            if !is_taken {
                self.mapping.map(&seen, &mut commands);
                place.take(seen.offset, seen.at.micros);
                is_new = true;
            }
        }
        Ok(is_new.then(|| {
            commands.set(key, place.to_string());
            (commands, place)
        }))
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }
}

/// The place the read model has come to.
pub(crate) fn place_key<M: Mapping>() -> String {
    format!("throng:{}:{}", M::NAME, M::VERSION)
}

/// Returns the key that is there while the read model is not complete: then its events are delivered again.
pub(crate) fn filling_key<M: Mapping>() -> String {
    format!("throng:{}:{}:filling", M::NAME, M::VERSION)
}

fn read_place(key: &str, found: &str) -> Result<SinkPosition, Failed> {
    found.parse().map_err(|()| {
        Failed::Poison(format!(
            "the key {key:?} in Redis holds {found:?} and no place in history"
        ))
    })
}

/// Redis has answered, though with an error: neither is the connection lost, nor is Redis down. A server that has become a replica is better looked for anew.
pub(crate) fn is_reply(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => !matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown),
        kind => kind == ErrorKind::Extension,
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
