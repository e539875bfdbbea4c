use serde::{Deserialize, Serialize};

/// The most requests that are kept.
const KEPT_MAX: usize = 1024;

/// The record of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The time of its end, since the start of the run.
    pub at_nanos: u64,
    /// Its response time.
    pub latency_nanos: u64,
    /// Its status, or 0 without an answer.
    pub status: u16,
}

/// Every n-th request of a run. The n is a power of two and grows, so that the number of kept requests is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The kept requests in order of time.
    pub points: Vec<Point>,
    /// The n: each kept request stands for this many.
    pub every: u64,
    #[serde(skip)]
    until_next: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Sample {
            points: Vec::new(),
            every: 1,
            until_next: 0,
        }
    }
}

impl Sample {
    pub(crate) fn add(&mut self, point: impl FnOnce() -> Point) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        if self.points.len() >= KEPT_MAX {
            self.halve();
        }
        self.points.push(point());
        self.until_next = self.every - 1;
    }

    /// Merges the samples of several workers. Afterwards each point stands for equally many requests, and their number is within the bound.
    pub(crate) fn merged(samples: impl IntoIterator<Item = Sample>) -> Sample {
        let mut samples: Vec<Sample> = samples.into_iter().collect();
        loop {
            let every = samples.iter().map(|sample| sample.every).max().unwrap_or(1);
            for sample in &mut samples {
                while sample.every < every {
                    sample.halve();
                }
            }
            if samples.iter().map(|sample| sample.points.len()).sum::<usize>() <= KEPT_MAX {
                let mut points: Vec<Point> = samples.into_iter().flat_map(|sample| sample.points).collect();
                points.sort_by_key(|point| point.at_nanos);
                return Sample {
                    points,
                    every,
                    until_next: 0,
                };
            }
            samples.iter_mut().for_each(Sample::halve);
        }
    }

    fn halve(&mut self) {
        let mut place = 0;
        self.points.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.every *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64) -> Sample {
        let mut sample = Sample::default();
        for at_nanos in 0..requests {
            sample.add(|| Point {
                at_nanos,
                latency_nanos: 1,
                status: 200,
            });
        }
        sample
    }

    #[test]
    fn kept_samples_are_bounded_and_evenly_spread() {
        for requests in [0, 1, 1_000, 1_025, 100_000] {
            let sample = sample(requests);
            assert!(sample.points.len() <= KEPT_MAX);
            assert!(requests <= 1024 || sample.points.len() >= KEPT_MAX / 2);
            for (place, point) in sample.points.iter().enumerate() {
                assert_eq!(point.at_nanos, place as u64 * sample.every, "{requests} requests");
            }
        }
    }

    #[test]
    fn samples_of_several_workers_are_made_alike() {
        let merged = Sample::merged([sample(100_000), sample(3_000), sample(10)]);
        assert!(merged.points.len() <= KEPT_MAX && merged.points.is_sorted_by_key(|point| point.at_nanos));
        let stands_for = merged.points.len() as u64 * merged.every;
        assert!(
            (103_010..=103_010 + 3 * merged.every).contains(&stands_for),
            "{stands_for}"
        );
        assert_eq!(Sample::merged([]), Sample::default());
    }
}
