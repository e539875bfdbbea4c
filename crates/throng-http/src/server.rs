//! What a request is answered with, whatever brought it: engine, limits, gate, metrics, the app's routes. It knows no connections and no
//! loop.

use crate::{
    Limits,
    access::Recent,
    access_log::Sampler,
    gate::{Gate, Pass},
    metrics::{Limit, Metrics},
    places::Taken,
    problem::Problem,
    shared::Shared,
};
use std::{cell::RefCell, sync::Arc, time::Duration};
use throng::driver::Charge;
use tokio::sync::watch;

/// When a client that found no place for a live stream may come back.
const LIVE_RETRY: Duration = Duration::from_secs(5);

/// When a client whose body found no room may come back.
const BODIES_RETRY: Duration = Duration::from_secs(1);

/// When a client whose answer found no room may come back.
const PAGES_RETRY: Duration = Duration::from_secs(1);

/// A place among the live streams, with its memory.
pub(crate) struct LivePlace {
    _place: Taken,
    _memory: Charge,
}

/// Where a gateway is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its port refuses connections; administration does not, if it has its own.
    Closed,
    Serving,
    /// It takes no connections any more, and finishes what is in flight.
    Draining,
    /// Its loops end.
    Over,
}

/// One a loop, on its thread.
pub(crate) struct Server {
    shared: Arc<Shared>,
    pub(crate) gate: Gate,
    /// The app's routes, as this loop's own.
    pub(crate) router: Option<RefCell<axum::Router>>,
    /// Who was seen lately.
    pub(crate) recent: RefCell<Recent>,
    sampler: Sampler,
    stage: watch::Receiver<Stage>,
}

impl Server {
    pub(crate) fn new(
        shared: Arc<Shared>,
        pass: Arc<Pass>,
        router: Option<axum::Router>,
        stage: watch::Receiver<Stage>,
    ) -> Self {
        Self {
            gate: Gate::new(&shared.limits, pass, shared.metrics.waiting.clone()),
            router: router.map(RefCell::new),
            recent: RefCell::default(),
            sampler: Sampler::default(),
            stage,
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Whether the access log has a line for the next request; asked once a request.
    pub(crate) fn logs_next(&self) -> bool {
        self.sampler.takes_next(self.shared.access_log.as_ref())
    }

    /// A place for a live stream or subscription.
    pub(crate) fn live_place(&self) -> Result<LivePlace, Box<Problem>> {
        let place = self.shared.live.take();
        let place = place
            .zip(self.shared.held.stream())
            .map(|(_place, _memory)| LivePlace { _place, _memory });
        place.ok_or_else(|| {
            let detail = "There are as many live streams and subscriptions as there may be. Try again later, or read the history page by page.";
            Problem::overloaded(detail, LIVE_RETRY).boxed()
        })
    }

    /// Room for so many bytes of a body among those in flight, with what it has taken of it.
    pub(crate) fn takes_body(&self, taken: Option<Charge>, bytes: usize) -> Result<Charge, Box<Problem>> {
        let bodies = &self.shared.held.bodies;
        let mut taken = taken.unwrap_or_else(|| bodies.nothing());
        if taken.grow_to(bytes) {
            return Ok(taken);
        }
        self.metrics().limited(Limit::Bodies);
        let detail = format!(
            "The bodies of requests that are on their way may take {} bytes together, and do. Nothing was done; try again later.",
            bodies.most()
        );
        Err(Problem::overloaded(detail, BODIES_RETRY).boxed())
    }

    /// Pages and answers fill their share.
    pub(crate) fn no_room_for_pages(&self) -> Box<Problem> {
        self.metrics().limited(Limit::Pages);
        let detail = format!(
            "The answers that clients have yet to take hold {} bytes, which is all they may. Nothing was done; try again later.",
            self.shared.held.pages.held()
        );
        Problem::overloaded(detail, PAGES_RETRY).boxed()
    }

    /// Refuses a command, or a request of an app's, while the answers of those before it hold too much: its own could not be refused.
    pub(crate) fn has_room_for_reply(&self) -> Result<(), Box<Problem>> {
        match self.shared.held.pages.is_overdrawn() {
            true => Err(self.no_room_for_pages()),
            false => Ok(()),
        }
    }

    /// A body that has not come in time.
    pub(crate) fn late_body(&self) -> Box<Problem> {
        self.metrics().limited(Limit::BodyWait);
        Problem::request_timeout(self.limits()).boxed()
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// Resolves once the gateway's port is open, or it drains.
    pub(crate) async fn opens(&self) {
        self.reaches(Stage::Serving).await;
    }

    /// Resolves once the gateway drains.
    pub(crate) async fn drains(&self) {
        self.reaches(Stage::Draining).await;
    }

    /// Resolves once the gateway's loops end.
    pub(crate) async fn is_over(&self) {
        self.reaches(Stage::Over).await;
    }

    async fn reaches(&self, wanted: Stage) {
        // An error means that the gateway is gone: that is over, too.
        let _ = self.stage.clone().wait_for(|stage| *stage >= wanted).await;
    }
}
