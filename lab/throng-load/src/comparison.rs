//! Two runs side by side: their differences, and whether these are clear of the noise. It only computes.

use serde::{Deserialize, Serialize};

use crate::Report;
use crate::report::Summary;

/// The repetitions that are needed for a statement about a difference.
pub const REPETITIONS_MIN: usize = 3;

/// The comparable figures of a repetition (a round, or a second of a run).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Successes a second.
    pub throughput: f64,
    /// The mean latency, or the median for a second of a run, in nanoseconds.
    pub middle_nanos: f64,
    /// 99th percentile, in nanoseconds.
    pub p99_nanos: f64,
    /// The CPU time of the target's process for a request, in nanoseconds, if it is known.
    #[serde(default)]
    pub cpu_nanos: Option<f64>,
}

/// The difference of one figure between A and B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The name of the figure in reports.
    pub name: String,
    /// Geometric mean over A's repetitions.
    pub a: f64,
    /// Geometric mean over B's repetitions.
    pub b: f64,
    /// A divided by B.
    pub ratio: f64,
    /// The lower end of the 95 % confidence interval of the ratio.
    pub low: f64,
    /// The upper end of this interval.
    pub high: f64,
    /// The number of repetitions, on the side that has fewer.
    pub repetitions: usize,
    /// True if the difference is clear of the noise: there are enough repetitions, and the interval does not contain 1.
    pub clear: bool,
    /// True if less is better.
    pub less_is_better: bool,
}

impl Repetition {
    /// Returns a whole run as one repetition.
    pub fn of_run(report: &Report) -> Self {
        let summary = Summary::of(&report.response);
        Repetition {
            throughput: report.throughput(),
            middle_nanos: summary.mean,
            p99_nanos: summary.p99 as f64,
            cpu_nanos: None,
        }
    }

    /// Returns the seconds of a run as repetitions, without the first and the last, which are incomplete.
    pub fn of_seconds(report: &Report) -> Vec<Self> {
        let whole = report.seconds.len().saturating_sub(1);
        let seconds = report.seconds.iter().take(whole).skip(1);
        seconds
            .map(|second| Repetition {
                throughput: second.counters.successes as f64,
                middle_nanos: second.p50_nanos as f64,
                p99_nanos: second.p99_nanos as f64,
                cpu_nanos: None,
            })
            .collect()
    }
}

/// Returns the differences between two sets of repetitions. `paired` means that the n-th repetitions of A and of B ran under the same conditions, so
/// that common effects cancel.
pub fn differences(a: &[Repetition], b: &[Repetition], paired: bool) -> Vec<Difference> {
    let one = |name, figure: fn(&Repetition) -> f64, less_is_better| {
        let a: Vec<f64> = a.iter().map(figure).collect();
        let b: Vec<f64> = b.iter().map(figure).collect();
        difference(name, &a, &b, paired, less_is_better)
    };
    let mut found = vec![
        one("throughput", |one| one.throughput, false),
        one("middle latency", |one| one.middle_nanos, true),
        one("p99 latency", |one| one.p99_nanos, true),
    ];
    if a.iter().chain(b).all(|one| one.cpu_nanos.is_some()) {
        found.push(one("CPU a request", |one| one.cpu_nanos.unwrap_or_default(), true));
    }
    found
}

fn difference(name: &str, a: &[f64], b: &[f64], paired: bool, less_is_better: bool) -> Difference {
    // Ratios are compared, so logarithms are averaged.
    let logarithms = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.max(1e-9).ln()).collect() };
    let (log_a, log_b) = (logarithms(a), logarithms(b));
    let repetitions = a.len().min(b.len());
    let (centre, error, freedom) = if paired {
        let ratios: Vec<f64> = log_a.iter().zip(&log_b).map(|(a, b)| a - b).collect();
        let (mean, variance) = mean_and_variance(&ratios);
        (
            mean,
            (variance / ratios.len().max(1) as f64).sqrt(),
            ratios.len() as f64 - 1.0,
        )
    } else {
        let ((mean_a, variance_a), (mean_b, variance_b)) = (mean_and_variance(&log_a), mean_and_variance(&log_b));
        let (part_a, part_b) = (variance_a / a.len().max(1) as f64, variance_b / b.len().max(1) as f64);
        // Welch–Satterthwaite: degrees of freedom of two samples of unequal variance
        let below = part_a.powi(2) / (a.len() as f64 - 1.0).max(1.0) + part_b.powi(2) / (b.len() as f64 - 1.0).max(1.0);
        let freedom = if below > 0.0 {
            (part_a + part_b).powi(2) / below
        } else {
            repetitions as f64 - 1.0
        };
        (mean_a - mean_b, (part_a + part_b).sqrt(), freedom)
    };
    let reach = if repetitions >= 2 {
        student_95(freedom) * error
    } else {
        f64::INFINITY
    };
    let (low, high) = ((centre - reach).exp(), (centre + reach).exp());
    Difference {
        name: name.to_string(),
        a: mean_and_variance(&log_a).0.exp(),
        b: mean_and_variance(&log_b).0.exp(),
        ratio: centre.exp(),
        low,
        high: high.min(1e9),
        repetitions,
        clear: repetitions >= REPETITIONS_MIN && (low > 1.0 || high < 1.0),
        less_is_better,
    }
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (values.len() as f64 - 1.0).max(1.0))
}

