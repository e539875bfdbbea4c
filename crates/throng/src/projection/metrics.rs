//! The metrics of projections and sinks, by their names.

use super::{Progress, ProjectionState, report::Report};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::sync::atomic::{AtomicI64, AtomicU64};

type Labels = Vec<(&'static str, &'static str)>;
type Level = Gauge<i64, AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;
type Count = Counter<u64, AtomicU64>;

macro_rules! metrics {
    ($($field:ident: $type:ty, $name:literal, $help:literal;)*) => {
        /// The metric families of all projections and sinks.
        pub(super) struct Families {
            $($field: Family<Labels, $type>,)*
        }

        impl Families {
            pub(super) fn register(registry: &mut Registry) -> Self {
                let families = Self { $($field: Family::default()),* };
                $(registry.register($name, $help, families.$field.clone());)*
                families
            }

            pub(super) fn of(&self, name: &'static str) -> Gauges {
                let labels: Labels = vec![("projection", name)];
                Gauges { $($field: self.$field.get_or_create_owned(&labels)),* }
            }
        }

        /// The metrics of one projection or sink.
        pub(super) struct Gauges {
            $($field: $type,)*
        }
    };
}

metrics! {
    lag_commits: Level, "projection_lag_commits", "Durable commits a projection has not looked at";
    lag_seconds: Seconds, "projection_lag_seconds", "Age of the last commit a projection has looked at, while there are newer ones";
    stopped: Level, "projection_stopped", "1: a projection cannot go on, the log says why";
    events: Count, "projection_events", "Events a projection has taken";
    batches: Count, "projection_batches", "Batches a projection has taken";
    retries: Count, "projection_retries", "Batches a projection has had to try again";
    skipped: Count, "projection_skipped", "Events a projection was told to go past";
}

impl Gauges {
    pub(super) fn show(&self, progress: &Progress, report: &Report) {
        self.lag_commits
            .set(i64::try_from(progress.lag_commits).unwrap_or(i64::MAX));
        self.lag_seconds.set(progress.lag_seconds);
        self.stopped
            .set(i64::from(matches!(progress.state, ProjectionState::Stopped { .. })));
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
