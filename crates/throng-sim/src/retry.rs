//! Repeats a request until its outcome is known, like a client that keeps its idempotency key.

use crate::simulation::{Gone, Sim};
use std::{future::Future, time::Duration};
use throng::{
    Engine,
    model::{Entity, Error, Query},
};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

impl Sim {
    /// Sends a command under an idempotency key until its outcome is known, and starts the service if there is none. The result is final: a
    /// reply, a rejection, or an error that a retry would not change.
    ///
    /// # Errors
    /// The entity's rejection, or an error of the engine after which a client must not retry.
    pub async fn ask_until_known<E: Entity<Command: Clone>>(
        &self,
        id: impl Into<E::Id>,
        key: &str,
        command: E::Command,
    ) -> Result<E::Reply, Error<E::Rejection>> {
        let id = id.into();
        self.until_known(|engine| engine.entity::<E>(id.clone()).once(key).ask(command.clone()))
            .await
    }

    /// Works like [`ask_until_known`](Self::ask_until_known), for a query.
    ///
    /// # Errors
    /// The entity's rejection, or an error of the engine after which a client must not retry.
    pub async fn read_until_known<E: Entity, Q: Query<E>>(
        &self,
        id: impl Into<E::Id>,
        mut query: impl FnMut() -> Q,
    ) -> Result<Q::Answer, Error<E::Rejection>> {
        let id = id.into();
        self.until_known(|engine| engine.entity::<E>(id.clone()).read(query()))
            .await
    }

    async fn until_known<T, R, F>(&self, mut attempt: impl FnMut(Engine) -> F) -> Result<T, Error<R>>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Future<Output = Result<T, Error<R>>> + Send + 'static,
    {
        loop {
            if self.is_down() {
                // A failed start is repeated with the next attempt.
                self.has_started().await;
            }
            match self.call(&mut attempt).await {
                Err(Gone)
                | Ok(Err(
                    Error::Overloaded { .. } | Error::Unavailable { .. } | Error::Expired | Error::OutcomeUnknown,
                )) => self.sleep(PAUSE).await,
                Ok(known) => return known,
            }
        }
    }
}
