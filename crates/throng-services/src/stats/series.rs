//! The buckets of a key. Without a clock: the caller passes the second.

use super::Kind;

/// The seconds kept: the current minute and the one before.
pub const SECONDS_KEPT: u64 = 120;

/// The buckets of a key, a second each.
pub(super) struct Series {
    buckets: Box<[Bucket]>,
    /// The sum of all values recorded since the start.
    pub(super) sum: f64,
    pub(super) times: u64,
    pub(super) last: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    second: u64,
    sum: f64,
    times: u64,
    last: f64,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            buckets: vec![Bucket::default(); SECONDS_KEPT as usize].into_boxed_slice(),
            sum: 0.0,
            times: 0,
            last: None,
        }
    }
}

impl Series {
    pub(super) fn record(&mut self, second: u64, value: f64, times: u64) {
        let bucket = &mut self.buckets[(second % SECONDS_KEPT) as usize];
        if bucket.second != second {
            *bucket = Bucket {
                second,
                ..Bucket::default()
            };
        }
        bucket.sum += value;
        bucket.times += times;
        bucket.last = value;
        self.sum += value;
        self.times += times;
        self.last = Some(value);
    }

    fn at(&self, second: u64) -> Option<&Bucket> {
        let bucket = &self.buckets[(second % SECONDS_KEPT) as usize];
        (bucket.second == second && bucket.times > 0).then_some(bucket)
    }

    /// Returns the count from the first to the last second. Seconds that are not kept count as 0.
    pub(super) fn count(&self, first: u64, last: u64) -> u64 {
        let first = first.max((last + 1).saturating_sub(SECONDS_KEPT));
        (first..=last)
            .filter_map(|second| self.at(second))
            .map(|of| of.times)
            .sum()
    }

    /// Returns the values of those seconds that have one.
    pub(super) fn values(&self, kind: Kind, first: u64, last: u64) -> Vec<f64> {
        let value = |second| match (kind, self.at(second)) {
            (Kind::Count, bucket) => Some(bucket.map_or(0.0, |of| of.sum)),
            (_, None) => None,
            (Kind::Level, Some(bucket)) => Some(bucket.last),
            (Kind::Timing, Some(bucket)) => Some(bucket.sum / bucket.times as f64),
        };
        (first..=last).filter_map(value).collect()
    }
}

/// The summary of some seconds' values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of seconds.
    pub seconds: usize,
    /// The arithmetic mean of their values.
    pub mean: f64,
    /// The median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// The standard deviation of the population (not of a sample).
    pub standard_deviation: f64,
    /// The least of their values.
    pub min: f64,
    /// The greatest of their values.
    pub max: f64,
}

impl Summary {
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let middle = values.len() / 2;
        Some(Self {
            seconds: values.len(),
            mean,
            median: match values.len() % 2 {
                0 => f64::midpoint(values[middle - 1], values[middle]),
                _ => values[middle],
            },
            standard_deviation: variance.sqrt(),
            min,
            max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_summary_computes_the_statistic_it_names() {
        let found = Summary::of(vec![2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        let expected = Summary {
            seconds: 8,
            mean: 5.0,
            median: 4.5,
            standard_deviation: 2.0,
            min: 2.0,
            max: 9.0,
        };
        assert_eq!(found, expected);
        assert_eq!(Summary::of(vec![3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(vec![]), None);
    }

    #[test]
    fn a_levels_second_is_its_last_value_and_a_timings_its_mean() {
        let mut series = Series::default();
        for (second, value) in [(3, 1.0), (3, 5.0), (5, 7.0)] {
            series.record(second, value, 1);
        }
        assert_eq!(series.values(Kind::Level, 0, 9), [5.0, 7.0]);
        assert_eq!(series.values(Kind::Timing, 0, 9), [3.0, 7.0]);
        assert_eq!(series.values(Kind::Count, 3, 6), [6.0, 0.0, 7.0, 0.0]);
    }

    proptest! {
        #[test]
        fn counts_of_the_seconds_kept_are_those_of_a_plain_list(
            steps in prop::collection::vec((0..40_u64, 1..9_u64), 1..200), back in 0..SECONDS_KEPT
        ) {
            let (mut series, mut plain) = (Series::default(), BTreeMap::<u64, u64>::new());
            let mut now = 0;
            for (seconds, times) in steps {
                now += seconds;
                series.record(now, times as f64, times);
                *plain.entry(now).or_default() += times;
            }
            let first = now.saturating_sub(back);
            prop_assert_eq!(series.count(first, now), plain.range(first..=now).map(|(_, times)| times).sum::<u64>());
            prop_assert_eq!(series.times, plain.values().sum::<u64>());
        }
    }
}
