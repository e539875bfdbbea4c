//! Numbers for people, as the load lab writes and reads them.

pub use throng_load::{cli::values::duration, report::units::count};

/// Nanoseconds as milliseconds.
pub fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
