//! The measures of a run: histograms, counters, per-second series.

mod counters;
pub(crate) mod examples;
mod log;
pub(crate) mod recorder;
mod sample;
mod series;
mod usage;

pub use counters::Counters;
pub use examples::Examples;
pub(crate) use log::RequestLog;
pub(crate) use recorder::Recorder;
pub use sample::{Point, Sample};
pub use series::{Outlier, Second, Series};
pub use usage::GeneratorUsage;
pub(crate) use usage::ThreadUsage;

use hdrhistogram::Histogram;

/// A histogram of latencies in nanoseconds, to three significant digits, up to one hour.
pub type Latencies = Histogram<u64>;

const NANOS_MAX: u64 = 3_600_000_000_000;

/// Returns an empty histogram. All histograms have the same shape, so that merging is exact.
pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, NANOS_MAX, 3).expect("1 to one hour with 3 digits is a valid shape")
}

/// Records a time. More than one hour counts as one hour.
pub(crate) fn record(histogram: &mut Latencies, nanos: u64) {
    histogram.saturating_record(nanos);
}
