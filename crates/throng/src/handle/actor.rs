//! Asking an actor from Rust.

use crate::{ActorKind, engine::Engine};
use std::{marker::PhantomData, time::Duration};
use throng_core::model::{Actor, Error};
use throng_services::{health::Health, stats::Stats};

/// An address of an actor, to send it commands.
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

    /// Sends a command and returns its reply. An actor on the asker's thread executes it at the first poll.
    ///
    /// # Errors
    /// `Error::Rejected` with the actor's rejection, or the engine's refusal.
    ///
    /// # Panics
    /// Outside a tokio runtime with its timer enabled, for an actor on workers.
    pub async fn ask(self, command: A::Command) -> Result<A::Reply, Error<A::Rejection>> {
        let core = &self.engine.core;
        let services = &core.services;
        services.ask::<A>(&core.context, self.id, command, self.deadline).await
    }

    /// Sends a command without waiting for it. Its outcome goes to nobody.
    ///
    /// # Errors
    /// The command was not sent, for this reason.
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

    /// Returns the kinds of actors. A [driver](crate::driver::Driver::command) numbers them after those of entities.
    #[must_use]
    pub fn actor_kinds(&self) -> &[ActorKind] {
        &self.core.services.kinds
    }

    /// Returns the statistics of its actors, and of the app's own services that report to it
    /// ([`Setup::stats`](throng_services::Setup::stats)). They are part of [`metrics`](Self::metrics).
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.services.stats
    }

    /// Returns the health checks that the app's own services have [registered](Health::register) here. A gateway shows them, and is not
    /// ready while one of them fails.
    #[must_use]
    pub fn checks(&self) -> &Health {
        &self.core.services.health
    }
}
