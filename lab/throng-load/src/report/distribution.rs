//! Histograms in JSON: a summary for readers, and the buckets for exact merging.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::measure::{Latencies, latencies};

/// The usual figures of a distribution, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of measured requests.
    pub count: u64,
    /// The shortest time, in nanoseconds like all that follow.
    pub min: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of the whole population, not of a sample.
    pub deviation: f64,
    /// The 50th percentile, in nanoseconds.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The 99.99th percentile.
    pub p9999: u64,
    /// The time of the slowest.
    pub max: u64,
}

impl Summary {
    /// Returns the figures of a histogram, all zero if it is empty.
    pub fn of(histogram: &Latencies) -> Self {
        if histogram.is_empty() {
            return Summary::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Summary {
            count: histogram.len(),
            min: histogram.min(),
            mean: histogram.mean(),
            deviation: histogram.stdev(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max(),
        }
    }
}

/// Returns the percentile curve as pairs of (1 / (1 − quantile), nanoseconds). The first value is for a logarithmic axis.
pub fn curve(histogram: &Latencies) -> Vec<(f64, u64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let last = histogram.len() as f64;
    let mut points = Vec::new();
    let mut inverse = 1.0;
    while inverse < last {
        points.push((inverse, histogram.value_at_quantile(1.0 - 1.0 / inverse)));
        inverse *= 1.122; // 20 points a decade
    }
    points.push((last.max(1.0), histogram.max()));
    points
}

#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(flatten)]
    summary: Summary,
    buckets: Vec<(u64, u64)>,
}

pub(super) fn serialize<S: Serializer>(histogram: &Latencies, serializer: S) -> Result<S::Ok, S::Error> {
    let buckets = histogram
        .iter_recorded()
        .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
        .collect();
    Written {
        summary: Summary::of(histogram),
        buckets,
    }
    .serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
    let written = Written::deserialize(deserializer)?;
    let mut histogram = latencies();
    for (value, count) in written.buckets {
        histogram.saturating_record_n(value, count);
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_the_same_after_a_round_through_json() {
        #[derive(Serialize, Deserialize)]
        struct Holder(#[serde(with = "super")] Latencies);
        let mut histogram = latencies();
        for value in [1, 999, 12_345, 987_654_321, 3_000_000_000_000] {
            histogram.saturating_record_n(value, value % 7 + 1);
        }
        let json = serde_json::to_string(&Holder(histogram.clone())).unwrap();
        let Holder(read) = serde_json::from_str(&json).unwrap();
        assert_eq!(read, histogram);
        assert_eq!(Summary::of(&read).p99, Summary::of(&histogram).p99);
    }
}
