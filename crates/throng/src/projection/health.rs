//! How projections are.

use super::runner::Report;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::sync::atomic::{AtomicI64, AtomicU64};
use throng_journal::Position;

/// What a projection or sink is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It follows.
    Running,
    /// It could not write or deliver, and tries again.
    Retrying {
        /// What went wrong last.
        reason: String,
    },
    /// It cannot go on: see [the module](super) for what helps.
    Stopped {
        /// Which event and why, or what is wrong with the offset.
        reason: String,
    },
}

/// How a projection or sink is.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Its name.
    pub name: &'static str,
    /// The kind whose events it takes.
    pub kind: &'static str,
    /// What it is doing.
    pub state: State,
    /// Everything up to here is in it, as far as it knows by now.
    pub reached: Option<Position>,
    /// Durable commits it has not looked at; of any kind.
    pub lag_commits: u64,
    /// How long ago the last commit it has looked at was made, seconds; 0 when it has looked at all.
    pub lag_seconds: f64,
    /// Events it has taken since the engine started.
    pub events: u64,
}

type Labels = Vec<(&'static str, &'static str)>;
type Level = Gauge<i64, AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;
type Count = Counter<u64, AtomicU64>;

/// The metrics of all projections and sinks, by their names.
pub(super) struct Families {
    lag_commits: Family<Labels, Level>,
    lag_seconds: Family<Labels, Seconds>,
    stopped: Family<Labels, Level>,
    events: Family<Labels, Count>,
    batches: Family<Labels, Count>,
    retries: Family<Labels, Count>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            lag_commits: Family::default(),
            lag_seconds: Family::default(),
            stopped: Family::default(),
            events: Family::default(),
            batches: Family::default(),
            retries: Family::default(),
        };
        let r = registry;
        let Self {
            lag_commits,
            lag_seconds,
            stopped,
            events,
            batches,
            retries,
        } = &families;
        r.register(
            "projection_lag_commits",
            "Durable commits a projection has not looked at",
            lag_commits.clone(),
        );
        r.register(
            "projection_lag_seconds",
            "Age of the last commit a projection has looked at, while there are newer ones",
            lag_seconds.clone(),
        );
        r.register(
            "projection_stopped",
            "1: a projection cannot go on, the log says why",
            stopped.clone(),
        );
        r.register("projection_events", "Events a projection has taken", events.clone());
        r.register("projection_batches", "Batches a projection has taken", batches.clone());
        r.register(
            "projection_retries",
            "Batches a projection has had to try again",
            retries.clone(),
        );
        families
    }

    pub(super) fn of(&self, name: &'static str) -> Gauges {
        let labels: Labels = vec![("projection", name)];
        Gauges {
            lag_commits: self.lag_commits.get_or_create_owned(&labels),
            lag_seconds: self.lag_seconds.get_or_create_owned(&labels),
            stopped: self.stopped.get_or_create_owned(&labels),
            events: self.events.get_or_create_owned(&labels),
            batches: self.batches.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
        }
    }
}

/// The metrics of one.
pub(super) struct Gauges {
    lag_commits: Level,
    lag_seconds: Seconds,
    stopped: Level,
    events: Count,
    batches: Count,
    retries: Count,
}

impl Gauges {
    pub(super) fn show(&self, health: &Health, report: &Report) {
        self.lag_commits
            .set(i64::try_from(health.lag_commits).unwrap_or(i64::MAX));
        self.lag_seconds.set(health.lag_seconds);
        self.stopped
            .set(i64::from(matches!(health.state, State::Stopped { .. })));
        for (counter, now) in [
            (&self.events, report.events),
            (&self.batches, report.batches),
            (&self.retries, report.retries),
        ] {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
    }
}
