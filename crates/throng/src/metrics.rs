//! What the engine counts. A gateway shows it as `/metrics`.

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

/// Counters, gauges and histograms of an engine.
pub struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) done: Count,
    pub(crate) refused: Count,
    pub(crate) failed: Count,
    pub(crate) queries: Count,
    pub(crate) overloaded: Count,
    pub(crate) storage_full: Count,
    pub(crate) unavailable: Count,
    pub(crate) commits: Count,
    pub(crate) commit_bytes: Count,
    pub(crate) batch: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) slow: Count,
    pub(crate) deferred: Count,
    pub(crate) loads: Count,
    pub(crate) quarantined: Count,
    pub(crate) messages: Count,
    pub(crate) dead: Count,
    pub(crate) timers_fired: Count,
    pub(crate) checkpoints: Count,
    pub(crate) checkpoint_seconds: Histogram,
    pub(crate) recoveries: Count,
    pub(crate) pruned_records: Count,
    pub(crate) pruned_bytes: Count,
    pub(crate) entities: Level,
    pub(crate) entity_bytes: Level,
    pub(crate) pending_bytes: Level,
    pub(crate) outbox: Level,
    pub(crate) waiting: Level,
    pub(crate) in_flight: Level,
    pub(crate) has_room: Level,
    pub(crate) disk_bytes: Level,
    pub(crate) disk_budget_bytes: Level,
    pub(crate) history_held: Level,
    pub(crate) stands_by: Level,
    pub(crate) losses: Level,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("throng");
        let count = |registry: &mut Registry, name: &str, help: &str| {
            let count = Count::default();
            registry.register(name, help, count.clone());
            count
        };
        let level = |registry: &mut Registry, name: &str, help: &str| {
            let level = Level::default();
            registry.register(name, help, level.clone());
            level
        };
        let histogram = |registry: &mut Registry, name: &str, help: &str, histogram: Histogram| {
            registry.register(name, help, histogram.clone());
            histogram
        };
        let r = &mut registry;
        Self {
            done: count(r, "commands_done", "Commands accepted"),
            refused: count(r, "commands_refused", "Commands the entity said no to"),
            failed: count(
                r,
                "commands_failed",
                "Commands the engine said no to: unknown, malformed, crashed, …",
            ),
            queries: count(r, "queries", "Queries answered"),
            overloaded: count(r, "overloaded", "Commands and queries refused because too much waits"),
            storage_full: count(r, "storage_full", "Commands refused because the journal has no room"),
            unavailable: count(
                r,
                "unavailable",
                "Commands and queries refused because the engine is not ready",
            ),
            commits: count(r, "commits", "Commits in the journal"),
            commit_bytes: count(r, "commit_bytes", "Bytes of these commits"),
            batch: histogram(r, "batch_records", "Records of a commit", Histogram::of_numbers()),
            commit_seconds: histogram(r, "commit_seconds", "From append to durable", Histogram::of_seconds()),
            slow: count(r, "commands_slow", "Commands that were at work for over a millisecond"),
            deferred: count(
                r,
                "commands_deferred",
                "Commands that waited behind others because their entity had its share of the turn",
            ),
            loads: count(r, "loads", "Entities brought back from the store"),
            quarantined: count(
                r,
                "quarantined",
                "Entities set aside because their events cannot be applied or what is stored of them cannot be read",
            ),
            messages: count(r, "messages", "Messages between entities taken"),
            dead: count(
                r,
                "messages_dead",
                "Messages between entities that nobody could take, and ticks of timers that could not be executed",
            ),
            timers_fired: count(r, "timers_fired", "Timers fired"),
            checkpoints: count(r, "checkpoints", "Checkpoints done"),
            checkpoint_seconds: histogram(
                r,
                "checkpoint_seconds",
                "Duration of a checkpoint",
                Histogram::of_seconds(),
            ),
            pruned_records: count(
                r,
                "pruned_records",
                "Records of history that were removed because they are not kept any longer",
            ),
            pruned_bytes: count(r, "pruned_bytes", "Bytes of history that were given back"),
            recoveries: count(r, "recoveries", "Times the engine started from its journal"),
            entities: level(r, "entities", "Entities in memory"),
            entity_bytes: level(
                r,
                "entity_bytes",
                "Bytes of entities, timers and idempotency keys in memory",
            ),
            pending_bytes: level(r, "pending_bytes", "Bytes of states on their way to the store"),
            outbox: level(r, "outbox", "Messages between entities waiting in memory"),
            waiting: level(r, "waiting", "Commands and queries waiting for a commit"),
            in_flight: level(r, "commits_in_flight", "Commits in flight"),
            disk_bytes: level(
                r,
                "disk_bytes",
                "Bytes the journal takes of the disk, where it has a budget",
            ),
            disk_budget_bytes: level(r, "disk_budget_bytes", "Bytes the journal may take of the disk"),
            history_held: level(
                r,
                "history_held",
                "Projections that have not read what would be removed otherwise",
            ),
            has_room: level(
                r,
                "journal_has_room",
                "1: the journal has room for more commands; 0: its storage is full",
            ),
            stands_by: level(
                r,
                "stands_by",
                "1: another engine has taken over, this one waits for its end",
            ),
            losses: level(
                r,
                "losses",
                "Losses of acknowledged commits that were found since the start",
            ),
            registry: Mutex::new(registry),
        }
    }
}

impl Metrics {
    /// Adds metrics of a gateway or an app.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes all as Prometheus (OpenMetrics) text.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn encode(&self, out: &mut String) -> std::fmt::Result {
        text::encode(out, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All of it in the plain text format of Prometheus (0.0.4), which every scraper reads.
    ///
    /// # Errors
    /// Only those of `out`.
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

    /// Commands that waited behind others because their entity had its share of the turn.
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

/// OpenMetrics as the older format: a counter is declared under its samples' name, and there is no unit and no end.
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
