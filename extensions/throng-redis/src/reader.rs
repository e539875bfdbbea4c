//! Queries of what a sink has written.

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

/// Asks a Redis, for example a server that has no journal of its own and answers from the read models a [`RedisTarget`](crate::RedisTarget) keeps there. A
/// clone is the same.
///
/// All who ask share one connection, which is made with the first question, and anew after it was lost. A question whose connection is lost is asked
/// once more, within a budget of a tenth of all questions.
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
    /// The read model is not there, or not complete: nothing was written yet, or what was is lost and written again.
    #[error("the read model {name} in Redis is not complete: its consumer is writing it, or has to be started")]
    Incomplete {
        /// The name of its mapping.
        name: &'static str,
    },
    /// Asking again comes to the same.
    #[error("Redis refuses the question: {0}")]
    Refused(RedisError),
}

impl Reader {
    /// Asks the Redis at `redis://host:port/database`, under TLS at `rediss://`; while it is down, questions are refused at once, as the breaker says.
    ///
    /// # Errors
    /// That is no address.
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

    /// Asks; commands that only read, since they may be sent twice. On a tokio runtime with time and sockets.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, ReadError> {
        match self.try_once(commands).await {
            Err(Failed::Lost(_)) if self.inner.budget.withdraw() => {}
            answered => return answered.map_err(Failed::into_error),
        }
        self.try_once(commands).await.map_err(Failed::into_error)
    }

    /// Works like [`ask`](Self::ask), of what an egress has written, and only while that is complete.
    ///
    /// # Errors
    /// There is no answer, or it would be one of an incomplete read model.
    pub async fn ask_complete<O: Outbound, T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, ReadError> {
        let mut commands = commands.clone();
        // Behind the rest: what is lost before it is answered is seen here.
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

    /// Tells a service how read models are, each as the check `read model NAME`, from looks every second over a connection of its own. It fails until
    /// Redis was reached once, and warns while Redis cannot be reached or the read model is not complete. With
    /// [`Engine::checks`](throng::Engine::checks) that is on `/health/ready`.
    ///
    /// # Errors
    /// The system gives no thread.
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
    /// The attempt was not made.
    Open(throng_breaker::Refused),
    Lost(RedisError),
    /// Redis is there, and cannot answer just now.
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
