//! The numbers of the engine and the gateway, one point a second for the last quarter of an hour.

use super::limiting::{Limiting, RecentLoad};
use crate::{admission::WaitTimes, metrics::Metrics, scale};
use serde_json::{Map, Value, json};
use std::{
    collections::VecDeque,
    fs,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use throng::{Engine, Statistics, histogram::Counts, inspect::HotEntity};

pub(super) const POINTS_MAX: usize = 900;
/// The seconds over which the bottleneck is determined.
const SEEN_SECONDS: usize = 5;

/// All that is read once a second.
pub(crate) struct Reading {
    at: Instant,
    engine: Statistics,
    latency: Counts,
    limits: Vec<(&'static str, u64)>,
    connections: u64,
    sockets: u64,
    waiting: u64,
    process_bytes: Option<u64>,
    idle_ticks: Option<u64>,
    /// The time that each loop has waited so far.
    waited: Vec<Duration>,
}

impl Reading {
    /// Reads the engine and the gateway, which has this many connections.
    pub(crate) fn take(engine: &Engine, metrics: &Metrics, connections: usize, passes: &[Arc<WaitTimes>]) -> Self {
        let level = |level: i64| level.max(0).cast_unsigned();
        Self {
            at: Instant::now(),
            engine: engine.statistics(),
            latency: metrics.latency(),
            limits: metrics.limits_reached().collect(),
            connections: connections as u64,
            sockets: level(metrics.sockets()),
            waiting: level(metrics.waiting.get()),
            process_bytes: process_bytes(),
            idle_ticks: scale::idle_ticks(),
            waited: passes.iter().map(|pass| pass.waited()).collect(),
        }
    }
}

/// Bytes of the process in memory.
fn process_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The member of the answer that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Series,
    Refusals,
    Memory,
}

impl Group {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Series, "series"),
        (Self::Refusals, "refusals"),
        (Self::Memory, "memory"),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Refusals => "refusals",
            Self::Memory => "memory",
        }
    }
}

/// A value of a second; `NaN` if unknown.
type Named = (Group, &'static str, f64);
type Count = fn(&Statistics) -> u64;

/// The second between two readings.
struct Second<'a> {
    before: &'a Reading,
    now: &'a Reading,
    seconds: f64,
}

impl<'a> Second<'a> {
    fn new(before: &'a Reading, now: &'a Reading) -> Self {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        Self { before, now, seconds }
    }

    fn rate(&self, of: impl Fn(&Reading) -> u64) -> f64 {
        of(self.now).saturating_sub(of(self.before)) as f64 / self.seconds
    }

    /// Returns the part of the time in which each loop did not wait for its sockets. A loop that has just begun has none.
    fn busy(&self) -> Vec<f64> {
        let waited = self.now.waited.iter().zip(&self.before.waited);
        let share = |(now, before): (&Duration, &Duration)| {
            (1.0 - now.saturating_sub(*before).as_secs_f64() / self.seconds).clamp(0.0, 1.0)
        };
        waited.map(share).collect()
    }

    /// Commands and messages a commit; `NaN` without a commit.
    fn batch(&self) -> f64 {
        let (before, now) = (&self.before.engine, &self.now.engine);
        let commits = now.commits.saturating_sub(before.commits) as f64;
        let done = (now.done + now.messages).saturating_sub(before.done + before.messages) as f64;
        if commits > 0.0 { done / commits } else { f64::NAN }
    }

