//! The target that is Redis.

use redis::{
    AsyncCommands as _, AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value,
    aio::MultiplexedConnection,
};
use std::{fmt, time::Duration};
use throng_breaker::{Breaker, Settings};
use throng_connectors::{Batch, Outbound, SinkError, Target, TargetPosition};

/// The longest time to connect, and to wait for the answer to a batch.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);

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

/// A read model in Redis, for an [`Egress`](throng_connectors::Egress). An event is mapped to [commands](Cmd), whose answers are ignored.
pub struct RedisTarget {
    client: Client,
    breaker: Breaker,
    model: ReadModel,
    owns: fn(&str) -> bool,
    connection: Option<MultiplexedConnection>,
}

impl RedisTarget {
    /// Returns a target at `redis://host:port/database`, with TLS at `rediss://`. It connects at the first event.
    ///
    /// `owns` tells whether a key belongs to the read model. Such keys are removed before everything is written again; otherwise counters
    /// would continue from their old values.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn new(model: ReadModel, owns: fn(&str) -> bool, url: &str) -> Result<Self, Error> {
        Ok(Self {
            client: Client::open(url).map_err(|error| Error::Address(error.to_string()))?,
            breaker: Breaker::new("redis", Settings::default()),
            model,
            owns,
            connection: None,
        })
    }

    /// Uses this breaker, which refuses batches while it is open and whose state metrics show.
    #[must_use]
    pub fn with_breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = breaker;
        self
    }
}

impl fmt::Debug for RedisTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisTarget").field(&self.model).finish()
    }
}

impl Target for RedisTarget {
    type Item = Vec<Cmd>;
    const STORES_POSITION: bool = true;

    async fn deliver(&mut self, batch: Batch<Vec<Cmd>>) -> Result<(), SinkError> {
        let first = batch.items.first().map(|item| item.offset);
        let key = self.model.place_key.clone();
        let mut commands = redis::pipe();
        commands.atomic();
        for command in batch.items.into_iter().flat_map(|outgoing| outgoing.item) {
            commands.add_command(command);
        }
        commands.set(key, batch.position.to_string());
        let stored = self.ask(async |connection| Ok(commands.query_async::<Value>(connection).await?));
        let refusal = match stored.await {
            Err(Failed::Redis(error)) if is_refusal(&error) => error,
            stored => return not_overtaken(stored),
        };
        let reason = format!("Redis refuses a command of the batch that begins with it: {refusal}");
        Err(match first {
            Some(offset) => SinkError::Poison { offset, reason },
            None => SinkError::Unusable(reason),
        })
    }

    /// Watches the place until the next transaction: another engine may have taken over.
    async fn position(&mut self) -> Result<Option<TargetPosition>, SinkError> {
        let key = self.model.place_key.clone();
        let mut look = redis::pipe();
        look.cmd("WATCH").arg(&key).ignore().get(&key);
        let found = self.ask(async |connection| Ok(look.query_async::<(Option<String>,)>(connection).await?));
        let (found,) = found.await?;
        let read = found.map(|found| found.parse::<TargetPosition>());
        read.transpose()
            .map_err(|error| SinkError::Unusable(format!("the key {key:?} in Redis: {error}")))
    }

