//! The surroundings of every part of an engine: its settings, the world it runs in, and the signals between its tasks.

mod rolling_upgrade;
#[cfg(feature = "services")]
mod topics;
mod unresolved;

pub(crate) use rolling_upgrade::NewerReleases;
#[cfg(feature = "services")]
pub(crate) use topics::Topics;
pub(crate) use unresolved::LastCount;
pub use unresolved::{OTHER_CAUSES, Unresolved, UnresolvedWork};

use crate::{
    Metrics, Options,
    budget::Budget,
    disk::DiskBudget,
    host::{Host, Signal, SteadyHost},
    remote::Peers,
    spans::Tracer,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};
use throng_commit::Relay;
use throng_core::{
    model::{Error, Keep},
    shard::Registry,
};
use throng_journal::{Journal, Store};
#[cfg(feature = "services")]
use throng_services::stats::Stats;

/// The reason given by each refusal of a quiet engine, and among its troubles.
pub(crate) const QUIET: &str = "the service was started quiet: it answers queries and changes nothing";

/// The surroundings of an engine. None of it belongs to a single writer's epoch.
pub(crate) struct Context {
    pub(crate) registry: Arc<Registry>,
    pub(crate) options: Options,
    pub(crate) host: Arc<dyn Host>,
    /// The same host, as the one that checks the time of day.
    pub(crate) clock: Arc<SteadyHost>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) store: Arc<dyn Store>,
    /// The other nodes, in a cluster.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    pub(crate) newer_releases: NewerReleases,
    /// The last count of work that waits for an operator.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) disk: DiskBudget,
    pub(crate) metrics: Metrics,
    #[cfg(feature = "services")]
    /// The statistics of actors and of an app's own services.
    pub(crate) stats: Stats,
    #[cfg(feature = "services")]
    pub(crate) topics: Topics,
    pub(crate) signals: Signals,
    /// The last count of what waits for an operator.
    pub(crate) unresolved: Arc<LastCount>,
    pub(crate) stopping: AtomicBool,
    /// The budget that other parts of the process charge to the engine's memory.
    pub(crate) budget: Budget,
}

/// The signals of the background tasks, and the wakers of tasks that wait for durable commits.
#[derive(Default)]
pub(crate) struct Signals {
    /// A caller outside a gateway's loops has staged something to commit.
    pub(crate) commit: Signal,
    /// There are messages to deliver.
    pub(crate) deliver: Arc<Signal>,
    /// A timer was set that is due earlier than the task knows.
    pub(crate) timers: Signal,
    /// A checkpoint is wanted before its time.
    pub(crate) checkpoint: Signal,
    /// The writer's epoch has ended.
    pub(crate) recover: Signal,
    /// The set of dead messages or quarantined entities has changed.
    pub(crate) unresolved: Signal,
    /// Wakes tasks that wait for a commit on another loop than the one that makes it durable.
    pub(crate) relay: Arc<Relay>,
    watchers: Mutex<Vec<Waker>>,
}

impl Signals {
    /// Wakes the waker at the next durable commit, and when the engine's status changes.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that polls repeatedly while nothing becomes durable is listed once.
        if !watchers.iter().any(|own| own.will_wake(waker)) {
            watchers.push(waker.clone());
        }
    }

    pub(crate) fn wake_watchers(&self) {
        let watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        watchers.into_iter().for_each(Waker::wake);
    }
}

/// Ends an engine with the last part of it that holds this. A task at work then is not ended; if it finds the journal taken over, it must not
/// begin another epoch: that would fence the engine's successor.
pub(crate) struct OpenContext(pub(crate) Arc<Context>);

impl Drop for OpenContext {
    fn drop(&mut self) {
        self.0.stopping.store(true, Ordering::Release);
        self.0.host.close();
    }
}

impl Context {
    /// True if there is room for new work, on the disk and within the disk budget.
    pub(crate) fn has_room(&self) -> bool {
        self.journal.has_room() && self.disk.has_room()
    }

    /// Refuses work that changes something while the engine is [quiet](Options::quiet).
    pub(crate) fn may_change<R>(&self) -> Result<(), Error<R>> {
        match self.options.quiet {
            false => Ok(()),
            true => Err(Error::Unavailable { reason: QUIET.into() }),
        }
    }

    /// The index of a kind in the registry.
    pub(crate) fn kind<R>(&self, name: &str) -> Result<usize, Error<R>> {
        let kind = self.registry.find(name);
        kind.ok_or_else(|| Error::Malformed(unknown_kind(name)))
    }

    /// Returns the retention of the kinds that do not keep all their events.
    pub(crate) fn keeps(&self) -> HashMap<Box<str>, Keep> {
        let options = &self.options.keep;
        let kinds = self.registry.kinds().iter();
        let keeps = kinds.map(|kind| (kind.name.into(), options.get(kind.name).copied().unwrap_or(kind.keep)));
        keeps.filter(|(_, keep)| *keep != Keep::Forever).collect()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns the newer node that may understand what this program does not: one that was alive at the last look at the nodes, or was
    /// found gone a short time ago. Called regularly, so that the time of its going is known.
    pub(crate) fn newer(&self) -> Option<String> {
        let peers = self.peers.as_ref()?;
        self.newer_releases.look(&**peers, self.host.elapsed_micros())
    }

    /// Returns the error for a request that this program does not understand, but a newer release may. `None` if no such release is known.
    pub(crate) fn left_to_upgrade<R>(&self, why: &str) -> Option<Error<R>> {
        let newer = self.newer()?;
        Some(Error::Unavailable {
            reason: format!("{}; {newer}", why.trim_end_matches('.')),
        })
    }

    /// Returns why work that this program does not understand waits. `None` if no newer release is alive (by a look at the nodes that began
    /// after this call) or was lately.
    pub(crate) async fn waits_for(&self) -> Option<String> {
        let peers = self.peers.clone()?;
        if let Some(newer) = self.newer() {
            return Some(newer);
        }
        let (mut looked, mut over) = (peers.looked(), self.host.sleep(rolling_upgrade::LOOK));
        let is_known = std::future::poll_fn(|context| match looked.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => over.as_mut().poll(context).map(|()| false),
        });
        if !is_known.await {
            return Some("whether a newer release of the service lives cannot be seen now".to_owned());
        }
        self.newer()
    }

    /// Refuses a feature that an older program on another living node does not know.
    pub(crate) fn refuse_older_nodes(&self, (feature, doing): (u32, &str)) -> Result<(), String> {
        let peers = self.peers.as_ref();
        match peers.and_then(|peers| peers.without_feature(feature)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "the node {name:?} runs an older program, which cannot {doing} in a cluster: upgrade it first"
            )),
        }
    }

    /// Returns the end of a call with this deadline, by the host's clock.
    pub(crate) fn until(&self, deadline: Option<Duration>) -> u64 {
        let deadline = deadline.unwrap_or(self.options.deadline);
        self.host.elapsed_micros().saturating_add(micros(deadline))
    }
}

pub(crate) fn unknown_kind(kind: &str) -> String {
    format!("the engine was not given the kind {kind:?}")
}

/// A duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(duration.subsec_micros().into())
}