/// Returns the two-sided 95 % quantile of Student's t distribution.
fn student_95(freedom: f64) -> f64 {
    const TABLE: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let freedom = freedom.max(1.0);
    match TABLE.get(freedom.floor() as usize - 1) {
        Some(value) => *value,
        // This asymptotic expansion is within 0.2 % from 10 degrees on.
        None => 1.96 + 2.4 / freedom + 2.8 / freedom.powi(2),
    }
}

impl Difference {
    /// Returns a sentence that never names a winner inside the noise.
    pub fn sentence(&self, a: &str, b: &str) -> String {
        let interval = format!(
            "95 %: {:.2} to {:.2}, {} repetitions",
            self.low, self.high, self.repetitions
        );
        if self.repetitions < REPETITIONS_MIN {
            return format!(
                "{}: {a} / {b} = {:.2}; too few repetitions to tell it from noise",
                self.name, self.ratio
            );
        }
        if !self.clear {
            return format!(
                "{}: no difference outside the noise ({a} / {b} = {:.2}; {interval})",
                self.name, self.ratio
            );
        }
        let (winner, loser, factor) = match (self.ratio > 1.0) ^ self.less_is_better {
            true => (a, b, self.ratio.max(1.0 / self.ratio)),
            false => (b, a, self.ratio.max(1.0 / self.ratio)),
        };
        format!(
            "{}: {winner} is {factor:.2} times better than {loser} ({a} / {b} = {:.2}; {interval})",
            self.name, self.ratio
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repetitions(throughputs: &[f64]) -> Vec<Repetition> {
        throughputs
            .iter()
            .map(|&throughput| Repetition {
                throughput,
                middle_nanos: 1e6,
                p99_nanos: 2e6,
                cpu_nanos: None,
            })
            .collect()
    }

    #[test]
    fn a_clear_difference_is_stated_with_its_spread() {
        let found = &differences(
            &repetitions(&[200.0, 210.0, 190.0, 205.0]),
            &repetitions(&[100.0, 101.0, 99.0, 100.0]),
            true,
        )[0];
        assert!(found.clear && found.low > 1.8 && found.high < 2.2, "{found:?}");
        assert!(
            found
                .sentence("new", "old")
                .contains("new is 2.01 times better than old")
        );
    }

    #[test]
    fn noise_has_no_winner() {
        let (a, b) = (
            repetitions(&[100.0, 140.0, 90.0, 120.0]),
            repetitions(&[110.0, 95.0, 130.0, 100.0]),
        );
        for paired in [true, false] {
            let found = &differences(&a, &b, paired)[0];
            assert!(!found.clear, "{found:?}");
            assert!(found.sentence("a", "b").contains("no difference outside the noise"));
        }
    }

    #[test]
    fn a_single_round_says_nothing() {
        let found = &differences(&repetitions(&[200.0]), &repetitions(&[100.0]), true)[0];
        assert!(!found.clear);
        assert!(found.sentence("a", "b").contains("too few repetitions"));
    }

    #[test]
    fn the_servers_cpu_is_compared_where_both_are_known() {
        let costing = |nanos: f64| {
            let mut rounds = repetitions(&[100.0; 3]);
            rounds.iter_mut().for_each(|round| round.cpu_nanos = Some(nanos));
            rounds
        };
        let found = differences(&costing(1e3), &costing(4e3), true);
        assert!((found[3].ratio - 0.25).abs() < 1e-9, "{found:?}");
        assert!(
            found[3]
                .sentence("a", "b")
                .starts_with("CPU a request: a is 4.00 times better")
        );
        assert_eq!(differences(&costing(1e3), &repetitions(&[1.0; 3]), true).len(), 3);
    }

    #[test]
    fn less_latency_is_better() {
        let slow = vec![
            Repetition {
                throughput: 1.0,
                middle_nanos: 3e6,
                p99_nanos: 1.0,
                cpu_nanos: None,
            };
            4
        ];
        let fast = vec![
            Repetition {
                throughput: 1.0,
                middle_nanos: 1e6,
                p99_nanos: 1.0,
                cpu_nanos: None,
            };
            4
        ];
        assert!(
            differences(&slow, &fast, false)[1]
                .sentence("slow", "fast")
                .contains("fast is 3.00 times better than slow")
        );
    }
}
