use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ErrorKind;

/// The counts of a run, a class or a second. Attempts = successes + failures + retried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests that succeeded.
    pub successes: u64,
    /// Requests that failed for good.
    pub failures: u64,
    /// Attempts that were followed by another one of the same request.
    pub retried: u64,
    /// Bytes of requests.
    pub bytes_out: u64,
    /// Bytes of answers, including their heads.
    pub bytes_in: u64,
    /// Failed attempts, by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

impl Counters {
    /// Returns the number of all attempts.
    pub fn attempts(&self) -> u64 {
        self.successes + self.failures + self.retried
    }

    /// Returns the failures as a share of the requests that ended, 0 to 1.
    pub fn failure_share(&self) -> f64 {
        let ended = self.successes + self.failures;
        if ended == 0 {
            0.0
        } else {
            self.failures as f64 / ended as f64
        }
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Counters) {
        self.successes += other.successes;
        self.failures += other.failures;
        self.retried += other.retried;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        for (&kind, &count) in &other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        for (&status, &count) in &other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}
