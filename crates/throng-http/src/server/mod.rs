//! The parts that answer a request on any connection: engine, limits, admission, metrics, the app's routes. This module knows neither
//! connections nor loops.

pub(crate) mod body;
mod date;
mod shared;

pub use shared::PageRoom;
pub(crate) use shared::{ADMIN_CONNECTIONS_MAX, Shared, Trust, connections_in_memory};

use crate::{
    Limits,
    access_log::{Entry, Sampler},
    admission::{Admission, WaitTimes},
    answer::{Charged, ResponseBody},
    connection::Buffers,
    guard::Recent,
    metrics::{Limit, Metrics},
    places::Taken,
    problem::{Answered, Problem},
    request::path::entity_id,
};
use date::Date;
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Body as _;
use std::{cell::RefCell, sync::Arc, time::Duration};
use throng::{driver::Charge, journal::ShardId, spans::Tracer};
use tokio::sync::watch;

/// The largest answer that is not charged, since the charge for its connection includes it.
const FREE_BYTES: usize = 64 << 10;

/// The pause suggested to a client that found no place for a live stream.
const LIVE_RETRY: Duration = Duration::from_secs(5);

/// The pause suggested to a client whose body found no room.
const BODIES_RETRY: Duration = Duration::from_secs(1);

/// The pause suggested to a client whose answer found no room.
const PAGES_RETRY: Duration = Duration::from_secs(1);

/// A place among the live streams, with its charge.
pub(crate) struct LivePlace {
    _place: Taken,
    _memory: Charge,
}

/// The stage of a gateway, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its port refuses connections; administration does not, if it has its own.
    Closed,
    Serving,
    /// The gateway accepts no more connections, and finishes the requests in flight.
    Draining,
    /// Its loops end.
    Over,
}

/// The server of one loop, used on that loop's thread only.
pub(crate) struct Server {
    shared: Arc<Shared>,
    pub(crate) admission: Admission,
    /// The app's routes, as this loop's own.
    pub(crate) router: Option<RefCell<axum::Router>>,
    /// The tokens that were recently checked.
    pub(crate) recent: RefCell<Recent>,
    sampler: Sampler,
    /// The text of a response's `Date`.
    pub(crate) date: Date,
    pub(crate) buffers: Buffers,
    stage: watch::Receiver<Stage>,
}

impl Server {
    pub(crate) fn new(
        shared: Arc<Shared>,
        pass: Arc<WaitTimes>,
        router: Option<axum::Router>,
        stage: watch::Receiver<Stage>,
    ) -> Self {
        Self {
            admission: Admission::new(&shared.limits, pass, shared.metrics.waiting.clone()),
            router: router.map(RefCell::new),
            recent: RefCell::default(),
            sampler: Sampler::default(),
            date: Date::default(),
            buffers: Buffers::default(),
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

    /// The tracer, if requests are traced.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.shared.tracer.as_deref()
    }

    /// True if the next request gets a line in the access log. Called once for each request.
    pub(crate) fn logs_next(&self) -> bool {
        self.sampler.takes_next(self.shared.access_log.as_ref())
    }

    /// Takes a place for a live stream or subscription.
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

    /// Charges this many bytes of a body as in flight. `taken` is the body's charge so far.
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

    /// Charges a large answer that is sent even without room.
    pub(crate) fn charge_anyway(&self, bytes: usize) -> Option<Charge> {
        (bytes > FREE_BYTES).then(|| self.shared.held.pages.take_anyway(bytes))
    }

    /// Charges a large answer.
    ///
    /// # Errors
    /// A problem with status 503: there is no room for it.
    pub(crate) fn charge(&self, bytes: usize) -> Answered<Option<Charge>> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        // An answer larger than the whole share takes all of it.
        let share = &self.shared.held.pages;
        let charge = share.take(bytes.min(share.most()));
        charge.map(Some).ok_or_else(|| self.no_room_for_pages())
    }

    /// Charges a large answer until its client has taken it. Without room it becomes a refusal, except for a command's reply and an app's
    /// answer, whose effects have happened.
    pub(crate) fn charged(&self, mut response: Response<ResponseBody>) -> (Response<ResponseBody>, Option<Charge>) {
        if let Some(Charged(charge)) = response.extensions_mut().remove() {
            return (response, Arc::into_inner(charge));
        }
        let large = response.body().size_hint().exact();
        let large = large.and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = large else { return (response, None) };
        if let ResponseBody::App(_) = response.body() {
            return (response, self.charge_anyway(bytes));
        }
        match self.charge(bytes) {
            Ok(charge) => (response, charge),
            Err(problem) => (problem.response(), None),
        }
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

    /// Refuses a command, or a request to an app, while earlier answers hold too much memory: its own answer could not be refused.
    pub(crate) fn has_room_for_reply(&self) -> Result<(), Box<Problem>> {
        match self.shared.held.pages.is_overdrawn() {
            true => Err(self.no_room_for_pages()),
            false => Ok(()),
        }
    }

    /// Returns the problem of a body that has not arrived in time.
    pub(crate) fn late_body(&self) -> Box<Problem> {
        self.metrics().limited(Limit::BodyWait);
        Problem::request_timeout(self.limits()).boxed()
    }

    /// Returns the shard of an entity in a path, if clients get its owner.
    #[inline]
    pub(crate) fn told_shard(&self, kind: &str, id: &str) -> Option<ShardId> {
        self.shared.console.about.owner.as_ref()?;
        Some(self.shared.engine.registry().shard_of(kind, &entity_id(id).ok()?))
    }

    /// Returns the URL of a shard's owner as the header field [`OWNER`](crate::answer::OWNER) has it.
    pub(crate) fn owner(&self, shard: ShardId) -> Option<HeaderValue> {
        let url = self.shared.console.about.owner.as_ref()?(shard)?;
        HeaderValue::try_from(url).ok()
    }

    /// Returns true until the gateway's port is open.
    pub(crate) fn is_closed(&self) -> bool {
        *self.stage.borrow() == Stage::Closed
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
        // An error means that the gateway has gone, which ends the wait, too.
        let _ = self.stage.clone().wait_for(|stage| *stage >= wanted).await;
    }
}

impl Entry {
    /// Passes the line of an answered request to the access log.
    pub(crate) fn answered(mut self: Box<Self>, server: &Server, status: StatusCode, took: Option<Duration>) {
        let shared = server.shared();
        if let Some(log) = &shared.access_log {
            self.ends(status, took, |path| shared.shown_path(path));
            log.write(self);
        }
    }

    /// Passes the line of a request answered with a problem to the access log.
    pub(crate) fn refused(mut self: Box<Self>, server: &Server, problem: &Problem, took: Option<Duration>) {
        self.has_problem(problem.slug());
        self.answered(server, problem.http_status(), took);
    }
}
