//! A projection's rows, as they are read.

use super::{
    Progress, Projection, State,
    projector::{Projector, Report},
};
use crate::Engine;
use std::{marker::PhantomData, sync::Arc};
use throng_journal::{Error, ViewOffset, ViewRange, ViewRow};

/// A projection's rows, to be read. They are a moment behind what is durable.
pub struct ReadModel<P: Projection> {
    engine: Engine,
    projector: Option<Arc<Projector>>,
    of: PhantomData<fn() -> P>,
}

impl<P: Projection> Clone for ReadModel<P> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            projector: self.projector.clone(),
            of: PhantomData,
        }
    }
}

impl<P: Projection> ReadModel<P> {
    pub(super) fn new(engine: Engine, projector: Option<Arc<Projector>>) -> Self {
        Self {
            engine,
            projector,
            of: PhantomData,
        }
    }

    /// A row's value.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let views = &self.engine.core.projections.views;
        let mut found = views.get(P::NAME, vec![key.as_ref().to_vec()]).await?;
        Ok(found.pop().flatten())
    }

    /// The rows of a range, in the order of their keys.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub async fn scan(&self, range: ViewRange) -> Result<Vec<ViewRow>, Error> {
        self.engine.core.projections.views.scan(P::NAME, range).await
    }

    /// How far the rows have come.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn offset(&self) -> Result<Option<ViewOffset>, Error> {
        self.engine.core.projections.views.offset(P::NAME).await
    }

    /// How far the projection has come; `None` if this engine does not run it.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        Some(self.projector.as_ref()?.progress(&self.engine.core))
    }

    /// Waits until everything that is durable now is in the rows. `false`: it will not be, because the projection has stopped
    /// (its [`progress`](Self::progress) says why), the engine stops, or does not run it.
    pub async fn caught_up(&self) -> bool {
        let Some(projector) = &self.projector else { return false };
        let target = loop {
            if let Some(durable) = self.engine.driver().durable() {
                break durable;
            }
            if self.engine.core.context.is_stopping() {
                return false;
            }
            self.engine.driver().changed(None).await;
        };
        let rebuilds = projector.rebuilds();
        let is_there =
            |report: &Report| report.rebuilds >= rebuilds && report.reached.is_some_and(|reached| reached >= target);
        let mut report = projector.report.subscribe();
        projector.wake.wake();
        let over = report.wait_for(|report| {
            let has_stopped = report.rebuilds >= rebuilds && matches!(report.state, State::Stopped { .. });
            is_there(report) || has_stopped || report.ended
        });
        over.await.is_ok_and(|report| is_there(&report))
    }
}
