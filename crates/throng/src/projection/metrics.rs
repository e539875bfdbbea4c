//! The metrics of projections and sinks, by their names.

use super::{Progress, State, report::Report};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::sync::atomic::{AtomicI64, AtomicU64};

type Labels = Vec<(&'static str, &'static str)>;
type Level = Gauge<i64, AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;
type Count = Counter<u64, AtomicU64>;

/// All of them.
pub(super) struct Families {
    lag_commits: Family<Labels, Level>,
    lag_seconds: Family<Labels, Seconds>,
    stopped: Family<Labels, Level>,
    events: Family<Labels, Count>,
    batches: Family<Labels, Count>,
    retries: Family<Labels, Count>,
    skipped: Family<Labels, Count>,
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
            skipped: Family::default(),
        };
        let Self {
            lag_commits,
            lag_seconds,
            stopped,
            events,
            batches,
            retries,
            skipped,
        } = &families;
        registry.register(
            "projection_lag_commits",
            "Durable commits a projection has not looked at",
            lag_commits.clone(),
        );
        registry.register(
            "projection_lag_seconds",
            "Age of the last commit a projection has looked at, while there are newer ones",
            lag_seconds.clone(),
        );
        registry.register(
            "projection_stopped",
            "1: a projection cannot go on, the log says why",
            stopped.clone(),
        );
        registry.register("projection_events", "Events a projection has taken", events.clone());
        registry.register("projection_batches", "Batches a projection has taken", batches.clone());
        registry.register(
            "projection_retries",
            "Batches a projection has had to try again",
            retries.clone(),
        );
        registry.register(
            "projection_skipped",
            "Events a projection was told to go past",
            skipped.clone(),
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
            skipped: self.skipped.get_or_create_owned(&labels),
        }
    }
}

/// Those of one projection or sink.
pub(super) struct Gauges {
    lag_commits: Level,
    lag_seconds: Seconds,
    stopped: Level,
    events: Count,
    batches: Count,
    retries: Count,
    skipped: Count,
}

impl Gauges {
    pub(super) fn show(&self, progress: &Progress, report: &Report) {
        self.lag_commits
            .set(i64::try_from(progress.lag_commits).unwrap_or(i64::MAX));
        self.lag_seconds.set(progress.lag_seconds);
        self.stopped
            .set(i64::from(matches!(progress.state, State::Stopped { .. })));
        for (counter, now) in [
            (&self.events, report.events),
            (&self.batches, report.batches),
            (&self.retries, report.retries),
            (&self.skipped, report.skips),
        ] {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
    }
}
