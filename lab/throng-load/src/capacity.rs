//! The search for the highest rate that keeps a promise. It only chooses the next rate; the caller runs the load.

use serde::{Deserialize, Serialize};

use crate::Report;
use crate::report::{Summary, units};

/// The promise that a rate must keep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The limit of the response time at p99, in nanoseconds.
    pub p99_nanos: u64,
    /// The limit of the share of failed requests, 0 to 1.
    pub failure_share: f64,
}

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The rate, or the other variable that is searched.
    pub rate: f64,
    /// Successes a second.
    pub throughput: f64,
    /// Response times at this rate.
    pub response: Summary,
    /// Share of failed requests.
    pub failure_share: f64,
    /// Requests that were due and were never sent.
    pub unsent: u64,
    /// The CPU of the target's processes in percent of one core, if they are known.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// The reason why the promise was not kept; `None` if it was.
    pub broken: Option<String>,
}

impl Trial {
    /// Judges a run at `rate`.
    pub fn judge(rate: f64, report: &Report, promise: &Promise) -> Self {
        let response = Summary::of(&report.response);
        let failure_share = report.counters.failure_share();
        let broken = if report.counters.attempts() == 0 {
            Some("nothing was sent".to_string())
        } else if failure_share > promise.failure_share {
            Some(format!("{:.2} % failed", failure_share * 100.0))
        } else if report.unsent > 0 {
            Some(format!("{} never sent", units::requests(report.unsent)))
        } else if response.p99 > promise.p99_nanos {
            Some(format!("p99 {}", crate::report::nanos(response.p99)))
        } else {
            None
        };
        Trial {
            rate,
            throughput: report.throughput(),
            response,
            failure_share,
            unsent: report.unsent,
            cpu_percent: None,
            broken,
        }
    }
}

/// The choice of rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Search {
    /// Doubles the rate from `from` until a trial fails (or `to`). Then it halves the gap until it is within `precision` of the rate.
    Bisect {
        /// The first rate that is tried, in requests a second.
        from: f64,
        /// The upper limit of rates, in requests a second.
        to: f64,
        /// The relative gap at which the search ends.
        precision: f64,
    },
    /// Increases the rate from `from` by `step` until a trial fails (or `to`).
    Steps {
        /// The first rate that is tried, in requests a second.
        from: f64,
        /// The upper limit of rates, in requests a second.
        to: f64,
        /// The difference between two rates.
        step: f64,
    },
}

/// The most trials of one search.
pub const TRIALS_MAX: usize = 40;

impl Search {
    /// Returns the next rate, given all trials so far, or `None` at the end.
    pub fn next(&self, trials: &[Trial]) -> Option<f64> {
        if trials.len() >= TRIALS_MAX {
            return None;
        }
        let best = best(trials).map(|trial| trial.rate);
        let worst = trials
            .iter()
            .filter(|trial| trial.broken.is_some())
            .map(|trial| trial.rate)
            .reduce(f64::min);
        match *self {
            Search::Steps { from, to, step } => match (best, worst) {
                (None, None) => Some(from),
                (Some(best), None) if best + step <= to * 1.000_001 => Some(best + step),
                _ => None,
            },
            Search::Bisect { from, to, precision } => match (best, worst) {
                (None, None) => Some(from.min(to)),
                (Some(best), None) if best < to => Some((best * 2.0).min(to)),
                (Some(_), None) => None,
                (best, Some(worst)) => {
                    let low = best.unwrap_or(0.0);
                    let floor = if best.is_none() { from / 64.0 } else { low * precision };
                    let gap = worst - low;
                    (gap > floor.max(worst * precision * 0.5)).then_some(low + gap / 2.0)
                }
            },
        }
    }
}

/// Returns the trial with the highest rate that kept the promise, among those below the first that broke it.
pub fn best(trials: &[Trial]) -> Option<&Trial> {
    let broken = trials
        .iter()
        .filter(|trial| trial.broken.is_some())
        .map(|trial| trial.rate)
        .fold(f64::INFINITY, f64::min);
    let kept = trials
        .iter()
        .filter(|trial| trial.broken.is_none() && trial.rate < broken);
    kept.max_by(|one, other| one.rate.total_cmp(&other.rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(search: Search, limit: f64) -> (Vec<f64>, Option<f64>) {
        let mut trials = Vec::new();
        while let Some(rate) = search.next(&trials) {
            let broken = (rate > limit).then(|| "p99".to_string());
            let response = Summary::default();
            trials.push(Trial {
                rate,
                throughput: rate,
                response,
                failure_share: 0.0,
                unsent: 0,
                cpu_percent: None,
                broken,
            });
        }
        let best = best(&trials).map(|trial| trial.rate);
        (trials.into_iter().map(|trial| trial.rate).collect(), best)
    }

    #[test]
    fn bisection_closes_in_on_the_limit() {
        for limit in [130.0, 999.0, 1_000.0, 54_321.0] {
            let (tried, best) = search(
                Search::Bisect {
                    from: 100.0,
                    to: 1e6,
                    precision: 0.05,
                },
                limit,
            );
            let best = best.unwrap();
            assert!(best <= limit && best > limit * 0.94, "{limit}: {best} after {tried:?}");
            assert!(tried.len() < 20, "{tried:?}");
        }
    }

    #[test]
    fn bisection_goes_below_its_start_and_gives_up_at_nothing() {
        assert!(
            search(
                Search::Bisect {
                    from: 100.0,
                    to: 1e6,
                    precision: 0.05
                },
                30.0
            )
            .1
            .unwrap()
                > 27.0
        );
        let (tried, best) = search(
            Search::Bisect {
                from: 100.0,
                to: 1e6,
                precision: 0.05,
            },
            0.0,
        );
        assert!(best.is_none() && tried.len() < 10, "{tried:?}");
    }

    #[test]
    fn bisection_stops_at_its_end() {
        assert_eq!(
            search(
                Search::Bisect {
                    from: 100.0,
                    to: 350.0,
                    precision: 0.05
                },
                1e9
            )
            .0,
            [100.0, 200.0, 350.0]
        );
    }

    #[test]
    fn steps_end_with_the_first_broken_promise() {
        let (tried, best) = search(
            Search::Steps {
                from: 20.0,
                to: 100.0,
                step: 10.0,
            },
            45.0,
        );
        assert_eq!(tried, [20.0, 30.0, 40.0, 50.0]);
        assert_eq!(best, Some(40.0));
        assert_eq!(
            search(
                Search::Steps {
                    from: 20.0,
                    to: 40.0,
                    step: 10.0
                },
                1e9
            )
            .0,
            [20.0, 30.0, 40.0]
        );
    }
}
