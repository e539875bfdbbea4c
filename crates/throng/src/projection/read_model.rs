//! A projection's rows, as they are read.

use super::{
    Progress, Projection, ProjectionState,
    place::{PLACE_KEY, visible},
    projector::{Projections, Projector},
    report::Report,
};
use crate::{context::OpenContext, epoch};
use std::{future::Future as _, marker::PhantomData, sync::Arc, task::Poll, time::Duration};
use throng_journal::{Error, Positions, ViewOffset, ViewRange, ViewRow, WriterId};

/// The longest wait for a projection that another node runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// A projection's rows, for readers. They lag a moment behind the durable events.
pub struct ReadModel<P: Projection> {
    open: Arc<OpenContext>,
    projections: Arc<Projections>,
    projector: Option<Arc<Projector>>,
    of: PhantomData<fn() -> P>,
}

impl<P: Projection> Clone for ReadModel<P> {
    fn clone(&self) -> Self {
        Self {
            open: self.open.clone(),
            projections: self.projections.clone(),
            projector: self.projector.clone(),
            of: PhantomData,
        }
    }
}

impl<P: Projection> ReadModel<P> {
    pub(crate) fn new(open: Arc<OpenContext>, projections: Arc<Projections>) -> Self {
        Self {
            open,
            projector: projections.find(P::NAME).cloned(),
            projections,
            of: PhantomData,
        }
    }

    /// Returns a row's value.
    ///
    /// # Errors
    /// [`Error`]: the rows cannot be read.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        if key.as_ref() == PLACE_KEY {
            return Ok(None);
        }
        let views = &self.projections.views;
        let mut found = views.get(P::NAME, vec![key.as_ref().to_vec()]).await?;
        Ok(found.pop().flatten())
    }

    /// Returns the rows of a range, in the order of their keys.
    ///
    /// # Errors
    /// [`Error`]: the rows cannot be read.
    pub async fn scan(&self, range: ViewRange) -> Result<Vec<ViewRow>, Error> {
        self.projections.views.scan(P::NAME, visible(range)).await
    }

    /// Returns the offset of the rows; in a cluster, that of the last commit taken, of any node.
    ///
    /// # Errors
    /// [`Error`]: it cannot be read.
    pub async fn offset(&self) -> Result<Option<ViewOffset>, Error> {
        self.projections.views.offset(P::NAME).await
    }

    /// Returns the projection's progress; `None` if this engine does not run it.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        Some(self.projector.as_ref()?.progress(&self.projections.epochs))
    }

    /// Waits until everything that is durable now, on all nodes of a cluster, is in the rows. `false`: that will not happen, because the
    /// projection has stopped ([`progress`](Self::progress) has the reason), the engine stops, or does not run it; or another node runs it,
    /// and has not come so far within ten seconds.
    pub async fn caught_up(&self) -> bool {
        let Some(projector) = &self.projector else { return false };
        let epochs = &self.projections.epochs;
        let first = projector
            .report
            .borrow()
            .told
            .as_ref()
            .map_or(WriterId(0), Positions::first);
        let (streams, durable) = loop {
            if let Some(epoch) = epochs.running() {
                // The durable position of a node's own stream is not enough in a cluster.
                let durable = epochs.member().is_none().then(|| epoch.group_commit.durable());
                match epoch::streams(&epochs.context, Some(&epoch), first).await {
                    Ok(streams) => break (streams, durable),
                    Err(_) => epochs.context.host.sleep(Duration::from_millis(100)).await,
                }
            }
            if epochs.context.is_stopping() {
                return false;
            }
            if epochs.durable().is_none() {
                epochs.changed(None).await;
            }
        };
        let asked = projector.asked();
        let is_there = |report: &Report| {
            let has_told = |told: &Positions| told.untold(&streams) == 0;
            report.followed >= asked && report.told.as_ref().is_some_and(has_told) && report.reached >= durable
        };
        let mut report = projector.report.subscribe();
        projector.wake.wake();
        let mut patience = epochs.context.host.sleep(PATIENCE);
        let over = report.wait_for(|report| {
            let has_stopped = report.followed >= asked && matches!(report.state, ProjectionState::Stopped { .. });
            is_there(report) || has_stopped || report.ended
        });
        let mut over = std::pin::pin!(over);
        std::future::poll_fn(|context| {
            if let Poll::Ready(over) = over.as_mut().poll(context) {
                return Poll::Ready(over.is_ok_and(|report| is_there(&report)));
            }
            let is_over = patience.as_mut().poll(context).is_ready();
            match is_over && projector.report.borrow().state == ProjectionState::Remote {
                true => Poll::Ready(false),
                false => Poll::Pending,
            }
        })
        .await
    }
}
