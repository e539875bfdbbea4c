//! Queries of the read models in Redis.

use crate::{
    Error, ReadModel,
    target::{connect, is_refusal, is_reply},
    watch::Watch,
};
use redis::{Client, FromRedisValue, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use std::{fmt, sync::Arc, time::Duration};
use throng::services::health::Health;
use throng_breaker::{Breaker, RetryBudget};
use throng_connectors::Outbound;
use tokio::sync::Mutex;

/// The longest wait for Redis to answer a query.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Queries a Redis: for example from a server that has no journal and answers from the read models a [`RedisTarget`](crate::RedisTarget)
/// writes. Clones share the connection.
///
/// The connection is made at the first query, and again after it was lost. A query whose connection is lost is sent once more, within a
/// budget of a tenth of all queries.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    breaker: Breaker,
    budget: RetryBudget,
}

/// A question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Redis is down, or does not answer in time.
    #[error("Redis is not available: {why}; try again in {retry_after:?}")]
    Unavailable {
        /// The finding.
        why: String,
        /// When asking again may make sense.
        retry_after: Duration,
    },
    /// The read model does not exist or is not complete: nothing was written yet, or lost data is being written again.
    #[error("the read model {name} in Redis is not complete: its consumer is writing it, or has to be started")]
    Incomplete {
        /// The name of its mapping.
        name: &'static str,
    },
    /// Redis refuses the query, and would refuse it again.
    #[error("Redis refuses the question: {0}")]
    Refused(RedisError),
}

impl Reader {
    /// Returns a reader of the Redis at `redis://host:port/database`, with TLS at `rediss://`. While Redis is down, the breaker refuses
    /// queries at once.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn new(url: &str, breaker: Breaker) -> Result<Self, Error> {
        let client = Client::open(url).map_err(|error| Error::Address(error.to_string()))?;
        Ok(Self::of(client, breaker))
    }

    fn of(client: Client, breaker: Breaker) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                connection: Mutex::default(),
                breaker,
                budget: RetryBudget::default(),
            }),
        }
    }

    /// Sends commands and returns their answers. The commands must only read, since they may be sent twice. Needs a tokio runtime with time
    /// and I/O.
    ///
    /// # Errors
    /// Redis gave no answer.
    pub async fn ask<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, ReadError> {
        match self.try_once(commands).await {
            Err(Failed::Lost(_)) if self.inner.budget.withdraw() => {}
            answered => return answered.map_err(Failed::into_error),
        }
        self.try_once(commands).await.map_err(Failed::into_error)
    }

    /// Works like [`ask`](Self::ask) for a read model, and answers only while it is complete.
    ///
    /// # Errors
    /// Redis gave no answer, or [`ReadError::Incomplete`]: the read model is not complete.
    pub async fn ask_complete<O: Outbound, T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, ReadError> {
        let mut commands = commands.clone();
        // The check is sent after the commands, so that data lost before the answer is noticed.
        let ReadModel {
            name,
            place_key,
            filling_key,
        } = ReadModel::of::<O>();
        commands.exists(place_key).exists(filling_key);
        let mut values: Vec<Value> = self.ask(&commands).await?;
        let answers = values.split_off(values.len().saturating_sub(2));
        let (is_there, is_filling): (bool, bool) = FromRedisValue::from_redis_value(Value::Array(answers))
            .map_err(|error| ReadError::Refused(error.into()))?;
        if !is_there || is_filling {
            return Err(ReadError::Incomplete { name });
        }
        T::from_redis_value(Value::Array(values)).map_err(|error| ReadError::Refused(error.into()))
    }

    /// Adds the check `read model NAME` to a service's health for each read model. A thread queries Redis every second over a connection of
    /// its own. The check fails until Redis was reached once. It warns while Redis cannot be reached or the read model is not complete.
    /// Given [`Engine::checks`](throng::Engine::checks), it shows on `/health/ready`.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn watch(&self, health: &Health, models: impl IntoIterator<Item = ReadModel>) -> Result<Watch, Error> {
        let Inner { client, breaker, .. } = &*self.inner;
        Watch::start(Self::of(client.clone(), breaker.clone()), health, models)
    }

    async fn try_once<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, Failed> {
        let call = self.inner.breaker.enter().map_err(Failed::Open)?;
        match self.exchange(commands).await {
            Ok(answer) => {
                self.inner.budget.deposit();
                call.succeeded();
                Ok(answer)
            }
            Err(error) if is_refusal(&error) => {
                call.succeeded();
                Err(Failed::Refused(error))
            }
            Err(error) if is_reply(&error) => {
                call.succeeded();
                Err(Failed::Busy(error))
            }
            Err(error) => {
                *self.inner.connection.lock().await = None;
                call.failed();
                Err(Failed::Lost(error))
            }
        }
    }

    async fn exchange<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, RedisError> {
        let mut connection = {
            let mut shared = self.inner.connection.lock().await;
            match &*shared {
                Some(connection) => connection.clone(),
                None => shared.insert(connect(&self.inner.client, ANSWER_MAX).await?).clone(),
            }
        };
        commands.query_async(&mut connection).await
    }
}

/// The failure of an attempt.
enum Failed {
    /// The breaker is open, so that no attempt was made.
    Open(throng_breaker::Refused),
    Lost(RedisError),
    /// Redis was reached, but cannot answer for now.
    Busy(RedisError),
    Refused(RedisError),
}

impl Failed {
    fn into_error(self) -> ReadError {
        match self {
            Self::Open(refused) => ReadError::Unavailable {
                why: refused.to_string(),
                retry_after: refused.retry_after,
            },
            Self::Lost(error) | Self::Busy(error) => ReadError::Unavailable {
                why: error.to_string(),
                retry_after: Duration::from_secs(1),
            },
            Self::Refused(error) => ReadError::Refused(error),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