    fn values(&self) -> Vec<Named> {
        let (before, now) = (&self.before.engine, &self.now.engine);
        let mut values = Vec::with_capacity(48);
        let mut put = |group, name, value| values.push((group, name, value));
        let rates: [(&'static str, Count); 11] = [
            ("commands", |of| of.done),
            ("refused", |of| of.refused),
            ("failed", |of| of.failed),
            ("queries", |of| of.queries),
            ("messages", |of| of.messages),
            ("timers", |of| of.timers_fired),
            ("commits", |of| of.commits),
            ("commit_bytes", |of| of.commit_bytes),
            ("loads", |of| of.loads),
            ("deferred", |of| of.deferred),
            ("slow", |of| of.slow),
        ];
        for (name, of) in rates {
            put(Group::Series, name, self.rate(|reading| of(&reading.engine)));
        }
        let latency = self.now.latency.since(&self.before.latency);
        let commits = now.commit_seconds.since(&before.commit_seconds);
        let ms = |counts: &Counts, share| counts.quantile(share).map_or(f64::NAN, |seconds| seconds * 1e3);
        put(Group::Series, "latency_p50_ms", ms(&latency, 0.5));
        put(Group::Series, "latency_p90_ms", ms(&latency, 0.9));
        put(Group::Series, "latency_p99_ms", ms(&latency, 0.99));
        put(Group::Series, "latency_max_ms", ms(&latency, 1.0));
        put(Group::Series, "commit_p50_ms", ms(&commits, 0.5));
        put(Group::Series, "commit_p99_ms", ms(&commits, 0.99));
        put(Group::Series, "commit_max_ms", ms(&commits, 1.0));
        put(Group::Series, "batch", self.batch());
        let levels = [
            ("connections", self.now.connections),
            ("websockets", self.now.sockets),
            ("in_flight", now.waiting),
            ("waiting_turn", self.now.waiting),
            ("commits_in_flight", now.in_flight),
            ("outbox", now.outbox),
            ("resident", now.entities),
        ];
        for (name, level) in levels {
            put(Group::Series, name, level as f64);
        }
        let or_nan = |level: Option<u64>| level.map_or(f64::NAN, |level| level as f64);
        put(Group::Series, "journal_bytes", or_nan(now.journal_bytes));
        let idle = self.now.idle_ticks.zip(self.before.idle_ticks);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let idle_cores = idle.map(|(now, before)| now.saturating_sub(before) as f64 / ticks / self.seconds);
        put(Group::Series, "idle_cores", idle_cores.unwrap_or(f64::NAN));
        let refusals: [(&'static str, Count); 3] = [
            ("overloaded", |of| of.overloaded),
            ("storage_full", |of| of.storage_full),
            ("unavailable", |of| of.unavailable),
        ];
        for (name, of) in refusals {
            put(Group::Refusals, name, self.rate(|reading| of(&reading.engine)));
        }
        for (at, (name, _)) in self.now.limits.iter().enumerate() {
            put(Group::Refusals, *name, self.rate(|reading| reading.limits[at].1));
        }
        put(Group::Memory, "entities", now.entity_bytes as f64);
        put(Group::Memory, "pending", now.pending_bytes as f64);
        put(Group::Memory, "bodies", now.outside_bytes as f64);
        put(Group::Memory, "process", or_nan(self.now.process_bytes));
        values
    }

    /// Returns the numbers of this second from which [`Limiting`] determines the bottleneck.
    fn seen(&self, engine: &Engine, hot: &[HotEntity], is_database: bool) -> RecentLoad {
        let (before, now) = (&self.before.engine, &self.now.engine);
        let memory = engine.options().memory_bytes_max.max(1) as f64;
        let busy = self.busy().into_iter().enumerate();
        let asked = self.rate(|reading| {
            let of = &reading.engine;
            of.done + of.refused + of.failed + of.queries + of.overloaded + of.messages
        });
        let commits = now.commit_seconds.since(&before.commit_seconds);
        let kinds = engine.registry().kinds();
        let name = |hot: &HotEntity| kinds.get(hot.kind).map(|kind| format!("{}/{}", kind.name, hot.id));
        let per_second = |hot: &HotEntity| hot.seen_per_second * throng::SAMPLED_ONE_IN as f64;
        let hottest = hot.first().and_then(|hot| Some((name(hot)?, per_second(hot))));
        RecentLoad {
            is_ready: now.is_ready,
            has_room: now.has_room,
            is_database,
            asked,
            commit_share: commits.sum() / self.seconds,
            batch: self.batch(),
            busiest: busy.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 0.0)),
            pending_share: now.pending_bytes as f64 / memory,
            entity_share: now.entity_bytes as f64 / memory,
            loads: self.rate(|reading| reading.engine.loads),
            deferred: self.rate(|reading| reading.engine.deferred),
            hottest: hottest.map(|(name, rate)| (name, (rate / asked.max(1.0)).min(1.0))),
        }
    }
}

#[derive(Clone)]
pub(super) struct Point {
    pub(super) at: i64,
    /// The values, in the order of [`Series::names`].
    pub(super) values: Box<[f64]>,
    pub(super) loops: Box<[f64]>,
}

