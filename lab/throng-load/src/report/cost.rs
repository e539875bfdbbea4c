use serde::{Deserialize, Serialize};

/// The resources that a target's process spent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time, user and system, in nanoseconds.
    pub cpu_nanos_per_request: f64,
    /// Resident memory at the most, in bytes.
    pub memory_bytes: u64,
}
