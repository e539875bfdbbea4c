//! Numbers for people, as the load lab writes and reads them.

pub(crate) use throng_load::{cli::values::duration, report::units::count};

/// Nanoseconds as milliseconds.
pub(crate) fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