/// The points, and the reading from which the next one is computed.
#[derive(Default)]
pub(crate) struct Series {
    names: Vec<(Group, &'static str)>,
    points: VecDeque<Point>,
    readings: VecDeque<Reading>,
    limiting: Option<Limiting>,
}

fn known(value: f64) -> Value {
    // Six digits are more than anybody sees; a count stays whole.
    let rounded = match value.abs() {
        under if under < 1_000.0 => (value * 1e4).round() / 1e4,
        _ => value.round(),
    };
    serde_json::Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

impl Series {
    /// True if callers wait for a hot entity, so that its name should be known.
    pub(crate) fn has_deferred(&self, now: &Reading) -> bool {
        let before = self.readings.back();
        before.is_some_and(|before| now.engine.deferred > before.engine.deferred)
    }

    /// Adds a point whose values have these names.
    pub(super) fn put(&mut self, names: &[(Group, &'static str)], point: Point) {
        names.clone_into(&mut self.names);
        self.points.push_back(point);
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }

    /// The newest point, with the names of its values.
    pub(super) fn newest(&self) -> Option<(Point, Vec<(Group, &'static str)>)> {
        Some((self.points.back()?.clone(), self.names.clone()))
    }

    pub(super) fn points(&self) -> Vec<Point> {
        self.points.iter().cloned().collect()
    }

    /// Puts points of an earlier gateway before the present ones.
    pub(super) fn put_before(&mut self, earlier: Vec<Point>) {
        let first = self.points.front().map_or(i64::MAX, |point| point.at);
        for point in earlier.into_iter().rev().filter(|point| point.at < first) {
            if self.points.len() < POINTS_MAX {
                self.points.push_front(point);
            }
        }
    }

    /// Adds a point from the difference between the last reading and this one.
    pub(crate) fn add(&mut self, engine: &Engine, now: Reading, hot: &[HotEntity], is_database: bool) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(before) = self.readings.back() else {
            self.readings.push_back(now);
            return;
        };
        let second = Second::new(before, &now);
        let values = second.values();
        let names: Vec<_> = values.iter().map(|(group, name, _)| (*group, *name)).collect();
        let point = Point {
            at: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            values: values.into_iter().map(|(_, _, value)| value).collect(),
            loops: second.busy().into(),
        };
        let oldest = self.readings.front().unwrap_or(before);
        self.limiting = Some(Second::new(oldest, &now).seen(engine, hot, is_database).limiting());
        self.put(&names, point);
        self.readings.push_back(now);
        if self.readings.len() > SEEN_SECONDS {
            self.readings.pop_front();
        }
    }

    /// All points after a second.
    pub(crate) fn all(&self, since: i64) -> Value {
        let first = self.points.partition_point(|point| point.at <= since);
        let points = || self.points.range(first..);
        let mut all = Map::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        all.insert("now".into(), now.as_secs().into());
        all.insert("step_seconds".into(), 1.into());
        all.insert("times".into(), points().map(|point| point.at).collect());
        for (group, name) in Group::ALL {
            let of_group = self.names.iter().enumerate().filter(|(_, (own, _))| *own == group);
            let columns = of_group.map(|(at, (_, name))| {
                let column: Value = points().map(|point| known(point.values[at])).collect();
                ((*name).to_owned(), column)
            });
            all.insert(name.into(), Value::Object(columns.collect()));
        }
        let loops = points().map(|point| point.loops.len()).max().unwrap_or(0);
        let of_loop = |at: usize| {
            let share = |point: &Point| point.loops.get(at).map_or(Value::Null, |share| known(*share));
            (at.to_string(), points().map(share).collect())
        };
        all.insert("loops".into(), Value::Object((0..loops).map(of_loop).collect()));
        all.insert("limits".into(), json!(self.limiting));
        Value::Object(all)
    }

    /// The last point, with single values.
    pub(crate) fn last(&self) -> Option<Map<String, Value>> {
        let point = self.points.back()?;
        let mut last = Map::new();
        last.insert("type".into(), "point".into());
        last.insert("at".into(), point.at.into());
        for (group, name) in Group::ALL {
            let of_group = self.names.iter().zip(&point.values);
            let of_group = of_group.filter(|((own, _), _)| *own == group);
            let values = of_group.map(|((_, name), value)| ((*name).to_owned(), known(*value)));
            last.insert(name.into(), Value::Object(values.collect()));
        }
        let loops = point.loops.iter().enumerate();
        let loops = loops.map(|(at, share)| (at.to_string(), known(*share)));
        last.insert("loops".into(), Value::Object(loops.collect()));
        last.insert("limits".into(), json!(self.limiting));
        Some(last)
    }

    /// Returns the recent refusals by reason: the number, and the second of the first.
    pub(crate) fn refusals(&self) -> Vec<(&'static str, u64, i64)> {
        let refusals = self
            .names
            .iter()
            .enumerate()
            .filter(|(_, (group, _))| *group == Group::Refusals);
        let counted = refusals.filter_map(|(at, (_, name))| {
            let refused = || self.points.iter().filter(|point| point.values[at] > 0.0);
            let count: f64 = refused().map(|point| point.values[at]).sum();
            Some((*name, count.round().max(1.0) as u64, refused().next()?.at))
        });
        counted.collect()
    }

    /// Returns the growth of the journal, in bytes a second.
    pub(crate) fn growth(&self) -> Option<f64> {
        let at = self.names.iter().position(|(_, name)| *name == "commit_bytes")?;
        let bytes: f64 = self.points.iter().map(|point| point.values[at]).sum();
        (!self.points.is_empty()).then(|| bytes / self.points.len() as f64)
    }
}
