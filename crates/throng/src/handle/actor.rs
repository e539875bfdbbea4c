//! Asking an actor from Rust.

use crate::{ActorKind, engine::Engine};
use std::{marker::PhantomData, time::Duration};
use throng_core::model::{Actor, Error};
use throng_services::{health::Health, stats::Stats};

/// An actor, to be asked.
pub struct ActorHandle<A: Actor> {
    engine: Engine,
    id: String,
    deadline: Option<Duration>,
    of: PhantomData<fn() -> A>,
}

impl<A: Actor> ActorHandle<A> {
    /// Sets the longest time to wait.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Asks it to do something. One in place does it when this is polled first.
    ///
    /// # Errors
    /// The actor's "no", or the engine's.
    ///
    /// # Panics
    /// One on workers: outside of a tokio runtime with its timer enabled.
    pub async fn ask(self, command: A::Command) -> Result<A::Reply, Error<A::Rejection>> {
        let core = &self.engine.core;
        let services = &core.services;
        services.ask::<A>(&core.context, self.id, command, self.deadline).await
    }

    /// Has it do something, without waiting for it. What comes of it nobody hears.
    ///
    /// # Errors
    /// It was not sent.
    pub fn tell(self, command: A::Command) -> Result<(), Error<A::Rejection>> {
        let core = &self.engine.core;
        let sent = core.services.tell::<A>(&core.context, self.id, command, self.deadline);
        sent.map(drop)
    }
}

impl Engine {
    /// An actor, to ask it.
    pub fn actor<A: Actor>(&self, id: impl Into<A::Id>) -> ActorHandle<A> {
        ActorHandle {
            engine: self.clone(),
            id: id.into().to_string(),
            deadline: None,
            of: PhantomData,
        }
    }

    /// The kinds of actors it knows. A [driver](crate::driver::Driver::command) numbers them after those of entities.
    #[must_use]
    pub fn actor_kinds(&self) -> &[ActorKind] {
        &self.core.services.kinds
    }

    /// The statistics of its actors, and of the app's own services that report to it ([`Setup::stats`](throng_services::Setup::stats)).
    /// Part of [`metrics`](Self::metrics).
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.services.stats
    }

    /// The health of the app's own services that are [registered](Health::register) here. A gateway shows it, and is not ready while one of
    /// them fails.
    #[must_use]
    pub fn checks(&self) -> &Health {
        &self.core.services.health
    }
}
