use serde::{Deserialize, Serialize};

/// The resources that a target's process used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The CPU time of a request, user and system, in nanoseconds.
    pub cpu_nanos_per_request: f64,
    /// The peak of resident memory, in bytes.
    pub memory_bytes: u64,
}
