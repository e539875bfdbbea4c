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
//! Each key has a bucket for each second of this minute and of the minute before. Every [service](crate::Setup::stats) can record its own
//! statistics. `PrometheusCollector` exports them to Prometheus, [`statsd`] to StatsD.

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

/// The most keys. Values under further keys are dropped, and the refused keys are [counted](Stats::keys_refused).
pub const KEYS_MAX: usize = 10_000;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of times something happened: the values of a second are added up.
    Count,
    /// An amount, such as the length of a queue: the last value of a second counts.
    Level,
    /// A duration: each second has a mean, a least and a greatest value.
    Timing,
}

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Statistics by key. Clones share them.
#[derive(Clone)]
pub struct Stats {
    inner: Arc<Inner>,
}

struct Inner {
    keys: RwLock<BTreeMap<String, Arc<Key>>>,
    /// The refused keys. Whoever asks for a key beyond the bound raises it, under the lock of `keys`.
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
    /// Returns statistics without keys.
    #[must_use]
    pub fn new() -> Self {
        let begun = Instant::now();
        Self::with_clock(move || begun.elapsed().as_secs())
    }

    /// Returns statistics with this clock, which returns a second and must never go back.
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

    /// Returns the count of this key. A count only increases.
    #[must_use]
    pub fn counter(&self, key: &str) -> Counter {
        Counter(self.key(key, Kind::Count))
    }

    /// Returns the level of this key. A level rises and falls.
    #[must_use]
    pub fn level(&self, key: &str) -> Level {
        Level(self.key(key, Kind::Level))
    }

    /// Returns the timing of this key.
    #[must_use]
    pub fn timing(&self, key: &str) -> Timing {
        Timing(self.key(key, Kind::Timing))
    }

    /// Returns the key. If it exists with another kind or is one too many, the key returned belongs to no statistics.
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

    /// Returns the number of keys refused, because there were too many or because the key exists with another kind.
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

    /// Returns the count in the current second so far.
    #[must_use]
    pub fn this_second(&self, key: &str) -> u64 {
        self.look(key, |series, now| series.count(now, now)).unwrap_or(0)
    }

    /// Returns the count in the last full second.
    #[must_use]
    pub fn last_second(&self, key: &str) -> u64 {
        self.sum(key, 1)
    }

    /// Returns the count in the last full seconds, at most 119 of them.
    #[must_use]
    pub fn sum(&self, key: &str, seconds: u64) -> u64 {
        let sum = |series: &mut Series, now: u64| match now.checked_sub(1) {
            Some(last) => series.count(now.saturating_sub(seconds), last),
            None => 0,
        };
        self.look(key, sum).unwrap_or(0)
    }

    /// Returns the last value of a level.
    #[must_use]
    pub fn last_level(&self, key: &str) -> Option<f64> {
        self.look(key, |series, _| series.last).flatten()
    }

    /// Returns mean, median, standard deviation, least and greatest of the last full seconds. Each second gives one value: a count's sum, a
    /// level's last value, a timing's mean. A second without a record is left out for a level or timing, and is 0 for a count. Returns
    /// `None` if no second has a value.
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

    /// Returns all keys with their kind, their total sum and their number of records.
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

/// A count, which only increases.
#[derive(Clone)]
pub struct Counter(Arc<Key>);

impl Counter {
    /// Counts this many times.
    pub fn add(&self, times: u64) {
        self.0.record(times as f64, times);
    }
}

/// A level, which rises and falls, for example the length of a queue.
#[derive(Clone)]
pub struct Level(Arc<Key>);

impl Level {
    /// Sets the current level.
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
