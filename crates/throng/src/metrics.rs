//! The engine's counters, gauges and histograms. A gateway shows them as `/metrics`.

use crate::histogram::Histogram;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64},
};

type Count = Counter<u64, AtomicU64>;
type Level = Gauge<i64, AtomicI64>;

macro_rules! metrics {
    ($($field:ident: $type:ty = $new:expr, $name:literal, $help:literal;)*) => {
        /// Counters, gauges and histograms of an engine.
        pub struct Metrics {
            registry: Mutex<Registry>,
            $(pub(crate) $field: $type,)*
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("throng");
                $(let $field: $type = $new;
                registry.register($name, $help, $field.clone());)*
                Self { registry: Mutex::new(registry), $($field),* }
            }
        }
    };
}

metrics! {
    done: Count = Count::default(), "commands_done", "Commands accepted";
    refused: Count = Count::default(), "commands_refused", "Commands the entity said no to";
    failed: Count = Count::default(), "commands_failed", "Commands the engine said no to: unknown, malformed, crashed, …";
    queries: Count = Count::default(), "queries", "Queries answered";
    overloaded: Count = Count::default(), "overloaded", "Commands and queries refused because too much waits";
    storage_full: Count = Count::default(), "storage_full", "Commands refused because the journal has no room";
    unavailable: Count = Count::default(), "unavailable", "Commands and queries refused because the engine is not ready";
    commits: Count = Count::default(), "commits", "Commits in the journal";
    commit_bytes: Count = Count::default(), "commit_bytes", "Bytes of these commits";
    batch: Histogram = Histogram::of_numbers(), "batch_records", "Records of a commit";
    commit_seconds: Histogram = Histogram::of_seconds(), "commit_seconds", "From append to durable";
    slow: Count = Count::default(), "commands_slow", "Commands that were at work for over a millisecond";
    deferred: Count = Count::default(), "commands_deferred", "Commands that waited behind others because their entity had its share of the turn";
    loads: Count = Count::default(), "loads", "Entities brought back from the store";
    quarantined: Count = Count::default(), "quarantined", "Entities set aside because their events cannot be applied or what is stored of them cannot be read";
    messages: Count = Count::default(), "messages", "Messages between entities taken";
    dead: Count = Count::default(), "messages_dead", "Messages between entities that nobody could take, and ticks of timers that could not be executed";
    timers_fired: Count = Count::default(), "timers_fired", "Timers fired";
    checkpoints: Count = Count::default(), "checkpoints", "Checkpoints done";
    checkpoint_seconds: Histogram = Histogram::of_seconds(), "checkpoint_seconds", "Duration of a checkpoint";
    pruned_records: Count = Count::default(), "pruned_records", "Records of history that were removed because they are not kept any longer";
    pruned_bytes: Count = Count::default(), "pruned_bytes", "Bytes of history that were given back";
    recoveries: Count = Count::default(), "recoveries", "Times the engine started from its journal";
    entities: Level = Level::default(), "entities", "Entities in memory";
    entity_bytes: Level = Level::default(), "entity_bytes", "Bytes of entities, timers and idempotency keys in memory";
    pending_bytes: Level = Level::default(), "pending_bytes", "Bytes of states on their way to the store";
    outbox: Level = Level::default(), "outbox", "Messages between entities waiting in memory";
    waiting: Level = Level::default(), "waiting", "Commands and queries waiting for a commit";
    in_flight: Level = Level::default(), "commits_in_flight", "Commits in flight";
    disk_bytes: Level = Level::default(), "disk_bytes", "Bytes the journal takes of the disk, where it has a budget";
    disk_budget_bytes: Level = Level::default(), "disk_budget_bytes", "Bytes the journal may take of the disk";
    history_held: Level = Level::default(), "history_held", "Projections that have not read what would be removed otherwise";
    has_room: Level = Level::default(), "journal_has_room", "1: the journal has room for more commands; 0: its storage is full";
    stands_by: Level = Level::default(), "stands_by", "1: another engine has taken over, this one waits for its end";
    losses: Level = Level::default(), "losses", "Losses of acknowledged commits that were found since the start";
}

impl Metrics {
    /// Adds metrics of a gateway or an app.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes all as Prometheus (OpenMetrics) text.
    ///
    /// # Errors
    /// Only an error of `out`.
    pub fn encode(&self, out: &mut String) -> std::fmt::Result {
        text::encode(out, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes all metrics in the plain text format of Prometheus (0.0.4), which every scraper reads.
    ///
    /// # Errors
    /// Only an error of `out`.
    pub fn encode_plain(&self, out: &mut String) -> std::fmt::Result {
        let mut text = String::new();
        self.encode(&mut text)?;
        plain(&text, out);
        Ok(())
    }

    /// Commits so far, and their records' mean number.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.get()
    }

    /// Bytes of the commits so far.
    #[must_use]
    pub fn commit_bytes(&self) -> u64 {
        self.commit_bytes.get()
    }

    /// Commands accepted, refused by their entity, refused by the engine.
    #[must_use]
    pub fn commands(&self) -> (u64, u64, u64) {
        (self.done.get(), self.refused.get(), self.failed.get())
    }

    /// Returns the number of commands that waited behind others because their entity had used its share of the batch.
    #[must_use]
    pub fn commands_deferred(&self) -> u64 {
        self.deferred.get()
    }

    /// Messages between entities waiting in memory.
    #[must_use]
    pub fn outbox(&self) -> i64 {
        self.outbox.get()
    }
}

/// Converts OpenMetrics to the older format: a counter is declared under the name of its samples, and there is no unit and no end mark.
fn plain(text: &str, out: &mut String) {
    let mut help = None;
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' ')) {
            let (end, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                out.extend(["# HELP ", name, end, " ", help, "\n"]);
            }
            out.extend(["# TYPE ", name, end, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_format_declares_each_series_by_its_own_name() {
        let mut text = String::new();
        let open = "# HELP a_hits How often.\n# TYPE a_hits counter\na_hits_total{x=\"y z\"} 1\n# HELP a_level How much.\n# TYPE a_level \
                    gauge\n# UNIT a_level bytes\na_level 2\n# EOF\n";
        plain(open, &mut text);
        assert_eq!(
            text,
            "# HELP a_hits_total How often.\n# TYPE a_hits_total counter\na_hits_total{x=\"y z\"} 1\n# HELP a_level How much.\n# TYPE \
             a_level gauge\na_level 2\n"
        );
    }
}
