//! Counts, levels and timings of the last two minutes, second by second.
//!
//! ```
//! use throng_services::stats::Stats;
//!
//! let stats = Stats::new();
//! let orders = stats.counter("orders"); // look a key up once, use it often
//! orders.add(3);
//! orders.add(4);
//! assert_eq!(stats.this_second("orders"), 7);
//! assert_eq!(stats.sum("orders", 60), 0, "of the last minute's full seconds");
//! ```
//!
//! Each key has 60 one-second buckets of the minute at hand, and those of the minute before. Every
//! [service](crate::Setup::stats) records itself. What is kept goes to Prometheus (`PrometheusCollector`) and
//! to [StatsD](statsd).

#[cfg(feature = "prometheus")]
mod prometheus;
mod series;
pub mod statsd;

#[cfg(feature = "prometheus")]
pub use prometheus::PrometheusCollector;
pub use series::{SECONDS_KEPT, Summary};

use series::Series;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// Most keys; what is recorded under others is dropped and [counted](Stats::keys_refused).
pub const KEYS_MAX: usize = 10_000;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of times something happened: the values of a second are added up.
    Count,
    /// The amount of something: the last value counts.
    Level,
    /// The time that something took: a second has a mean, a least and a most.
    Timing,
}

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Statistics by their keys; a clone is the same.
#[derive(Clone)]
pub struct Stats {
    inner: Arc<Inner>,
}

struct Inner {
    keys: RwLock<BTreeMap<String, Arc<Key>>>,
    /// Keys beyond the bound. A request for one more raises it, under the lock of `keys`.
    refused: std::sync::atomic::AtomicU64,
    clock: Clock,
}

struct Key {
    kind: Kind,
    series: Mutex<Series>,
    clock: Clock,
}

impl Key {
    fn record(&self, value: f64, times: u64) {
        let second = (self.clock)();
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.record(second, value, times);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl Stats {
    /// Statistics without a series yet.
    #[must_use]
    pub fn new() -> Self {
        let begun = Instant::now();
        Self::with_clock(move || begun.elapsed().as_secs())
    }

    /// Returns statistics with another clock: it tells the second it is, and never goes back.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(Inner {
                keys: RwLock::default(),
                refused: std::sync::atomic::AtomicU64::new(0),
                clock: Arc::new(clock),
            }),
        }
    }

    /// The count of this name, which only goes up.
    #[must_use]
    pub fn counter(&self, key: &str) -> Counter {
        Counter(self.key(key, Kind::Count))
    }

    /// The level of this name, which goes up and down.
    #[must_use]
    pub fn level(&self, key: &str) -> Level {
        Level(self.key(key, Kind::Level))
    }

    /// The timing of this name.
    #[must_use]
    pub fn timing(&self, key: &str) -> Timing {
        Timing(self.key(key, Kind::Timing))
    }

    /// A key that is there with another kind, or one too many, is recorded nowhere.
    fn key(&self, name: &str, kind: Kind) -> Arc<Key> {
        let mut keys = self.inner.keys.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.get(name)
            && key.kind == kind
        {
            return Arc::clone(key);
        }
        let key = Arc::new(Key {
            kind,
            series: Mutex::default(),
            clock: Arc::clone(&self.inner.clock),
        });
        if keys.len() < KEYS_MAX && !keys.contains_key(name) {
            keys.insert(name.to_owned(), Arc::clone(&key));
        } else {
            self.inner.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        key
    }

    /// Keys that were not taken: there were too many, or one of the same name of another kind.
    #[must_use]
    pub fn keys_refused(&self) -> u64 {
        self.inner.refused.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn look<R>(&self, key: &str, look: impl FnOnce(&mut Series, u64) -> R) -> Option<R> {
        let key = self
            .inner
            .keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()?;
        let second = (self.inner.clock)();
        let mut series = key.series.lock().unwrap_or_else(PoisonError::into_inner);
        Some(look(&mut series, second))
    }

    /// A count in the second at hand, which is not over.
    #[must_use]
    pub fn this_second(&self, key: &str) -> u64 {
        self.look(key, |series, now| series.count(now, now)).unwrap_or(0)
    }

    /// A count in the last full second.
    #[must_use]
    pub fn last_second(&self, key: &str) -> u64 {
        self.sum(key, 1)
    }

    /// A count in the last full seconds, at most 119.
    #[must_use]
    pub fn sum(&self, key: &str, seconds: u64) -> u64 {
        let sum = |series: &mut Series, now: u64| match now.checked_sub(1) {
            Some(last) => series.count(now.saturating_sub(seconds), last),
            None => 0,
        };
        self.look(key, sum).unwrap_or(0)
    }

    /// The last value of a level.
    #[must_use]
    pub fn last_level(&self, key: &str) -> Option<f64> {
        self.look(key, |series, _| series.last).flatten()
    }

    /// Mean, median, standard deviation, least and most of the last full seconds' values: a count's sum, a level's last value, a
    /// timing's mean, one a second. Seconds in which a level or a timing was not recorded are left out; in those a count is 0.
    /// `None` when there is none.
    #[must_use]
    pub fn summary(&self, key: &str, seconds: u64) -> Option<Summary> {
        let kind = self
            .inner
            .keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)?
            .kind;
        self.look(key, |series, now| {
            let last = now.checked_sub(1)?;
            let first = now.saturating_sub(seconds.min(SECONDS_KEPT - 1));
            Summary::of(series.values(kind, first, last))
        })
        .flatten()
    }

    /// All keys, with what they are and all that was ever recorded: the sum and the times.
    fn totals(&self) -> Vec<(String, Kind, Total)> {
        let keys = self.inner.keys.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(name, key): (&String, &Arc<Key>)| {
            let series = key.series.lock().unwrap_or_else(PoisonError::into_inner);
            let total = Total {
                sum: series.sum,
                times: series.times,
                last: series.last,
            };
            (name.clone(), key.kind, total)
        };
        keys.iter().map(of).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    sum: f64,
    times: u64,
    last: Option<f64>,
}

impl fmt::Debug for Stats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.inner.keys.read().unwrap_or_else(PoisonError::into_inner);
        out.debug_struct("Stats")
            .field("keys", &keys.len())
            .finish_non_exhaustive()
    }
}

/// A count, which only goes up.
#[derive(Clone)]
pub struct Counter(Arc<Key>);

impl Counter {
    /// Counts this many times.
    pub fn add(&self, times: u64) {
        self.0.record(times as f64, times);
    }
}

/// A level, which goes up and down: of a queue, of what is open.
#[derive(Clone)]
pub struct Level(Arc<Key>);

impl Level {
    /// Sets the present level.
    pub fn set(&self, value: f64) {
        self.0.record(value, 1);
    }
}

/// A distribution of durations.
#[derive(Clone)]
pub struct Timing(Arc<Key>);

impl Timing {
    /// Records a duration.
    pub fn record(&self, time: Duration) {
        self.0.record(time.as_secs_f64(), 1);
    }
}

opaque!(Counter);
opaque!(Level);
opaque!(Timing);
