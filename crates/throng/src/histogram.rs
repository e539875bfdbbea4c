//! A histogram without a lock, precise enough for percentiles within a second, and exported to Prometheus by powers of two.

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The number of buckets for each power of two: a percentile is at most an eighth too high.
const PARTS: usize = 8;
/// The number of powers of two with buckets of their own. Larger values count as the largest.
const POWERS: usize = 42;
const BUCKETS: usize = POWERS * PARTS;

/// A histogram of observed values. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Histogram(Arc<Inner>);

struct Inner {
    /// The number of units in 1: whole units are counted.
    units: f64,
    /// The powers of two that Prometheus is shown.
    shown: std::ops::Range<usize>,
    sum: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").finish_non_exhaustive()
    }
}

/// The bucket of values up to and including its [`upper`] bound.
fn bucket(units: u64) -> usize {
    let below = units.saturating_sub(1) as usize;
    let bucket = match below.checked_ilog2() {
        Some(power) if power >= 3 => {
            let part = (below >> (power - 3)) & (PARTS - 1);
            (power as usize - 2) * PARTS + part
        }
        _ => below,
    };
    bucket.min(BUCKETS - 1)
}

/// The largest value of a bucket, in units.
fn upper(bucket: usize) -> u64 {
    let (power, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    match power {
        0 => part + 1,
        power => (PARTS as u64 + part + 1) << (power - 1),
    }
}

impl Histogram {
    /// Returns a histogram of durations in seconds, from a nanosecond to an hour. It is exported with buckets from 16 µs to 2 s.
    #[must_use]
    pub fn of_seconds() -> Self {
        Self::new(1e9, 14..32)
    }

    /// Returns a histogram of whole numbers, shown by buckets from 1 to 32,768.
    #[must_use]
    pub fn of_numbers() -> Self {
        Self::new(1.0, 0..16)
    }

    fn new(units: f64, shown: std::ops::Range<usize>) -> Self {
        Self(Arc::new(Inner {
            units,
            shown,
            sum: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        }))
    }

    /// Counts a value. A negative one counts as 0.
    pub fn observe(&self, value: f64) {
        let inner = &*self.0;
        let units = (value * inner.units) as u64;
        inner.counts[bucket(units)].fetch_add(1, Ordering::Relaxed);
        inner.sum.fetch_add(units, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let inner = &*self.0;
        let counts: Box<[u64]> = inner.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Counts {
            units: inner.units,
            sum: inner.sum.load(Ordering::Relaxed),
            count: counts.iter().sum(),
            counts,
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = self.counts();
        let mut shown: Vec<(f64, u64)> = Vec::with_capacity(self.0.shown.len() + 1);
        let mut from = 0;
        for power in self.0.shown.clone() {
            let upto = 1_u64 << power;
            let end = (from..BUCKETS).find(|at| upper(*at) > upto).unwrap_or(BUCKETS);
            let count = counts.counts[from..end].iter().sum();
            shown.push((upto as f64 / counts.units, count));
            from = end;
        }
        shown.push((f64::INFINITY, counts.counts[from..].iter().sum()));
        encoder.encode_histogram::<NoLabelSet>(counts.sum(), counts.count, &shown, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// The counts of a [`Histogram`] at some moment.
#[derive(Clone, Debug)]
pub struct Counts {
    units: f64,
    sum: u64,
    count: u64,
    counts: Box<[u64]>,
}

impl Counts {
    /// Returns the counts since an earlier moment.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = self.counts.iter().zip(&before.counts);
        let counts: Box<[u64]> = counts.map(|(now, then)| now.saturating_sub(*then)).collect();
        Self {
            units: self.units,
            sum: self.sum.saturating_sub(before.sum),
            count: counts.iter().sum(),
            counts,
        }
    }

    /// Adds the values of another histogram of the same unit.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let counts = self.counts.iter().zip(&other.counts);
        Self {
            units: self.units,
            sum: self.sum + other.sum,
            count: self.count + other.count,
            counts: counts.map(|(one, other)| one + other).collect(),
        }
    }

    /// The number of values counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all values, in the unit they were observed in.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.units
    }

    /// Returns the value that this share of the values (0 to 1) does not exceed, at most an eighth too high; `None` without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        let at = self.counts.iter().position(reached)?;
        Some(upper(at) as f64 / self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_bound_is_at_most_an_eighth_above_a_value(units in 1_u64..1 << 42) {
            let upper_bound = upper(bucket(units));
            prop_assert!(units <= upper_bound && upper_bound <= units + units / 8 + 1, "{units} {upper_bound}");
            prop_assert!(bucket(units) == 0 || upper(bucket(units) - 1) < units);
        }
    }

    #[test]
    fn percentiles_are_those_of_values_since() {
        let histogram = Histogram::of_seconds();
        histogram.observe(5.0);
        let before = histogram.counts();
        for micros in 1..=1_000 {
            histogram.observe(f64::from(micros) / 1e6);
        }
        let since = histogram.counts().since(&before);
        assert_eq!(since.count(), 1_000);
        let near = |share, expected: f64| {
            let found = since.quantile(share).unwrap();
            assert!(found >= expected && found <= expected * 1.126, "{share}: {found}");
        };
        near(0.5, 500e-6);
        near(0.99, 990e-6);
        near(1.0, 1_000e-6);
        assert_eq!(before.since(&before).quantile(0.5), None);
    }

    #[test]
    fn values_beyond_all_buckets_are_counted() {
        let histogram = Histogram::of_numbers();
        for value in [-1.0, 0.0, 1e300, f64::NAN] {
            histogram.observe(value);
        }
        assert_eq!(histogram.counts().count(), 4);
    }

    #[test]
    fn prometheus_is_shown_powers_of_two_and_all_that_is_above() {
        let mut registry = prometheus_client::registry::Registry::default();
        let histogram = Histogram::of_numbers();
        registry.register("n", "Numbers", histogram.clone());
        for value in [1.0, 2.0, 3.0, 4.0, 1e6] {
            histogram.observe(value);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "n_bucket{le=\"1.0\"} 1",
            "n_bucket{le=\"2.0\"} 2",
            "n_bucket{le=\"4.0\"} 4",
            "n_bucket{le=\"32768.0\"} 4",
            "n_bucket{le=\"+Inf\"} 5",
            "n_count 5",
            "n_sum 1000010.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
