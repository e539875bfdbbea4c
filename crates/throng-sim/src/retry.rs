//! Asking until it is known what came of it, as a client does that keeps its idempotency key.

use crate::simulation::{Gone, Sim};
use std::{future::Future, time::Duration};
use throng::{
    Engine,
    model::{Entity, Error, Query},
};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

impl Sim {
    /// Asks an entity under an idempotency key, again and again until it is known what came of it, and starts the service when
    /// there is none. What comes back is final: a reply, the entity's "no", or an error that another try would not change.
    ///
    /// # Errors
    /// The entity's "no", or an error of the engine that is none of those a client tries again after.
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

    /// Reads from an entity, as [`ask_until_known`](Self::ask_until_known) asks it.
    ///
    /// # Errors
    /// The entity's "no", or an error of the engine that is none of those a client tries again after.
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
                // One that fails is tried again with the next attempt.
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