    async fn check_empty(&mut self) -> Result<(), SinkError> {
        let model = self.model.clone();
        let is_filling: bool = self
            .ask(async |connection| Ok(connection.exists(&model.filling_key).await?))
            .await?;
        if is_filling {
            return Ok(());
        }
        let mut cursor = 0_u64;
        loop {
            let own: Vec<String>;
            (cursor, own) = self.own_keys(cursor).await?;
            if let Some(own) = own.first() {
                return Err(SinkError::Unusable(format!(
                    "Redis has keys of this read model ({own:?}) and not how far they have come ({:?}): have it rebuilt, which removes them, or use another database",
                    model.place_key
                )));
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Sets the key `filling` before it removes anything, since it may be interrupted.
    async fn clear(&mut self) -> Result<(), SinkError> {
        let model = self.model.clone();
        let mut begin = redis::pipe();
        begin
            .atomic()
            .set(&model.filling_key, "")
            .ignore()
            .del(&model.place_key)
            .ignore();
        // The position may be watched, and another engine may have written it.
        not_overtaken(
            self.ask(async |connection| Ok(begin.query_async(connection).await?))
                .await,
        )?;
        let mut cursor = 0_u64;
        loop {
            let own: Vec<String>;
            (cursor, own) = self.own_keys(cursor).await?;
            if !own.is_empty() {
                let () = self.ask(async |connection| Ok(connection.unlink(own).await?)).await?;
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    async fn mark_incomplete(&mut self) -> Result<(), SinkError> {
        let key = self.model.filling_key.clone();
        Ok(self.ask(async |connection| Ok(connection.set(key, "").await?)).await?)
    }

    async fn complete(&mut self) -> Result<(), SinkError> {
        let key = self.model.filling_key.clone();
        Ok(self.ask(async |connection| Ok(connection.del(key).await?)).await?)
    }
}

/// Why something is not done.
enum Failed {
    /// The connection failed, or Redis answered with an error.
    Redis(RedisError),
    Refused(throng_breaker::Refused),
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Failed> for SinkError {
    fn from(failed: Failed) -> Self {
        Self::Retry(match failed {
            Failed::Redis(error) => format!("Redis: {error}"),
            Failed::Refused(refused) => format!("Redis: {refused}"),
        })
    }
}

/// Redis answers nothing to a transaction if a watched key was written: another engine has taken over.
fn not_overtaken(answer: Result<Value, Failed>) -> Result<(), SinkError> {
    match answer? {
        Value::Nil => Err(SinkError::Retry(
            "another engine has written to this read model in Redis".into(),
        )),
        _ => Ok(()),
    }
}

/// The most keys of one `SCAN`.
const SCAN_KEYS: usize = 1_000;

impl RedisTarget {
    /// Sends a query, over a new connection if the last one was lost.
    async fn ask<R>(
        &mut self,
        work: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<R, Failed>,
    ) -> Result<R, Failed> {
        let call = self.breaker.enter().map_err(Failed::Refused)?;
        let answer = match &mut self.connection {
            Some(connection) => work(connection).await,
            none => match connect(&self.client, ANSWER_MAX).await {
                Ok(connection) => work(none.insert(connection)).await,
                Err(error) => Err(error.into()),
            },
        };
        match &answer {
            Err(Failed::Redis(error)) if !is_reply(error) => {
                self.connection = None;
                call.failed();
            }
            _ => call.succeeded(),
        }
        answer
    }

    /// Returns the read model's keys among those of one `SCAN`, also keys of earlier versions, and the next cursor.
    async fn own_keys(&mut self, cursor: u64) -> Result<(u64, Vec<String>), Failed> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_KEYS);
        let found = self.ask(async |connection| Ok(scan.query_async::<(u64, Vec<Vec<u8>>)>(connection).await?));
        let (cursor, keys) = found.await?;
        let ReadModel {
            name,
            place_key,
            filling_key,
        } = &self.model;
        let of_name = format!("throng:{name}:");
        let is_own =
            |key: &String| (self.owns)(key) || (key.starts_with(&of_name) && key != place_key && key != filling_key);
        let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
        Ok((cursor, keys.filter(is_own).collect()))
    }
}

pub(crate) async fn connect(client: &Client, answer_max: Duration) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(answer_max));
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// The keys of a read model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadModel {
    pub(crate) name: &'static str,
    /// The key of the position that the read model has reached.
    pub(crate) place_key: String,
    /// The key that exists while the read model is not complete.
    pub(crate) filling_key: String,
}

impl ReadModel {
    /// The read model that `O` makes.
    #[must_use]
    pub fn of<O: Outbound>() -> Self {
        let place_key = format!("throng:{}:{}", O::NAME, O::VERSION);
        Self {
            name: O::NAME,
            filling_key: format!("{place_key}:filling"),
            place_key,
        }
    }
}

/// Tells whether Redis answered with an error that needs no new connection. A server that became a replica needs one.
pub(crate) fn is_reply(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => !matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown),
        kind => kind == ErrorKind::Extension,
    }
}

/// Tells whether Redis refused a command of a transaction that it executed: it would refuse it again. (A transaction not executed, for
/// example for lack of memory, is tried again.)
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Extension | ErrorKind::Server(ServerErrorKind::ResponseError)
    )
}
