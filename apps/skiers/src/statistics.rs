//! Response times of the service, by URL and operation.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// An endpoint that is measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    PostRide,
    GetSkierDay,
    GetSkierDayLifts,
    GetSkierSeason,
    GetSkierVertical,
    GetResorts,
    GetSeasons,
    PostSeason,
    GetDaySkiers,
    GetDayLifts,
    GetDayHours,
}

/// The operation and URL of each endpoint, in the order of the enum.
const ENDPOINTS: [(&str, &str); 11] = [
    (
        "POST",
        "/skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}",
    ),
    (
        "GET",
        "/skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}",
    ),
    (
        "GET",
        "/skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}/lifts",
    ),
    ("GET", "/skiers/{resortID}/seasons/{seasonID}/skiers/{skierID}"),
    ("GET", "/skiers/{skierID}/vertical"),
    ("GET", "/resorts"),
    ("GET", "/resorts/{resortID}/seasons"),
    ("POST", "/resorts/{resortID}/seasons"),
    ("GET", "/resorts/{resortID}/seasons/{seasonID}/day/{dayID}/skiers"),
    ("GET", "/resorts/{resortID}/seasons/{seasonID}/day/{dayID}/lifts"),
    ("GET", "/resorts/{resortID}/seasons/{seasonID}/day/{dayID}/hours"),
];

/// The longest measurable time. No request may take as long.
const MICROS_MAX: u64 = 600_000_000;
const DIGITS: u8 = 2;

/// Histograms of all response times since the start.
#[derive(Debug)]
pub(crate) struct Statistics {
    endpoints: [Mutex<Histogram<u64>>; ENDPOINTS.len()],
}

/// The answer to `GET /statistics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiStatistics {
    /// The endpoints that were used.
    pub(crate) endpoint_stats: Vec<EndpointStatistics>,
}

/// The response times of an endpoint since the service started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EndpointStatistics {
    /// The path, with variable parts in braces.
    #[serde(rename = "URL")]
    pub(crate) url: String,
    /// `GET` or `POST`.
    pub(crate) operation: String,
    /// The mean in milliseconds, rounded.
    pub(crate) mean: u64,
    /// The maximum in milliseconds, rounded.
    pub(crate) max: u64,
}

impl Default for Statistics {
    fn default() -> Self {
        let of_nothing = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("the bounds are 1 and more than 2");
        Self {
            endpoints: std::array::from_fn(|_| Mutex::new(of_nothing.clone())),
        }
    }
}

impl Statistics {
    /// Records the response time of an answer.
    pub(crate) fn record(&self, endpoint: Endpoint, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let histogram = &self.endpoints[endpoint as usize];
        let mut histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record(micros);
    }

    pub(crate) fn read(&self) -> ApiStatistics {
        let rows = ENDPOINTS.iter().zip(&self.endpoints);
        let rows = rows.filter_map(|((operation, url), histogram)| {
            let histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
            (!histogram.is_empty()).then(|| EndpointStatistics {
                url: (*url).into(),
                operation: (*operation).into(),
                mean: (histogram.mean() / 1_000.0).round() as u64,
                max: (histogram.max() as f64 / 1_000.0).round() as u64,
            })
        });
        ApiStatistics {
            endpoint_stats: rows.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_operations_are_listed_with_mean_and_maximum() {
        let statistics = Statistics::default();
        assert_eq!(statistics.read().endpoint_stats, []);
        for millis in [2, 4, 6] {
            statistics.record(Endpoint::GetDayHours, Duration::from_millis(millis));
        }
        statistics.record(Endpoint::PostRide, Duration::from_secs(100_000));
        let [ride, hours] = <[_; 2]>::try_from(statistics.read().endpoint_stats).unwrap();
        assert_eq!((ride.operation.as_str(), ride.url.as_str()), ENDPOINTS[0]);
        assert!(ride.max >= 600_000, "{ride:?}");
        assert_eq!((hours.operation.as_str(), hours.url.as_str()), ENDPOINTS[10]);
        assert_eq!((hours.mean, hours.max), (4, 6));
    }
}
