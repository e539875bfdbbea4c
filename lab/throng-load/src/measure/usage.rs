use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The cost and the scheduling of the generator, which show if the generator was the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUsage {
    /// CPU time of the workers, in nanoseconds.
    pub cpu_nanos: u64,
    /// The time in which the workers were ready to run but waited for a core, in nanoseconds (Linux schedstat).
    pub run_delay_nanos: u64,
    /// The threads that send requests.
    pub threads: u64,
    /// The CPU share of the busiest worker over the run, 0 to 1.
    pub busiest_share: f64,
}

/// The CPU time and the run delay of the calling thread so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadUsage {
    pub(crate) cpu_nanos: u64,
    pub(crate) run_delay_nanos: u64,
}

impl ThreadUsage {
    pub(crate) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let run_delay_nanos = std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        ThreadUsage {
            cpu_nanos: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            run_delay_nanos,
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        ThreadUsage {
            cpu_nanos: self.cpu_nanos.saturating_sub(earlier.cpu_nanos),
            run_delay_nanos: self.run_delay_nanos.saturating_sub(earlier.run_delay_nanos),
        }
    }
}
