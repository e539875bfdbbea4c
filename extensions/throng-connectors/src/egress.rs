//! Events to a target: the once-only core.

use crate::{Batch, Outgoing, SinkError, Target, TargetPosition};
use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
};
use throng::{
    journal::Later,
    model::Entity,
    projection::{DurableEvent, EventOffset, Sink},
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Mutex,
};

/// Maps the events of an entity to items of a target.
pub trait Outbound: Send + Sync + 'static {
    /// The name of the egress: 1 to 64 of `[a-z0-9-]`, different from that of any other sink or projection. The offset is stored under it.
    const NAME: &'static str;
    /// Raise it to have everything delivered again from the first event.
    const VERSION: u32 = 1;
    /// The entity whose events are delivered.
    type Of: Entity;
    /// The item that the [`Target`] takes.
    type Item: Send + 'static;

    /// The form of an event; `None`: the event is left out.
    fn map(&self, seen: &DurableEvent<Self::Of>) -> Option<Self::Item>;
}

/// A [`Sink`] that delivers the events of a kind to a target. It is given to an engine.
///
/// Every durable event is delivered, in order. A target that [stores the position](Target::STORES_POSITION) gets each event once: repeated
/// events are recognized by their position and left out. If such a target lost items, its position shows that, and they are delivered
/// again.
pub struct Egress<O, T> {
    inner: Arc<Inner<O, T>>,
    /// The runtime with a thread of its own, started at the first delivery: the engine's threads must not wait for sockets.
    runtime: SyncMutex<Option<Runtime>>,
}

struct Inner<O, T> {
    outbound: O,
    state: Mutex<State<T>>,
}

struct State<T> {
    target: T,
    /// The position last stored at the target or read from it.
    stored: Option<TargetPosition>,
}

impl<O, T> Egress<O, T> {
    /// Takes the events that `outbound` maps to a target.
    #[must_use]
    pub fn new(outbound: O, target: T) -> Self {
        let state = State { target, stored: None };
        Self {
            inner: Arc::new(Inner {
                outbound,
                state: Mutex::new(state),
            }),
            runtime: SyncMutex::default(),
        }
    }

    fn handle(&self) -> Result<Handle, SinkError> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let begun = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("throng-egress")
            .enable_all()
            .build();
        let begun = begun.map_err(|error| SinkError::Retry(format!("a thread cannot be started: {error}")))?;
        Ok(runtime.insert(begun).handle().clone())
    }
}

impl<O: Outbound, T: Target<Item = O::Item>> Egress<O, T> {
    /// Has its own thread do something.
    fn run<F>(&self, work: impl FnOnce(Arc<Inner<O, T>>) -> F) -> Later<'_, Result<(), SinkError>>
    where
        F: Future<Output = Result<(), SinkError>> + Send + 'static,
    {
        let done = self.handle().map(|handle| handle.spawn(work(self.inner.clone())));
        Box::pin(async move {
            let ended = done?.await;
            ended.map_err(|_| SinkError::Retry("the egress is ending, or its target has panicked".into()))?
        })
    }
}

impl<O, T> Drop for Egress<O, T> {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The egress may be dropped on a thread of another runtime. There, waiting for this runtime's end would panic.
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<O: Outbound, T> fmt::Debug for Egress<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Egress").field(&O::NAME).finish()
    }
}

impl<O: Outbound, T: Target<Item = O::Item>> Sink for Egress<O, T> {
    const NAME: &'static str = O::NAME;
    const VERSION: u32 = O::VERSION;
    const IS_IDEMPOTENT: bool = T::STORES_POSITION;
    type Of = O::Of;

    fn deliver(&self, batch: Vec<DurableEvent<O::Of>>) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move { inner.state.lock().await.deliver(&inner.outbound, batch).await })
    }

    fn compare(&self, delivered: Option<EventOffset>) -> Later<'_, Result<(), SinkError>> {
        match T::STORES_POSITION {
            true => self.run(move |inner| async move { inner.state.lock().await.compare(delivered).await }),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn clear(&self) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move { inner.state.lock().await.begin_anew().await })
    }

    fn complete(&self) -> Later<'_, Result<(), SinkError>> {
        self.run(|inner| async move { inner.state.lock().await.target.complete().await })
    }
}

impl<T: Target> State<T> {
    async fn deliver<O: Outbound<Item = T::Item>>(
        &mut self,
        outbound: &O,
        events: Vec<DurableEvent<O::Of>>,
    ) -> Result<(), SinkError> {
        let mut position = match T::STORES_POSITION {
            true => self.found().await?,
            false => TargetPosition::default(),
        };
        let (mut items, mut is_new) = (Vec::with_capacity(events.len()), false);
        for seen in events {
            let offset = seen.offset;
            let is_taken = position.has(offset, seen.at.micros);
            let is_taken = is_taken.map_err(|()| SinkError::Poison {
                offset,
                reason: format!(
                    "what the target holds is of another history than the journal's ({position}): clear it, or bring the journal back"
                ),
            })?;
            if is_taken {
                continue;
            }
            position.take(offset, seen.at.micros);
            is_new = true;
            let trace = seen.trace;
            items.extend(outbound.map(&seen).map(|item| Outgoing { offset, item, trace }));
        }
        if is_new {
            let batch = Batch {
                items,
                position: position.clone(),
            };
            self.target.deliver(batch).await?;
            self.stored = Some(position);
        }
        Ok(())
    }

    /// Returns the target's position after checking that the target has lost nothing.
    async fn found(&mut self) -> Result<TargetPosition, SinkError> {
        let Some(found) = self.target.position().await? else {
            self.begin_anew().await?;
            return Err(SinkError::Behind { reached: None });
        };
        match &self.stored {
            Some(stored) if !found.covers(stored) => self.go_back(found).await,
            _ => Ok(found),
        }
    }

    /// Compares the target's position with the last event delivered, to find lost items.
    async fn compare(&mut self, delivered: Option<EventOffset>) -> Result<(), SinkError> {
        let Some(found) = self.target.position().await? else {
            // If the egress knows of no delivery, the target has no items of it to remove.
            if delivered.is_none() {
                self.target.check_empty().await?;
            }
            self.begin_anew().await?;
            return Err(SinkError::Behind { reached: None });
        };
        if delivered.is_some_and(|delivered| !found.has_come_to(delivered)) {
            return self.go_back(found).await.map(drop);
        }
        self.stored = Some(found);
        Ok(())
    }

    /// Makes the engine deliver lost items again.
    async fn go_back(&mut self, found: TargetPosition) -> Result<TargetPosition, SinkError> {
        let reached = found.newest();
        self.stored = Some(found);
        self.target.mark_incomplete().await?;
        Err(SinkError::Behind { reached })
    }

    /// Has everything delivered again, from the first event.
    async fn begin_anew(&mut self) -> Result<(), SinkError> {
        self.stored = None;
        self.target.clear().await?;
        if T::STORES_POSITION {
            let beginning = Batch {
                items: Vec::new(),
                position: TargetPosition::default(),
            };
            self.target.deliver(beginning).await?;
            self.stored = Some(TargetPosition::default());
        }
        Ok(())
    }
}
