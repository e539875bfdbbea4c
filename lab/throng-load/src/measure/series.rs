use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::recorder::SecondSlice;
use super::{Counters, Latencies, latencies};

/// A second of a run, of all workers together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the start of the run.
    pub second: u64,
    /// The counts of the requests that ended in it.
    pub counters: Counters,
    /// The open connections at its end.
    pub connections: u64,
    /// The median of the response time, in nanoseconds; 0 if nothing ended.
    pub p50_nanos: u64,
    /// The 90th percentile of the response time, in nanoseconds.
    pub p90_nanos: u64,
    /// The 99th percentile of the response time, in nanoseconds.
    pub p99_nanos: u64,
    /// The 99.9th percentile of the response time, in nanoseconds.
    pub p999_nanos: u64,
    /// The slowest response, in nanoseconds.
    pub max_nanos: u64,
}

/// A request among the slowest of its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlier {
    /// The time of its end, since the start of the run.
    pub at_nanos: u64,
    /// Its response time, in nanoseconds.
    pub latency_nanos: u64,
    /// The number of its class of requests in the plan.
    pub class: u16,
    /// Its status, or 0 without an answer.
    pub status: u16,
}

/// The seconds of a run, put together from the workers' parts.
#[derive(Debug, Default)]
pub struct Series {
    /// Finished seconds, without gaps.
    pub seconds: Vec<Second>,
    /// The slowest requests, in order of time.
    pub outliers: Vec<Outlier>,
    open: BTreeMap<u64, Part>,
}

#[derive(Debug)]
struct Part {
    counters: Counters,
    connections: u64,
    response: Latencies,
}

impl Series {
    /// Adds one worker's part of a second.
    pub(crate) fn add(&mut self, slice: &SecondSlice) {
        let part = self.open.entry(slice.second).or_insert_with(|| Part {
            counters: Counters::default(),
            connections: 0,
            response: latencies(),
        });
        part.counters.add(&slice.counts.counters());
        part.connections += slice.connections;
        part.response
            .add(&slice.response)
            .expect("all our histograms have one shape");
        self.outliers.extend_from_slice(&slice.outliers);
    }

    /// Finishes all seconds before `second`. Every worker must have handed over its parts of them.
    pub(crate) fn finish_before(&mut self, second: u64) {
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() >= second {
                break;
            }
            let (second, part) = entry.remove_entry();
            while (self.seconds.len() as u64) < second {
                let connections = self.seconds.last().map_or(0, |last| last.connections);
                self.seconds.push(Second {
                    second: self.seconds.len() as u64,
                    connections,
                    ..Second::default()
                });
            }
            let response = &part.response;
            self.seconds.push(Second {
                second,
                connections: part.connections,
                p50_nanos: response.value_at_quantile(0.5),
                p90_nanos: response.value_at_quantile(0.9),
                p99_nanos: response.value_at_quantile(0.99),
                p999_nanos: response.value_at_quantile(0.999),
                max_nanos: response.max(),
                counters: part.counters,
            });
        }
    }
}
