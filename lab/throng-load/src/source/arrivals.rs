use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const NANOS_PER_SECOND: f64 = 1e9;

/// A time in which the arrival rate changes linearly from one value to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// The arrivals a second at its start.
    pub from_rate: f64,
    /// The arrivals a second at its end.
    pub to_rate: f64,
    /// The length of the stage, in seconds.
    pub seconds: f64,
}

impl Stage {
    /// Returns a stage with a constant rate.
    pub fn constant(rate: f64, seconds: f64) -> Self {
        Stage {
            from_rate: rate,
            to_rate: rate,
            seconds,
        }
    }

    /// Returns the expected arrivals of the whole stage.
    fn arrivals(&self) -> f64 {
        (self.from_rate + self.to_rate) / 2.0 * self.seconds
    }

    /// Returns the seconds after its start until this many `arrivals`: the inverse of the area under the line.
    fn seconds_until(&self, arrivals: f64) -> f64 {
        let slope = (self.to_rate - self.from_rate) / self.seconds;
        if slope.abs() < 1e-9 {
            return arrivals / self.from_rate;
        }
        // The solution of slope/2 t² + from t = arrivals, in the form that does not cancel for small slopes.
        let root = (self.from_rate * self.from_rate + 2.0 * slope * arrivals)
            .max(0.0)
            .sqrt();
        2.0 * arrivals / (self.from_rate + root)
    }
}

/// The start times of requests (or users), in nanoseconds since the start of the run, never decreasing.
///
/// Constant rates, ramps and steps are lists of [`Stage`]s. By default the arrivals are evenly spaced. [`Arrivals::poisson`] makes them independent
/// of each other with the same mean rate.
#[derive(Debug, Clone)]
pub struct Arrivals {
    stages: Vec<Stage>,
    begin_nanos: u64,
    stage: usize,
    stage_begin_seconds: f64,
    /// The expected arrivals since the beginning of the stage.
    within: f64,
    /// The expected arrivals between two arrivals of this share.
    stride: f64,
    poisson: Option<Box<SmallRng>>,
}

impl Arrivals {
    /// Returns evenly spaced arrivals over `stages`. The first is at the start.
    pub fn new(stages: Vec<Stage>) -> Self {
        let stages = stages
            .into_iter()
            .filter(|stage| stage.arrivals() > 0.0 && stage.seconds > 0.0)
            .collect();
        Arrivals {
            stages,
            begin_nanos: 0,
            stage: 0,
            stage_begin_seconds: 0.0,
            within: 0.0,
            stride: 1.0,
            poisson: None,
        }
    }

    /// Returns arrivals at a constant rate for some seconds.
    pub fn constant(rate: f64, seconds: f64) -> Self {
        Arrivals::new(vec![Stage::constant(rate, seconds)])
    }

    /// Returns arrivals with exponentially distributed gaps and the same mean rates.
    pub fn poisson(mut self, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        self.within = gap(&mut random) * self.stride;
        self.poisson = Some(Box::new(random));
        self
    }

    /// Delays all arrivals by this much.
    pub fn starting_at(mut self, begin_nanos: u64) -> Self {
        self.begin_nanos = begin_nanos;
        self
    }

    /// Returns the share of worker `part` of `parts`. All shares together have all arrivals.
    pub fn share(&self, part: usize, parts: usize) -> Self {
        let mut share = self.clone();
        share.stride = parts as f64;
        match &mut share.poisson {
            Some(random) => {
                **random =
                    SmallRng::seed_from_u64(random.random::<u64>() ^ (part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                share.within = gap(random) * share.stride;
            }
            None => share.within = part as f64,
        }
        share
    }

    /// Returns the length of all stages together, in seconds.
    pub fn seconds(&self) -> f64 {
        self.stages.iter().map(|stage| stage.seconds).sum()
    }

    /// Returns the number of expected arrivals.
    pub fn expected(&self) -> f64 {
        self.stages.iter().map(Stage::arrivals).sum()
    }
}

/// Returns a random number of the exponential distribution with mean 1.
fn gap(random: &mut SmallRng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let stage = loop {
            let stage = self.stages.get(self.stage)?;
            // The tolerance is a millionth of an arrival, so that rounding neither loses the last arrival of a stage nor adds one.
            if self.within < stage.arrivals() - 1e-6 {
                break *stage;
            }
            self.within -= stage.arrivals();
            self.within = if self.within.abs() < 1e-5 { 0.0 } else { self.within };
            self.stage_begin_seconds += stage.seconds;
            self.stage += 1;
        };
        let seconds = self.stage_begin_seconds + stage.seconds_until(self.within);
        self.within += match &mut self.poisson {
            Some(random) => gap(random) * self.stride,
            None => self.stride,
        };
        Some(self.begin_nanos + (seconds * NANOS_PER_SECOND) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_is_evenly_spaced_and_exact_in_number() {
        let times: Vec<u64> = Arrivals::constant(4.0, 2.0).collect();
        assert_eq!(
            times,
            [
                0,
                250_000_000,
                500_000_000,
                750_000_000,
                1_000_000_000,
                1_250_000_000,
                1_500_000_000,
                1_750_000_000
            ]
        );
    }

    #[test]
    fn shares_together_are_the_whole() {
        let stages = vec![
            Stage {
                from_rate: 1.0,
                to_rate: 50.0,
                seconds: 3.0,
            },
            Stage::constant(50.0, 2.0),
            Stage::constant(7.0, 1.0),
        ];
        let whole = Arrivals::new(stages);
        let mut shares: Vec<u64> = (0..3).flat_map(|part| whole.share(part, 3)).collect();
        shares.sort_unstable();
        let whole: Vec<u64> = whole.collect();
        assert_eq!(shares.len(), whole.len());
        for (one, other) in shares.iter().zip(&whole) {
            assert!(one.abs_diff(*other) < 1_000, "{one} {other}");
        }
    }

    #[test]
    fn a_ramp_has_the_area_under_its_line() {
        let times: Vec<u64> = Arrivals::new(vec![Stage {
            from_rate: 0.0,
            to_rate: 100.0,
            seconds: 10.0,
        }])
        .collect();
        assert_eq!(times.len(), 500);
        let first_half = times.iter().filter(|&&time| time < 5_000_000_000).count();
        assert_eq!(first_half, 125);
    }

    #[test]
    fn poisson_arrivals_keep_the_mean_rate_and_vary() {
        let times: Vec<u64> = Arrivals::constant(1000.0, 20.0).poisson(7).collect();
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (0.8..1.2).contains(&(variance.sqrt() / mean)),
            "an exponential's deviation is its mean"
        );
    }
}
